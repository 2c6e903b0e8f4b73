"""Agreement of scores with human scores, with bootstrap intervals over images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.judgements_result import HumanAgreement
from prolip.evaluation.metrics import bootstrap
from prolip.evaluation.metrics.bootstrap import BootstrapEstimate
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.selective import auroc

BLOCK_COUNTS = 2**21
"""Rows of bootstrap resamples that are in memory at one time: 16 MB in float64 for each score."""

Scores = Mapping[str, Tensor]
"""Scores of K pairs by name, float64 (K,) each."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AgreementBootstrap:
    """Bootstrap over the images of K pairs: all pairs of a drawn image are drawn together.

    Attributes:
        groups: Index of each pair's image, int64 (K,), from 0 without gaps.
        num_groups: Number of images.
        num_draws: R, the number of resamples.
        seed: Seed of the resamples: every measure sees the same ones.
    """

    groups: Tensor
    num_groups: int
    num_draws: int
    seed: int

    @classmethod
    def of(cls, image_rows: Tensor, config: JudgementsConfig) -> AgreementBootstrap:
        """Make the bootstrap of pairs.

        Args:
            image_rows: Row of each pair's image, int64 (K,).
            config: Number of resamples, and their seed.

        Returns:
            The bootstrap.
        """
        unique, groups = image_rows.unique(return_inverse=True)
        return cls(groups=groups, num_groups=len(unique), num_draws=config.resamples, seed=config.seed)

    def agreement(
        self, scores: Scores, human: Tensor, is_yes: Tensor, chosen: Tensor | None = None
    ) -> dict[str, HumanAgreement]:
        """Measure how each score agrees with people.

        Args:
            scores: The scores.
            human: Human score of each pair, (K,).
            is_yes: Whether people say yes to each pair, bool (K,).
            chosen: Pairs that count, bool (K,), at least one; None: all.

        Returns:
            The agreement by name of the score.
        """
        rows = torch.arange(len(human)) if chosen is None else chosen.nonzero()[:, 0]
        human, is_yes = human[rows], is_yes[rows]
        chosen_scores = {name: score[rows] for name, score in scores.items()}

        def measure(counts: Tensor) -> Tensor:
            """Correlation and AUROC of each score in resamples, (B, 2 x scores)."""
            human_ranks, found = bootstrap.centered_ranks(human, counts), []
            for score in chosen_scores.values():
                ranks = bootstrap.centered_ranks(score, counts)
                found.append(bootstrap.resampled_spearman(ranks, human_ranks, counts))
                found.append(bootstrap.resampled_auroc(is_yes, ranks, counts))
            return torch.stack(found, 1)

        draws = self._draw(measure, rows)
        return {
            name: HumanAgreement(
                n=len(rows),
                num_yes=int(is_yes.sum()),
                spearman=BootstrapEstimate.from_draws(spearman(score, human), draws[:, 2 * index]),
                auroc=BootstrapEstimate.from_draws(auroc(is_yes, score), draws[:, 2 * index + 1]),
            )
            for index, (name, score) in enumerate(chosen_scores.items())
        }

    def correlate(self, score: Tensor, target: Tensor, rows: Tensor) -> BootstrapEstimate:
        """Correlate two values of some of the pairs.

        Args:
            score: (L,).
            target: (L,).
            rows: Rows of these pairs among all, int64 (L,).

        Returns:
            Spearman's correlation.
        """

        def measure(counts: Tensor) -> Tensor:
            """The correlation in resamples, (B,)."""
            score_ranks, target_ranks = (bootstrap.centered_ranks(side, counts) for side in (score, target))
            return bootstrap.resampled_spearman(score_ranks, target_ranks, counts)

        return BootstrapEstimate.from_draws(spearman(score, target), self._draw(measure, rows))

    def _draw(self, measure: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """A measure in all resamples, (R, ...).

        measure: how often each of B resamples holds each of the rows, (B, L) -> (B, ...). rows: int64 (L,).
        """
        generator = torch.Generator().manual_seed(self.seed)
        size = max(1, BLOCK_COUNTS // len(self.groups))
        blocks = bootstrap.iter_draw_counts(self.num_groups, self.num_draws, size, generator)
        return torch.cat([measure(counts[:, self.groups[rows]]) for counts in blocks])
