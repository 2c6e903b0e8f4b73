"""BPRW, Bayesian prompt re-weighting (section 3.4 and Algorithm 1): which prompts of a class explain its images.

For each class the prompts, a little widened, are the components of a Gaussian mixture; draws from the Gaussians of a
few images are its observations; EM under a Dirichlet prior finds the mixing weights. All classes run together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_count, within
from prolip.gaussian import Gaussian, checked
from prolip.measures.nearest import Score, nearest
from prolip.mixture import (
    MixingWeights,
    dirichlet_prior,
    inverse_uncertainty_weights,
    mixing_weights,
    pool,
)
from prolip.zeroshot.few_shot import choose_shots

Prior = Literal["initial", "dirichlet"]
"""What 1/tr(Sigma) of the prompts is for. `initial`: where EM starts (the appendix; for alpha above 1 the end doesn't
depend on it). `dirichlet`: the concentrations of the prior themselves (section 3.4's words)."""

NARROWEST = 80.0
"""Of log-variances: from e^-80 on, a variance is surely above 0 in float32."""

BLOCK_ELEMENTS = 2**22
"""Coordinates of observations that are held at one time: 16 MiB in float32. More would leave the cache sooner."""


@dataclass(frozen=True, kw_only=True)
class Reweighting:
    """Settings of BPRW.

    alpha:   of the Dirichlet prior; 1 is none, more pulls the weights together.
    draws:   from the Gaussian of each image.
    nearest: images a class that are taken for its own where labels are unknown; None: labels are needed.
    widen:   is added to the prompts' variances.
    prior:   see `Prior`.
    """

    alpha: float
    draws: int
    nearest: int | None = None
    widen: float = 0.02
    prior: Prior = "initial"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1e6:
            raise ValueError(f"alpha must be positive and below 1e6, not {self.alpha!r}")
        require_count(self.draws, "draws")
        if self.nearest is not None:
            require_count(self.nearest, "nearest")
        if not 0.0 <= self.widen < 1e6:
            raise ValueError(f"widen must be in 0..1e6, a variance, not {self.widen!r}")
        require_choice(self.prior, get_args(Prior), "prior")
        if self.prior == "dirichlet" and self.alpha < 1.0:
            raise ValueError(
                "prior 'dirichlet' needs an alpha of at least 1, so that concentrations are positive"
            )


ZERO_SHOT = Reweighting(alpha=5.0, draws=10, nearest=10)
"""The paper's settings without labels."""


def few_shot(shots: int) -> Reweighting:
    """The paper's settings with `shots` labelled images a class: about 100 observations, however many images."""
    require_count(shots, "shots")
    return Reweighting(alpha=2.0, draws=max(1, 100 // shots))


def reweigh(
    prompts: Gaussian, observed: Gaussian, settings: Reweighting, generator: torch.Generator
) -> MixingWeights:
    """Weights of the prompts (C, T, D) that explain each class's own images (C, M, D).

    The noise of the draws, (M, draws, D), is the same for every class, so that the weights of a class depend neither on
    its place nor on its neighbours. Memory doesn't grow with C x M x draws x D.
    """
    _check(prompts, observed)
    classes, images, dim = observed.shape
    shape = (images, settings.draws, dim)
    noise = torch.randn(shape, generator=generator, dtype=observed.log_var.dtype, device=generator.device)
    noise = noise.to(observed.device)
    step = max(1, BLOCK_ELEMENTS // noise.numel())
    return _joined(
        [
            explain(prompts[i : i + step], _draws(observed[i : i + step], noise), settings)
            for i in range(0, classes, step)
        ]
    )


def explain(prompts: Gaussian, observations: Tensor, settings: Reweighting) -> MixingWeights:
    """Weights of the prompts (C, T, D) from observations that are drawn already, (C, observations, D)."""
    _check_uncertain(prompts)
    widened = Gaussian(prompts.mean, (prompts.var + settings.widen).log())
    initial = inverse_uncertainty_weights(prompts)
    alpha = dirichlet_prior(initial, settings.alpha) if settings.prior == "dirichlet" else settings.alpha
    return mixing_weights(observations, widened, alpha=alpha, initial=initial)


def nearest_images(prompts: Gaussian, images: Gaussian, count: int, by: Score = "csd") -> Tensor:
    """The images (N, D) nearest to each class's pooled prompts (C, T, D), best first: indices, int64 (C, count).

    count: all images if there are fewer. Memory doesn't grow with C x N.
    """
    return nearest(pool(prompts), images, count, by=by)[1]


def zero_shot_weights(
    prompts: Gaussian,
    images: Gaussian,
    settings: Reweighting,
    generator: torch.Generator,
    by: Score = "csd",
) -> MixingWeights:
    """Weights of the prompts (C, T, D) from images (N, D) without labels: the nearest ones stand for the class."""
    if settings.nearest is None:
        raise ValueError("without labels, Reweighting.nearest must say how many images stand for a class")
    found = nearest_images(prompts, images, settings.nearest, by)
    return reweigh(prompts, images[found], settings, generator)


class FewShot(NamedTuple):
    """weights: (C, T), float64. chosen: int64 (C, shots), the images that were used; -1 where a class has none."""

    weights: Tensor
    chosen: Tensor


def few_shot_weights(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    shots: int,
    settings: Reweighting,
    generator: torch.Generator,
) -> FewShot:
    """Weights of the prompts (C, T, D) from `shots` random images of each class. images: (N, D), labels: int64 (N,).

    A class with fewer images uses those it has in turn; one without any gets the prior's own weights,
    its mode (for an alpha above 1): uniform, or proportional to 1/tr(Sigma) for the prior `dirichlet`.
    """
    chosen = choose_shots(labels, len(prompts), shots, generator)
    weights = _prior_weights(prompts, settings)
    seen = chosen[:, 0] >= 0
    if bool(seen.any()):
        weights[seen] = reweigh(prompts[seen], images[chosen[seen]], settings, generator).weights
    return FewShot(weights, chosen)


def _draws(observed: Gaussian, noise: Tensor) -> Tensor:
    """observed (C, M, D) and noise (M, draws, D) -> (C, M x draws, D), all draws of an image together."""
    return (observed.mean[:, :, None] + observed.std[:, :, None] * noise).flatten(1, 2)


def _prior_weights(prompts: Gaussian, settings: Reweighting) -> Tensor:
    """Weights without any observation: the mode of the prior, (C, T), float64."""
    _check_uncertain(prompts)
    weights = inverse_uncertainty_weights(prompts).double()
    return weights if settings.prior == "dirichlet" else torch.full_like(weights, 1.0 / weights.shape[-1])


def _joined(blocks: list[MixingWeights]) -> MixingWeights:
    names = ("weights", "iterations", "converged", "log_posterior")
    return MixingWeights(*(torch.cat([getattr(block, name) for block in blocks]) for name in names))


def _check(prompts: Gaussian, observed: Gaussian) -> None:
    _check_uncertain(prompts)
    checked(observed, "observed")
    first, second = tuple(prompts.shape), tuple(observed.shape)
    if len(second) != 3 or first[::2] != second[::2] or 0 in second:
        raise ValueError(f"prompts {first} must be (C, T, D) and the observed images {second} (C, M, D)")


def _check_uncertain(prompts: Gaussian) -> None:
    prompts.check_form("prompts")  # EM looks at the values
    if prompts.mean.ndim != 3 or 0 in prompts.shape:
        raise ValueError(f"prompts must be (C, T, D), none of them 0, not {tuple(prompts.shape)}")
    narrow = not within(prompts.log_var, -NARROWEST, torch.inf)
    if narrow and not bool((prompts.uncertainty > 0).all()):
        raise ValueError("BPRW weighs prompts by their uncertainty: this model has none")
