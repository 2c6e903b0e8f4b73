"""Detection: AUROC, average precision and FPR at 95 % TPR of a score; R-AUROC of the uncertainty of queries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.choices import SimilarityMetric
from prolip.evaluation.metrics.selective import auroc
from prolip.gaussian import Gaussian
from prolip.measures.nearest import find_nearest

TPR = 0.95
"""True positive rate at which the false positive rate is reported."""


@dataclass(frozen=True, kw_only=True)
class DetectionMetrics:
    """How well a score tells positives from negatives. Each metric is None without positives or without negatives."""

    n: int
    """Number of cases."""
    num_positive: int
    """Positives among them."""
    auroc: float | None
    """Probability that a positive scores above a negative; 0.5 is chance."""
    average_precision: float | None
    """Area under precision against recall; the fraction of positives is chance."""
    fpr95: float | None
    """Fraction of the negatives that is taken for positive where 95 % of the positives are found; 0.95 is chance."""


def detection_metrics(positive: Tensor, score: Tensor) -> DetectionMetrics:
    """Measure how well a score tells positives from negatives. Errors are positives whose score is the uncertainty.

    Args:
        positive: Whether each case is positive, bool (N,).
        score: Score of each case, (N,), higher for positives, without NaN.

    Returns:
        The metrics.
    """
    return DetectionMetrics(
        n=len(positive),
        num_positive=int(positive.bool().sum()),
        auroc=auroc(positive, score),
        average_precision=average_precision(positive, score),
        fpr95=fpr_at_tpr(positive, score),
    )


def average_precision(positive: Tensor, score: Tensor) -> float | None:
    """Sum over thresholds of (gain in recall) x (precision); cases of equal score cross a threshold together.

    Args:
        positive: Whether each case is positive, bool (N,).
        score: Score of each case, (N,), without NaN.

    Returns:
        0 to 1, or None if there are no positive or no negative cases.
    """
    counts = _count_above_thresholds(positive, score)
    if counts is None:
        return None
    true, false = counts
    gains = torch.diff(true, prepend=true.new_zeros(1)) / true[-1]
    return (gains * true / (true + false)).sum().item()


def fpr_at_tpr(positive: Tensor, score: Tensor, tpr: float = TPR) -> float | None:
    """False positive rate at the highest threshold that finds at least a given fraction of the positives.

    Args:
        positive: Whether each case is positive, bool (N,).
        score: Score of each case, (N,), without NaN.
        tpr: Fraction of the positives to be found, above 0 and at most 1.

    Returns:
        0 to 1, or None if there are no positive or no negative cases.
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr must be above 0 and at most 1, not {tpr}")
    counts = _count_above_thresholds(positive, score)
    if counts is None:
        return None
    true, false = counts
    first = int((true / true[-1] >= tpr).int().argmax())
    return (false[first] / false[-1]).item()


def r_auroc(queries: Gaussian, labels: Tensor, metric: SimilarityMetric = "cosine") -> DetectionMetrics:
    """R-AUROC (Kirchhof et al., 2023): does uncertainty tell that the nearest other sample is of another class?

    Args:
        queries: Samples that search each other, (N, D), N at least 2.
        labels: Class of each sample, int64 (N,).
        metric: Similarity that finds the nearest.

    Returns:
        The detection of "the class of the nearest other sample differs" by uncertainty; `auroc` is the R-AUROC.
    """
    if tuple(labels.shape) != (len(queries),) or len(queries) < 2:
        raise ValueError(
            f"{len(queries)} queries and labels {tuple(labels.shape)}: N of both are needed, N at least 2"
        )
    differs = labels[find_nearest_other(queries, metric)] != labels
    return detection_metrics(differs, queries.uncertainty.double())


def find_nearest_other(queries: Gaussian, metric: SimilarityMetric = "cosine") -> Tensor:
    """The nearest other sample of each sample, exactly, by matrix products in blocks.

    Args:
        queries: The samples, (N, D), N at least 2.
        metric: Similarity that finds the nearest.

    Returns:
        Rows, int64 (N,), never a sample's own.
    """
    nearest = find_nearest(queries, queries, 2, metric=metric)[1]
    # two duplicates of a sample may precede itself: then the first of the two is another sample already
    own = torch.arange(len(queries), device=nearest.device)
    return torch.where(nearest[:, 0] == own, nearest[:, 1], nearest[:, 0])


def _count_above_thresholds(positive: Tensor, score: Tensor) -> tuple[Tensor, Tensor] | None:
    """Positives and negatives that score at least each distinct score, highest first: float64 (K,) each.

    None if there are no positives or no negatives.
    """
    if auroc(positive, score) is None:  # checks shapes and values too
        return None
    ordered, order = score.sort(descending=True)
    _, sizes = torch.unique_consecutive(ordered, return_counts=True)
    last = sizes.cumsum(0) - 1  # the last case of each distinct score
    true = positive[order].bool().double().cumsum(0)[last]
    return true, (last + 1).double() - true
