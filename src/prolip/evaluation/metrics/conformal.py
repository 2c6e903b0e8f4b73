"""Split conformal prediction: thresholds with a stated coverage, and sets of classes by LAC and APS scores.

The guarantee is marginal: if the n calibration cases and a new case are exchangeable, the set holds the truth with a
probability of at least the coverage, on average over cases and over calibration sets; without ties it is at most
1/(n+1) above. It says nothing of a single case or of a group of cases, such as the uncertain ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_fraction
from prolip.evaluation.metrics.bins import equal_mass_bins
from prolip.evaluation.result import Proportion

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


@dataclass(frozen=True, kw_only=True)
class SetSizeBin:
    """Sets of the images in one bin of uncertainty."""

    index: int
    """Index of the bin, from 0 for the least uncertain images."""
    mean_size: float
    """Mean number of classes in a set."""
    coverage: Proportion
    """Fraction of the sets that hold the true class. The guarantee is not for a single bin."""


@dataclass(frozen=True, kw_only=True)
class ClassSets:
    """Sets of classes on the test half, by one score."""

    threshold: float
    """Largest score of a class in a set."""
    coverage: Proportion
    """Fraction of the sets that hold the true class."""
    mean_size: float
    """Mean number of classes in a set."""
    empty: float
    """Fraction of the sets without a class."""
    deciles: tuple[SetSizeBin, ...] | None
    """By decile of the image's uncertainty, from the least uncertain on; None for a deterministic model."""


@dataclass(frozen=True, kw_only=True)
class ConformalMetrics:
    """Split conformal sets of classes: thresholds of one half of the images, measured on the other half."""

    coverage: float
    """The coverage that was requested."""
    n_fit: int
    """Images of the half that sets the thresholds."""
    n_test: int
    """Images of the half that is tested."""
    lac: ClassSets
    """By 1 - p(class): the smallest sets."""
    aps: ClassSets
    """By the cumulative probability, with a random part of the last class."""

    def by_score(self) -> dict[ConformalScore, ClassSets]:
        """The sets by score."""
        return {"lac": self.lac, "aps": self.aps}


def evaluate_class_sets(
    probabilities: Tensor, labels: Tensor, uncertainty: Tensor | None, coverage: float, seed: int
) -> ConformalMetrics:
    """Measure the coverage and the sizes of split conformal sets.

    Args:
        probabilities: Of N images and C classes, (N, C), rows that sum to 1.
        labels: Index of each image's true class, int64 (N,).
        uncertainty: Uncertainty of each image, (N,); None for a deterministic model.
        coverage: The requested coverage, above 0 and below 1.
        seed: Seed of the halves, and of the random part of APS.

    Returns:
        The metrics of both scores.

    Raises:
        ValueError: One half of the images is too small for the coverage.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    fit_rows, test_rows = order[: len(order) // 2], order[len(order) // 2 :]
    found = {}
    for score in get_args(ConformalScore):
        scores = class_scores(probabilities, score, generator)
        threshold = conformal_quantile(scores[fit_rows, labels[fit_rows]], coverage)
        if threshold == math.inf:
            raise ValueError(
                f"coverage {coverage} needs at least {math.ceil(coverage / (1 - coverage) - 1e-9)} images in the half "
                f"that sets thresholds, which has {len(fit_rows)}: evaluate more images, or lower the coverage"
            )
        sets = prediction_sets(scores[test_rows], threshold)
        found[score] = _measure_sets(
            sets, labels[test_rows], threshold, None if uncertainty is None else uncertainty[test_rows]
        )
    return ConformalMetrics(coverage=coverage, n_fit=len(fit_rows), n_test=len(test_rows), **found)


def _measure_sets(sets: Tensor, labels: Tensor, threshold: float, uncertainty: Tensor | None) -> ClassSets:
    """Metrics of the sets of N images, bool (N, C)."""
    size, is_covered = sets.sum(1).double(), sets.gather(1, labels[:, None])[:, 0]
    deciles = None
    if uncertainty is not None:
        bins = equal_mass_bins(uncertainty, 10)
        deciles = tuple(
            SetSizeBin(
                index=int(index),
                mean_size=size[bins == index].mean().item(),
                coverage=_fraction(is_covered[bins == index]),
            )
            for index in bins.unique()
        )
    return ClassSets(
        threshold=threshold, coverage=_fraction(is_covered), mean_size=size.mean().item(),
        empty=(size == 0).double().mean().item(), deciles=deciles,
    )  # fmt: skip


def _fraction(values: Tensor) -> Proportion:
    """The fraction of true values, bool (N,)."""
    return Proportion.from_mean(values.double().mean().item(), len(values))
