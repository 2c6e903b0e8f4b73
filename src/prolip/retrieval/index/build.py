"""What makes a database quick: its index, the effort that searches need in it, quantiles of uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from prolip.checks import require_choice
from prolip.retrieval.index.database import Database, writing
from prolip.retrieval.index.quantiles import Tally
from prolip.retrieval.index.settings import Kind, Settings
from prolip.retrieval.index.tune import require_share, tune

Choice = Literal["auto", "none", "ivf-sq", "ivf-rq", "ivf-pq"]
"""auto: the kind that is there; else no index below LARGE rows, and from there on the first of USUAL that reaches the
recall."""

LARGE = 100_000
"""Rows from which on an index is made unless one says otherwise: an exact search takes some 0.5 seconds there, at 512
dimensions."""
USUAL: tuple[Kind, ...] = ("ivf-rq", "ivf-sq")
"""The first is the quickest to build, small, and quick to search (`prolip bench search` compares); where many items are
nearly equally near, its bit a dimension is too little, and the other's byte is not."""
GROWTH = 2
"""An index is trained anew when the table has grown by this factor; till then new rows are folded in."""

A_TENTH = "row % 10 = 0"
"""The filter that filtered searches are measured with."""


def build(
    database: Database, kind: Choice = "auto", *, recall: float = 0.95, progress: bool | None = None
) -> Settings:
    """Index all rows and find the effort that reaches recall@10; keep and return what was found.

    Readers that are open go on undisturbed; those that open the database later see the new index.
    """
    require_choice(kind, get_args(Choice), "kind")
    require_share(recall)
    with writing(database.uri):
        if kind == "none":
            database.build_index(kind)  # first: a damaged index stops folding in
        database.fold_in()
        settings = replace(database.settings, quantiles=uncertainty_quantiles(database))
        database.keep(settings)  # what is known without a new index
        for one in _kinds(database, kind):
            settings = _indexed(database, settings, one, recall, progress)
            if settings.effort is not None:
                break
        database.keep(settings)
    return settings


def _kinds(database: Database, kind: Choice) -> tuple[Kind, ...]:
    """What is tried, one after another, until one reaches the recall."""
    if kind != "auto":
        return (kind,)
    there = database.kind
    if there in USUAL:
        return USUAL[USUAL.index(there) :]
    if there != "none":
        return (there,)
    return USUAL if database.count() >= LARGE else ("none",)


def _indexed(
    database: Database, settings: Settings, kind: Kind, recall: float, progress: bool | None
) -> Settings:
    rows, trained = database.count(), settings.trained
    if kind != database.kind or rows > GROWTH * trained:
        database.build_index(kind)
        trained = rows
    settings = Settings(kind=kind, trained=trained, quantiles=settings.quantiles)
    if kind == "none":
        return settings
    found = tune(database, recall, progress=progress)
    filtered = tune(database, recall, among=A_TENTH, progress=progress)
    return replace(
        settings, target=recall, filtered=filtered.effort, filtered_recall=filtered.recall, **vars(found)
    )


def uncertainty_quantiles(database: Database) -> dict[str, list[float]]:
    """By modality: search/index/quantiles.py."""
    tallies = {"image": Tally(), "text": Tally()}
    for batch in database.rows(["modality", "uncertainty"]):
        modality, values = batch["modality"].to_numpy(zero_copy_only=False), batch["uncertainty"].to_numpy()
        for name, tally in tallies.items():
            tally.add(values[modality == name])
    found = {name: tally.quantiles().tolist() for name, tally in tallies.items()}
    return {name: values for name, values in found.items() if values}
