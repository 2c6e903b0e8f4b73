"""Benchmark of exact search in an open database, against the matrix product that it comes down to."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.search import DIM, ROWS, K, draw_clusters
from benchmarks.timing import require_scale_and_repeats, time_interleaved
from benchmarks.traverse import write_captions
from prolip.console import make_table, print_tables
from prolip.gaussian import Gaussian
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index import exact
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.vectors import make_query_vectors
from prolip.retrieval.query import search_gaussians

FILTER = "uncertainty < 0.15"
PRODUCT = "matrix product"


@dataclass(frozen=True, kw_only=True)
class OpenSearchTimes:
    """Median seconds per query by way of searching, and each as a multiple of the matrix product."""

    rows: int
    dimensions: int
    seconds: dict[str, float]
    ratios: dict[str, float]


def run(*, scale: float = 1.0, repeats: int = 21) -> OpenSearchTimes:
    """Time exact queries, one at a time, in an open database in memory and on the disk.

    Args:
        scale: Factor of the number of items (ROWS).
        repeats: Interleaved queries of each way.

    Returns:
        The times.
    """
    require_scale_and_repeats(scale, repeats, max_scale=10)
    count = max(1000, round(scale * ROWS))
    mean, trace, queries = draw_clusters(count)
    log_var = torch.from_numpy(trace / DIM).log()[:, None].expand(-1, DIM)
    with TemporaryDirectory() as folder:
        embeddings = write_captions(Path(folder) / "embeddings", Gaussian(torch.from_numpy(mean), log_var))
        database = index_embeddings(Path(folder) / "database", [embeddings])
        seconds = _time_searches(database, mean, trace, queries, repeats)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {name: value / medians[PRODUCT] for name, value in medians.items()}
    return OpenSearchTimes(rows=count, dimensions=mean.shape[1], seconds=medians, ratios=ratios)


def print_result(result: OpenSearchTimes) -> None:
    """Print what `run` returned as a table."""
    table = make_table(
        f"{result.rows:,} items, {result.dimensions} dimensions, one query at a time, medians",
        ("query",),
        ("milliseconds", "x the product"),
    )
    for name, seconds in result.seconds.items():
        table.add_row(name, f"{1000 * seconds:.1f}", f"{result.ratios[name]:.2f}")
    print_tables([table])


def _time_searches(
    database: Database, mean: np.ndarray, trace: np.ndarray, queries: np.ndarray, repeats: int
) -> dict[str, list[float]]:
    """Seconds of each query, by way of searching; the items are read into memory before."""
    vectors = make_query_vectors(queries[:1])
    query = Gaussian(torch.from_numpy(queries[:1]), torch.full((1, mean.shape[1]), -9.0))
    config, filtered = SearchConfig(k=K, exact=True), SearchConfig(k=K, exact=True, where=FILTER)
    workloads = {
        PRODUCT: lambda: np.argpartition(trace - 2 * (mean @ queries[0]), K)[:K],
        "nearest rows": lambda: exact.find_nearest_exact(database, vectors, K, columns=["row"]),
        "search_gaussians": lambda: search_gaussians(database, query, config),
        f"search_gaussians, where {FILTER}": lambda: search_gaussians(database, query, filtered),
        "on the disk (LanceDB)": lambda: database.find_nearest(vectors, K, columns=["row"]),
    }
    for search in workloads.values():  # warm up
        search()
    return time_interleaved(workloads, repeats)
