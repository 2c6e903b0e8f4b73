"""Calibration of zero-shot classification before and after a fit: one half of the data to fit, one to judge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prolip.evaluation.metrics import calibration, fit


def evaluate_calibration(
    scores: Tensor, labels: Tensor, temperature: tuple[float, float | None], seed: int
) -> dict[str, Any] | None:
    """Fit on one half of the samples, judge raw and fitted on the other.

    scores: similarities (N, C). labels: int64 (N,). temperature: the model's scale, and bias or None. seed: of the
    halves. Returns the part `calibration` of prolip.evaluation.zeroshot; None for fewer than two samples.
    """
    if len(labels) < 2:
        return None
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fitting, judged = order[: len(order) // 2], order[len(order) // 2 :]
    scale, bias = temperature
    fitted = fit.fit_temperature(scores[fitting], labels[fitting])
    test = (scores[judged], labels[judged])
    result: dict[str, Any] = {
        "n_fit": len(fitting),
        "n_judged": len(judged),
        "softmax": {
            "raw": {"scale": scale} | calibration.softmax_calibration(*test, scale),
            "fitted": {"scale": fitted.scale, "converged": fitted.converged}
            | calibration.softmax_calibration(*test, fitted.scale),
        },
        "sigmoid": None,
    }
    if bias is not None:
        result["sigmoid"] = {
            "raw": {"scale": scale, "bias": bias} | calibration.sigmoid_calibration(*test, scale, bias),
            "fitted": _fitted_pairs(*_pairs(scores[fitting], labels[fitting]), *test),
            "fitted_to_answers": _fitted_pairs(*_answers(scores[fitting], labels[fitting]), *test),
        }
    return result


def _pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of a sample and a class, and whether they match: both (N, C)."""
    return scores, torch.arange(scores.shape[1]) == labels[:, None]


def _answers(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample with its predicted class, and whether it is right: both (N,)."""
    best, predicted = scores.max(1)
    return best, predicted == labels


def _fitted_pairs(
    similarities: Tensor, match: Tensor, scores: Tensor, labels: Tensor
) -> dict[str, Any] | None:
    """Fit to the first two, judge on the last two. None if all are right, or none is: no scale says more then."""
    if bool(match.all()) or not bool(match.any()):
        return None
    found = fit.fit_scale_and_bias(similarities, match)
    return {
        "scale": found.scale,
        "bias": found.bias,
        "converged": found.converged,
    } | calibration.sigmoid_calibration(scores, labels, found.scale, found.bias)
