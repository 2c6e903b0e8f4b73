"""Split conformal prediction: thresholds with a stated coverage, and sets of classes by LAC and APS scores.

The guarantee is marginal: if the n calibration cases and a new case are exchangeable, the set holds the truth with a
probability of at least the coverage, on average over cases and over calibration sets; without ties it is at most
1/(n+1) above. It says nothing of a single case or of a group of cases, such as the uncertain ones.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_fraction

ConformalScore = Literal["lac", "aps"]
"""lac: 1 - p(class), which gives the smallest sets on average. aps: the probability of all likelier classes, and of a
random part of the class itself, which gives larger sets to harder images."""


def conformal_quantile(scores: Tensor, coverage: float) -> float:
    """The ceil((n + 1) coverage)-th smallest of n nonconformity scores.

    Args:
        scores: Nonconformity of the truth in n calibration cases, (n,), without NaN.
        coverage: The coverage, above 0 and at most 1.

    Returns:
        The threshold: a new case's truth has a score of at most it with a probability of at least `coverage`. Infinity
        if n is too small for the coverage.
    """
    require_fraction(coverage, "coverage", exclude_zero=True)
    if scores.ndim != 1 or bool(scores.isnan().any()):
        raise ValueError(f"scores {tuple(scores.shape)} must be (n,) without NaN")
    # less a rounding error of the product: (99 + 1) 0.07 is a little above 7
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    return math.inf if rank > len(scores) else scores.double().sort().values[rank - 1].item()


def class_scores(
    probabilities: Tensor, score: ConformalScore, generator: torch.Generator | None = None
) -> Tensor:
    """Nonconformity of every class of every image.

    Args:
        probabilities: (N, C), rows that sum to 1.
        score: lac or aps.
        generator: Of the random part of a class that aps counts; None: the whole class, so that sets are larger than
            the coverage needs.

    Returns:
        float64 (N, C); a class with a large score is an unlikely one.
    """
    require_choice(score, get_args(ConformalScore), "score")
    p = probabilities.double()
    if p.ndim != 2 or not bool((p >= 0).all()) or not bool((p.sum(1) - 1).abs().le(1e-4).all()):
        raise ValueError(f"probabilities {tuple(p.shape)} must be (N, C) with rows that sum to 1")
    if score == "lac":
        return 1.0 - p
    part = torch.zeros(len(p), 1).double()
    if generator is not None:
        part = torch.rand(len(p), 1, generator=generator, dtype=torch.float64)
    sorted_p, order = p.sort(dim=1, descending=True, stable=True)
    cumulative = sorted_p.cumsum(1) - part * sorted_p
    return torch.empty_like(p).scatter_(1, order, cumulative)


def prediction_sets(scores: Tensor, threshold: float) -> Tensor:
    """The classes of each image's set.

    Args:
        scores: Of `class_scores`, (N, C).
        threshold: Of `conformal_quantile`.

    Returns:
        bool (N, C).
    """
    return scores <= threshold
