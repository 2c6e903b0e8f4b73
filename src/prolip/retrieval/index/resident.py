"""Resident items: the means of a database in memory, so that an exact query is one matrix product.

They are read when the first exact search needs them, and kept for as long as the `Database` object lives. A change of
its items is a new version, for which they are read anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import torch

from prolip.embeddings.schema import column_to_tensor
from prolip.extras import import_extra
from prolip.gaussian import MeanTrace
from prolip.retrieval.index.database import Database, Distance

MAX_RESIDENT_BYTES = 2**30
"""Largest means (four bytes per dimension) that are kept in memory; others are read from the disk by each search."""
MIN_FRACTION = 1 / 20
"""A search that fewer of the items pass reads those alone, unless all are in memory already."""
MAX_CONDITIONS = 16
"""Conditions whose items are remembered, a byte per item."""
QUERY_BLOCK, ITEM_BLOCK = 64, 8192
"""Queries of one matrix product; items of one block of `iter_mean_traces`."""


@dataclass(frozen=True, eq=False)
class ResidentItems:
    """All items of one version of a database, in no particular order.

    Attributes:
        version: Version of the table of items.
        row_ids: int64 (n,), what LanceDB takes rows by.
        rows: int64 (n,), the column `row`.
        means: float32 (n, D).
        uncertainty: float32 (n,), the column `uncertainty`.
        squared_norms: float32 (n,), of the vectors: of the mean, plus the trace.
        passing: Which items pass a condition, bool (n,), by the condition.
    """

    version: int
    row_ids: np.ndarray
    rows: np.ndarray
    means: np.ndarray
    uncertainty: np.ndarray
    squared_norms: np.ndarray
    passing: dict[str, np.ndarray] = field(default_factory=dict)

    def find_nearest(
        self, vectors: np.ndarray, k: int, distance: Distance, rounding: float, most: int, where: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Find the k nearest items of each query, and those that float32 can't distinguish from the k-th.

        Args:
            vectors: float32 (Q, vector_size), of `make_query_vectors`.
            k: Items per query.
            distance: l2 or dot.
            rounding: The error of a distance d is at most rounding * (1 + |d|).
            most: Items per query at most, also if more are equally near.
            where: int64 (m,), positions of the items that are searched.

        Yields:
            For each query the positions of its items, int64, in no particular order.
        """
        for first in range(0, len(vectors), QUERY_BLOCK):
            queries = vectors[first : first + QUERY_BLOCK, : self.means.shape[1]]
            for query, products in zip(queries, _multiply(self.means, queries), strict=True):
                distances = np.multiply(products, -1 if distance == "dot" else -2, out=products)
                if distance == "l2":
                    distances += self.squared_norms
                distances += 1 if distance == "dot" else float(np.square(query.astype(np.float64)).sum())
                distances = distances if len(where) == len(distances) else distances[where]
                yield where[_select_nearest(distances, k, rounding, most)]


def get_resident_items(database: Database, where: str | None = None) -> ResidentItems | None:
    """Get the items of a database in memory; they are read if they are not there yet, or not those of its version.

    Args:
        database: The database.
        where: SQL of the items that are needed; None: all.

    Returns:
        All items; None: they are too large, or so few are needed that reading all would take longer.
    """
    resident = _RESIDENT.get(database)
    if resident is not None and resident.version == database.version:
        return resident
    num_rows = database.count_rows()
    if 4 * num_rows * database.header.dim > MAX_RESIDENT_BYTES:
        return None
    if where is not None and database.count_rows(where) < MIN_FRACTION * num_rows:
        return None
    _RESIDENT[database] = resident = _read_items(database, num_rows)
    return resident


def find_passing(database: Database, resident: ResidentItems, where: str | None) -> np.ndarray:
    """Find the items that pass a condition.

    Args:
        database: The database of the resident items.
        resident: Its items; they remember the answer.
        where: SQL; None: all items.

    Returns:
        int64 (m,), positions, increasing.
    """
    if where is None:
        return np.arange(len(resident.rows))
    if where not in resident.passing:
        if len(resident.passing) >= MAX_CONDITIONS:
            resident.passing.pop(next(iter(resident.passing)))
        batches = [batch["row"].to_numpy() for batch in database.iter_batches(["row"], where)]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *batches])
        resident.passing[where] = np.isin(resident.rows, rows)
    return np.flatnonzero(resident.passing[where])


def iter_mean_traces(database: Database, where: str | None) -> Iterator[tuple[np.ndarray, MeanTrace]]:
    """Read rows, means and traces of items, from memory if they may be there.

    Args:
        database: The database.
        where: SQL of the items; None: all.

    Yields:
        The column `row`, int64 (n,), and means and traces of n items.
    """
    resident = get_resident_items(database, where)
    if resident is None:
        arrow = import_extra("pyarrow", "search")
        for batch in database.iter_batches(["row", "vector", "uncertainty"], where):
            items = arrow.Table.from_batches([batch])
            means = column_to_tensor(items["vector"])[:, : database.header.dim]
            yield (
                batch["row"].to_numpy(),
                MeanTrace(means, torch.from_numpy(batch["uncertainty"].to_numpy().copy())),
            )
        return
    positions = find_passing(database, resident, where)
    for first in range(0, len(positions), ITEM_BLOCK):
        block = positions[first : first + ITEM_BLOCK]
        mean_traces = (torch.from_numpy(values[block]) for values in (resident.means, resident.uncertainty))
        yield resident.rows[block], MeanTrace(*mean_traces)


_RESIDENT: WeakKeyDictionary[Database, ResidentItems] = WeakKeyDictionary()
"""The items of each open database."""


def _read_items(database: Database, num_rows: int) -> ResidentItems:
    """Read all items, batch by batch into arrays of their final size."""
    version, dim = database.version, database.header.dim
    rows, row_ids = (np.empty(num_rows, dtype=np.int64) for _ in range(2))
    means = np.empty((num_rows, dim), dtype=np.float32)
    uncertainty, squared_norms = (np.empty(num_rows, dtype=np.float32) for _ in range(2))
    first = 0
    for batch in database.iter_batches(["row", "vector", "uncertainty"], with_row_ids=True):
        end = first + len(batch)
        vectors = np.asarray(batch["vector"].flatten()).reshape(len(batch), -1)
        rows[first:end], row_ids[first:end] = batch["row"].to_numpy(), batch["_rowid"].to_numpy()
        means[first:end] = vectors[:, :dim]
        squared_norms[first:end] = np.square(vectors.astype(np.float64)).sum(1)
        uncertainty[first:end] = batch["uncertainty"].to_numpy()
        first = end
    return ResidentItems(version, row_ids, rows, means, uncertainty, squared_norms)


def _multiply(means: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Products of n means (n, D) and q queries (q, D): (q, n)."""
    products: np.ndarray = (means @ queries[0])[None] if len(queries) == 1 else queries @ means.T
    return products


def _select_nearest(distances: np.ndarray, k: int, rounding: float, most: int) -> np.ndarray:
    """Positions of the k least of (n,) distances, and of those that may be as small as the k-th; at most `most`."""
    if len(distances) <= k:
        return np.arange(len(distances))
    kth = float(np.partition(distances, k - 1)[k - 1])
    # both distances may be off, each by rounding * (1 + |d|): d - kth <= 2 rounding (1 + |d|)
    near = np.flatnonzero(distances <= kth + 2 * rounding * (1 + abs(kth)) / (1 - 2 * rounding))
    if len(near) > most:
        near = near[np.argpartition(distances[near], most - 1)[:most]]
    return near
