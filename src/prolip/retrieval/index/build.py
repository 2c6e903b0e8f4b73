"""Build the index of a database, tune its searches, and compute quantiles of uncertainty."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from prolip.checks import require_choice, require_fraction
from prolip.choices import IndexChoice
from prolip.configs import takes_config
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.extras import require_extra
from prolip.retrieval.config import IndexConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.database import Database, lock_for_writing
from prolip.retrieval.index.quantiles import QuantileSketch
from prolip.retrieval.index.settings import IndexKind, IndexSettings
from prolip.retrieval.index.tune import tune

MIN_INDEXED_ROWS = 100_000
"""Rows from which on an index is built by default: an exact search takes some 0.5 seconds there, at 512 dimensions."""
DEFAULT_KINDS: tuple[IndexKind, ...] = ("ivf-rq", "ivf-sq")
"""The first is the fastest to build, small, and fast to search (benchmarks/search.py compares); where many items are
nearly equally near, its bit per dimension is too little, and the other's byte is not."""
RETRAIN_GROWTH = 2
"""An index is trained again when the table has grown by this factor; until then new rows are added to it."""

TENTH_OF_ROWS = "row % 10 = 0"
"""The filter that filtered searches are measured with."""


@dataclass(frozen=True)
class IndexResult:
    """What `index` made.

    Attributes:
        database: The database.
        rows: Number of its rows.
        settings: Its index, and how searches use it.
    """

    database: Database
    rows: int
    settings: IndexSettings

    def to_json(self) -> str:
        """The result as JSON text, without the quantiles of uncertainty, a long list that only searches need."""
        settings = {name: value for name, value in asdict(self.settings).items() if name != "quantiles"}
        return json.dumps({"database": str(self.database.uri), "rows": self.rows, **settings})


@takes_config(IndexConfig)
def index(
    embeddings: str | Path | EmbeddingDataset | Sequence[str | Path | EmbeddingDataset],
    out: str | Path,
    config: IndexConfig,
) -> IndexResult:
    """Put embeddings into a database that ranks by CSD, a new one or an existing one, and index it.

    A run that was stopped resumes. Concurrent searches see the database as it was when they opened it.

    Args:
        embeddings: One or several data sets that `embed` wrote, or their locations; all of one model.
        out: Folder of the database, or a URI in an object store (s3://, gs://, az://).
        config: How to index; or its fields as keywords.

    Returns:
        The database, and what was measured of its index.

    Raises:
        ValueError: The data sets can't be compared with each other or with the database, there are too few rows for an
            index, or another process writes.
    """
    require_extra("search")
    several = [embeddings] if isinstance(embeddings, str | Path | EmbeddingDataset) else embeddings
    datasets = [one if isinstance(one, EmbeddingDataset) else EmbeddingDataset.open(one) for one in several]
    database = index_embeddings(out, datasets, progress=config.progress)
    settings = build_index(database, config.kind, recall=config.recall, progress=config.progress)
    return IndexResult(database, database.count_rows(), settings)


def build_index(
    database: Database, kind: IndexChoice = "auto", *, recall: float = 0.95, progress: bool | None = None
) -> IndexSettings:
    """Index all rows, find the effort that reaches a recall@10, and store the settings.

    Readers that are open are not disturbed; those that open the database later see the new index.

    Args:
        database: The database to index.
        kind: Kind of the index.
        recall: Target recall@10, above 0 and at most 1.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The settings that were stored.

    Raises:
        ValueError: An argument is invalid, there are too few rows for an index, or another process writes.
    """
    require_choice(kind, get_args(IndexChoice), "kind")
    require_fraction(recall, "recall", exclude_zero=True)
    with lock_for_writing(database.uri):
        if kind == "none":
            database.create_index(kind)  # first: a damaged index makes `optimize` fail
        database.optimize()
        settings = replace(database.settings, quantiles=compute_uncertainty_quantiles(database))
        database.save_settings(settings)  # valid without a new index, too
        for kind_to_try in _list_kinds_to_try(database, kind):
            settings = _train_and_tune(database, settings, kind_to_try, recall, progress)
            if settings.effort is not None:
                break
        database.save_settings(settings)
    return settings


def _list_kinds_to_try(database: Database, kind: IndexChoice) -> tuple[IndexKind, ...]:
    """List the kinds of index that are built, one after another, until one reaches the recall.

    For auto: the present kind and the default kinds after it; without an index, the default kinds if there are enough
    rows.
    """
    if kind != "auto":
        return (kind,)
    current = database.index_kind
    if current in DEFAULT_KINDS:
        return DEFAULT_KINDS[DEFAULT_KINDS.index(current) :]
    if current != "none":
        return (current,)
    return DEFAULT_KINDS if database.count_rows() >= MIN_INDEXED_ROWS else ("none",)


def _train_and_tune(
    database: Database, settings: IndexSettings, kind: IndexKind, recall: float, progress: bool | None
) -> IndexSettings:
    """Train an index of a kind, unless the present one still fits, and find the effort that reaches a recall.

    Args:
        database: The database; its index is replaced.
        settings: Present settings.
        kind: Kind of the index.
        recall: Target recall@10.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        New settings, which are not stored yet; `effort` is None if no effort reaches the recall.
    """
    num_rows, trained_rows = database.count_rows(), settings.trained_rows
    if kind != database.index_kind or num_rows > RETRAIN_GROWTH * trained_rows:
        database.create_index(kind)
        trained_rows = num_rows
    settings = IndexSettings(kind=kind, trained_rows=trained_rows, quantiles=settings.quantiles)
    if kind == "none":
        return settings
    unfiltered = tune(database, recall, progress=progress)
    filtered = tune(database, recall, among=TENTH_OF_ROWS, progress=progress)
    return replace(
        settings,
        target_recall=recall,
        filtered_effort=filtered.effort,
        filtered_recall=filtered.recall,
        **vars(unfiltered),  # effort, recall, milliseconds, exact_milliseconds
    )


def compute_uncertainty_quantiles(database: Database) -> dict[str, list[float]]:
    """Compute the quantiles of uncertainty of a database's items.

    Args:
        database: The database; two columns of all items are read.

    Returns:
        By modality, the values at 1/1000, 2/1000, ... 1 (index/quantiles.py); empty if it has no items.
    """
    sketches = {"image": QuantileSketch(), "text": QuantileSketch()}
    for batch in database.iter_batches(["modality", "uncertainty"]):
        modality, values = batch["modality"].to_numpy(zero_copy_only=False), batch["uncertainty"].to_numpy()
        for name, sketch in sketches.items():
            sketch.add(values[modality == name])
    quantiles = {name: sketch.compute_quantiles().tolist() for name, sketch in sketches.items()}
    return {name: values for name, values in quantiles.items() if values}
