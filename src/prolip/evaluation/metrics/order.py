"""Order of pairs by a score: the fraction in order, ties half, and the exact sign test of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.result import Proportion


@dataclass(frozen=True, kw_only=True)
class SignTest:
    """How many pairs a score puts in order, and whether chance could do it."""

    in_order: Proportion
    """Fraction of the pairs in order; a tie counts half."""
    num_ties: int
    """Pairs whose scores are equal."""
    p_value: float | None
    """Two-sided exact binomial test of the pairs that are not tied; 1 if all are. None for a mean over several models,
    whose pairs are the same."""


def fraction_in_order(higher: Tensor, lower: Tensor) -> float:
    """Fraction of pairs whose first score is the larger one; a tie counts half.

    Args:
        higher: Scores that should be higher, (N,), N at least 1.
        lower: Scores that should be lower, (N,).

    Returns:
        0 to 1; 0.5 is chance.
    """
    return 0.5 + 0.5 * (higher.double() - lower.double()).sign().mean().item()


def sign_test(higher: Tensor, lower: Tensor) -> SignTest | None:
    """Test whether the first score of independent pairs is the larger one more, or less, often than by chance.

    Args:
        higher: Scores that should be higher, (N,).
        lower: Scores that should be lower, (N,).

    Returns:
        The test; None without pairs.
    """
    if not len(higher):
        return None
    num_higher, num_lower = int((higher > lower).sum()), int((higher < lower).sum())
    return SignTest(
        in_order=Proportion.from_mean(fraction_in_order(higher, lower), len(higher)),
        num_ties=len(higher) - num_higher - num_lower,
        p_value=binomial_p_value(num_higher, num_lower),
    )


def binomial_p_value(successes: int, failures: int) -> float:
    """Probability that a fair coin gives a result at least as far from one half.

    Args:
        successes, failures: Counts, at least 0.

    Returns:
        The two-sided exact p-value; 1 without trials.
    """
    n, fewer = successes + failures, min(successes, failures)
    k = torch.arange(fewer + 1, dtype=torch.float64)
    log_binomials = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    log_tail = torch.logsumexp(log_binomials, 0).item() - n * math.log(2)
    return min(1.0, 2.0 * math.exp(log_tail))
