"""`prolip index` and `prolip search`: retrieval from embeddings."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from prolip.cli.common import replace_nonfinite


def index(
    embeddings: Annotated[Positional[tuple[str, ...]], arg(metavar="EMBEDDINGS")],
    out: str,
    kind: Literal["auto", "none", "ivf-sq", "ivf-rq", "ivf-pq"] = "auto",
    recall: float = 0.95,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Put embeddings into a database that ranks by CSD, or add to an existing one. An interrupted run can be continued.

    Example: prolip index embeddings --out database

    Concurrent searches see the database as it was when they opened it.

    Args:
        embeddings: Folders or addresses in an object store that `prolip embed` wrote, all of one model.
        out: Folder, or address in an object store (s3://, gs://, az://).
        kind: Kind of the approximate index. auto: the existing one; else none below 100,000 rows, and ivf-rq above, or
            ivf-sq if that misses the recall.
        recall: Recall@10 that approximate searches must reach. If no index reaches it, searches are exact.
        as_json: Print JSON instead of text.
    """
    from prolip.checks import require_fraction
    from prolip.embeddings.dataset import EmbeddingDataset
    from prolip.retrieval.index.append import index_embeddings
    from prolip.retrieval.index.build import build_index

    require_fraction(recall, "recall", exclude_zero=True)
    database = index_embeddings(out, [EmbeddingDataset.open(path) for path in embeddings])
    settings = build_index(database, kind, recall=recall)
    if as_json:
        # without the quantiles of the uncertainties, a long list that only searches need
        printed_settings = {key: value for key, value in asdict(settings).items() if key != "quantiles"}
        print(json.dumps({"database": out, "rows": database.count_rows(), **printed_settings}, indent=2))
    else:
        print(f"{out}: {database.count_rows():,} rows. {settings.describe()}")


def search(
    database: Annotated[Positional[str], arg(metavar="DB")],
    text: Annotated[Positional[str | None], arg(metavar="TEXT")] = None,
    image: Path | None = None,
    k: Annotated[int, arg(aliases=["-k"])] = 20,
    rank_by: Literal["csd", "cosine", "match"] = "csd",
    where: str | None = None,
    modality: Literal["image", "text"] | None = None,
    max_uncertainty: float | None = None,
    rerank: Literal["inclusion", "containment"] | None = None,
    only_included: bool = False,
    candidates: int | None = None,
    exact: bool = False,
    model: str | None = None,
    sheet: Path | None = None,
    device: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Search a database with a text or an image, and report the confidence of the result.

    Example: prolip search database "a red circle" -k 20 --where "uncertainty < 0.4" --sheet found.png

    Args:
        database: Folder or address of the database that `prolip index` wrote.
        text: Query text; or --image.
        image: Query image.
        k: Number of results.
        rank_by: csd: closed-form sampled distance. cosine: of the means. match: ranked by CSD, as match probabilities.
        where: SQL condition on the columns of the database, such as "uncertainty < 0.4 AND caption LIKE '%star%'".
        modality: Modality of the results. None: images if there are any, else texts.
        max_uncertainty: Quantile: 0.9 excludes the most uncertain tenth.
        rerank: Sort the nearest items by how much the query includes them.
        only_included: Show only items that the query includes more than the empty caption does.
        candidates: Number of nearest items to rerank. None: ten per result, at least 200.
        exact: Compare with every item, even if there is an index.
        model: Path of the model. None: the path at which it was when the items were embedded.
        sheet: File for a sheet of the images (.png, and .svg next to it).
        device: cpu, cuda, ... None: a GPU if there is one.
        as_json: Print JSON instead of a table.
    """
    from prolip.retrieval.config import SearchConfig
    from prolip.retrieval.index.database import Database
    from prolip.retrieval.response import load_database_model, search_with_confidence, show

    if sheet is not None and sheet.suffix not in ("", ".png", ".svg"):
        raise ValueError(f"--sheet {sheet}: the file name must end in .png or .svg")
    if (text is None) == (image is None):
        raise ValueError(
            'pass either a text or an image: prolip search DB "a red circle", or prolip search DB --image FILE'
        )
    config = SearchConfig(
        k=k, rank_by=rank_by, where=where, modality=modality, max_uncertainty=max_uncertainty, rerank=rerank,
        candidates=candidates, exact=exact,
    )  # fmt: skip
    opened_database = Database.open(database)
    encoder = load_database_model(opened_database, model, device)
    query = encoder.embed_texts(text) if text is not None else encoder.embed_images(str(image))
    response = search_with_confidence(
        opened_database, str(image) if text is None else text, query, "image" if text is None else "text", config,
        null=encoder.embed_texts("") if only_included else None,
    )  # fmt: skip
    if as_json:
        print(json.dumps(replace_nonfinite(response.to_dict()), indent=2, allow_nan=False))
    else:
        show(response)
    if sheet is not None:
        from prolip.reports import hits

        written = hits.save_hits_sheet(sheet.expanduser(), opened_database, response)
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
