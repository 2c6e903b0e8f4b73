"""Exact nearest items: also fetches those that float32 can't distinguish from the k-th.

A database compares in float32. Two items whose distances differ by less than its rounding may come in either order,
and at the end of a list of k that decides which of them is in it. So a few more are fetched, until the last of them is
farther than the k-th by more than rounding: then the k best by float64 are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.extras import import_extra
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import stable_topk
from prolip.retrieval.index.database import Database, Distance
from prolip.retrieval.index.resident import (
    ResidentItems,
    find_passing,
    get_resident_items,
    iter_mean_traces,
)

QUERY_BLOCK = 64
"""Queries whose logits with a batch of items are computed at a time; they take a dozen intermediate values per pair."""
MARGIN = 16
"""Items that are fetched beyond k at first; four times as many whenever that is not enough."""
MAX_MARGIN = 4096
"""Items beyond k. If more than this are equally near (copies), it is undefined which of them are returned."""
ROUNDING = 1e-5
"""Rounding error of a float32 distance d: at most ROUNDING * (1 + |d|)."""


def find_nearest_exact(
    database: Database,
    vectors: np.ndarray,
    k: int,
    *,
    columns: Sequence[str],
    distance: Distance = "l2",
    where: str | None = None,
    rounding: float = ROUNDING,
) -> list[Any]:
    """Find the k nearest items of each query, and those that float32 can't distinguish from the k-th.

    Args:
        database: The database.
        vectors: float32 (Q, vector_size), of `make_query_vectors`.
        k: Items per query.
        columns: Columns to return.
        distance: l2 or dot.
        where: SQL; only rows that pass are searched. None: all.
        rounding: The error of a distance d is at most rounding * (1 + |d|).

    Returns:
        For each query a pyarrow table of at least k items (if there are as many), in no particular order.
    """
    resident = get_resident_items(database, where)
    if resident is None:
        return _find_nearest_on_disk(
            database, vectors, k, columns=columns, distance=distance, where=where, rounding=rounding
        )
    passing = find_passing(database, resident, where)
    found = list(resident.find_nearest(vectors, k, distance, rounding, k + MAX_MARGIN, passing))
    return _take_items(database, resident, found, columns)


def _take_items(
    database: Database, resident: ResidentItems, found: Sequence[np.ndarray], columns: Sequence[str]
) -> list[Any]:
    """Read columns of the resident items at the positions of each query, (n,): a pyarrow table per query."""
    positions = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))
    taken = database.take_rows(resident.row_ids[positions], list(dict.fromkeys(["row", *columns])))
    taken_rows = taken["row"].to_numpy()
    order = np.argsort(taken_rows)
    items = taken.select(list(columns))
    return [items.take(order[np.searchsorted(taken_rows, resident.rows[of], sorter=order)]) for of in found]


def _find_nearest_on_disk(
    database: Database,
    vectors: np.ndarray,
    k: int,
    *,
    columns: Sequence[str],
    distance: Distance,
    where: str | None,
    rounding: float,
) -> list[Any]:
    """`find_nearest_exact` of a database that is too large for the memory: LanceDB compares, query by query."""
    tables: list[Any] = [None] * len(vectors)
    # unsettled: queries for which more items must be fetched
    unsettled, margin = np.arange(len(vectors)), MARGIN
    while len(unsettled):
        rows = database.find_nearest(
            vectors[unsettled], k + margin, columns=columns, distance=distance, where=where
        )
        for query, table in zip(unsettled, split_by_query(rows, len(unsettled)), strict=True):
            tables[query] = table
        if margin >= MAX_MARGIN:
            break
        unsettled = np.array(
            [query for query in unsettled if not _is_settled(tables[query], k, k + margin, rounding)],
            dtype=np.int64,
        )
        margin = min(4 * margin, MAX_MARGIN)
    return tables


def find_best_matches_exact(
    database: Database,
    queries: Gaussian,
    k: int,
    parameters: LogitParameters,
    *,
    columns: Sequence[str],
    where: str | None = None,
) -> list[Any]:
    """Find the k items of each query with the largest logits of a match, by comparing all items in float64.

    The logit of a likelihood model is no distance, so that LanceDB can't rank by it.

    Args:
        database: The database.
        queries: (Q, D).
        k: Items per query.
        parameters: What turns a pair into a logit.
        columns: Columns to return.
        where: SQL; only rows that pass are searched. None: all.

    Returns:
        For each query a pyarrow table of k items, and `MARGIN` more, if there are as many. They are not sorted.
    """
    best = torch.empty(len(queries), 0).double(), torch.empty(len(queries), 0, dtype=torch.int64)
    for block_rows, items_of_block in iter_mean_traces(database, where):
        if len(block_rows):
            logits = _match_logits(queries, items_of_block, parameters)
            rows = torch.from_numpy(block_rows.copy()).expand(len(queries), -1)
            logits, rows = torch.cat([best[0], logits], 1), torch.cat([best[1], rows], 1)
            logits, positions = stable_topk(logits, k + MARGIN)
            best = logits, rows.gather(1, positions)
    numbers = best[1].unique().tolist()
    found = f"row IN ({', '.join(map(str, numbers))})" if numbers else "false"
    arrow = import_extra("pyarrow", "search")
    schema = arrow.schema([database.items.schema.field(name) for name in columns])
    items = arrow.Table.from_batches(
        (batch.select(list(columns)) for batch in database.iter_batches(columns, found)), schema=schema
    )
    position_of_row = {row: position for position, row in enumerate(items["row"].to_pylist())}
    return [
        items.take(np.array([position_of_row[row] for row in rows], dtype=np.int64))
        for rows in best[1].tolist()
    ]


def _match_logits(queries: Gaussian, items: MeanTrace, parameters: LogitParameters) -> Tensor:
    """Logits of a match of Q queries and n items, float64 (Q, n), as `score_items` has them."""
    mean, traces = items.mean.double(), items.uncertainty.double()
    blocks = []
    for first in range(0, len(queries), QUERY_BLOCK):
        z = queries[first : first + QUERY_BLOCK].to(torch.float64)
        # 1 - |a - b|^2 / 2, because the lengths of stored means may be rounded
        offsets = 1.0 - 0.5 * (z.mean.square().sum(1)[:, None] + mean.square().sum(1))
        blocks.append(
            parameters.combine(z.mean @ mean.mT + offsets, z.uncertainty[:, None], traces, queries.dim)
        )
    return torch.cat(blocks)


def split_by_query(rows: Any, num_queries: int) -> list[Any]:
    """Split what `Database.find_nearest` returned by query.

    Args:
        rows: A pyarrow table with `query_index`, sorted by it.
        num_queries: The number of queries; one without items gets an empty table.

    Returns:
        One pyarrow table per query.
    """
    ends = np.searchsorted(rows["query_index"].to_numpy(), np.arange(num_queries + 1))
    return [rows.slice(start, end - start) for start, end in pairwise(ends.tolist())]


def _is_settled(rows: Any, k: int, num_requested: int, rounding: float) -> bool:
    """Whether the k best of a query by float64 are certainly among these rows.

    Args:
        rows: What was found for the query, with `_distance`, increasing.
        k: Items per query.
        num_requested: Items that were requested; if fewer were found, there are no others.
        rounding: As for `find_nearest_exact`.
    """
    if len(rows) < num_requested:
        return True
    distance = rows["_distance"].to_numpy()
    # both distances may be off, each by rounding * (1 + |d|)
    return bool(distance[-1] - distance[k - 1] > 2 * rounding * (1 + abs(distance[-1])))
