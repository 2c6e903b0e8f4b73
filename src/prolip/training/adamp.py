"""AdamP (Heo et al., ICLR 2021): Adam that spends no steps on the length of weights whose length means nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

SHORTEST = 1e-12
"""Vectors shorter than this have no direction: they are orthogonal to everything."""


def fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    """What AdamP and torch's fused AdamW know of a parameter before its first step: no steps, both moments zero."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }


class AdamP(torch.optim.Optimizer):
    """AdamW, but for weights on whose length the loss doesn't depend, for example those before a norm.

    Their gradient is orthogonal to them. So where a gradient is nearly so, the update loses its radial part, which
    would only make the weight longer and its effective rate smaller; and the weight decays less. It is asked of each
    tensor of two or more axes, first row by row (all rows must be nearly orthogonal to their gradients), then as a
    whole.

    Reads the data: one comparison or two for each tensor wait for the device.

    delta:       a cosine below delta / sqrt(length of the vector) is nearly 0; 0: nothing ever is.
    decay_ratio: what is left of the decay of a weight whose update was projected.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        decay_ratio: float = 0.1,
    ) -> None:
        self.delta, self.decay_ratio = delta, decay_ratio
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step along the gradients that there are. closure: computes the loss and its gradients anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state.update(fresh_state(parameter))
        update = _adam(state, grad, group["betas"], group["eps"])
        decay = group["weight_decay"]
        axes = self._free_axes(parameter, grad)
        if axes:
            update = _tangential(update, parameter, axes)
            decay *= self.decay_ratio
        parameter.mul_(1 - group["lr"] * decay)
        parameter.add_(update, alpha=-group["lr"])

    def _free_axes(self, weight: Tensor, grad: Tensor) -> tuple[int, ...]:
        """The axes of the vectors whose length means nothing: those of a row, all axes, or () if there are none."""
        if weight.ndim < 2:
            return ()
        for axes in (tuple(range(1, weight.ndim)), tuple(range(weight.ndim))):
            size = math.prod(weight.shape[axis] for axis in axes)
            if float(_whole(_cosine(weight, grad, axes)).max()) < self.delta / math.sqrt(size):
                return axes
        return ()


def _adam(state: dict[str, Tensor], grad: Tensor, betas: tuple[float, float], eps: float) -> Tensor:
    """Adam's update for rate 1, of the shape of grad; the state goes one step on."""
    beta1, beta2 = betas
    state["step"] += 1
    step = float(state["step"])
    state["exp_avg"].lerp_(grad, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    spread = (state["exp_avg_sq"] / (1 - math.pow(beta2, step))).sqrt() + eps
    return state["exp_avg"] / (1 - math.pow(beta1, step)) / spread


def _cosine(a: Tensor, b: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Absolute cosine of the angle between vectors that lie along `axes`, which become 1."""
    product = (a * b).sum(axes, keepdim=True).abs()
    return product / _length(a, axes) / _length(b, axes)


def _length(a: Tensor, axes: tuple[int, ...]) -> Tensor:
    return (a * a).sum(axes, keepdim=True).sqrt().clamp_min(SHORTEST)


def _tangential(update: Tensor, weight: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The update without its part along the weight, for vectors along `axes`."""
    direction = weight / _length(weight, axes)
    return update - direction * (direction * update).sum(axes, keepdim=True)


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value
