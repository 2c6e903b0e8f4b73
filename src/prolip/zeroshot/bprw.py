"""BPRW, Bayesian prompt re-weighting (section 3.4, Algorithm 1): weights of prompts from images.

For each class, the prompts with slightly larger variances are the components of a Gaussian mixture, and samples from
the Gaussians of a few images are its observations. EM under a Dirichlet prior finds the mixing weights. All classes run
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_positive_int
from prolip.choices import Prior as Prior  # noqa: PLC0414
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.nearest import RankingMetric, find_nearest
from prolip.mixture import (
    MixingWeights,
    dirichlet_prior,
    fit_mixing_weights,
    inverse_uncertainty_weights,
    pool,
)
from prolip.tensor_checks import is_in_range
from prolip.zeroshot.few_shot import choose_shots

MIN_SAFE_LOG_VAR = -80.0
"""From here on, a log-variance gives a variance above 0 in float32."""

BLOCK_ELEMENTS = 2**22
"""Coordinates of observations in memory at a time: 16 MiB in float32. More would not fit the CPU cache."""


@dataclass(frozen=True, kw_only=True)
class BPRWConfig:
    """Settings of BPRW.

    Attributes:
        alpha: Concentration of the Dirichlet prior; 1: no prior; larger values make the weights more uniform.
        samples_per_image: Samples from the Gaussian of each image.
        nearest_images: Without labels: number of nearest images that stand for a class; None: labels are needed.
        extra_variance: Added to the variances of the prompts.
        prior: See `Prior`.
    """

    alpha: float
    samples_per_image: int
    nearest_images: int | None = None
    extra_variance: float = 0.02
    prior: Prior = "initial"

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        if not 0.0 < self.alpha < 1e6:
            raise ValueError(f"alpha must be positive and below 1e6, not {self.alpha!r}")
        require_positive_int(self.samples_per_image, "samples_per_image")
        if self.nearest_images is not None:
            require_positive_int(self.nearest_images, "nearest_images")
        if not 0.0 <= self.extra_variance < 1e6:
            raise ValueError(f"extra_variance must be in 0..1e6, not {self.extra_variance!r}")
        require_choice(self.prior, get_args(Prior), "prior")
        if self.prior == "dirichlet" and self.alpha < 1.0:
            raise ValueError(
                "The prior 'dirichlet' needs alpha of at least 1, so that its concentrations are positive, "
                f"not {self.alpha!r}"
            )


ZERO_SHOT_CONFIG = BPRWConfig(alpha=5.0, samples_per_image=10, nearest_images=10)
"""Settings of the paper without labels."""


def few_shot_config(shots: int) -> BPRWConfig:
    """Settings of the paper with labeled images: about 100 observations per class.

    Args:
        shots: Labeled images per class.

    Returns:
        The settings.
    """
    require_positive_int(shots, "shots")
    return BPRWConfig(alpha=2.0, samples_per_image=max(1, 100 // shots))


def fit_prompt_weights(
    prompts: Gaussian, observed: Gaussian, settings: BPRWConfig, generator: torch.Generator
) -> MixingWeights:
    """Fit the weights of the prompts to images of each class.

    Args:
        prompts: Gaussian (C, T, D).
        observed: Gaussian (C, M, D), the images of each class.
        settings: Settings of BPRW.
        generator: Generator of the samples.

    Returns:
        Mixing weights (C, T) and the state of EM.
    """
    # The noise (M, samples_per_image, D) is the same for every class, so the weights of a class depend neither on its
    # position nor on other classes. Classes go in blocks: memory does not grow with C x M x samples x D.
    _check_prompts_and_images(prompts, observed)
    num_classes, num_images, dim = observed.shape
    shape = (num_images, settings.samples_per_image, dim)
    noise = torch.randn(shape, generator=generator, dtype=observed.log_var.dtype, device=generator.device)
    noise = noise.to(observed.device)
    classes_per_block = max(1, BLOCK_ELEMENTS // noise.numel())
    blocks = [slice(i, i + classes_per_block) for i in range(0, num_classes, classes_per_block)]
    return _concatenate_classes(
        [
            fit_weights_to_samples(prompts[block], _sample_observations(observed[block], noise), settings)
            for block in blocks
        ]
    )


def fit_weights_to_samples(prompts: Gaussian, observations: Tensor, settings: BPRWConfig) -> MixingWeights:
    """Fit the weights of the prompts to samples of images (Algorithm 1).

    Args:
        prompts: Gaussian (C, T, D).
        observations: Samples from the images of each class, (C, N, D).
        settings: Settings of BPRW.

    Returns:
        Mixing weights (C, T) and the state of EM.
    """
    _check_prompts(prompts)
    components = Gaussian(prompts.mean, (prompts.var + settings.extra_variance).log())
    initial = inverse_uncertainty_weights(prompts)
    alpha = dirichlet_prior(initial, settings.alpha) if settings.prior == "dirichlet" else settings.alpha
    return fit_mixing_weights(observations, components, alpha=alpha, initial=initial)


def find_nearest_images(
    prompts: Gaussian, images: Gaussian, count: int, metric: RankingMetric = "csd"
) -> Tensor:
    """Find the images that are nearest to the pooled prompts of each class.

    Memory does not grow with C x N.

    Args:
        prompts: Gaussian (C, T, D).
        images: Gaussian (N, D).
        count: Images per class, at most N.
        metric: Similarity.

    Returns:
        Indices, int64 (C, count), nearest first.
    """
    return find_nearest(pool(prompts), images, count, metric=metric)[1]


def zero_shot_weights(
    prompts: Gaussian,
    images: Gaussian,
    settings: BPRWConfig,
    generator: torch.Generator,
    metric: RankingMetric = "csd",
) -> MixingWeights:
    """Fit the weights of the prompts to images without labels: the nearest images stand for each class.

    Args:
        prompts: Gaussian (C, T, D).
        images: Gaussian (N, D).
        settings: Settings of BPRW, with `nearest_images`.
        generator: Generator of the samples.
        metric: Similarity for the nearest images.

    Returns:
        Mixing weights (C, T) and the state of EM.

    Raises:
        ValueError: `settings.nearest_images` is None.
    """
    if settings.nearest_images is None:
        raise ValueError(
            "Without labels, BPRWConfig.nearest_images must be set, as in ZERO_SHOT_CONFIG, not None"
        )
    indices = find_nearest_images(prompts, images, settings.nearest_images, metric)
    return fit_prompt_weights(prompts, images[indices], settings, generator)


class FewShotWeights(NamedTuple):
    """Weights fitted to labeled images.

    Attributes:
        weights: (C, T), float64.
        image_indices: int64 (C, shots), the images used; -1 for a class without images.
    """

    weights: Tensor
    image_indices: Tensor


def few_shot_weights(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    shots: int,
    settings: BPRWConfig,
    generator: torch.Generator,
) -> FewShotWeights:
    """Fit the weights of the prompts to random labeled images of each class.

    A class with fewer images than `shots` uses its images repeatedly. A class without images gets the mode of the prior
    (for alpha above 1): uniform, or proportional to 1/tr(Sigma) for the prior `dirichlet`.

    Args:
        prompts: Gaussian (C, T, D).
        images: Gaussian (N, D).
        labels: Index of each image's class, int64 (N,).
        shots: Number of images per class.
        settings: Settings of BPRW.
        generator: Generator of images and samples.

    Returns:
        Weights (C, T), and the images used.
    """
    image_indices = choose_shots(labels, len(prompts), shots, generator)
    weights = _prior_weights(prompts, settings)
    has_images = image_indices[:, 0] >= 0  # (C,)
    if bool(has_images.any()):
        weights[has_images] = fit_prompt_weights(
            prompts[has_images], images[image_indices[has_images]], settings, generator
        ).weights
    return FewShotWeights(weights, image_indices)


def _sample_observations(observed: Gaussian, noise: Tensor) -> Tensor:
    """Samples from the Gaussians of images: (C, M S, D), the S samples of an image consecutively.

    observed: (C, M, D). noise: (M, S, D), standard normal.
    """
    return (observed.mean[:, :, None] + observed.std[:, :, None] * noise).flatten(1, 2)


def _prior_weights(prompts: Gaussian, settings: BPRWConfig) -> Tensor:
    """Weights of prompts without any observation, (C, T), float64: the mode of the prior."""
    _check_prompts(prompts)
    weights = inverse_uncertainty_weights(prompts).double()
    return weights if settings.prior == "dirichlet" else torch.full_like(weights, 1.0 / weights.shape[-1])


def _concatenate_classes(blocks: list[MixingWeights]) -> MixingWeights:
    """Join the results of blocks of classes to one result of all classes, in order."""
    names = ("weights", "iterations", "converged", "log_posterior")
    return MixingWeights(*(torch.cat([getattr(block, name) for block in blocks]) for name in names))


def _check_prompts_and_images(prompts: Gaussian, observed: Gaussian) -> None:
    """Raise unless prompts are (C, T, D) with uncertainty, and images (C, M, D) of the same C and D, not empty."""
    _check_prompts(prompts)
    check_gaussian(observed, "observed")
    prompt_shape, image_shape = tuple(prompts.shape), tuple(observed.shape)
    if len(image_shape) != 3 or prompt_shape[::2] != image_shape[::2] or 0 in image_shape:  # [::2]: C and D
        raise ValueError(
            f"prompts must be (C, T, D) and the observed images (C, M, D), of the same C and D and not empty, "
            f"but are {prompt_shape} and {image_shape}"
        )


def _check_prompts(prompts: Gaussian) -> None:
    """Raise ValueError unless prompts are (C, T, D), not empty, and have uncertainty."""
    prompts.check_shapes("prompts")  # EM looks at the values
    if prompts.mean.ndim != 3 or 0 in prompts.shape:
        raise ValueError(f"prompts must be (C, T, D) and not empty, but are {tuple(prompts.shape)}")
    # tiny log-variances are fine as long as every trace is positive
    has_tiny_variance = not is_in_range(prompts.log_var, MIN_SAFE_LOG_VAR, torch.inf)
    if has_tiny_variance and not bool((prompts.uncertainty > 0).all()):
        raise ValueError(
            "BPRW weights prompts by their uncertainty, but this model has none. Use uniform weights "
            "(prolip.zeroshot.prompt_weights.uniform_weights), or a probabilistic model"
        )
