"""Selective prediction: risk-coverage curve, AURC; AUROC."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.metrics.correlation import ranks

CURVE_POINTS = 100
"""Points of a curve in a figure."""


@dataclass(frozen=True, kw_only=True)
class RiskCurve:
    """A risk-coverage curve, sampled for figures."""

    coverage: tuple[float, ...]
    """Fractions of the samples that are predicted, increasing to 1."""
    risk: tuple[float, ...]
    """Error rate among them, for each coverage."""


def risk_coverage(correct: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
    """Fraction of wrong predictions (risk) among the k most confident, for k = 1..N.

    The risk is the expectation over a random order of samples of equal confidence, so the curve doesn't depend on the
    order of the samples.

    Args:
        correct: Whether each prediction is right, bool (N,).
        confidence: Confidence of each prediction, higher is surer, (N,).

    Returns:
        Coverage k/N and risk, both float64 (N,).
    """
    _check_predictions(correct, confidence)
    wrong, order = 1.0 - correct.bool().double(), confidence.argsort(descending=True)
    # samples of equal confidence form a group, and each of them counts with the error rate of its group
    _, group, sizes = torch.unique_consecutive(confidence[order], return_inverse=True, return_counts=True)
    error_rate = torch.bincount(group, wrong[order]) / sizes
    k = torch.arange(1, len(wrong) + 1, dtype=torch.float64)
    return k / len(wrong), error_rate[group].cumsum(0) / k


def aurc(correct: Tensor, confidence: Tensor) -> float:
    """Area under `risk_coverage`: the mean risk over k = 1..N.

    Args:
        correct: Whether each prediction is right, bool (N,).
        confidence: Confidence of each prediction, higher is surer, (N,).

    Returns:
        0 is best; random confidence gives the error rate.
    """
    return risk_coverage(correct, confidence)[1].mean().item()


def excess_aurc(correct: Tensor, confidence: Tensor) -> float:
    """`aurc` minus that of an oracle, which ranks all correct predictions above all wrong ones.

    Args:
        correct: Whether each prediction is right, bool (N,).
        confidence: Confidence of each prediction, higher is surer, (N,).

    Returns:
        0 is best.
    """
    return aurc(correct, confidence) - aurc(correct, correct.double())


def sample_risk_coverage(correct: Tensor, confidence: Tensor) -> RiskCurve:
    """Sample `risk_coverage` for figures.

    Args:
        correct: Whether each prediction is right, bool (N,).
        confidence: Confidence of each prediction, higher is surer, (N,).

    Returns:
        At most CURVE_POINTS equally spaced coverages, the last of which is 1.
    """
    coverage, risk = risk_coverage(correct, confidence)
    num_points = min(CURVE_POINTS, len(risk))
    point_indices = (torch.arange(1, num_points + 1) * len(risk)) // num_points - 1
    return RiskCurve(
        coverage=tuple(coverage[point_indices].tolist()), risk=tuple(risk[point_indices].tolist())
    )


def auroc(positive: Tensor, score: Tensor) -> float | None:
    """Probability that a positive sample scores above a negative one, ties counting half (Mann-Whitney).

    Args:
        positive: Whether each sample is positive, bool (N,).
        score: Score of each sample, (N,), without NaN.

    Returns:
        0 to 1, or None if there are no positive or no negative samples.
    """
    if positive.ndim != 1 or positive.shape != score.shape:
        raise ValueError(f"positive {tuple(positive.shape)} and score {tuple(score.shape)} must both be (N,)")
    positive = positive.bool()
    _require_no_nan(score, "score")
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if num_positive == 0 or num_negative == 0:
        return None
    # U: the number of pairs (positive, negative) in which the positive scores higher
    u = ranks(score)[positive].sum().item() - num_positive * (num_positive + 1) / 2
    return (u / num_positive) / num_negative


def _check_predictions(correct: Tensor, confidence: Tensor) -> None:
    """Raise ValueError unless both are (N,), N at least 1, and no confidence is NaN."""
    if correct.ndim != 1 or correct.shape != confidence.shape or len(correct) == 0:
        raise ValueError(
            f"correct {tuple(correct.shape)} and confidence {tuple(confidence.shape)} must both be (N,), N at least 1"
        )
    _require_no_nan(confidence, "confidence")


def _require_no_nan(values: Tensor, name: str) -> None:
    if bool(values.isnan().any()):
        raise ValueError(f"{name} holds NaN, which can't be ranked")
