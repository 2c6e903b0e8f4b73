"""AdamP (Heo et al., ICLR 2021): AdamW that doesn't lengthen weights whose length has no effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from prolip.training.parallel import full_tensor

MIN_LENGTH = 1e-12
"""Norms are clamped to at least this, so a zero vector is orthogonal to every vector."""


def init_state(parameter: Tensor) -> dict[str, Tensor]:
    """Initial state of AdamP and of torch's fused AdamW for a parameter: no steps, both moments zero.

    Args:
        parameter: Parameter of any shape; the moments get its shape, dtype and device.

    Returns:
        step (), exp_avg and exp_avg_sq, by name.
    """
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }


class AdamP(torch.optim.Optimizer):
    """AdamW with projected updates for scale-invariant weights, for example those before a norm.

    The gradient of a scale-invariant weight is orthogonal to it. So where a gradient is nearly orthogonal, the update
    loses its radial part, which would only make the weight longer and its effective learning rate smaller, and the
    weight decay is reduced. Each tensor with two or more axes is tested, first by rows (all rows must be nearly
    orthogonal to their gradients), then as one vector.

    Reads the data: one or two comparisons per tensor wait for the device.

    Args:
        params: Parameters or groups, as for any torch optimizer.
        lr: Learning rate.
        betas: Decay of the first and of the second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled, as in AdamW.
        delta: Cosines below delta / sqrt(size of the vector) count as 0. With 0, none do.
        decay_ratio: Factor of the weight decay where the update was projected.
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
        """Update every parameter that has a gradient, in place.

        Args:
            closure: Recomputes the loss and its gradients before the update; None: the present gradients are used.

        Returns:
            The loss that `closure` returned; None without a closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update_parameter(parameter, parameter.grad, group)
        return loss

    def _update_parameter(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """Update a parameter and its entry of `self.state`, both in place.

        `group` is the parameter's param_group, for its lr, betas, eps and weight_decay.
        """
        state = self.state[parameter]
        if not state:
            state.update(init_state(parameter))
        update = _compute_adam_update(state, grad, group["betas"], group["eps"])
        decay = group["weight_decay"]
        axes = self._find_invariant_axes(parameter, grad)
        if axes:
            update = _remove_radial_part(update, parameter, axes)
            decay *= self.decay_ratio
        parameter.mul_(1 - group["lr"] * decay)
        parameter.add_(update, alpha=-group["lr"])

    def _find_invariant_axes(self, weight: Tensor, grad: Tensor) -> tuple[int, ...]:
        """Axes that span the vectors which AdamP's cosine test takes for scale-invariant; () if there are none.

        All axes but the first if every output channel passes the test as a vector of its own; else all axes if the
        whole tensor, as one vector, passes. Waits for the device.
        """
        if weight.ndim < 2:
            return ()
        # first each output channel (row) as a vector of its own, then the whole tensor as one vector
        for axes in (tuple(range(1, weight.ndim)), tuple(range(weight.ndim))):
            size = math.prod(weight.shape[axis] for axis in axes)
            largest_cosine = float(full_tensor(_compute_abs_cosine(weight, grad, axes)).max())
            if largest_cosine < self.delta / math.sqrt(size):
                return axes
        return ()


def _compute_adam_update(
    state: dict[str, Tensor], grad: Tensor, betas: tuple[float, float], eps: float
) -> Tensor:
    """Adam's bias-corrected update for learning rate 1, of the shape of grad.

    Updates `state` (step, exp_avg, exp_avg_sq; see `init_state`) in place.
    """
    beta1, beta2 = betas
    state["step"] += 1
    step = float(state["step"])
    state["exp_avg"].lerp_(grad, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denominator = (state["exp_avg_sq"] / (1 - math.pow(beta2, step))).sqrt() + eps
    return state["exp_avg"] / (1 - math.pow(beta1, step)) / denominator


def _compute_abs_cosine(a: Tensor, b: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Absolute cosines of the angles between the vectors of a and of b along `axes`; these axes keep size 1."""
    product = (a * b).sum(axes, keepdim=True).abs()
    return product / _compute_length(a, axes) / _compute_length(b, axes)


def _compute_length(a: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Euclidean norms, at least `MIN_LENGTH`, of the vectors of a along `axes`; these axes keep size 1."""
    return (a * a).sum(axes, keepdim=True).sqrt().clamp_min(MIN_LENGTH)


def _remove_radial_part(update: Tensor, weight: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The update without its component along the weight, separately for each vector along `axes`."""
    direction = weight / _compute_length(weight, axes)
    return update - direction * (direction * update).sum(axes, keepdim=True)
