"""Calibration of zero-shot probabilities before and after a fit to one half of the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prolip.evaluation.metrics import calibration, fit
from prolip.evaluation.metrics.confidence import LogitParameters


def evaluate_calibration(
    scores: Tensor, labels: Tensor, logits: LogitParameters, seed: int
) -> dict[str, Any] | None:
    """Fit scale and bias to one half of the samples; measure the calibration before and after on the other half.

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).
        logits: The model's own scale and bias.
        seed: Seed of the split.

    Returns:
        None for fewer than two samples; else n_fit and n_test (sizes of the halves); softmax {raw, fitted}; sigmoid
        {raw, fitted, fitted_to_predictions}, which is None for a model without a bias. raw: with the model's own scale
        and bias. The docstring of `prolip.evaluation.zeroshot` lists the values of each (`calibration`).
    """
    if len(labels) < 2:
        return None
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fit_rows, test_rows = order[: len(order) // 2], order[len(order) // 2 :]
    scale, bias = logits
    fit_half = (scores[fit_rows], labels[fit_rows])
    fitted = fit.fit_temperature(*fit_half)
    test_half = (scores[test_rows], labels[test_rows])
    result: dict[str, Any] = {
        "n_fit": len(fit_rows),
        "n_test": len(test_rows),
        "softmax": {
            "raw": {"scale": scale} | calibration.softmax_calibration(*test_half, scale),
            "fitted": {"scale": fitted.scale, "converged": fitted.converged}
            | calibration.softmax_calibration(*test_half, fitted.scale),
        },
        "sigmoid": None,
    }
    if bias is not None:
        result["sigmoid"] = {
            "raw": {"scale": scale, "bias": bias} | calibration.sigmoid_calibration(*test_half, scale, bias),
            "fitted": _fit_and_test(*_all_pairs(*fit_half), *test_half),
            "fitted_to_predictions": _fit_and_test(*_predicted_pairs(*fit_half), *test_half),
        }
    return result


def _all_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of a sample and a class, and whether they match: both (N, C)."""
    return scores, torch.arange(scores.shape[1]) == labels[:, None]


def _predicted_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The pair of each sample and its predicted class, and whether it matches: both (N,)."""
    best, predicted = scores.max(1)
    return best, predicted == labels


def _fit_and_test(
    similarities: Tensor, is_match: Tensor, test_scores: Tensor, test_labels: Tensor
) -> dict[str, Any] | None:
    """Fit scale and bias to pairs; measure the sigmoid's calibration on the test half.

    Returns scale, bias, converged and `sigmoid_calibration`; None if all pairs match or none does, so that there is
    nothing to fit.
    """
    if bool(is_match.all()) or not bool(is_match.any()):
        return None
    fitted = fit.fit_scale_and_bias(similarities, is_match)
    return {
        "scale": fitted.scale,
        "bias": fitted.bias,
        "converged": fitted.converged,
    } | calibration.sigmoid_calibration(test_scores, test_labels, fitted.scale, fitted.bias)
