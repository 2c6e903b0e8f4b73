"""Few captions of a database instead of all of them: those that its own search finds.

The nearest caption, of a picture or of a step, is what a database is made for. The most inclusive one is not: log
inclusion is -1/2 sum log w - sum d^2 / w with w = s1 + 2 s2, so that a caption must be near and of the right width. But
of captions of one width the nearest includes most. So captions are cut into bands of uncertainty with as many captions
each, and the few nearest of each band are judged exactly.

Containment has no such way: the caption that contains most may be a wide one from afar. It is scanned for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.extras import require
from prolip.gaussian import Gaussian
from prolip.measures.nearest import Score
from prolip.retrieval.blocks import nearest_in, nearest_to_steps
from prolip.retrieval.caption_tables import DatabaseTable, places_of, require_variances
from prolip.retrieval.index.quantiles import cut
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.index.sql import all_of
from prolip.retrieval.index.vectors import asked
from prolip.retrieval.max_inclusion import Measure, most_inclusive
from prolip.retrieval.scan import Scan

BANDS, EACH = 16, 16
"""Bands of uncertainty, and captions of each that are judged: docs/traversal.md has how often that finds the root."""
NEAR, NEAR_BY_COSINE = 10, 200
"""Captions that are asked for where the nearest one is sought: as many as the effort of an index is tuned for; by
cosine more, since an index knows CSD alone."""
AT_ONCE, ROOTS_AT_ONCE = 256, 16
"""Points, and queries for roots, whose candidates are in memory together."""


@dataclass(frozen=True)
class Candidates:
    """Answers are places in the table, as those of `Scan`.

    effort: how hard the index of the database tries; filtered: with a filter, as bands are. bands, each: of
    uncertainty, and captions of each, for roots.
    """

    table: DatabaseTable
    effort: Effort
    filtered: Effort
    bands: int = BANDS
    each: int = EACH
    progress: bool | None = None

    def nearest(self, queries: Gaussian, *, by: Score = "csd") -> Tensor:
        """The nearest caption of each query (Q, D): (Q,)."""
        found = []
        for part in _parts(len(queries), AT_ONCE):
            rows = self._near(queries.mean[part], by)
            best = nearest_in(queries[part], self.table.mean_trace_of(rows), 1, by)[1]
            found.append(places_of(rows)[best[:, 0]])
        return torch.cat(found)

    def most_inclusive(self, queries: Gaussian, measure: Measure = "inclusion") -> Tensor:
        """The caption that includes each query (Q, D) most: (Q,)."""
        if measure == "containment":
            return Scan(self.table, self.progress).most_inclusive(queries, measure)
        require_variances(self.table)
        found = []
        for part in _parts(len(queries), ROOTS_AT_ONCE):
            rows = self._around(queries.mean[part])
            best = most_inclusive(queries[part], self.table.gaussian_of(rows), measure)[1]
            found.append(places_of(rows)[best])
        return torch.cat(found)

    def along(self, starts: Tensor, ends: Tensor, steps: int, *, by: Score = "csd") -> Tensor:
        """The caption nearest to each step from starts to ends, (N, D) of unit length: (N, steps).

        What is found for one step is judged at all others, too: an index that misses a caption once hardly misses it at
        the steps before and after.
        """
        shares = torch.arange(steps, dtype=starts.dtype)[:, None] / steps
        found = []
        for part in _parts(len(starts), max(1, AT_ONCE // steps)):
            points = torch.lerp(starts[part, None], ends[part, None], shares)
            rows = self._near(normalize(points, dim=-1).flatten(0, 1), by)
            best = nearest_to_steps(starts[part], ends[part], self.table.mean_trace_of(rows), steps, by)[1]
            found.append(places_of(rows)[best])
        return torch.cat(found)

    def _near(self, points: Tensor, by: Score) -> Any:
        """Captions near to any of the points (n, D)."""
        count = NEAR if by == "csd" else NEAR_BY_COSINE
        return self._found(points, count, ["row", "vector", "uncertainty"], [self.table.where], self.effort)

    def _around(self, points: Tensor) -> Any:
        """Captions of every width near to any of the points (n, D)."""
        return self._found(points, self.each, ["row", "vector", "log_var"], self._bands, self.filtered)

    def _found(
        self, points: Tensor, count: int, columns: Sequence[str], wheres: Sequence[str | None], effort: Effort
    ) -> Any:
        """The nearest captions of each point under each condition, each of them once, by their places."""
        database, vectors = self.table.database, asked(points.numpy())
        found = [
            database.nearest(vectors, count, columns=columns, where=where, effort=effort) for where in wheres
        ]
        rows = require("pyarrow", "search").concat_tables(found)
        if not len(rows):
            raise ValueError(f"{self.table.name} holds no caption to walk over")
        return rows.take(np.unique(rows["row"].to_numpy(), return_index=True)[1])

    @cached_property
    def _bands(self) -> list[str | None]:
        """SQL for the captions of each band: above one quantile, and not above the next."""
        known = self.table.database.settings.quantiles.get("text")
        if not known:
            raise ValueError(
                f"{self.table.name} knows no quantiles of its captions' uncertainty: run `prolip index` to its end"
            )
        cuts = dict.fromkeys(cut(np.array(known), band / self.bands) for band in range(1, self.bands))
        return [
            all_of(
                self.table.where,
                None if low is None else f"uncertainty > {low!r}",
                None if high is None else f"uncertainty <= {high!r}",
            )
            for low, high in pairwise([None, *cuts, None])
        ]


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(first, first + size) for first in range(0, count, size))
