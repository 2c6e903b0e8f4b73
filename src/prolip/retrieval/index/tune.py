"""Tuning of an index: the least effort whose recall, measured on the database, reaches a target."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.checks import require_fraction
from prolip.embeddings.schema import column_to_tensor
from prolip.extras import import_extra
from prolip.progress import progress_bar
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.exact import ROUNDING, split_by_query
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.index.sql import join_conditions
from prolip.retrieval.index.vectors import extract_means, make_query_vectors

K = 10
"""Recall is measured among the K nearest."""
NUM_QUERIES, NUM_TIMED_QUERIES = 200, 20
"""Rows that serve as queries, and how many of them are timed, one at a time."""
EFFORTS = tuple(
    SearchEffort(nprobes=nprobes, refine=refine)
    for nprobes, refine in (
        (20, 4),
        (20, 10),
        (40, 10),
        (80, 10),
        (80, 40),
        (160, 40),
        (320, 40),
        (1280, 100),
        (1280, 400),
    )
)
"""Efforts that are tried, the fastest first."""


@dataclass(frozen=True)
class TuningResult:
    """The effort that a database needs.

    Attributes:
        effort: The least that reaches the target; None: none does, so that searches should be exact.
        recall: recall@10 at that effort, or the best that was measured.
        milliseconds: Time of one approximate query at the effort with that recall.
        exact_milliseconds: Time of one exact query.
    """

    effort: SearchEffort | None
    recall: float
    milliseconds: float
    exact_milliseconds: float


@dataclass(frozen=True)
class TuningQueries:
    """Rows of the database that serve as queries.

    Attributes:
        rows: int64 (Q,), increasing: values of the column `row`.
        vectors: float32 (Q, vector_size), of `make_query_vectors`.
        where: SQL for the items that are searched; None: all.
    """

    rows: np.ndarray
    vectors: np.ndarray
    where: str | None


def tune(
    database: Database,
    target: float = 0.95,
    *,
    among: str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> TuningResult:
    """Find the least effort with recall@10 >= target, for texts that search images if there are both.

    Args:
        database: A database with an index.
        target: Recall, above 0 and at most 1.
        among: SQL: only these items are searched, as with a user's filter. None: all.
        seed: Seed of the rows that serve as queries.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The effort, its recall and its time.
    """
    require_fraction(target, "recall", exclude_zero=True)
    queries = draw_queries(database, among, seed)
    exact_distances = measure_exact_distances(database, queries)
    best_effort, best_recall = EFFORTS[0], 0.0
    with progress_bar("tuning", len(EFFORTS), "efforts", progress) as advance:
        for effort in EFFORTS:
            recall = measure_recall(database, queries, exact_distances, effort)
            advance(1)
            if recall > best_recall:
                best_effort, best_recall = effort, recall
            if best_recall >= target:
                break
    timed = queries.vectors[:NUM_TIMED_QUERIES]
    return TuningResult(
        best_effort if best_recall >= target else None,
        best_recall,
        _time_queries(timed, lambda vector: _find_nearest(database, vector, queries.where, best_effort)),
        _time_queries(timed, lambda vector: _find_nearest(database, vector, queries.where, None)),
    )


def draw_queries(database: Database, among: str | None = None, seed: int = 0) -> TuningQueries:
    """Draw texts that search images; if there is only one modality, rows of it that search the others.

    Args:
        database: The database; its rows are drawn.
        among: SQL: only these items are searched; None: all.
        seed: Seed of the draw.

    Returns:
        Up to NUM_QUERIES rows.
    """
    num_images, num_texts = (
        database.count_rows(f"modality = '{modality}'") for modality in ("image", "text")
    )
    has_both = bool(num_images and num_texts)
    rows = draw_rows(database, "modality = 'text'" if has_both else None, NUM_QUERIES, seed)
    drawn = read_rows(database, rows, ["row", "vector"])
    mean = extract_means(column_to_tensor(drawn["vector"]).numpy(), database.header.dim)
    return TuningQueries(
        rows, make_query_vectors(mean), join_conditions("modality = 'image'" if has_both else None, among)
    )


def measure_exact_distances(database: Database, queries: TuningQueries) -> list[np.ndarray]:
    """Measure the distances of each query's ten nearest items by an exact search.

    Args:
        database: The database.
        queries: What `draw_queries` returned.

    Returns:
        For each query up to K squared distances, increasing; its own row is excluded.
    """
    return _distances_to_others(_find_nearest(database, queries.vectors, queries.where, None), queries)


def measure_recall(
    database: Database, queries: TuningQueries, exact: Sequence[np.ndarray], effort: SearchEffort
) -> float:
    """Measure the fraction of the ten nearest items that an approximate search finds.

    An item as near as the last of the ten counts as found, since copies are equal.

    Args:
        database: A database with an index.
        queries: What `draw_queries` returned.
        exact: What `measure_exact_distances` returned for them.
        effort: Effort of the approximate search.

    Returns:
        recall@10, the mean over queries.
    """
    found = _distances_to_others(_find_nearest(database, queries.vectors, queries.where, effort), queries)
    recalls = [_recall_of_query(distances, nearest) for distances, nearest in zip(found, exact, strict=True)]
    return float(np.mean(recalls))


def _recall_of_query(found: np.ndarray, exact: np.ndarray) -> float:
    """The recall of one query: the fraction of its nearest items that were found; 1 if there is no item.

    Args:
        found: Distances of the items that an approximate search found, increasing.
        exact: Distances of the nearest items, increasing.
    """
    if not len(exact):
        return 1.0
    limit = exact[-1] * (1 + ROUNDING) + ROUNDING
    return float(np.count_nonzero(found <= limit) / len(exact))


def draw_rows(database: Database, where: str | None, count: int, seed: int) -> np.ndarray:
    """Draw items at random. Reads the column `row` of all of them.

    Args:
        database: The database.
        where: SQL: only items that pass are drawn; None: all.
        count: Number of items; all if there are fewer.
        seed: Seed of the draw.

    Returns:
        int64: their values of the column `row`, increasing.
    """
    total, num_seen = database.count_rows(where), 0
    positions = np.sort(np.random.default_rng(seed).choice(total, min(count, total), replace=False))
    drawn = []
    for batch in database.iter_batches(["row"], where):
        in_batch = positions[(positions >= num_seen) & (positions < num_seen + len(batch))] - num_seen
        drawn.append(batch["row"].to_numpy()[in_batch])
        num_seen += len(batch)
    return np.sort(np.concatenate(drawn))


def read_rows(database: Database, rows: np.ndarray, columns: Sequence[str]) -> Any:
    """Read items by their values of the column `row`.

    Args:
        database: The database.
        rows: int64 (n,), n at least 1.
        columns: Columns to read, `row` among them.

    Returns:
        A pyarrow table, sorted by row.
    """
    arrow = import_extra("pyarrow", "search")
    batches = list(database.iter_batches(columns, f"row IN ({', '.join(map(str, rows.tolist()))})"))
    return arrow.Table.from_batches(batches).sort_by("row")


def _find_nearest(
    database: Database, vectors: np.ndarray, where: str | None, effort: SearchEffort | None
) -> Any:
    """Find the K + 1 nearest items of each query, as `Database.find_nearest` returns them.

    One more than recall counts: a row that serves as a query finds itself, too.
    """
    return database.find_nearest(vectors, K + 1, columns=["row"], where=where, effort=effort)


def _distances_to_others(found: Any, queries: TuningQueries) -> list[np.ndarray]:
    """Distances of each query's K nearest items in `found` (of `_find_nearest`), increasing, without the query."""
    tables = split_by_query(found, len(queries.rows))
    return [
        table["_distance"].to_numpy()[table["row"].to_numpy() != row][:K]
        for row, table in zip(queries.rows, tables, strict=True)
    ]


def _time_queries(vectors: np.ndarray, search: Callable[[np.ndarray], Any]) -> float:
    """Measure the median time of one search in milliseconds; vectors (Q, vector_size) are searched one at a time."""
    times = []
    for row in range(len(vectors)):
        start = time.perf_counter()
        search(vectors[row : row + 1])
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))
