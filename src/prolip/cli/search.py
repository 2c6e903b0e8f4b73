"""`prolip index` and `prolip search`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from prolip.cli.common import plain


def index(
    embeddings: Annotated[Positional[tuple[str, ...]], arg(metavar="EMBEDDINGS")],
    out: str,
    kind: Literal["auto", "none", "ivf-sq", "ivf-rq", "ivf-pq"] = "auto",
    recall: float = 0.95,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Put embeddings into a database that ranks by CSD; add to it if it is there, and go on where a run was stopped.

    Example: prolip index embeddings --out database

    Those who search meanwhile see the database as it was when they opened it.

    Args:
        embeddings: Folders, or addresses in an object store, that `prolip embed` wrote, all of one model.
        out: A folder, or an address in an object store (s3://, gs://, az://).
        kind: Of the approximate index. auto: the one that is there; else none below 100,000 rows, and from there on
            ivf-rq, or ivf-sq if that misses the recall.
        recall: Recall@10 that approximate searches must reach; where they can't, searches are exact.
        as_json: Print JSON instead of text.
    """
    from prolip.embeddings.dataset import Embeddings
    from prolip.retrieval.index.append import fill
    from prolip.retrieval.index.build import build
    from prolip.retrieval.index.tune import require_share

    require_share(recall)
    database = fill(out, [Embeddings.open(place) for place in embeddings])
    settings = build(database, kind, recall=recall)
    told = {key: value for key, value in asdict(settings).items() if key != "quantiles"}
    if as_json:
        print(json.dumps({"database": out, "rows": database.count(), **told}, indent=2))
    else:
        print(f"{out}: {database.count():,} rows. {settings.told()}")


def search(
    database: Annotated[Positional[str], arg(metavar="DB")],
    text: Annotated[Positional[str | None], arg(metavar="TEXT")] = None,
    image: Path | None = None,
    k: Annotated[int, arg(aliases=["-k"])] = 20,
    by: Literal["csd", "cosine", "match"] = "csd",
    where: str | None = None,
    modality: Literal["image", "text"] | None = None,
    max_uncertainty: float | None = None,
    rerank: Literal["inclusion", "containment"] | None = None,
    included: bool = False,
    candidates: int | None = None,
    exact: bool = False,
    model: str | None = None,
    sheet: Path | None = None,
    device: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Search a database with a text or a picture, and say how sure the search is.

    Example: prolip search database "a red circle" -k 20 --where "uncertainty < 0.4" --sheet found.png

    Args:
        database: What `prolip index` wrote.
        text: What to look for; or --image.
        image: A picture to look for.
        k: Results.
        by: csd: the closed-form sampled distance. cosine: of the means. match: csd's order, as probabilities.
        where: SQL on the columns of the database, such as "uncertainty < 0.4 AND caption LIKE '%star%'".
        modality: What to look for. None: images if there are any, else texts.
        max_uncertainty: 0.9 leaves out the most uncertain tenth.
        rerank: Sort the nearest by how much the query includes them.
        included: Of the nearest only those that the query includes: more than the empty caption does, which includes
            everything a little.
        candidates: How many of the nearest are sorted again. None: ten for each result, at least 200.
        exact: Compare with every item, though there is an index.
        model: Where the model is now. None: where it was when the items were embedded.
        sheet: A file for a sheet of the pictures (.png, and .svg beside it).
        device: cpu, cuda, ... None: a GPU if there is one.
        as_json: Print JSON instead of a table.
    """
    from prolip.retrieval.index.database import Database
    from prolip.retrieval.response import ask, model_of, show

    if sheet is not None and sheet.suffix not in ("", ".png", ".svg"):
        raise ValueError(f"{sheet}: a sheet is written as .png and .svg")
    if (text is None) == (image is None):
        raise ValueError(
            'say a text or a picture: prolip search DB "a red circle", or prolip search DB --image FILE'
        )
    opened = Database.open(database)
    encoder = model_of(opened, model, device)
    query = encoder.embed_texts(text) if text is not None else encoder.embed_images(str(image))
    answer = ask(
        opened, str(image) if text is None else text, query, "image" if text is None else "text", k, by=by, where=where,
        modality=modality, max_uncertainty=max_uncertainty, rerank=rerank, candidates=candidates,
        included=encoder.embed_texts("") if included else None, exact=exact,
    )  # fmt: skip
    if as_json:
        print(json.dumps(plain(answer.as_dict()), indent=2, allow_nan=False))
    else:
        show(answer)
    if sheet is not None:
        from prolip.reports import hits

        written = hits.save(sheet.expanduser(), opened, answer)
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
