"""Selective prediction: risk-coverage curve, AURC; AUROC."""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.evaluation.metrics.correlation import ranks

CURVE_POINTS = 100
"""Points of a curve in a figure."""


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
    wrong, order = _check(correct, confidence)
    # samples of equal confidence form a group, and each of them counts with the error rate of its group
    _, group, sizes = torch.unique_consecutive(confidence[order], return_inverse=True, return_counts=True)
    error = torch.bincount(group, wrong[order]) / sizes
    predicted = torch.arange(1, len(wrong) + 1, dtype=torch.float64)
    return predicted / len(wrong), error[group].cumsum(0) / predicted


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


def sample_risk_coverage(correct: Tensor, confidence: Tensor) -> dict[str, list[float]]:
    """Sample `risk_coverage` for figures.

    Args:
        correct: Whether each prediction is right, bool (N,).
        confidence: Confidence of each prediction, higher is surer, (N,).

    Returns:
        coverage and risk, lists of equal length: at most CURVE_POINTS equally spaced coverages, the last of which is 1.
    """
    coverage, risk = risk_coverage(correct, confidence)
    steps = min(CURVE_POINTS, len(risk))
    chosen = (torch.arange(1, steps + 1) * len(risk)) // steps - 1
    return {"coverage": coverage[chosen].tolist(), "risk": risk[chosen].tolist()}


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


def _check(correct: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
    """Check both (ValueError). Returns 1 where a prediction is wrong, else 0, float64 (N,); the order of falling
    confidence, int64 (N,)."""
    if correct.ndim != 1 or correct.shape != confidence.shape or len(correct) == 0:
        raise ValueError(
            f"correct {tuple(correct.shape)} and confidence {tuple(confidence.shape)} must both be (N,), N at least 1"
        )
    _require_no_nan(confidence, "confidence")
    return 1.0 - correct.bool().double(), confidence.argsort(descending=True)


def _require_no_nan(values: Tensor, name: str) -> None:
    if bool(values.isnan().any()):
        raise ValueError(f"{name} holds NaN, which can't be ranked")
