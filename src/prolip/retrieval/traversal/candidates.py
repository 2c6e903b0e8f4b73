"""Approximate caption search: only the candidates that the index of a database finds are compared.

The nearest caption, of an image or of a step, is what a database is made for. The caption that includes most is not:
log inclusion is -1/2 sum log w - sum d^2 / w with w = s1 + 2 s2, so that a caption must be near and have the right
variance. But of captions of one uncertainty the nearest includes most. So captions are split into bands of
uncertainty with equally many captions each, and the few nearest of each band are compared exactly.

The most general caption that matches is sought in the same bands: if a band has a caption that matches, its nearest
one does. So the band is the right one; within it the most uncertain of the candidates is found.

Containment has no such shortcut: the caption that contains most may be an uncertain one from afar. All captions are
compared.
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

from prolip.choices import InclusionMeasure, Root
from prolip.extras import import_extra
from prolip.gaussian import Gaussian
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.retrieval.index.quantiles import value_at_fraction
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.index.sql import join_conditions
from prolip.retrieval.index.vectors import make_query_vectors
from prolip.retrieval.traversal.captions import DatabaseCaptions, read_positions
from prolip.retrieval.traversal.exact import ExactSearch, nearest_at_steps
from prolip.retrieval.traversal.max_inclusion import find_max_inclusion
from prolip.retrieval.traversal.most_general import PairScore, find_most_general, get_truth_score

NUM_BANDS, CANDIDATES_PER_BAND = 16, 16
"""Bands of uncertainty, and candidates of each: docs/traversal.md says how often they include the root."""
NEAREST, NEAREST_BY_COSINE = 10, 200
"""Candidates for the nearest caption: as many as the effort of an index is tuned for; by cosine more, since an index
ranks by CSD alone."""
QUERY_CHUNK, ROOT_CHUNK = 256, 16
"""How many points, and how many queries for roots, have their candidates in memory together."""


@dataclass(frozen=True)
class CandidateSearch:
    """Compares the captions that the index of a database finds. Results are positions, as those of `ExactSearch`.

    Attributes:
        table: The captions.
        effort: Effort of searches without a filter.
        filtered_effort: Effort of searches with a filter, as bands are.
        num_bands: Number of bands of uncertainty, for roots.
        candidates_per_band: Captions of each band that are compared.
        progress: Show the progress of a search over all captions (containment); None: if stderr is a terminal.
        match: As in `ExactSearch`.
    """

    table: DatabaseCaptions
    effort: SearchEffort
    filtered_effort: SearchEffort
    num_bands: int = NUM_BANDS
    candidates_per_band: int = CANDIDATES_PER_BAND
    progress: bool | None = None
    match: PairScore | None = None

    def find_nearest(self, queries: Gaussian, *, rank_by: SimilarityMetric = "csd") -> Tensor:
        """Find the caption nearest to each query, among those that the index finds.

        Args:
            queries: (Q, D).
            rank_by: csd or cosine.

        Returns:
            int64 (Q,), positions in the table.
        """
        positions = []
        for chunk in _iter_chunks(len(queries), QUERY_CHUNK):
            rows = self._fetch_nearest(queries.mean[chunk], rank_by)
            best = find_nearest(queries[chunk], self.table.read_mean_traces(rows), 1, metric=rank_by)[1]
            positions.append(read_positions(rows)[best[:, 0]])
        return torch.cat(positions)

    def find_max_inclusion(
        self, queries: Gaussian, measure: InclusionMeasure = "inclusion", form: Form = "exact"
    ) -> Tensor:
        """Find the caption that includes each query most, among the nearest of each band of uncertainty.

        Args:
            queries: (Q, D).
            measure: inclusion; or containment, for which all captions are compared.
            form: Form of log inclusion.

        Returns:
            int64 (Q,), positions in the table.
        """
        if measure == "containment":
            return ExactSearch(self.table, self.progress).find_max_inclusion(queries, measure, form)
        self.table.require_variances()
        positions = []
        for chunk in _iter_chunks(len(queries), ROOT_CHUNK):
            rows = self._fetch_bands(queries.mean[chunk])
            best = find_max_inclusion(queries[chunk], self.table.read_gaussians(rows), measure, form=form)[1]
            positions.append(read_positions(rows)[best])
        return torch.cat(positions)

    def find_most_general(self, queries: Gaussian, null: Gaussian, root: Root) -> Tensor:
        """Find the most uncertain caption among those that count as true of each query.

        Args:
            queries: (Q, D).
            null: (1, D), the embedding of "".
            root: general-match or general-containment, with or without null.

        Returns:
            int64 (Q,), positions in the table.
        """
        if root.startswith("general-containment"):
            return ExactSearch(self.table, self.progress).find_most_general(queries, null, root)
        self.table.require_variances()
        score, positions = get_truth_score(root, self.match), []
        for chunk in _iter_chunks(len(queries), ROOT_CHUNK):
            rows = self._fetch_bands(queries.mean[chunk])
            best = find_most_general(queries[chunk], self.table.read_gaussians(rows), null, score)[1]
            positions.append(read_positions(rows)[best])
        return torch.cat(positions)

    def find_nearest_at_steps(
        self, starts: Tensor, ends: Tensor, steps: int, *, rank_by: SimilarityMetric = "csd"
    ) -> Tensor:
        """Find the caption nearest to each step of the chords from starts to ends.

        The candidates of one step are compared at all other steps, too: an index that misses a caption at one step
        hardly misses it at the steps before and after.

        Args:
            starts: (N, D), of unit length.
            ends: (N, D), of unit length.
            steps: Points per chord; the end itself is not one.
            rank_by: csd or cosine.

        Returns:
            int64 (N, steps), positions in the table.
        """
        fractions = torch.arange(steps, dtype=starts.dtype)[:, None] / steps  # t of each step, (steps, 1)
        positions = []
        for chunk in _iter_chunks(len(starts), max(1, QUERY_CHUNK // steps)):
            points = torch.lerp(starts[chunk, None], ends[chunk, None], fractions)
            rows = self._fetch_nearest(normalize(points, dim=-1).flatten(0, 1), rank_by)
            captions = self.table.read_mean_traces(rows)
            best = nearest_at_steps(starts[chunk], ends[chunk], captions, steps, rank_by)[1]
            positions.append(read_positions(rows)[best])
        return torch.cat(positions)

    def _fetch_nearest(self, points: Tensor, rank_by: SimilarityMetric) -> Any:
        """Fetch captions near to any of the points (n, D), with means and uncertainty, as a pyarrow table."""
        count = NEAREST if rank_by == "csd" else NEAREST_BY_COSINE
        columns = ["row", "vector", "uncertainty"]
        return self._fetch_union(points, count, columns, [self.table.where], self.effort)

    def _fetch_bands(self, points: Tensor) -> Any:
        """Fetch captions of every band near to any of the points (n, D), with means and variances: a pyarrow table."""
        columns = ["row", "vector", "log_var"]
        return self._fetch_union(
            points, self.candidates_per_band, columns, self._band_conditions, self.filtered_effort
        )

    def _fetch_union(
        self,
        points: Tensor,
        count: int,
        columns: Sequence[str],
        conditions: Sequence[str | None],
        effort: SearchEffort,
    ) -> Any:
        """Fetch the nearest captions of each point under each condition.

        Args:
            points: (n, D).
            count: Captions per point and condition.
            columns: Columns to read, `row` among them.
            conditions: SQL; None: all rows.
            effort: Effort of the search.

        Returns:
            A pyarrow table, sorted by position and without repeats.

        Raises:
            ValueError: There is no caption.
        """
        database, vectors = self.table.database, make_query_vectors(points.numpy())
        tables = [
            database.find_nearest(vectors, count, columns=columns, where=where, effort=effort)
            for where in conditions
        ]
        rows = import_extra("pyarrow", "search").concat_tables(tables)
        if not len(rows):
            raise ValueError(f"{self.table.name}: there is no caption to search")
        return rows.take(np.unique(rows["row"].to_numpy(), return_index=True)[1])

    @cached_property
    def _band_conditions(self) -> list[str | None]:
        """SQL conditions for the captions of each band: above one quantile of uncertainty, and not above the next.

        Bands between equal quantiles are skipped. Raises a ValueError if the database has no quantiles.
        """
        quantiles = self.table.database.settings.quantiles.get("text")
        if not quantiles:
            raise ValueError(
                f"{self.table.name}: the root needs quantiles of the captions' uncertainty, which the database doesn't "
                f"have (`prolip index` was interrupted). Run `prolip index EMBEDDINGS --out {self.table.name}` again."
            )
        limits = dict.fromkeys(
            value_at_fraction(np.array(quantiles), band / self.num_bands) for band in range(1, self.num_bands)
        )
        return [
            join_conditions(
                self.table.where,
                None if low is None else f"uncertainty > {low!r}",
                None if high is None else f"uncertainty <= {high!r}",
            )
            for low, high in pairwise([None, *limits, None])
        ]


def _iter_chunks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of `size` rows that cover `count` rows."""
    return (slice(first, first + size) for first in range(0, count, size))
