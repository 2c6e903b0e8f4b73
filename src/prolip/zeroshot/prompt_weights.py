"""Rules that weigh the prompts of each class. `prolip.mixture.pool(prompts, weights)` does the rest.

Each rule takes prompts (C, T, D) and returns weights (C, T), float64, that sum to 1 for every class. The filters give
equal weight to the prompts that they keep; a class of which nothing would be left keeps its least uncertain prompt.
Uncertainty is tr(Sigma). Weights by 1/tr(Sigma) are `prolip.mixture.inverse_uncertainty_weights`; learned ones are in
`bprw`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from prolip.gaussian import Gaussian, checked

ROUNDING = 1e-9
"""Share by which a limit is raised: prompts of equal uncertainty must not fall to the rounding of their mean."""


def uniform(prompts: Gaussian) -> Tensor:
    """All prompts alike: the prompt ensemble."""
    classes, count = _shape(prompts)
    return prompts.log_var.new_full((classes, count), 1.0 / count, dtype=torch.float64)


def single(prompts: Gaussian, index: int) -> Tensor:
    """One template alone, by its number from 0."""
    classes, count = _shape(prompts)
    if not 0 <= index < count:
        raise ValueError(f"there are {count} templates: the index must be in 0..{count - 1}, not {index}")
    weights = prompts.log_var.new_zeros((classes, count), dtype=torch.float64)
    weights[:, index] = 1.0
    return weights


def below_class_spread(prompts: Gaussian, k: float) -> Tensor:
    """Prompts whose uncertainty is at most their class's mean + k standard deviations (of its T, not T - 1)."""
    uncertainty = _uncertainty(prompts)
    spread = uncertainty.std(-1, correction=0, keepdim=True)
    return _kept(uncertainty, uncertainty.mean(-1, keepdim=True) + k * spread)


def below_global_spread(prompts: Gaussian, k: float) -> Tensor:
    """Prompts whose uncertainty is at most mean + k standard deviations of all C x T prompts."""
    uncertainty = _uncertainty(prompts)
    return _kept(uncertainty, uncertainty.mean() + k * uncertainty.std(correction=0))


def below_value(prompts: Gaussian, threshold: float) -> Tensor:
    """Prompts whose uncertainty is at most a threshold."""
    uncertainty = _uncertainty(prompts)
    return _kept(uncertainty, uncertainty.new_tensor(threshold))


def lowest_k(prompts: Gaussian, k: int) -> Tensor:
    """The k least uncertain prompts of each class ("top-K"); of equal ones, those whose template comes first."""
    uncertainty = _uncertainty(prompts)
    _check_count(k, uncertainty.shape[1], "templates")
    rank = uncertainty.argsort(dim=-1, stable=True).argsort(dim=-1)
    return _shares(rank < k, uncertainty)


def lowest_of_all(prompts: Gaussian, count: int) -> Tensor:
    """The `count` least uncertain of all C x T prompts (what the release's `by_std_values_all` does)."""
    uncertainty = _uncertainty(prompts)
    _check_count(count, uncertainty.numel(), "prompts")
    rank = uncertainty.flatten().argsort(stable=True).argsort().reshape(uncertainty.shape)
    return _shares(rank < count, uncertainty)


def effective_count(weights: Tensor) -> Tensor:
    """How many prompts of equal weight are as spread as these: e^entropy, from 1 to T. (..., T) -> (...,)."""
    return entropy(weights).exp()


def entropy(weights: Tensor) -> Tensor:
    """- sum pi log pi in nats, from 0 to ln T. (..., T) -> (...,)."""
    value: Tensor = torch.special.entr(weights.double()).sum(-1)
    return value


def _kept(uncertainty: Tensor, limit: Tensor) -> Tensor:
    return _shares(uncertainty <= limit + ROUNDING * limit.abs(), uncertainty)


def _shares(keep: Tensor, uncertainty: Tensor) -> Tensor:
    """Equal weights for those that are kept; the least uncertain one where none is."""
    least = one_hot(uncertainty.argmin(-1), uncertainty.shape[-1]).bool()
    keep = torch.where(keep.any(-1, keepdim=True), keep, least)
    return keep.double() / keep.sum(-1, keepdim=True)


def _uncertainty(prompts: Gaussian) -> Tensor:
    """tr(Sigma), (C, T), in float64."""
    _shape(prompts)
    uncertainty = prompts.uncertainty.double()
    if not bool((uncertainty > 0).any()):
        raise ValueError("this model has no uncertainty, so prompts can't be filtered by it")
    return uncertainty


def _shape(prompts: Gaussian) -> tuple[int, int]:
    checked(prompts, "prompts")
    if prompts.mean.ndim != 3 or 0 in prompts.shape:
        raise ValueError(f"prompts must be (C, T, D), none of them 0, not {tuple(prompts.shape)}")
    return prompts.shape[0], prompts.shape[1]


def _check_count(count: int, most: int, of: str) -> None:
    if not 1 <= count <= most:
        raise ValueError(f"the number of prompts to keep must be in 1..{most} ({of}), not {count}")
