"""Benchmark of search: CSD against L2 search on the means in one database."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.timing import require_scale_and_repeats, time_interleaved
from prolip.console import MISSING, make_table, print_tables
from prolip.extras import import_extra
from prolip.retrieval.index.database import INDEX_CLASSES
from prolip.retrieval.index.settings import IndexKind
from prolip.retrieval.index.vectors import make_item_vectors, make_query_vectors

ROWS, DIM, CLUSTERS, QUERIES, K = 100_000, 512, 1000, 20, 10
"""Items, their dimensions and clusters; queries, and nearest items that each query asks for."""
KINDS: tuple[IndexKind, ...] = ("ivf-rq", "ivf-sq")
"""Index types that are compared (ivf-pq trains for minutes)."""
EFFORT = (20, 10)
"""nprobes and refine factor of approximate searches."""


def run(*, scale: float = 1.0, repeats: int = 5) -> dict[str, Any]:
    """Time exact and approximate search by CSD and by L2 distance of the means.

    Args:
        scale: Factor of the number of items (ROWS).
        repeats: Interleaved runs of each query.

    Returns:
        rows, dimensions, queries, brute_force_seconds, and searches: by name l2_seconds, csd_seconds, ratio, recall,
        and for an index build_seconds and bytes_per_item.
    """
    require_scale_and_repeats(scale, repeats, max_scale=10)
    count = max(1000, round(scale * ROWS))
    mean, trace, queries = draw_clusters(count)
    with TemporaryDirectory() as folder:
        items = _create_table(Path(folder), mean, trace)
        searches = {"exact": _compare_queries(items, mean, trace, queries, None, repeats, "exact")}
        for kind in KINDS:
            _build_index(items, "mean", kind)
            before = _count_bytes(Path(folder))
            seconds = _build_index(items, "vector", kind)
            index_cost = {
                "build_seconds": seconds,
                "bytes_per_item": (_count_bytes(Path(folder)) - before) / count,
            }
            searches[kind] = _compare_queries(items, mean, trace, queries, EFFORT, repeats, kind) | index_cost
    return {
        "rows": count,
        "dimensions": DIM,
        "queries": QUERIES,
        "brute_force_seconds": _time_brute_force(mean, trace, queries, repeats),
        "searches": searches,
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    numbers = ("L2 on means", "CSD", "ratio", "recall@10\nby CSD", "build", "bytes\nper item")
    product = 1000 * result["brute_force_seconds"]
    table = make_table(
        f"{result['rows']:,} items, {result['dimensions']} dimensions, one query at a time, medians",
        ("search",),
        numbers,
        caption=f"a matrix product of a query with all items in memory: {product:.1f} ms",
    )
    for name, row in result["searches"].items():
        index_cost = (MISSING, MISSING)
        if "build_seconds" in row:
            index_cost = (f"{row['build_seconds']:.1f} s", f"{row['bytes_per_item']:.0f}")
        table.add_row(
            name, f"{1000 * row['l2_seconds']:.1f} ms", f"{1000 * row['csd_seconds']:.1f} ms", f"{row['ratio']:.2f}",
            f"{row['recall']:.3f}", *index_cost,
        )  # fmt: skip
    print_tables([table])


def draw_clusters(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw unit means (n, D) around centers, traces (n,), and queries (Q, D) of the same clusters, all float32."""
    random = np.random.default_rng(seed)
    centers = random.standard_normal((CLUSTERS, DIM), dtype=np.float32)
    cluster = random.integers(0, CLUSTERS, count + QUERIES)
    mean = centers[cluster] + random.standard_normal((count + QUERIES, DIM), dtype=np.float32)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    trace = np.exp(random.normal(-2.0, 0.7, count)).astype(np.float32)
    return mean[:count], trace, mean[count:]


def _create_table(folder: Path, mean: np.ndarray, trace: np.ndarray) -> Any:
    """Write the means and the vectors of CSD search as two columns of a new LanceDB table in `folder`, and open it."""
    arrow = import_extra("pyarrow", "search")
    columns: dict[str, Any] = {"row": arrow.array(np.arange(len(mean)))}
    for name, values in (("mean", mean), ("vector", make_item_vectors(mean, trace))):
        columns[name] = arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])
    return import_extra("lancedb", "search").connect(folder).create_table("items", arrow.table(columns))


def _build_index(items: Any, column: str, kind: IndexKind) -> float:
    """Build an index on a column of the table, replacing the one before; returns the seconds."""
    config = getattr(import_extra("lancedb.index", "search"), INDEX_CLASSES[kind])
    start = time.perf_counter()
    items.create_index(column, config=config(distance_type="l2"), replace=True)
    return time.perf_counter() - start


def _count_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _compare_queries(
    items: Any,
    mean: np.ndarray,
    trace: np.ndarray,
    queries: np.ndarray,
    effort: tuple[int, int] | None,
    repeats: int,
    group: str,
) -> dict[str, float]:
    """Time queries by L2 on the means and by CSD, in turn for each query.

    Returns median seconds of both, the median of each query's ratio, and the recall by CSD. `effort`: (nprobes, refine
    factor) of an approximate search; None: exact.
    """
    vectors = make_query_vectors(queries)
    seconds = []
    for query, vector in zip(queries, vectors, strict=True):
        workloads = {
            "l2": partial(_find_nearest, items, "mean", query, effort),
            "csd": partial(_find_nearest, items, "vector", vector, effort),
        }
        seconds.append(
            {
                name: statistics.median(times)
                for name, times in time_interleaved(workloads, repeats, group=group).items()
            }
        )
    return {
        "l2_seconds": statistics.median(both["l2"] for both in seconds),
        "csd_seconds": statistics.median(both["csd"] for both in seconds),
        "ratio": statistics.median(both["csd"] / both["l2"] for both in seconds),
        "recall": _compute_recall(items, mean, trace, queries, effort),
    }


def _find_nearest(items: Any, column: str, vector: np.ndarray, effort: tuple[int, int] | None) -> Any:
    """The K rows nearest to a vector in a column, as an Arrow table; `effort` as for `_compare_queries`."""
    query = items.search(vector, vector_column_name=column).distance_type("l2").limit(K)
    query = (
        query.bypass_vector_index() if effort is None else query.nprobes(effort[0]).refine_factor(effort[1])
    )
    return query.select(["row", "_distance"]).to_arrow()


def _compute_recall(
    items: Any, mean: np.ndarray, trace: np.ndarray, queries: np.ndarray, effort: tuple[int, int] | None
) -> float:
    """The fraction of the K nearest items by exact CSD (a matrix product) that the search finds."""
    exact = np.argsort(trace - 2 * queries @ mean.T, axis=1)[:, :K]
    nearest = [
        _find_nearest(items, "vector", vector, effort)["row"].to_numpy()
        for vector in make_query_vectors(queries)
    ]
    return float(np.mean([np.isin(rows, best).mean() for rows, best in zip(nearest, exact, strict=True)]))


def _time_brute_force(mean: np.ndarray, trace: np.ndarray, queries: np.ndarray, repeats: int) -> float:
    """Median seconds of finding the K nearest items to the first query by a matrix product in memory."""

    def find_nearest() -> np.ndarray:
        return np.argpartition(trace - 2 * (mean @ queries[0]), K)[:K]

    return statistics.median(
        time_interleaved({"product": find_nearest}, repeats, group="in memory")["product"]
    )
