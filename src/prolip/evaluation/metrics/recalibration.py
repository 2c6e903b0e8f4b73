"""Calibration of zero-shot probabilities before and after a fit to one half of the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.embeddings.base_embedder import LogitParameters
from prolip.evaluation.metrics import calibration, fit
from prolip.evaluation.metrics.calibration import CalibrationMetrics, PairCalibration


@dataclass(frozen=True, kw_only=True)
class SoftmaxCalibration:
    """Calibration of softmax(scale x similarity) over the classes."""

    scale: float
    """Scale of the logits, not its logarithm."""
    converged: bool | None = None
    """Whether the fit of the scale reached its minimum; None: the scale is the model's own."""
    metrics: CalibrationMetrics
    """Calibration of the most similar class."""


@dataclass(frozen=True, kw_only=True)
class SigmoidCalibration:
    """Calibration of sigmoid(scale x similarity + bias) of pairs."""

    scale: float
    """Scale of the logits, not its logarithm."""
    bias: float
    """Bias of the logits."""
    converged: bool | None = None
    """Whether the fit of scale and bias reached its minimum; None: they are the model's own."""
    predicted: CalibrationMetrics
    """Calibration of the pairs of an image and its most similar class."""
    pairs: PairCalibration
    """Calibration of all pairs of an image and a class."""


@dataclass(frozen=True, kw_only=True)
class SoftmaxComparison:
    """The softmax before and after a fit."""

    raw: SoftmaxCalibration
    """With the model's own scale."""
    fitted: SoftmaxCalibration
    """With the fitted scale."""


@dataclass(frozen=True, kw_only=True)
class SigmoidComparison:
    """The sigmoid before and after two fits, for two questions: does this class match this image, and is the most
    similar of C classes correct? The most similar class is selected for its high score, so a fit to all pairs is
    overconfident for it."""

    raw: SigmoidCalibration
    """With the model's own scale and bias."""
    fitted: SigmoidCalibration
    """Fitted to all pairs."""
    fitted_to_predictions: SigmoidCalibration | None
    """Fitted to the pairs with the most similar class; None where all predictions are correct or all are wrong."""


@dataclass(frozen=True, kw_only=True)
class Recalibration:
    """Calibration before and after a fit. The halves are disjoint; all values are of the test half."""

    n_fit: int
    """Samples of the half that is fitted."""
    n_test: int
    """Samples of the half that is tested."""
    softmax: SoftmaxComparison
    """The softmax over classes."""
    sigmoid: SigmoidComparison | None
    """The sigmoid of pairs; None for a model without a bias."""


def evaluate_calibration(
    scores: Tensor, labels: Tensor, logits: LogitParameters, seed: int
) -> Recalibration | None:
    """Fit scale and bias to one half of the samples; measure the calibration before and after on the other half.

    Args:
        scores: Similarities of samples and classes, (N, C), C at least 2.
        labels: Index of each sample's true class, int64 (N,).
        logits: The model's own scale and bias that make logits of the scores (`Ranking.logits`).
        seed: Seed of the split.

    Returns:
        The calibration; None for fewer than two samples.
    """
    if len(labels) < 2:
        return None
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fit_rows, test_rows = order[: len(order) // 2], order[len(order) // 2 :]
    fit_half, test_half = (scores[fit_rows], labels[fit_rows]), (scores[test_rows], labels[test_rows])
    scale, bias = logits.scale, logits.bias
    fitted = fit.fit_temperature(*fit_half)
    softmax = SoftmaxComparison(
        raw=SoftmaxCalibration(scale=scale, metrics=calibration.softmax_calibration(*test_half, scale)),
        fitted=SoftmaxCalibration(
            scale=fitted.scale,
            converged=fitted.converged,
            metrics=calibration.softmax_calibration(*test_half, fitted.scale),
        ),
    )
    sigmoid = None if bias is None else _compare_sigmoids(scale, bias, fit_half, test_half)
    return Recalibration(n_fit=len(fit_rows), n_test=len(test_rows), softmax=softmax, sigmoid=sigmoid)


def _compare_sigmoids(
    scale: float, bias: float, fit_half: tuple[Tensor, Tensor], test_half: tuple[Tensor, Tensor]
) -> SigmoidComparison:
    """`sigmoid` of `evaluate_calibration`. The halves are (scores, labels)."""
    raw, raw_pairs = calibration.sigmoid_calibration(*test_half, scale, bias)
    best, is_correct = _predicted_pairs(*fit_half)
    # with at least two classes there are always pairs that match and pairs that don't; predictions may all be correct
    can_fit_predictions = bool(is_correct.any()) and not bool(is_correct.all())
    return SigmoidComparison(
        raw=SigmoidCalibration(scale=scale, bias=bias, predicted=raw, pairs=raw_pairs),
        fitted=_fit_and_test(*_all_pairs(*fit_half), test_half),
        fitted_to_predictions=_fit_and_test(best, is_correct, test_half) if can_fit_predictions else None,
    )


def _all_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of a sample and a class, and whether they match: both (N, C)."""
    return scores, torch.arange(scores.shape[1]) == labels[:, None]


def _predicted_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The pair of each sample and its predicted class, and whether it matches: both (N,)."""
    best, predicted = scores.max(1)
    return best, predicted == labels


def _fit_and_test(
    similarities: Tensor, is_match: Tensor, test_half: tuple[Tensor, Tensor]
) -> SigmoidCalibration:
    """Fit scale and bias to pairs, of which some match and some don't; measure the calibration on the test half."""
    fitted = fit.fit_scale_and_bias(similarities, is_match)
    predicted, pairs = calibration.sigmoid_calibration(*test_half, fitted.scale, fitted.bias)
    return SigmoidCalibration(
        scale=fitted.scale, bias=fitted.bias, converged=fitted.converged, predicted=predicted, pairs=pairs
    )
