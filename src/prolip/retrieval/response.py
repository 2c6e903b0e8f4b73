"""The search for people: a text or a picture in, a table and how sure it is out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from prolip.checks import require_count
from prolip.embeddings.dataset import Modality
from prolip.embeddings.identity import model_identity
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.retrieval.confidence import LOOKED, Sureness, sureness
from prolip.retrieval.hits import Hits
from prolip.retrieval.index.database import Database
from prolip.retrieval.query import MOST, By, Rerank, search
from prolip.weights.load import load


@dataclass(frozen=True)
class Answer:
    """query: as it was asked. asked: what it is, a text or a picture. sought: what was looked for."""

    query: str
    asked: Modality
    sought: Modality
    hits: Hits
    sureness: Sureness

    def as_dict(self) -> dict[str, Any]:
        """Of kinds that JSON knows."""
        return {
            "query": self.query,
            "asked": self.asked,
            "sought": self.sought,
            "method": self.hits.method,
            "sureness": asdict(self.sureness) | {"told": self.sureness.lines()},
            "hits": [
                {name: value for name, value in row.items() if name != "match" or self.asked != self.sought}
                for row in self.hits.rows()
            ],
        }


def model_of(database: Database, name: str | None = None, device: str | None = None) -> ProLIP:
    """The model that the items were embedded with. name: where it is now, if not where it was."""
    header = database.header
    try:
        model = load(name or header.model, device=device).eval()
    except (OSError, ValueError) as error:
        if name is not None:
            raise
        raise ValueError(
            f"the model of {database.uri} can't be loaded ({error}): say with --model where it is"
        ) from None
    if (own := model_identity(model)) != header.identity:
        raise ValueError(
            f"{name or header.model} ({own}) is not the model that embedded {database.uri} ({header.model}, "
            f"{header.identity}): say with --model where that is"
        )
    return model


def ask(
    database: Database,
    name: str,
    query: Gaussian,
    asked: Modality,
    k: int = 20,
    *,
    by: By = "csd",
    where: str | None = None,
    modality: Modality | None = None,
    max_uncertainty: float | None = None,
    rerank: Rerank | None = None,
    included: Gaussian | None = None,
    candidates: int | None = None,
    exact: bool = False,
) -> Answer:
    """Search for one query (1, D), and say how sure the search is.

    name: of the query, for people. asked: what it is. modality: what is looked for; None: images if there are any, else
    texts. The rest: as for `search`.
    """
    require_count(k, "k", most=MOST)
    if query.mean.ndim != 2 or len(query) != 1:
        raise ValueError(f"one query at a time, (1, D), not {tuple(query.shape)}")
    sought = modality or _usual(database)
    if by == "match" and asked == sought:
        raise ValueError(
            f"a match probability is of a picture and a text, and here both are {asked}s: search by csd or cosine"
        )
    find = partial(
        search, database, query, where=where, modality=sought, max_uncertainty=max_uncertainty, exact=exact
    )
    (near,) = find(max(k, LOOKED), by="csd" if by == "cosine" else by)
    if by == "cosine" or rerank is not None or included is not None or candidates is not None:
        (hits,) = find(k, by=by, rerank=rerank, included=included, candidates=candidates)
    else:
        hits = near.head(k)
    sure = sureness(database, query[0], near, asked)
    if sure.match is not None and hits.match is not None and len(hits):
        sure = replace(sure, match=float(hits.match[0]))  # of what is shown first
    return Answer(name, asked, sought, hits, sure)


def show(answer: Answer) -> None:
    """A table for people, and how sure it is."""
    from rich.console import Console
    from rich.table import Table

    hits = answer.hits
    table = Table(
        title=f"{_printable(answer.query)}: {len(hits)} {answer.sought}s",
        title_justify="left",
        caption=f"search: {hits.method}",
        caption_justify="left",
    )
    scores = _scores(answer)
    for heading in ("", "id", "caption", *scores, "uncertainty"):
        table.add_column(
            heading, justify="left" if heading in ("id", "caption") else "right", overflow="fold"
        )
    told = zip(hits.column("id"), hits.column("caption"), *scores.values(), hits.uncertainty, strict=True)
    for number, (own, caption, *values) in enumerate(told, start=1):
        table.add_row(
            str(number), _printable(own), _printable(caption or "-"), *(f"{value:.4g}" for value in values)
        )
    console = Console(
        width=None if Console().is_terminal else 120, markup=False, highlight=False, emoji=False
    )
    console.print(table)  # captions may hold brackets
    for line in answer.sureness.lines():
        console.print(line)


def _printable(text: str) -> str:
    """What can't harm a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _scores(answer: Answer) -> dict[str, Any]:
    """What a table tells of each hit; a match probability of a picture and a text only."""
    hits = answer.hits
    found = {"csd": hits.csd, "cosine": hits.cosine}
    if hits.match is not None and answer.asked != answer.sought:
        found["match"] = hits.match
    return found if hits.inclusion is None else found | {"inclusion": hits.inclusion}


def _usual(database: Database) -> Modality:
    images = database.rows(["row"], "modality = 'image'")
    return "image" if any(len(batch) for batch in images) else "text"
