"""Bootstrap over groups of rows: resamples as counts; ranks, Spearman's correlation and AUROC in all resamples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.result import Interval


@dataclass(frozen=True, kw_only=True)
class BootstrapEstimate:
    """An estimate with its 95 % bootstrap interval."""

    value: float | None
    """The estimate; None: undefined."""
    interval: Interval | None
    """2.5 and 97.5 % quantiles of the resamples; None if the estimate is undefined, or is in every resample."""

    @classmethod
    def from_draws(cls, value: float | None, draws: Tensor) -> BootstrapEstimate:
        """Make the estimate with the interval of its resamples.

        Args:
            value: The estimate.
            draws: Its value in each resample, (R,); not finite where undefined, which doesn't count.

        Returns:
            The estimate with its interval.
        """
        return cls(value=value, interval=None if value is None else percentile_interval(draws))


def percentile_interval(draws: Tensor) -> Interval | None:
    """The 95 % percentile interval.

    Args:
        draws: An estimate in each resample, (R,); values that are not finite don't count.

    Returns:
        Its 2.5 and 97.5 % quantiles; None if no value is finite.
    """
    finite = draws.double()[draws.isfinite()]
    if not len(finite):
        return None
    low, high = finite.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(low=low, high=high)


def iter_draw_counts(
    num_groups: int, num_draws: int, draws_per_block: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Resample groups: as many as there are, with replacement.

    Args:
        num_groups: G.
        num_draws: Number of resamples.
        draws_per_block: B, resamples that are in memory at one time.
        generator: Source of randomness.

    Yields:
        How often each resample holds each group, float64 (B, G); the last block may be smaller.
    """
    for first_draw in range(0, num_draws, draws_per_block):
        drawn_groups = torch.randint(
            num_groups, (min(draws_per_block, num_draws - first_draw), num_groups), generator=generator
        )
        ones = torch.ones(drawn_groups.shape, dtype=torch.float64)
        yield torch.zeros_like(ones).scatter_add_(1, drawn_groups, ones)


def centered_ranks(values: Tensor, counts: Tensor) -> Tensor:
    """Ranks of values in resamples, minus the mean rank. Equal values get the mean of their ranks.

    Args:
        values: (N,), without NaN.
        counts: How often each resample holds each value, (B, N).

    Returns:
        float64 (B, N); of no use where the count is 0.
    """
    unique, index_of_value = values.unique(return_inverse=True)  # sorted
    totals = torch.zeros(len(counts), len(unique), dtype=torch.float64).index_add_(1, index_of_value, counts)
    # of a value with t copies, b of them below it: ranks b + 1 .. b + t, with the mean b + (t + 1) / 2
    ranks = totals.cumsum(1) - 0.5 * (totals - 1.0)
    ranks -= 0.5 * (counts.sum(1, keepdim=True) + 1.0)
    return ranks[:, index_of_value]


def resampled_spearman(ranks_a: Tensor, ranks_b: Tensor, counts: Tensor) -> Tensor:
    """Spearman's correlation in resamples.

    Args:
        ranks_a: `centered_ranks` of one side, (B, N).
        ranks_b: Those of the other side, (B, N).
        counts: How often each resample holds each row, (B, N).

    Returns:
        float64 (B,); NaN where a side is constant.
    """
    weighted = counts * ranks_a
    covariance, variance_a = (weighted * ranks_b).sum(1), (weighted * ranks_a).sum(1)
    variance_b = (counts * ranks_b.square()).sum(1)
    return covariance / (variance_a * variance_b).sqrt()


def resampled_auroc(positive: Tensor, ranks: Tensor, counts: Tensor) -> Tensor:
    """AUROC in resamples, see `metrics.selective.auroc`.

    Args:
        positive: Whether each row is positive, bool (N,).
        ranks: `centered_ranks` of the score, (B, N).
        counts: How often each resample holds each row, (B, N).

    Returns:
        float64 (B,); NaN without positives or without negatives.
    """
    positive_counts = counts * positive.double()
    num_positive = positive_counts.sum(1)
    num_negative = counts.sum(1) - num_positive
    # The sum of the positives' centered ranks is U - num_positive x num_negative / 2 (Mann-Whitney).
    return 0.5 + (positive_counts * ranks).sum(1) / (num_positive * num_negative)
