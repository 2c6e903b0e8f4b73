"""Post-hoc fits: scale and bias of the sigmoid of pairs, scale of the softmax over classes.

Why: the raw sigmoid carries the prior of the training batch, one match in B texts. A task with C classes has one in C.
Both fits are convex and deterministic: Newton in float64, with backtracking.
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
"""What holds a scale finite where a threshold (or the nearest class) is never wrong: RIDGE/2 scale^2, added to the mean
loss, for similarities scaled to unit spread. Elsewhere it changes nothing that one could see."""


@dataclass(frozen=True, kw_only=True)
class LogitFit:
    """logit = scale x similarity + bias (0 for a softmax); the mean loss there, in nats; whether Newton arrived."""

    scale: float
    bias: float = 0.0
    loss: float
    steps: int
    converged: bool


def fit_scale_and_bias(similarities: Tensor, is_match: Tensor, weights: Tensor | None = None) -> LogitFit:
    """Logistic regression of match on similarity: the least mean of w softplus(-y (a x + b)), y = 1 or -1.

    similarities, is_match (bool), weights (not negative; None: all 1): one shape, one entry a pair. A weight says how
    much a pair counts, so weights can stand for another share of matches. A negative scale is possible: it says that
    matches are the less similar pairs. An error if all pairs are matches, or none is.
    """
    _check_pairs(similarities, is_match, weights)
    x, match = similarities.flatten(), is_match.flatten()
    weight = torch.ones((), dtype=torch.float64).expand(x.shape) if weights is None else weights.flatten()
    blocks = list(zip(*(values.split(BLOCK_PAIRS) for values in (x, match, weight)), strict=True))
    total, matched, mean, spread = _moments(blocks)
    if not 0.0 < matched < total:
        raise ValueError(
            "scale and bias need pairs that match and pairs that don't; all that count are of one kind"
        )

    def mean_loss(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, gradient, hessian = (
            0.5 * RIDGE * parameters[0] ** 2,
            parameters * 0.0,
            torch.zeros(2, 2).double(),
        )
        gradient[0], hessian[0, 0] = RIDGE * parameters[0], RIDGE
        for values, yes, w in blocks:
            features = torch.stack([(values.double() - mean) / spread, torch.ones(len(values)).double()])
            logit, share = parameters @ features, w.double() / total
            p = torch.sigmoid(logit)
            value = value + (share * -logsigmoid(torch.where(yes, logit, -logit))).sum()
            gradient = gradient + features @ (share * (p - yes.double()))
            hessian = hessian + (features * (share * p * (1.0 - p))) @ features.T
        return value, gradient, hessian

    begin = torch.tensor([0.0, math.log(matched / (total - matched))]).double()
    found, loss, steps, converged = _newton(mean_loss, begin)
    scale = found[0].item() / spread
    return LogitFit(
        scale=scale, bias=found[1].item() - scale * mean, loss=loss, steps=steps, converged=converged
    )


def fit_temperature(similarities: Tensor, labels: Tensor) -> LogitFit:
    """The scale s of softmax(s x similarity) with the least mean -log p(true class).

    similarities: (N, C). labels: int64 (N,). s is not negative: it is 0, and all classes are equally likely, where
    the true class is no more similar than the others are on average.
    """
    if similarities.ndim != 2 or 0 in similarities.shape or labels.shape != similarities.shape[:1]:
        raise ValueError(
            f"similarities {tuple(similarities.shape)} and labels {tuple(labels.shape)} must be (N, C) and (N,)"
        )
    if not bool(torch.isfinite(similarities).all()):
        raise ValueError("similarities must be finite to fit a scale to")
    rows = max(1, BLOCK_PAIRS // similarities.shape[1])
    blocks = list(zip(similarities.split(rows), labels.split(rows), strict=True))
    spread = sum(x.double().var(1, correction=0).sum().item() for x, _ in blocks) / len(labels)
    spread = math.sqrt(spread) or 1.0

    def mean_loss(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = parameters[0]
        value, gradient, hessian = 0.5 * RIDGE * scale**2, RIDGE * scale, torch.tensor(RIDGE).double()
        for similarity, label in blocks:
            x = similarity.double() / spread
            x = x - x.gather(1, label[:, None])  # above the true class
            p = torch.softmax(scale * x, 1)
            mean = (p * x).sum(1)
            value = value + torch.logsumexp(scale * x, 1).sum() / len(labels)
            gradient = gradient + mean.sum() / len(labels)
            hessian = hessian + ((p * x.square()).sum(1) - mean.square()).sum() / len(labels)
        return value, gradient.reshape(1), hessian.reshape(1, 1)

    zero = torch.zeros(1).double()
    loss, slope, _ = mean_loss(zero)
    if slope.item() >= 0.0:
        return LogitFit(scale=0.0, loss=loss.item(), steps=0, converged=True)
    found, best, steps, converged = _newton(mean_loss, zero)
    return LogitFit(scale=found.item() / spread, loss=best, steps=steps, converged=converged)


MeanLoss = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""Parameters (P,) -> value, gradient (P,), Hessian (P, P)."""


def _newton(mean_loss: MeanLoss, parameters: Tensor, most: int = 100) -> tuple[Tensor, float, int, bool]:
    """Least value of a strictly convex function: where, how much, steps, and whether the steps came to an end.

    They end where the next one promises less than rounding can show.
    """
    value, gradient, hessian = mean_loss(parameters)
    for step in range(most):
        # a pseudo-inverse: where every pair is told apart, the bias has no curvature left
        direction = -(torch.linalg.pinv(hessian, hermitian=True) @ gradient)
        promise = -(gradient @ direction)  # twice what a full step would gain, were the function a parabola
        if promise <= 1e-14 * (value.abs() + 1e-300):
            return parameters, value.item(), step, True
        length = 1.0
        while True:
            tried = mean_loss(parameters + length * direction)
            if tried[0] <= value - 1e-4 * length * promise:
                break
            length *= 0.5
            if length < 1e-8:  # no longer to be told from rounding
                return parameters, value.item(), step, bool(promise <= 1e-8 * value.abs())
        parameters = parameters + length * direction
        value, gradient, hessian = tried
    return parameters, value.item(), most, False


def _moments(blocks: list[tuple[Tensor, ...]]) -> tuple[float, float, float, float]:
    """Total weight, that of matches, mean and standard deviation (1 if it is 0) of the similarities."""
    total = sum(w.double().sum().item() for _, _, w in blocks)
    matched = sum(w.double()[yes].sum().item() for _, yes, w in blocks)
    if total == 0.0:
        return 0.0, 0.0, 0.0, 1.0
    mean = sum((w * x.double()).sum().item() for x, _, w in blocks) / total
    variance = sum((w * (x.double() - mean).square()).sum().item() for x, _, w in blocks) / total
    return total, matched, mean, math.sqrt(variance) or 1.0


def _check_pairs(similarities: Tensor, is_match: Tensor, weights: Tensor | None) -> None:
    shapes = [tuple(t.shape) for t in (similarities, is_match, weights) if t is not None]
    if len(set(shapes)) > 1:
        raise ValueError(f"similarities, matches and weights must have one shape, not {shapes}")
    if is_match.dtype != torch.bool:
        raise ValueError(f"is_match must be bool, not {is_match.dtype}")
    if not bool(torch.isfinite(similarities).all()):
        raise ValueError("similarities must be finite to fit a scale to")
    if weights is not None and not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise ValueError("weights must be finite and not negative")
