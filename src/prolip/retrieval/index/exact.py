"""The exact nearest items: what float32 can't tell apart at the end of the list is fetched too.

A database compares in float32. Two items whose distances differ by less than its rounding may stand in either order,
and at the end of a list of k that decides who is in it. So a few more are fetched, until the last of them is farther
than the k-th by more than rounding: then the k best by float64 are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from prolip.retrieval.index.database import Database, Distance

MARGIN = 16
"""Items that are fetched beyond k at first; four times as many whenever that is not enough."""
MOST = 4096
"""Items beyond k. If more than this are equally near (copies), which of them are told is left open."""
ROUNDING = 1e-5
"""Of a distance in float32, for vectors of about unit length."""


def nearest(
    database: Database,
    vectors: np.ndarray,
    k: int,
    *,
    columns: Sequence[str],
    distance: Distance = "l2",
    where: str | None = None,
    rounding: float = ROUNDING,
) -> list[Any]:
    """For each query (Q, width) a pyarrow table of at least the k nearest items, with `_distance`."""
    found: list[Any] = [None] * len(vectors)
    waiting, more = np.arange(len(vectors)), MARGIN
    while len(waiting):
        rows = database.nearest(vectors[waiting], k + more, columns=columns, distance=distance, where=where)
        for place, part in zip(waiting, split(rows, len(waiting)), strict=True):
            found[place] = part
        if more >= MOST:
            break
        waiting = np.array(
            [n for n in waiting if not _settled(found[n], k, k + more, rounding)], dtype=np.int64
        )
        more = min(4 * more, MOST)
    return found


def split(rows: Any, queries: int) -> list[Any]:
    """What `Database.nearest` gave, query by query."""
    ends = np.searchsorted(rows["query_index"].to_numpy(), np.arange(queries + 1))
    return [rows.slice(start, end - start) for start, end in pairwise(ends.tolist())]


def _settled(rows: Any, k: int, asked: int, rounding: float) -> bool:
    """Whether the k best are surely among these rows."""
    if len(rows) < asked:
        return True
    distance = rows["_distance"].to_numpy()
    return bool(distance[-1] - distance[k - 1] > 2 * rounding * (1 + abs(distance[-1])))
