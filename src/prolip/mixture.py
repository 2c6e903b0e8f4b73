"""Mixtures of prompts: pooling weighted Gaussians, and EM for the weights (Algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.checks import check_points, is_in_range, require_choice
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.public import log_density_matrix

PooledVariance = Literal["average", "independent"]
"""`average`: sum pi s, the mean variance. `independent`: sum pi^2 s, that of a sum of independent draws."""

SAFE_LOG = 40.0
"""Logarithms whose exponentials, times a weight, are safe in float32."""

DENSITY_ELEMENTS = 2**19
"""Observation coordinates (classes x M x D) whose densities are computed at a time: 4 MiB, which stay in cache."""


def pool(
    prompts: Gaussian,
    weights: Tensor | None = None,
    *,
    variance: PooledVariance = "average",
    normalize: bool = True,
) -> Gaussian:
    """Pool T Gaussians into one, with mean sum_t pi_t mu_t.

    Args:
        prompts: (..., T, D).
        weights: pi, (..., T) or (T,), not negative, normalized here to sum to 1; None: uniform.
        variance: See `PooledVariance`.
        normalize: Scale the mean to unit length.

    Returns:
        (..., D).
    """
    check_gaussian(prompts, "prompts")
    require_choice(variance, get_args(PooledVariance), "variance")
    if prompts.mean.ndim < 2 or prompts.shape[-2] == 0:
        raise ValueError(f"prompts must be (..., T, D) with T at least 1, not {tuple(prompts.shape)}")
    pi = _normalize_weights(prompts, weights)
    dtype = torch.promote_types(pi.dtype, prompts.mean.dtype)
    mean = (pi[..., None, :].to(dtype) @ prompts.mean.to(dtype))[..., 0, :]
    if normalize:
        length = mean.norm(dim=-1, keepdim=True)
        if bool((length < 1e-6).any()):
            raise ValueError("the weighted sum of the prompts' means is zero, so that it has no direction")
        mean = mean / length
    factor = pi if variance == "average" else pi.square()
    return Gaussian(mean, _log_weighted_sum(prompts.log_var, factor[..., None]))


def _log_weighted_sum(log_values: Tensor, factor: Tensor) -> Tensor:
    """log sum over T of factor exp(log_values): (..., T, D) -> (..., D).

    `factor` is (..., T, 1), at least 0; gradients flow to it, also where it is 0.
    """
    if is_in_range(log_values, -SAFE_LOG, SAFE_LOG):
        return (factor.mT @ log_values.exp())[..., 0, :].log()
    # logsumexp by hand: the maximum over the values of positive factor is subtracted before exp and added after log
    largest = torch.where(factor > 0, log_values, -torch.inf).amax(-2, keepdim=True).detach()
    largest = torch.where(torch.isfinite(largest), largest, 0.0)  # all are points: the result is log 0
    scaled = (log_values - largest).clamp_max(80.0).exp()  # a value of factor 0 may lie far above the largest
    return (factor * scaled).sum(-2).log() + largest[..., 0, :]


def _normalize_weights(prompts: Gaussian, weights: Tensor | None) -> Tensor:
    """Weights that sum to 1 over T, (..., T) or (T,), in the dtype of log_var; uniform ones for None. Checks them."""
    shape = prompts.shape[:-1]
    if weights is None:
        return prompts.log_var.new_full(shape, 1.0 / shape[-1])
    if not isinstance(weights, Tensor):
        raise TypeError(f"weights must be a tensor, not {type(weights).__name__}")
    if weights.shape != shape and weights.shape != shape[-1:]:
        raise ValueError(f"weights {tuple(weights.shape)} must be {tuple(shape)} or {tuple(shape[-1:])}")
    total = weights.sum(-1, keepdim=True)
    if not bool((weights >= 0).all() and (total > 0).all() and torch.isfinite(total).all()):
        raise ValueError("weights must be finite, not negative, and not all zero for any class")
    return (weights / total).to(prompts.log_var.dtype)


def inverse_uncertainty_weights(prompts: Gaussian) -> Tensor:
    """Weights proportional to 1/tr(Sigma), the initial weights of Algorithm 1.

    Args:
        prompts: (..., T, D).

    Returns:
        (..., T), with sum 1.
    """
    uncertainty = check_gaussian(prompts, "prompts").uncertainty
    if bool((uncertainty <= 0).any()):
        raise ValueError("1/tr(Sigma) needs uncertainties above 0: this model has none")
    return torch.softmax(-uncertainty.log(), dim=-1)


def dirichlet_prior(weights: Tensor, alpha: float) -> Tensor:
    """Dirichlet concentrations 1 + (alpha - 1) T w: the strength of alpha, distributed by weights (section 3.4).

    Args:
        weights: w, (..., T), normalized here to sum to 1.
        alpha: Concentration of the symmetric prior.

    Returns:
        (..., T).
    """
    return 1.0 + (alpha - 1.0) * weights.shape[-1] * weights / weights.sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class MixingWeights:
    """Result of EM.

    Attributes:
        weights: (C, T), float64.
        iterations: (C,), steps taken.
        converged: (C,), whether the last step was below the tolerance.
        log_posterior: (C,), up to a constant: log-likelihood + sum of (alpha - 1) log pi over pi > 0.
    """

    weights: Tensor
    iterations: Tensor
    converged: Tensor
    log_posterior: Tensor


def fit_mixing_weights(
    observations: Tensor,
    components: Gaussian,
    *,
    alpha: float | Tensor,
    initial: Tensor | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
) -> MixingWeights:
    """EM for the weights of fixed Gaussian components under a Dirichlet prior, all C classes at once.

    Each step sets pi_t to N_t + alpha_t - 1, clipped at 0, and normalizes the sum to 1 (if all are clipped, the
    component with the largest N_t gets weight 1). A class stops when no weight changes by more than `tolerance`.

    Args:
        observations: (C, M, D), points.
        components: (C, T, D); a minimal variance (0.02 in Algorithm 1) must have been added before.
        alpha: Alpha of the prior: a number, or concentrations (C, T) or (T,).
        initial: Initial weights (C, T) or (T,), positive; None: uniform.
        tolerance: Largest change of a weight at convergence.
        max_iterations: Steps per class.

    Returns:
        Weights and convergence of each class.
    """
    _check_classes(observations, components)
    shape = (components.shape[0], components.shape[1])
    log_density = class_log_densities(observations, components)
    if not bool(torch.isfinite(log_density).all()):
        raise ValueError(
            "densities overflow: observations are too far from the components, or variances too small"
        )
    extra = _expand_per_class(alpha, shape, log_density, "alpha") - 1.0  # pseudo-counts of the prior
    if not bool(((extra > -1) & (extra < 1e100)).all()):
        raise ValueError("alpha must be positive and below 1e100")
    if not 0.0 <= tolerance < 1.0 or max_iterations < 1:
        raise ValueError(
            f"tolerance {tolerance} must be in [0, 1), max_iterations {max_iterations} at least 1"
        )
    pi = _expand_per_class(1.0 if initial is None else initial, shape, log_density, "initial")
    if not bool((pi > 0).all() and torch.isfinite(pi).all()):
        raise ValueError("initial weights must be positive and finite: EM never changes a weight of zero")
    pi /= pi.sum(-1, keepdim=True)
    iterations, converged = _run_em(pi, _EMProblem.create(log_density, extra), tolerance, max_iterations)
    return MixingWeights(pi, iterations, converged, _log_posterior(pi, log_density, extra))


def _run_em(pi: Tensor, problem: _EMProblem, tolerance: float, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Step pi (C, T) in place, each class until it has converged. Returns iterations (C,) and converged (C,)."""
    iterations = torch.zeros(len(pi), dtype=torch.int64, device=pi.device)
    converged = torch.zeros(len(pi), dtype=torch.bool, device=pi.device)
    active = torch.arange(len(pi), device=pi.device)  # the class of each row of `problem`
    unconverged = torch.ones(len(pi), dtype=torch.bool, device=pi.device)  # rows of `problem`
    for _ in range(max_iterations):
        new = problem.step(pi[active])
        changes = (new - pi[active]).abs().amax(-1) > tolerance
        pi[active[unconverged]] = new[unconverged]
        iterations[active[unconverged]] += 1
        unconverged &= changes
        converged[active] = ~unconverged
        if not bool(unconverged.any()):
            break
        # copying the remaining classes pays once enough have converged
        if int(unconverged.sum()) < 0.7 * len(active):
            active, problem = active[unconverged], problem.select(unconverged)
            unconverged = unconverged[unconverged]
    return iterations, converged


def class_log_densities(observations: Tensor, components: Gaussian) -> Tensor:
    """log density of each observation under each component of its class. EM needs it once: it has no weights in it.

    Args:
        observations: (C, M, D).
        components: (C, T, D).

    Returns:
        (C, M, T), float64.
    """
    per_class = max(1, observations.shape[1] * observations.shape[2])
    step = max(1, DENSITY_ELEMENTS // per_class)
    return torch.cat(
        [
            log_density_matrix(observations[i : i + step].double(), components[i : i + step])
            for i in range(0, observations.shape[0], step)
        ]
    )


@dataclass(frozen=True, eq=False)
class _EMProblem:
    """Constants of the EM steps: none depends on the weights."""

    log_density: Tensor  # (C, M, T)
    density: Tensor  # (C, M, T), scaled so that the best component of each observation has 1
    extra: Tensor  # (C, T), alpha - 1

    @classmethod
    def create(cls, log_density: Tensor, extra: Tensor) -> _EMProblem:
        """Scale the densities; log_density is (C, M, T), extra (C, T)."""
        return cls(log_density, (log_density - log_density.amax(-1, keepdim=True)).exp_(), extra)

    def select(self, classes: Tensor) -> _EMProblem:
        """The problem of some of its classes; `classes` is a mask (C,)."""
        return _EMProblem(self.log_density[classes], self.density[classes], self.extra[classes])

    def step(self, pi: Tensor) -> Tensor:
        """One EM step of the weights of all classes, see `fit_mixing_weights`: (C, T) -> (C, T), a new tensor."""
        counts = self._counts(pi)
        new = (counts + self.extra).clamp_min(0.0)
        total = new.sum(-1, keepdim=True)
        winner = torch.nn.functional.one_hot(counts.argmax(-1), counts.shape[-1]).to(new.dtype)
        return torch.where(total > 0, new / total.clamp_min(torch.finfo(new.dtype).tiny), winner)

    def _counts(self, pi: Tensor) -> Tensor:
        """N_t = sum over observations of pi_t f_t / sum_i pi_i f_i: two matrix-vector products per class."""
        mixture = torch.bmm(self.density, pi[:, :, None])  # (C, M, 1)
        counts = pi * torch.bmm(mixture.reciprocal().mT, self.density)[:, 0]
        # classes in which all components that explain some observation were clipped to 0
        lost = (mixture < 1e-280).flatten(1).any(-1)
        if bool(lost.any()):
            logits = self.log_density[lost] + pi[lost].log()[:, None, :]
            counts[lost] = torch.softmax(logits, dim=-1).sum(1)
        return counts


def _log_posterior(pi: Tensor, log_density: Tensor, extra: Tensor) -> Tensor:
    """Log posterior (C,) of weights pi (C, T), without the Dirichlet's constant; `extra` is alpha - 1.

    The prior is summed over the weights that are not 0 only: at 0, an alpha below 1 would add infinity.
    """
    likelihood = torch.logsumexp(log_density + pi.log()[:, None, :], dim=-1).sum(-1)
    return likelihood + torch.xlogy(extra, torch.where(pi > 0, pi, 1.0)).sum(-1)


def _check_classes(observations: Tensor, components: Gaussian) -> None:
    """Raise TypeError or ValueError unless observations are (C, M, D) and components (C, T, D), finite, not empty."""
    check_points(observations, "observations")
    check_gaussian(components, "components")
    shapes = f"observations {tuple(observations.shape)} and components {tuple(components.shape)}"
    if observations.ndim != 3 or components.mean.ndim != 3:
        raise ValueError(f"{shapes} must be (C, M, D) and (C, T, D)")
    if observations.shape[0] != components.shape[0] or observations.shape[2] != components.dim:
        raise ValueError(f"{shapes} differ in the number of classes or dimensions")
    if 0 in observations.shape or 0 in components.shape:
        raise ValueError(f"{shapes} must not be empty")


def _expand_per_class(value: float | Tensor, shape: tuple[int, int], like: Tensor, name: str) -> Tensor:
    """Expand a number, (T,) or (C, T) to a new tensor of `shape` (C, T), with dtype and device of `like`."""
    tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if tensor.ndim not in (0, 1, 2) or tensor.shape != shape[2 - tensor.ndim :]:
        raise ValueError(f"{name} {tuple(tensor.shape)} must be a number, {shape[1:]} or {shape}")
    return tensor.expand(shape).clone()
