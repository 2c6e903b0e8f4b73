"""Mixtures of prompts: pooling weighted Gaussians, and EM for the weights (Algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from prolip.checks import require_choice
from prolip.choices import PooledVariance as PooledVariance  # noqa: PLC0414
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.public import log_density_matrix
from prolip.tensor_checks import check_points, is_in_range

SAFE_LOG = 40.0
"""Up to this size of a logarithm, its exponential times a weight neither overflows nor underflows in float32."""

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
        if bool((length < 1e-6).any()):  # zero up to rounding: the means have unit length
            raise ValueError(
                "the weighted sum of the prompts' means is zero, so it can't be scaled to unit length: "
                "pass other weights, or normalize=False"
            )
        mean = mean / length
    var_weights = pi if variance == "average" else pi.square()
    return Gaussian(mean, _log_weighted_sum(prompts.log_var, var_weights[..., None]))


def _log_weighted_sum(log_values: Tensor, weights: Tensor) -> Tensor:
    """log of the sum over T of weights * exp(log_values): (..., T, D) -> (..., D).

    `weights` is (..., T, 1), at least 0; gradients flow to it, also where it is 0.
    """
    if is_in_range(log_values, -SAFE_LOG, SAFE_LOG):
        return (weights.mT @ log_values.exp())[..., 0, :].log()
    # logsumexp by hand: the maximum over the values of positive weight is subtracted before exp and added after log
    largest = torch.where(weights > 0, log_values, -torch.inf).amax(-2, keepdim=True).detach()
    largest = torch.where(torch.isfinite(largest), largest, 0.0)  # all are points: the result is log 0
    # a value of weight 0 may lie far above the largest: e^80 is still finite in float32
    scaled = (log_values - largest).clamp_max(80.0).exp()
    return (weights * scaled).sum(-2).log() + largest[..., 0, :]


def _normalize_weights(prompts: Gaussian, weights: Tensor | None) -> Tensor:
    """Weights that sum to 1 over T, (..., T) or (T,), in the dtype of log_var; uniform ones for None.

    Raises TypeError or ValueError if the weights have another shape, are negative or not finite, or are all zero.
    """
    shape = prompts.shape[:-1]
    if weights is None:
        return prompts.log_var.new_full(shape, 1.0 / shape[-1])
    if not isinstance(weights, Tensor):
        raise TypeError(f"weights must be a tensor, not {type(weights).__name__}")
    if weights.shape != shape and weights.shape != shape[-1:]:
        raise ValueError(f"weights {tuple(weights.shape)} must be {tuple(shape)} or {tuple(shape[-1:])}")
    total = weights.sum(-1, keepdim=True)
    if not bool((weights >= 0).all() and (total > 0).all() and torch.isfinite(total).all()):
        raise ValueError(
            "weights must be finite, not negative, and for each class at least one must be above 0"
        )
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
        raise ValueError(
            "weights 1/tr(Sigma) need an uncertainty above 0, and the model that embedded these prompts has none: "
            "use uniform weights"
        )
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
    _check_em_inputs(observations, components)
    shape = (components.shape[0], components.shape[1])
    log_density = class_log_densities(observations, components)
    if not bool(torch.isfinite(log_density).all()):
        raise ValueError(
            "densities overflow: observations are too far from the components, or variances are too small. "
            "Add a minimal variance to the components first (0.02 in Algorithm 1)"
        )
    pseudo_counts = _expand_per_class(alpha, shape, log_density, "alpha") - 1.0  # of the prior
    if not bool(((pseudo_counts > -1) & (pseudo_counts < 1e100)).all()):
        raise ValueError("alpha must be positive and below 1e100")
    if not 0.0 <= tolerance < 1.0 or max_iterations < 1:
        raise ValueError(
            f"tolerance {tolerance} must be in [0, 1), max_iterations {max_iterations} at least 1"
        )
    pi = _expand_per_class(1.0 if initial is None else initial, shape, log_density, "initial")
    if not bool((pi > 0).all() and torch.isfinite(pi).all()):
        raise ValueError("initial weights must be positive and finite: EM never changes a weight of zero")
    pi /= pi.sum(-1, keepdim=True)
    problem = _EMProblem.create(log_density, pseudo_counts)
    iterations, converged = _run_em(pi, problem, tolerance, max_iterations)
    return MixingWeights(pi, iterations, converged, _log_posterior(pi, log_density, pseudo_counts))


def _run_em(pi: Tensor, problem: _EMProblem, tolerance: float, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Run EM steps on the weights pi (C, T), in place, each class until it has converged or max_iterations is reached.

    Returns the number of steps of each class (C,), and whether it has converged (C,).
    """
    iterations = torch.zeros(len(pi), dtype=torch.int64, device=pi.device)
    converged = torch.zeros(len(pi), dtype=torch.bool, device=pi.device)
    classes = torch.arange(len(pi), device=pi.device)  # the class of each row of `problem`
    unconverged = torch.ones_like(classes, dtype=torch.bool)  # a mask of the rows of `problem`
    for _ in range(max_iterations):
        new_pi = problem.step(pi[classes])
        is_changing = (new_pi - pi[classes]).abs().amax(-1) > tolerance
        pi[classes[unconverged]] = new_pi[unconverged]
        iterations[classes[unconverged]] += 1
        unconverged &= is_changing
        converged[classes] = ~unconverged
        if not bool(unconverged.any()):
            break
        # Converged rows stay in `problem` and are ignored: copying the others at every step would cost more.
        if int(unconverged.sum()) < 0.7 * len(classes):
            classes, problem = classes[unconverged], problem.select(unconverged)
            unconverged = torch.ones_like(classes, dtype=torch.bool)
    return iterations, converged


def class_log_densities(observations: Tensor, components: Gaussian) -> Tensor:
    """log density of each observation under each component of its class. EM needs it once: it has no weights in it.

    Args:
        observations: (C, M, D).
        components: (C, T, D).

    Returns:
        (C, M, T), float64.
    """
    elements_per_class = max(1, observations.shape[1] * observations.shape[2])
    step = max(1, DENSITY_ELEMENTS // elements_per_class)  # classes at a time
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
    pseudo_counts: Tensor  # (C, T), alpha - 1

    @classmethod
    def create(cls, log_density: Tensor, pseudo_counts: Tensor) -> _EMProblem:
        """Make the problem of log_density (C, M, T) and pseudo_counts (C, T): computes the scaled densities."""
        density = (log_density - log_density.amax(-1, keepdim=True)).exp_()
        return cls(log_density, density, pseudo_counts)

    def select(self, classes: Tensor) -> _EMProblem:
        """A copy with some of the classes; `classes` is a mask (C,)."""
        return _EMProblem(self.log_density[classes], self.density[classes], self.pseudo_counts[classes])

    def step(self, pi: Tensor) -> Tensor:
        """One EM step of the weights of all classes, see `fit_mixing_weights`: (C, T) -> (C, T), a new tensor."""
        counts = self._expected_counts(pi)
        clipped = (counts + self.pseudo_counts).clamp_min(0.0)
        total = clipped.sum(-1, keepdim=True)
        # where all are clipped to 0, the component with the largest count gets weight 1
        winner = torch.nn.functional.one_hot(counts.argmax(-1), counts.shape[-1]).to(clipped.dtype)
        return torch.where(total > 0, clipped / total.clamp_min(torch.finfo(clipped.dtype).tiny), winner)

    def _expected_counts(self, pi: Tensor) -> Tensor:
        """Expected observations of each component, (C, T): N_t = sum over observations of pi_t f_t / sum_i pi_i f_i.

        Two matrix-vector products per class, except where a density underflows.
        """
        mixture = torch.bmm(self.density, pi[:, :, None])  # (C, M, 1)
        counts = pi * torch.bmm(mixture.reciprocal().mT, self.density)[:, 0]
        # Classes in which all components that explain some observation were clipped to 0. Its scaled density is so
        # near to 0 that the reciprocal overflows, or nearly (1e-280 leaves room), so logarithms are used instead.
        underflows = (mixture < 1e-280).flatten(1).any(-1)
        if bool(underflows.any()):
            logits = self.log_density[underflows] + pi[underflows].log()[:, None, :]
            counts[underflows] = torch.softmax(logits, dim=-1).sum(1)
        return counts


def _log_posterior(pi: Tensor, log_density: Tensor, pseudo_counts: Tensor) -> Tensor:
    """Log posterior (C,) of weights pi (C, T), without the Dirichlet's constant; `pseudo_counts` is alpha - 1.

    The prior is summed over the weights that are not 0 only: at 0, an alpha below 1 would add infinity.
    """
    log_likelihood = torch.logsumexp(log_density + pi.log()[:, None, :], dim=-1).sum(-1)
    return log_likelihood + torch.xlogy(pseudo_counts, torch.where(pi > 0, pi, 1.0)).sum(-1)


def _check_em_inputs(observations: Tensor, components: Gaussian) -> None:
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
    """Expand a number, (T,) or (C, T) to a new tensor of `shape` (C, T), with dtype and device of `like`.

    Raises ValueError, with `name` in the message, if the value has another shape.
    """
    tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if tensor.ndim not in (0, 1, 2) or tensor.shape != shape[2 - tensor.ndim :]:
        raise ValueError(f"{name} {tuple(tensor.shape)} must be a number, {shape[1:]} or {shape}")
    return tensor.expand(shape).clone()
