"""Exact caption search: every caption of a table is compared, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.choices import InclusionMeasure, Root
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.progress import progress_bar
from prolip.retrieval.traversal.captions import CaptionTable
from prolip.retrieval.traversal.max_inclusion import find_max_inclusion
from prolip.retrieval.traversal.most_general import PairScore, find_most_general, get_truth_score

BLOCK_ELEMENTS = 2**18
"""Scores that are computed together: they stay in cache."""

Block = TypeVar("Block", MeanTrace, Gaussian)


@dataclass(frozen=True)
class ExactSearch:
    """Compares every caption of a table. Results are positions; of equally good captions the first one wins.

    Attributes:
        table: The captions.
        progress: Show a progress bar; None: if stderr is a terminal.
        match: Score of the root general-match, such as `model.match_probability_matrix`; None: 1 - CSD / 2.
    """

    table: CaptionTable
    progress: bool | None = None
    match: PairScore | None = None

    def find_nearest(self, queries: Gaussian, *, rank_by: SimilarityMetric = "csd") -> Tensor:
        """Find the caption nearest to each query.

        Args:
            queries: (Q, D).
            rank_by: csd or cosine.

        Returns:
            int64 (Q,), positions in the table.
        """

        def search_block(block: MeanTrace) -> tuple[Tensor, Tensor]:
            """Find the nearest caption of a block to each query: its similarity and its row, (Q,) each."""
            values, rows = find_nearest(queries, block, 1, metric=rank_by)
            return values[:, 0], rows[:, 0]

        return self._find_best(self.table.iter_mean_traces(), search_block)

    def find_max_inclusion(
        self, queries: Gaussian, measure: InclusionMeasure = "inclusion", form: Form = "exact"
    ) -> Tensor:
        """Find the caption that includes each query most.

        Args:
            queries: (Q, D).
            measure: inclusion or containment.
            form: Form of log inclusion.

        Returns:
            int64 (Q,), positions in the table.
        """
        return self._find_best(
            self.table.iter_gaussians(),
            lambda block: find_max_inclusion(queries, block, measure, form=form),
        )

    def find_most_general(self, queries: Gaussian, null: Gaussian, root: Root) -> Tensor:
        """Find the most uncertain caption among those that count as true of each query.

        Args:
            queries: (Q, D).
            null: (1, D), the embedding of "".
            root: general-match or general-containment, with or without null.

        Returns:
            int64 (Q,), positions in the table.
        """
        score = get_truth_score(root, self.match)
        return self._find_best(
            self.table.iter_gaussians(), lambda block: find_most_general(queries, block, null, score)
        )

    def find_nearest_at_steps(
        self, starts: Tensor, ends: Tensor, steps: int, *, rank_by: SimilarityMetric = "csd"
    ) -> Tensor:
        """Find the caption nearest to each step of the chords from starts to ends.

        Args:
            starts: (N, D), of unit length.
            ends: (N, D), of unit length.
            steps: Points per chord; the end itself is not one.
            rank_by: csd or cosine.

        Returns:
            int64 (N, steps), positions in the table.
        """
        return self._find_best(
            self.table.iter_mean_traces(), lambda block: nearest_at_steps(starts, ends, block, steps, rank_by)
        )

    def _find_best(
        self, blocks: Iterator[tuple[Tensor, Block]], search_block: Callable[[Block], tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Search all blocks, and find the best caption of all of them for each query. Shows a progress bar.

        Args:
            blocks: Positions (n,) and captions (n, D) of each block.
            search_block: From a block to the best value and the row of its caption, of any shape, such as (Q,); larger
                is better.

        Returns:
            int64, of the shape of `search_block`'s results: positions.

        Raises:
            ValueError: There is no caption.
        """
        best_values = best_positions = None
        with progress_bar(
            f"scanning {self.table.name}", len(self.table), "captions", self.progress
        ) as advance:
            for positions, captions in blocks:
                if not len(positions):
                    continue
                values, rows = search_block(captions)
                if best_values is None or best_positions is None:
                    best_values, best_positions = values, positions[rows]
                else:
                    is_better = values > best_values  # not >=: of equally good captions the first one wins
                    best_values = torch.where(is_better, values, best_values)
                    best_positions = torch.where(is_better, positions[rows], best_positions)
                advance(len(positions))
        if best_positions is None:
            raise ValueError(f"{self.table.name}: there is no caption to search")
        return best_positions


def nearest_at_steps(
    starts: Tensor, ends: Tensor, captions: MeanTrace, steps: int, rank_by: SimilarityMetric
) -> tuple[Tensor, Tensor]:
    """Find the caption of one block that is nearest to each step of each traversal.

    Step i is (1 - t) start + t end with t = i / steps, scaled to unit length. The products of a step with all captions
    are a mixture of those of its two ends, a_j and b_j for caption j, so each end is multiplied once. Only the
    largest ((1 - t) a_j + t b_j) / length - bias_j of a step is sought, so all are multiplied by its length.

    Args:
        starts: (N, D), of unit length.
        ends: (N, D), of unit length.
        captions: M captions; their means are scaled to unit length.
        steps: The number of steps.
        rank_by: csd: half of a caption's uncertainty is subtracted from its cosine. cosine: nothing is.

    Returns:
        The largest score and the row of its caption, (N, steps) each. Scores of one step can be compared between
        blocks.
    """
    means = normalize(captions.mean, dim=-1)
    uncertainty = captions.uncertainty
    bias = 0.5 * uncertainty if rank_by == "csd" else torch.zeros_like(uncertainty)
    values = means.new_empty(len(starts), steps)
    rows = torch.empty((len(starts), steps), dtype=torch.int64, device=means.device)
    chunk_size = max(1, BLOCK_ELEMENTS // len(means))
    fractions = torch.arange(steps, dtype=means.dtype, device=means.device) / steps
    cosines = (starts * ends).sum(-1)
    # |(1 - t) start + t end| for unit vectors: (N, steps)
    lengths = (1 - 2 * (fractions * (1 - fractions)) * (1 - cosines[:, None])).clamp_min(0).sqrt()
    for first in range(0, len(starts), chunk_size):
        chunk = slice(first, first + chunk_size)
        start_products, end_products = starts[chunk] @ means.mT, ends[chunk] @ means.mT
        scores = torch.empty_like(start_products)
        for step, fraction in enumerate(fractions.tolist()):
            torch.lerp(start_products, end_products, fraction, out=scores)
            scores.addcmul_(lengths[chunk, step, None], bias[None], value=-1)
            values[chunk, step], rows[chunk, step] = scores.max(dim=1)
    return values, rows
