"""Weights of the prompts of each class: uniform, single template, or filters by uncertainty.

Each function takes prompts (C, T, D) and returns weights (C, T), float64, that sum to 1 for every class, for
`prolip.mixture.pool(prompts, weights)`. Filters give equal weight to the prompts that they select; a class of which
none is selected gets its least uncertain prompt.
Uncertainty is tr(Sigma), or in its place any scores of the prompts, such as their perplexity over the tested images
(`prolip.perplexity`), which needs no labels and no variances. Weights by 1/tr(Sigma) are
`prolip.mixture.inverse_uncertainty_weights`; learned ones are in `bprw`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from prolip.gaussian import Gaussian, check_gaussian

ROUNDING = 1e-9
"""Relative tolerance of a limit, so that prompts of equal uncertainty are not dropped by rounding of their mean."""


def uniform_weights(prompts: Gaussian) -> Tensor:
    """Equal weights: the prompt ensemble.

    Args:
        prompts: Gaussian (C, T, D).

    Returns:
        Weights (C, T), float64.
    """
    num_classes, num_templates = _check_shape(prompts)
    return prompts.log_var.new_full((num_classes, num_templates), 1.0 / num_templates, dtype=torch.float64)


def single_template_weights(prompts: Gaussian, index: int) -> Tensor:
    """Weight 1 for one template.

    Args:
        prompts: Gaussian (C, T, D).
        index: Index of the template, from 0.

    Returns:
        Weights (C, T), float64.
    """
    num_classes, num_templates = _check_shape(prompts)
    if not 0 <= index < num_templates:
        raise ValueError(
            f"There are {num_templates} templates, so the index must be in 0..{num_templates - 1}, not {index}"
        )
    weights = prompts.log_var.new_zeros((num_classes, num_templates), dtype=torch.float64)
    weights[:, index] = 1.0
    return weights


def class_std_filter(prompts: Gaussian, k: float, *, scores: Tensor | None = None) -> Tensor:
    """Select prompts whose uncertainty is at most their class's mean + k standard deviations.

    Args:
        prompts: Gaussian (C, T, D).
        k: Number of standard deviations (over the T prompts of the class, divided by T, not T - 1).
        scores: In place of the uncertainty, (C, T).

    Returns:
        Weights (C, T), float64.
    """
    uncertainty = _get_uncertainty(prompts, scores)
    spread = uncertainty.std(-1, correction=0, keepdim=True)
    return _weight_prompts_below(uncertainty, uncertainty.mean(-1, keepdim=True) + k * spread)


def global_std_filter(prompts: Gaussian, k: float, *, scores: Tensor | None = None) -> Tensor:
    """Select prompts whose uncertainty is at most mean + k standard deviations of all C x T prompts.

    Args:
        prompts: Gaussian (C, T, D).
        k: Number of standard deviations.
        scores: In place of the uncertainty, (C, T).

    Returns:
        Weights (C, T), float64.
    """
    uncertainty = _get_uncertainty(prompts, scores)
    return _weight_prompts_below(uncertainty, uncertainty.mean() + k * uncertainty.std(correction=0))


def threshold_filter(prompts: Gaussian, threshold: float, *, scores: Tensor | None = None) -> Tensor:
    """Select prompts whose uncertainty is at most a threshold.

    Args:
        prompts: Gaussian (C, T, D).
        threshold: Largest tr(Sigma).
        scores: In place of the uncertainty, (C, T).

    Returns:
        Weights (C, T), float64.
    """
    uncertainty = _get_uncertainty(prompts, scores)
    return _weight_prompts_below(uncertainty, uncertainty.new_tensor(threshold))


def top_k_filter(prompts: Gaussian, k: int, *, scores: Tensor | None = None) -> Tensor:
    """Select the k least uncertain prompts of each class ("top-K").

    Args:
        prompts: Gaussian (C, T, D).
        k: From 1 to T. Of equally uncertain prompts, those whose template comes first are selected.
        scores: In place of the uncertainty, (C, T).

    Returns:
        Weights (C, T), float64.
    """
    uncertainty = _get_uncertainty(prompts, scores)
    _check_count(k, uncertainty.shape[1], "templates")
    rank = uncertainty.argsort(dim=-1, stable=True).argsort(dim=-1)  # within the class, from 0
    return _weight_selected_prompts(rank < k, uncertainty)


def global_top_k_filter(prompts: Gaussian, count: int, *, scores: Tensor | None = None) -> Tensor:
    """Select the least uncertain of all C x T prompts (what the release's `by_std_values_all` does).

    Args:
        prompts: Gaussian (C, T, D).
        count: Prompts to select, from 1 to C x T.
        scores: In place of the uncertainty, (C, T).

    Returns:
        Weights (C, T), float64.
    """
    uncertainty = _get_uncertainty(prompts, scores)
    _check_count(count, uncertainty.numel(), "prompts")
    rank = uncertainty.flatten().argsort(stable=True).argsort().reshape(uncertainty.shape)
    return _weight_selected_prompts(rank < count, uncertainty)


def effective_prompt_count(weights: Tensor) -> Tensor:
    """Effective number of prompts of each class: exp(entropy of its weights).

    Args:
        weights: Weights of prompts, (..., T), summing to 1.

    Returns:
        The number, (...,), float64, from 1 to T.
    """
    return entropy(weights).exp()


def entropy(weights: Tensor) -> Tensor:
    """Entropy of prompt weights: - sum pi log pi.

    Args:
        weights: Weights of prompts, (..., T), summing to 1.

    Returns:
        The entropy, (...,), float64, in nats, from 0 to ln T.
    """
    value: Tensor = torch.special.entr(weights.double()).sum(-1)
    return value


def _weight_prompts_below(uncertainty: Tensor, limit: Tensor) -> Tensor:
    """Weights (C, T) that select the prompts whose uncertainty (C, T) is at most the limit, a scalar or (C, 1)."""
    return _weight_selected_prompts(uncertainty <= limit + ROUNDING * limit.abs(), uncertainty)


def _weight_selected_prompts(selected: Tensor, uncertainty: Tensor) -> Tensor:
    """Weights (C, T), float64: equal for the selected prompts of a class, and 0 for the others.

    selected: bool (C, T). A class without a selected prompt gets its least uncertain one.
    """
    least_uncertain = one_hot(uncertainty.argmin(-1), uncertainty.shape[-1]).bool()
    selected = torch.where(selected.any(-1, keepdim=True), selected, least_uncertain)
    return selected.double() / selected.sum(-1, keepdim=True)


def _get_uncertainty(prompts: Gaussian, scores: Tensor | None) -> Tensor:
    """tr(Sigma) of the prompts, or the scores in its place, float64 (C, T); ValueError if they can't rank prompts."""
    shape = _check_shape(prompts)
    if scores is not None:
        if tuple(scores.shape) != shape or not bool(scores.isfinite().all()):
            raise ValueError(
                f"scores must be finite numbers {shape}, one per prompt, not {tuple(scores.shape)}: such as "
                "perplexity(prompts, images) of the flattened prompts, reshaped"
            )
        return scores.double()
    uncertainty = prompts.uncertainty.double()
    if not bool((uncertainty > 0).any()):
        raise ValueError(
            "This model has no uncertainty, so prompts can't be filtered by it. Pass other scores, such as their "
            "prolip.perplexity over the images; or use uniform_weights, or a probabilistic model"
        )
    return uncertainty


def _check_shape(prompts: Gaussian) -> tuple[int, int]:
    """Return C and T of prompts (C, T, D); ValueError for another shape or an empty one."""
    check_gaussian(prompts, "prompts")
    if prompts.mean.ndim != 3 or 0 in prompts.shape:
        raise ValueError(f"prompts must be (C, T, D) and not empty, but are {tuple(prompts.shape)}")
    return prompts.shape[0], prompts.shape[1]


def _check_count(count: int, maximum: int, unit: str) -> None:
    """Raise ValueError unless the count is from 1 to `maximum`. unit: what the maximum counts, for the message."""
    if not 1 <= count <= maximum:
        raise ValueError(f"The number of prompts to select must be in 1..{maximum} ({unit}), not {count}")
