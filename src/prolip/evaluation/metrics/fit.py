"""Post-hoc calibration fits: scale and bias of the pair sigmoid, scale of the class softmax.

Why: the raw sigmoid has the prior of a training batch, one match in B texts; a task with C classes has one in C. Both
fits are convex and deterministic: Newton's method in float64, with backtracking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

BLOCK_PAIRS = 2**20
"""Pairs whose float64 logits are held at one time."""

RIDGE = 1e-9
"""Keeps the scale finite for separable data: RIDGE/2 scale^2 is added to the mean loss, for similarities scaled to unit
standard deviation. On other data its effect is negligible."""


@dataclass(frozen=True, kw_only=True)
class LogitFit:
    """Result of a fit of logit = scale x similarity + bias.

    scale:     The scale, not its logarithm.
    bias:      The bias; 0 for a softmax, which has none.
    loss:      Mean loss at the minimum, in nats.
    steps:     Newton steps that were made.
    converged: Whether the minimum was reached.
    """

    scale: float
    bias: float = 0.0
    loss: float
    steps: int
    converged: bool


def fit_scale_and_bias(similarities: Tensor, is_match: Tensor, weights: Tensor | None = None) -> LogitFit:
    """Logistic regression of match on similarity.

    Minimizes the weighted mean of softplus(-y (scale x similarity + bias)), y = 1 for a match, -1 otherwise.

    Args:
        similarities: Similarities of any shape, one entry per pair.
        is_match: Whether each pair matches, bool, the same shape.
        weights: Weight of each pair, not negative, the same shape; None: all 1. They can emulate another fraction of
            matches.

    Returns:
        The fit. A negative scale means that matches are the less similar pairs.

    Raises:
        ValueError: All pairs match, or none does.
    """
    _check_pairs(similarities, is_match, weights)
    x, match = similarities.flatten(), is_match.flatten()
    weight = torch.ones((), dtype=torch.float64).expand(x.shape) if weights is None else weights.flatten()
    blocks = list(zip(*(values.split(BLOCK_PAIRS) for values in (x, match, weight)), strict=True))
    total_weight, match_weight, mean, std = _compute_weighted_moments(blocks)
    if not 0.0 < match_weight < total_weight:
        raise ValueError("a fit of scale and bias needs both pairs that match and pairs that don't")

    def mean_loss(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`MeanLoss` of (scale, bias) for similarities that are scaled to mean 0 and standard deviation 1."""
        # the ridge acts on the scale only
        value = 0.5 * RIDGE * parameters[0] ** 2
        gradient, hessian = parameters * 0.0, torch.zeros(2, 2).double()
        gradient[0], hessian[0, 0] = RIDGE * parameters[0], RIDGE
        for block_x, block_match, block_weight in blocks:
            features = torch.stack([(block_x.double() - mean) / std, torch.ones(len(block_x)).double()])
            logit, share = parameters @ features, block_weight.double() / total_weight
            p = torch.sigmoid(logit)
            value = value + (share * -logsigmoid(torch.where(block_match, logit, -logit))).sum()
            gradient = gradient + features @ (share * (p - block_match.double()))
            hessian = hessian + (features * (share * p * (1.0 - p))) @ features.T
        return value, gradient, hessian

    initial = torch.tensor([0.0, math.log(match_weight / (total_weight - match_weight))]).double()
    minimizer, loss, steps, converged = _minimize_by_newton(mean_loss, initial)
    scale = minimizer[0].item() / std  # back to the unit of the similarities
    return LogitFit(
        scale=scale, bias=minimizer[1].item() - scale * mean, loss=loss, steps=steps, converged=converged
    )


def fit_temperature(similarities: Tensor, labels: Tensor) -> LogitFit:
    """The scale s of softmax(s x similarity) with the least mean -log p(true class).

    Args:
        similarities: Similarities of samples and classes, (N, C), finite.
        labels: Index of each sample's true class, int64 (N,).

    Returns:
        The fit. s is not negative: it is 0, and all classes are equally likely, where the true class is on average no
        more similar than the others.
    """
    if similarities.ndim != 2 or 0 in similarities.shape or labels.shape != similarities.shape[:1]:
        raise ValueError(
            f"similarities {tuple(similarities.shape)} and labels {tuple(labels.shape)} must be (N, C) and (N,)"
        )
    if not bool(torch.isfinite(similarities).all()):
        raise ValueError("similarities hold NaN or infinity; a fit needs finite values")
    rows = max(1, BLOCK_PAIRS // similarities.shape[1])
    blocks = list(zip(similarities.split(rows), labels.split(rows), strict=True))
    mean_variance = sum(x.double().var(1, correction=0).sum().item() for x, _ in blocks) / len(labels)
    std = math.sqrt(mean_variance) or 1.0  # 1 if all similarities of every sample are equal

    def mean_loss(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`MeanLoss` of the scale for similarities that are divided by `std`."""
        scale = parameters[0]
        value, gradient, hessian = 0.5 * RIDGE * scale**2, RIDGE * scale, torch.tensor(RIDGE).double()
        for similarity, label in blocks:
            x = similarity.double() / std
            x = x - x.gather(1, label[:, None])  # relative to the true class, so that its logit is 0
            p = torch.softmax(scale * x, 1)
            mean = (p * x).sum(1)  # the derivative of the logsumexp; its second derivative is the variance
            value = value + torch.logsumexp(scale * x, 1).sum() / len(labels)
            gradient = gradient + mean.sum() / len(labels)
            hessian = hessian + ((p * x.square()).sum(1) - mean.square()).sum() / len(labels)
        return value, gradient.reshape(1), hessian.reshape(1, 1)

    zero = torch.zeros(1).double()
    loss, slope, _ = mean_loss(zero)
    if slope.item() >= 0.0:  # the loss is convex, so its minimum over scales that are not negative is at 0
        return LogitFit(scale=0.0, loss=loss.item(), steps=0, converged=True)
    minimizer, min_loss, steps, converged = _minimize_by_newton(mean_loss, zero)
    return LogitFit(scale=minimizer.item() / std, loss=min_loss, steps=steps, converged=converged)


MeanLoss = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""Parameters (P,) -> value, gradient (P,), Hessian (P, P)."""


def _minimize_by_newton(
    mean_loss: MeanLoss, parameters: Tensor, max_steps: int = 100
) -> tuple[Tensor, float, int, bool]:
    """Minimize a strictly convex function by Newton's method from the given parameters.

    Returns the parameters at the minimum, the value there, the number of steps, and whether it converged, which it has
    if the expected gain of the next step is below rounding.
    """
    value, gradient, hessian = mean_loss(parameters)
    for step in range(max_steps):
        # pseudo-inverse: for separable data the bias has no curvature left
        direction = -(torch.linalg.pinv(hessian, hermitian=True) @ gradient)
        # twice the gain of a full step, if the function were quadratic
        expected_gain = -(gradient @ direction)
        if expected_gain <= 1e-14 * (value.abs() + 1e-300):  # 1e-300: the value may be 0
            return parameters, value.item(), step, True
        step_length = 1.0
        while True:  # backtrack until the value falls enough (Armijo's condition)
            candidate = mean_loss(parameters + step_length * direction)
            if candidate[0] <= value - 1e-4 * step_length * expected_gain:
                break
            step_length *= 0.5
            if step_length < 1e-8:
                # no step lowers the value, because of rounding: converged if there was hardly anything to gain
                return parameters, value.item(), step, bool(expected_gain <= 1e-8 * value.abs())
        parameters = parameters + step_length * direction
        value, gradient, hessian = candidate
    return parameters, value.item(), max_steps, False


def _compute_weighted_moments(blocks: list[tuple[Tensor, ...]]) -> tuple[float, float, float, float]:
    """Weighted moments of blocks (similarities, is_match, weights), each (B,).

    Returns the total weight, the weight of matches, and the mean and standard deviation (1 if it is 0) of the
    similarities.
    """
    total_weight = sum(w.double().sum().item() for _, _, w in blocks)
    match_weight = sum(w.double()[is_match].sum().item() for _, is_match, w in blocks)
    if total_weight == 0.0:  # `fit_scale_and_bias` then raises: no pair matches
        return 0.0, 0.0, 0.0, 1.0
    mean = sum((w * x.double()).sum().item() for x, _, w in blocks) / total_weight
    variance = sum((w * (x.double() - mean).square()).sum().item() for x, _, w in blocks) / total_weight
    return total_weight, match_weight, mean, math.sqrt(variance) or 1.0


def _check_pairs(similarities: Tensor, is_match: Tensor, weights: Tensor | None) -> None:
    """Raise ValueError unless shapes agree, is_match is bool, and values are finite (weights also not negative)."""
    shapes = [tuple(t.shape) for t in (similarities, is_match, weights) if t is not None]
    if len(set(shapes)) > 1:
        raise ValueError(f"similarities, matches and weights must have one shape, not {shapes}")
    if is_match.dtype != torch.bool:
        raise ValueError(f"is_match must be bool, not {is_match.dtype}")
    if not bool(torch.isfinite(similarities).all()):
        raise ValueError("similarities hold NaN or infinity; a fit needs finite values")
    if weights is not None and not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise ValueError("weights must be finite and not negative")
