"""Benchmark of evaluation: batched BPRW and traversal against one class or image at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measures import broadcast_log_inclusion, class_by_class_em, print_result, run_comparisons
from benchmarks.timing import compare_implementations, require_scale_and_repeats
from prolip.gaussian import Gaussian
from prolip.mixture import MixingWeights, pool
from prolip.retrieval.traversal.traverse import traverse
from prolip.zeroshot.bprw import (
    ZERO_SHOT_CONFIG,
    BPRWConfig,
    few_shot_config,
    fit_prompt_weights,
    zero_shot_weights,
)

__all__ = ["print_result", "run"]
NUM_TIMED = 2
"""Classes or images on which the reference is timed; its time is scaled up, because all would take many minutes."""


def run(*, scale: float = 1.0, repeats: int = 3, dims: int = 768) -> list[dict[str, Any]]:
    """Compare batched BPRW and traversal with one class or image at a time.

    Args:
        scale: Factor of the numbers of classes, prompts, images and captions.
        repeats: Interleaved runs of each implementation.
        dims: Dimensions of the embeddings.

    Returns:
        One dict per comparison, as of `benchmarks.measures.run`.
    """
    require_scale_and_repeats(scale, repeats, max_scale=4)
    classes, prompts, images, captions = (max(NUM_TIMED, round(scale * n)) for n in (1000, 80, 1000, 4000))
    comparisons: list[Callable[[], dict[str, Any]]] = [
        partial(_compare_bprw, classes, prompts, max(10, 10 * classes), dims, repeats),
        partial(_compare_few_shot, classes, prompts, dims, repeats),
        partial(_compare_traversal, images, captions, dims, repeats),
    ]
    return run_comparisons(comparisons)


def class_by_class_bprw(prompts: Gaussian, images: Gaussian, noise: Tensor, iterations: int) -> Tensor:
    """Compute algorithm 1 without labels by its definition: the nearest images of each class take the place of labels.

    Args:
        prompts: (C, T).
        images: (N,).
        noise: Standard normal noise, (M, samples per image, D); the M nearest images are used.
        iterations: Number of EM iterations.

    Returns:
        Mixing weights, (C, T).
    """
    nearest = []
    for c in range(len(prompts)):
        pooled = pool(prompts[c])
        distance = (pooled.mean - images.mean).square().sum(-1) + pooled.uncertainty + images.uncertainty
        nearest.append(images[distance.topk(len(noise), largest=False).indices])
    return class_by_class_reweighing(prompts, Gaussian.stack(nearest), noise, ZERO_SHOT_CONFIG, iterations)


def class_by_class_reweighing(
    prompts: Gaussian, observed: Gaussian, noise: Tensor, settings: BPRWConfig, iterations: int
) -> Tensor:
    """Compute algorithm 1 with labels by its definition: class by class, all densities recomputed in each iteration.

    Args:
        prompts: (C, T).
        observed: Images of each class, (C, M).
        noise: Standard normal noise, (M, samples per image, D).
        settings: Parameters of BPRW.
        iterations: Number of EM iterations.

    Returns:
        Mixing weights, (C, T).
    """
    weights = []
    for c in range(len(prompts)):
        samples = (observed[c].mean[:, None] + observed[c].std[:, None] * noise).flatten(0, 1)
        widened = Gaussian(prompts[c].mean, (prompts[c].var + settings.extra_variance).log())
        weights.append(class_by_class_em(samples[None], widened[None], settings.alpha, iterations)[0])
    return torch.stack(weights)


def image_by_image_traversal(images: Gaussian, captions: Gaussian, null: Gaussian, steps: int = 50) -> Tensor:
    """Traverse by the definition: image by image and step by step, over all captions.

    Args:
        images: (N,).
        captions: (M,).
        null: The empty caption, (1,).
        steps: Points on the path from start to root.

    Returns:
        Index of the caption at each step, (N, steps).
    """
    visited = []
    for i in range(len(images)):
        start = (captions.mean @ images.mean[i] - 0.5 * captions.uncertainty).argmax()
        root = broadcast_log_inclusion(images[i : i + 1], captions)[0].argmax()
        end = normalize(captions.mean[root] + null.mean[0], dim=0)
        path = []
        for step in range(steps):
            point = normalize(captions.mean[start] + step / steps * (end - captions.mean[start]), dim=0)
            path.append((captions.mean @ point - 0.5 * captions.uncertainty).argmax())
        visited.append(torch.stack(path))
    return torch.stack(visited)


def _compare_bprw(
    num_classes: int, num_prompts: int, num_images: int, dims: int, repeats: int
) -> dict[str, Any]:
    """Compare BPRW without labels with `class_by_class_bprw` on random prompts and images."""
    z, images, generator = _draw_prompts_and_images(num_classes, num_prompts, num_images, dims)
    assert ZERO_SHOT_CONFIG.nearest_images is not None
    noise = torch.randn(
        ZERO_SHOT_CONFIG.nearest_images, ZERO_SHOT_CONFIG.samples_per_image, dims, generator=generator
    )

    def run_ours() -> MixingWeights:
        """Fit the weights, pool the prompts by them, and return the fit."""
        fit = zero_shot_weights(z, images, ZERO_SHOT_CONFIG, torch.Generator().manual_seed(0))
        pool(z, fit.weights)
        return fit

    iterations = int(run_ours().iterations.float().mean())
    numbers = compare_implementations(
        lambda: class_by_class_bprw(z[:NUM_TIMED], images, noise, iterations), run_ours, repeats, "BPRW"
    )
    return {
        "name": "BPRW without labels: nearest images, draws, EM, pooling",
        "size": f"{num_classes} classes x {num_prompts} prompts, {num_images} images, {dims} dimensions",
        "reference": _describe_reference(iterations, num_classes),
        **_scale_reference(numbers, num_classes / NUM_TIMED),
    }


def _compare_few_shot(
    num_classes: int, num_prompts: int, dims: int, repeats: int, shots: int = 5
) -> dict[str, Any]:
    """Compare BPRW with `shots` labeled images per class with `class_by_class_reweighing`."""
    z, images, generator = _draw_prompts_and_images(num_classes, num_prompts, shots * num_classes, dims)
    settings = few_shot_config(shots)
    # image i is of class i % num_classes
    observed = images[torch.arange(shots * num_classes).reshape(shots, num_classes).T]
    noise = torch.randn(shots, settings.samples_per_image, dims, generator=generator)

    def run_ours() -> MixingWeights:
        """Fit the weights, pool the prompts by them, and return the fit."""
        fit = fit_prompt_weights(z, observed, settings, torch.Generator().manual_seed(0))
        pool(z, fit.weights)
        return fit

    iterations = int(run_ours().iterations.float().mean())
    numbers = compare_implementations(
        lambda: class_by_class_reweighing(z[:NUM_TIMED], observed[:NUM_TIMED], noise, settings, iterations),
        run_ours,
        repeats,
        f"BPRW with {shots} images per class",
    )
    return {
        "name": f"BPRW with {shots} images per class: draws, EM, pooling",
        "size": f"{num_classes} classes x {num_prompts} prompts, {dims} dimensions",
        "reference": _describe_reference(iterations, num_classes),
        **_scale_reference(numbers, num_classes / NUM_TIMED),
    }


def _draw_prompts_and_images(
    num_classes: int, num_prompts: int, num_images: int, dims: int
) -> tuple[Gaussian, Gaussian, torch.Generator]:
    """Draw prompts (C, T, D) around a center per class, and images (N, D) around the same centers in turn.

    Returns them with the generator that drew them, so that noise can be drawn after them.
    """
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(num_classes, 1, dims, generator=generator)
    mean = normalize(center + 0.6 * torch.randn(num_classes, num_prompts, dims, generator=generator), dim=-1)
    z = Gaussian(mean, -8.0 + 0.5 * torch.randn(num_classes, num_prompts, dims, generator=generator))
    image_centers = center[torch.arange(num_images) % num_classes, 0]
    images = Gaussian(
        normalize(image_centers + 0.8 * torch.randn(num_images, dims, generator=generator), dim=-1),
        -10.0 + 0.5 * torch.randn(num_images, dims, generator=generator),
    )
    return z, images, generator


def _describe_reference(num_iterations: int, num_classes: int) -> str:
    """Describe the reference of BPRW, for the notes below the table."""
    return (
        f"class by class, densities recomputed in each of {num_iterations} iterations (mean of ours); "
        f"{NUM_TIMED} classes timed, scaled to {num_classes}"
    )


def _compare_traversal(num_images: int, num_captions: int, dims: int, repeats: int) -> dict[str, Any]:
    """Compare traversal with `image_by_image_traversal` on random Gaussians around one center."""
    generator = torch.Generator().manual_seed(0)
    center = 2 * torch.randn(dims, generator=generator)

    def draw(count: int, log_var: float) -> Gaussian:
        mean = normalize(center + torch.randn(count, dims, generator=generator), dim=-1)
        return Gaussian(mean, log_var + 0.2 * torch.randn(count, dims, generator=generator))

    images, texts, null = draw(num_images, -10.9), draw(num_captions, -9.6), draw(1, -9.0)
    numbers = compare_implementations(
        lambda: image_by_image_traversal(images[:NUM_TIMED], texts, null),
        lambda: traverse(images, texts, null),
        repeats,
        "traversal",
    )
    return {
        "name": "traversal to the inclusion root, 50 steps",
        "size": f"{num_images} images x {num_captions} captions, {dims} dimensions",
        "reference": f"image by image and step by step, log inclusion broadcast to (M, D); {NUM_TIMED} images "
        f"timed, scaled to {num_images}",
        **_scale_reference(numbers, num_images / NUM_TIMED),
    }


def _scale_reference(numbers: dict[str, Any], factor: float) -> dict[str, Any]:
    """Scale the reference's seconds up to all classes or images, and drop its memory, which is that of `NUM_TIMED`.

    Changes `numbers`, the result of `compare_implementations`, and returns it.
    """
    numbers["reference_seconds"] *= factor
    numbers["times_faster"] = numbers["reference_seconds"] / numbers["ours_seconds"]
    numbers.pop("times_smaller", None)
    return numbers
