"""What makes a database quick: its index, the effort that searches need in it, quantiles of uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from prolip.checks import require_choice
from prolip.search.index.database import Database
from prolip.search.index.quantiles import Tally
from prolip.search.index.settings import Kind, Settings
from prolip.search.index.tune import require_share, tune

Choice = Literal["auto", "none", "ivf-sq", "ivf-rq", "ivf-pq"]
"""auto: no index below LARGE rows, USUAL from there on."""

LARGE = 100_000
"""Rows from which on an index is made unless one says otherwise: an exact search takes some 0.5 seconds there, at 512
dimensions."""
USUAL: Kind = "ivf-rq"
"""The quickest to build, small, and quick to search: `prolip bench search` compares."""
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
    rows, old = database.count(), database.settings
    chosen: Kind = (USUAL if rows >= LARGE else "none") if kind == "auto" else kind
    trained = old.trained
    database.fold_in()
    if chosen != old.kind or rows > GROWTH * trained or database.has_index != (chosen != "none"):
        database.build_index(chosen)
        trained = rows
    settings = Settings(kind=chosen, trained=trained, quantiles=uncertainty_quantiles(database))
    if chosen != "none":
        found = tune(database, recall, progress=progress)
        filtered = tune(database, recall, among=A_TENTH, progress=progress)
        settings = replace(
            settings,
            target=recall,
            filtered=filtered.effort,
            filtered_recall=filtered.recall,
            **vars(found),
        )
    database.keep(settings)
    return settings


def uncertainty_quantiles(database: Database) -> dict[str, list[float]]:
    """By modality: search/index/quantiles.py."""
    tallies = {"image": Tally(), "text": Tally()}
    for batch in database.rows(["modality", "uncertainty"]):
        modality, values = batch["modality"].to_numpy(zero_copy_only=False), batch["uncertainty"].to_numpy()
        for name, tally in tallies.items():
            tally.add(values[modality == name])
    found = {name: tally.quantiles().tolist() for name, tally in tallies.items()}
    return {name: values for name, values in found.items() if values}
