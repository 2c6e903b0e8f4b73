"""Many prompts, one class: pooling Gaussians with weights, and EM for the weights (Algorithm 1 of the paper)."""

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
"""Logarithms whose exponentials, times a weight, a float32 holds well."""

DENSITY_ELEMENTS = 2**19
"""Observation coordinates (classes x M x D) whose densities are computed at one time: 4 MiB, which stay in cache."""


def pool(
    prompts: Gaussian,
    weights: Tensor | None = None,
    *,
    variance: PooledVariance = "average",
    normalize: bool = True,
) -> Gaussian:
    """One Gaussian from T: mean sum pi mu (of unit length again unless told not), variance as `PooledVariance` says.

    prompts: (..., T, D). weights: (..., T) or (T,), not negative, scaled here to sum to 1; None is uniform.
    Returns (..., D).
    """
    check_gaussian(prompts, "prompts")
    require_choice(variance, get_args(PooledVariance), "variance")
    if prompts.mean.ndim < 2 or prompts.shape[-2] == 0:
        raise ValueError(f"prompts must be (..., T, D) with T at least 1, not {tuple(prompts.shape)}")
    share = _shares(prompts, weights)
    dtype = torch.promote_types(share.dtype, prompts.mean.dtype)
    mean = (share[..., None, :].to(dtype) @ prompts.mean.to(dtype))[..., 0, :]
    if normalize:
        length = mean.norm(dim=-1, keepdim=True)
        if bool((length < 1e-6).any()):
            raise ValueError(
                "prompts that cancel each other have no mean direction: their weighted sum is zero"
            )
        mean = mean / length
    factor = share if variance == "average" else share.square()
    return Gaussian(mean, _log_weighted_sum(prompts.log_var, factor[..., None]))


def _log_weighted_sum(log_values: Tensor, factor: Tensor) -> Tensor:
    """log sum over T of factor exp(log_values): (..., T, D) -> (..., D). A factor may be 0, and has a gradient."""
    if is_in_range(log_values, -SAFE_LOG, SAFE_LOG):
        return (factor.mT @ log_values.exp())[..., 0, :].log()
    top = torch.where(factor > 0, log_values, -torch.inf).amax(-2, keepdim=True).detach()
    top = torch.where(torch.isfinite(top), top, 0.0)  # all points: log 0 below
    scaled = (log_values - top).clamp_max(80.0).exp()  # one of factor 0 may lie far above the top
    return (factor * scaled).sum(-2).log() + top[..., 0, :]


def _shares(prompts: Gaussian, weights: Tensor | None) -> Tensor:
    """Weights as shares of 1, (..., T), in the type of log_var."""
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
    """Weights proportional to 1/tr(Sigma), where Algorithm 1 starts. prompts: (..., T, D). Returns (..., T), sum 1."""
    uncertainty = check_gaussian(prompts, "prompts").uncertainty
    if bool((uncertainty <= 0).any()):
        raise ValueError("1/tr(Sigma) needs uncertainties above 0: this model has none")
    return torch.softmax(-uncertainty.log(), dim=-1)


def dirichlet_prior(weights: Tensor, alpha: float) -> Tensor:
    """Concentrations 1 + (alpha - 1) T w: a Dirichlet with the pull of alpha, shared out by weights (section 3.4).

    weights: (..., T), scaled here to sum to 1. Returns (..., T).
    """
    return 1.0 + (alpha - 1.0) * weights.shape[-1] * weights / weights.sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class MixingWeights:
    """What EM found: weights (C, T) in float64, and for each class how it got there."""

    weights: Tensor
    iterations: Tensor  # (C,) steps taken
    converged: Tensor  # (C,) whether the last step was below the tolerance
    log_posterior: Tensor  # (C,) up to a constant: log-likelihood + sum of (alpha - 1) log pi over pi > 0


def fit_mixing_weights(
    observations: Tensor,
    components: Gaussian,
    *,
    alpha: float | Tensor,
    initial: Tensor | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
) -> MixingWeights:
    """EM for the weights of fixed Gaussian components under a Dirichlet(alpha) prior, all classes at once.

    observations: (C, M, D) points. components: (C, T, D); add what keeps them wide enough (Algorithm 1's 0.02) before.
    alpha: a number, or concentrations (C, T) or (T,). initial: (C, T) or (T,), positive; None is uniform.
    Each step sets pi_t to N_t + alpha_t - 1, clipped at 0, and scales the sum to 1 (if all are clipped, the
    component with the largest N_t takes all). A class stops when no weight moves by more than `tolerance`.
    """
    _check_classes(observations, components)
    shape = (components.shape[0], components.shape[1])
    log_density = class_log_densities(observations, components)
    if not bool(torch.isfinite(log_density).all()):
        raise ValueError(
            "observations so far from the components, or components so narrow, that densities overflow"
        )
    extra = _per_class(alpha, shape, log_density, "alpha") - 1.0
    if not bool(((extra > -1) & (extra < 1e100)).all()):
        raise ValueError("alpha must be positive and below 1e100")
    if not 0.0 <= tolerance < 1.0 or max_iterations < 1:
        raise ValueError(
            f"tolerance {tolerance} must be in [0, 1), max_iterations {max_iterations} at least 1"
        )
    pi = _per_class(1.0 if initial is None else initial, shape, log_density, "initial")
    if not bool((pi > 0).all() and torch.isfinite(pi).all()):
        raise ValueError("initial weights must be positive and finite: EM can't leave zero")
    pi /= pi.sum(-1, keepdim=True)
    iterations, converged = _iterate(pi, _Problem.of(log_density, extra), tolerance, max_iterations)
    return MixingWeights(pi, iterations, converged, _log_posterior(pi, log_density, extra))


def _iterate(pi: Tensor, problem: _Problem, tolerance: float, most: int) -> tuple[Tensor, Tensor]:
    """Step pi (C, T) in place, each class until it has converged. Returns iterations (C,) and converged (C,)."""
    iterations = torch.zeros(len(pi), dtype=torch.int64, device=pi.device)
    converged = torch.zeros(len(pi), dtype=torch.bool, device=pi.device)
    active = torch.arange(len(pi), device=pi.device)  # the classes of `problem`
    going = torch.ones(len(pi), dtype=torch.bool, device=pi.device)  # of those, the ones that still move
    for _ in range(most):
        new = problem.step(pi[active])
        moving = (new - pi[active]).abs().amax(-1) > tolerance
        pi[active[going]] = new[going]
        iterations[active[going]] += 1
        going &= moving
        converged[active] = ~going
        if not bool(going.any()):
            break
        if int(going.sum()) < 0.7 * len(active):  # copying what is left pays once enough classes have stopped
            active, problem, going = active[going], problem.only(going), going[going]
    return iterations, converged


def class_log_densities(observations: Tensor, components: Gaussian) -> Tensor:
    """log density of each observation under each component of its class, in float64.

    observations: (C, M, D), components: (C, T, D). Returns (C, M, T). They don't depend on the weights: EM needs
    them once.
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
class _Problem:
    """What EM steps read: none of it depends on the weights."""

    log_density: Tensor  # (C, M, T)
    density: Tensor  # (C, M, T), scaled so that the best component of each observation has 1
    extra: Tensor  # (C, T), alpha - 1

    @classmethod
    def of(cls, log_density: Tensor, extra: Tensor) -> _Problem:
        return cls(log_density, (log_density - log_density.amax(-1, keepdim=True)).exp_(), extra)

    def only(self, classes: Tensor) -> _Problem:
        return _Problem(self.log_density[classes], self.density[classes], self.extra[classes])

    def step(self, pi: Tensor) -> Tensor:
        """One EM step for all classes: (C, T) -> (C, T)."""
        counts = self._counts(pi)
        new = (counts + self.extra).clamp_min(0.0)
        total = new.sum(-1, keepdim=True)
        winner = torch.nn.functional.one_hot(counts.argmax(-1), counts.shape[-1]).to(new.dtype)
        return torch.where(total > 0, new / total.clamp_min(torch.finfo(new.dtype).tiny), winner)

    def _counts(self, pi: Tensor) -> Tensor:
        """N_t = sum over observations of pi_t f_t / sum_i pi_i f_i: two products of a matrix and a vector a class."""
        mixture = torch.bmm(self.density, pi[:, :, None])  # (C, M, 1)
        counts = pi * torch.bmm(mixture.reciprocal().mT, self.density)[:, 0]
        # classes in which all components that explain some observation were clipped to 0
        lost = (mixture < 1e-280).flatten(1).any(-1)
        if bool(lost.any()):
            logits = self.log_density[lost] + pi[lost].log()[:, None, :]
            counts[lost] = torch.softmax(logits, dim=-1).sum(1)
        return counts


def _log_posterior(pi: Tensor, log_density: Tensor, extra: Tensor) -> Tensor:
    """Up to the Dirichlet's constant, over the weights that are not 0 (at 0, an alpha below 1 would add infinity)."""
    likelihood = torch.logsumexp(log_density + pi.log()[:, None, :], dim=-1).sum(-1)
    return likelihood + torch.xlogy(extra, torch.where(pi > 0, pi, 1.0)).sum(-1)


def _check_classes(observations: Tensor, components: Gaussian) -> None:
    check_points(observations, "observations")
    check_gaussian(components, "components")
    shapes = f"observations {tuple(observations.shape)} and components {tuple(components.shape)}"
    if observations.ndim != 3 or components.mean.ndim != 3:
        raise ValueError(f"{shapes} must be (C, M, D) and (C, T, D)")
    if observations.shape[0] != components.shape[0] or observations.shape[2] != components.dim:
        raise ValueError(f"{shapes} differ in the number of classes or dimensions")
    if 0 in observations.shape or 0 in components.shape:
        raise ValueError(f"{shapes} must not be empty")


def _per_class(value: float | Tensor, shape: tuple[int, int], like: Tensor, name: str) -> Tensor:
    """A number, (T,) or (C, T) as a fresh (C, T) in float64."""
    tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if tensor.ndim not in (0, 1, 2) or tensor.shape != shape[2 - tensor.ndim :]:
        raise ValueError(f"{name} {tuple(tensor.shape)} must be a number, {shape[1:]} or {shape}")
    return tensor.expand(shape).clone()
