"""Benchmark of evaluation: batched BPRW and traversal against one class or image at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measures import broadcast_log_inclusion, class_by_class_em, print_result, run_all
from benchmarks.timing import compare_implementations
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
FEW = 2
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
    if not 0 < scale <= 4 or repeats < 1:
        raise ValueError(f"scale {scale} must be above 0 and at most 4, repeats {repeats} at least 1")
    classes, prompts, images, captions = (max(FEW, round(scale * n)) for n in (1000, 80, 1000, 4000))
    works: list[Callable[[], dict[str, Any]]] = [
        partial(_compare_bprw, classes, prompts, max(10, 10 * classes), dims, repeats),
        partial(_compare_few_shot, classes, prompts, dims, repeats),
        partial(_compare_traversal, images, captions, dims, repeats),
    ]
    return run_all(works)


def class_by_class_bprw(prompts: Gaussian, images: Gaussian, noise: Tensor, iterations: int) -> Tensor:
    """Algorithm 1 without labels by its definition: the nearest images of each class, then as with labels.

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
    """Algorithm 1 with labels by its definition: each class alone, EM with all densities recomputed in each iteration.

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
        draws = (observed[c].mean[:, None] + observed[c].std[:, None] * noise).flatten(0, 1)
        widened = Gaussian(prompts[c].mean, (prompts[c].var + settings.extra_variance).log())
        weights.append(class_by_class_em(draws[None], widened[None], settings.alpha, iterations)[0])
    return torch.stack(weights)


def image_by_image_traversal(images: Gaussian, captions: Gaussian, null: Gaussian, steps: int = 50) -> Tensor:
    """Traversal by its definition: each image and each step alone, over all captions.

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


def _compare_bprw(classes: int, prompts: int, count: int, dims: int, repeats: int) -> dict[str, Any]:
    z, images, generator = _classes_and_images(classes, prompts, count, dims)
    assert ZERO_SHOT_CONFIG.nearest_images is not None
    noise = torch.randn(
        ZERO_SHOT_CONFIG.nearest_images, ZERO_SHOT_CONFIG.samples_per_image, dims, generator=generator
    )

    def ours() -> MixingWeights:
        found = zero_shot_weights(z, images, ZERO_SHOT_CONFIG, torch.Generator().manual_seed(0))
        pool(z, found.weights)
        return found

    iterations = int(ours().iterations.float().mean())
    numbers = compare_implementations(
        lambda: class_by_class_bprw(z[:FEW], images, noise, iterations), ours, repeats
    )
    return {
        "name": "BPRW without labels: nearest images, draws, EM, pooling",
        "size": f"{classes} classes x {prompts} prompts, {count} images, {dims} dimensions",
        "reference": _describe_reference(iterations, classes),
        **_scale_reference(numbers, classes / FEW),
    }


def _compare_few_shot(classes: int, prompts: int, dims: int, repeats: int, shots: int = 5) -> dict[str, Any]:
    z, images, generator = _classes_and_images(classes, prompts, shots * classes, dims)
    settings = few_shot_config(shots)
    observed = images[
        torch.arange(shots * classes).reshape(shots, classes).T
    ]  # image i is of class i % classes
    noise = torch.randn(shots, settings.samples_per_image, dims, generator=generator)

    def ours() -> MixingWeights:
        found = fit_prompt_weights(z, observed, settings, torch.Generator().manual_seed(0))
        pool(z, found.weights)
        return found

    iterations = int(ours().iterations.float().mean())
    numbers = compare_implementations(
        lambda: class_by_class_reweighing(z[:FEW], observed[:FEW], noise, settings, iterations), ours, repeats
    )
    return {
        "name": f"BPRW with {shots} images per class: draws, EM, pooling",
        "size": f"{classes} classes x {prompts} prompts, {dims} dimensions",
        "reference": _describe_reference(iterations, classes),
        **_scale_reference(numbers, classes / FEW),
    }


def _classes_and_images(
    classes: int, prompts: int, count: int, dims: int
) -> tuple[Gaussian, Gaussian, torch.Generator]:
    """Prompts (C, T, D) around a center per class, images (N, D) around the same centers in turn."""
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(classes, 1, dims, generator=generator)
    mean = normalize(center + 0.6 * torch.randn(classes, prompts, dims, generator=generator), dim=-1)
    z = Gaussian(mean, -8.0 + 0.5 * torch.randn(classes, prompts, dims, generator=generator))
    around = center[torch.arange(count) % classes, 0]
    images = Gaussian(
        normalize(around + 0.8 * torch.randn(count, dims, generator=generator), dim=-1),
        -10.0 + 0.5 * torch.randn(count, dims, generator=generator),
    )
    return z, images, generator


def _describe_reference(iterations: int, classes: int) -> str:
    return (
        f"class by class, densities recomputed in each of {iterations} iterations (mean of ours); {FEW} classes "
        f"timed, scaled to {classes}"
    )


def _compare_traversal(count: int, captions: int, dims: int, repeats: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    center = 2 * torch.randn(dims, generator=generator)

    def draw(number: int, log_var: float) -> Gaussian:
        mean = normalize(center + torch.randn(number, dims, generator=generator), dim=-1)
        return Gaussian(mean, log_var + 0.2 * torch.randn(number, dims, generator=generator))

    images, texts, null = draw(count, -10.9), draw(captions, -9.6), draw(1, -9.0)
    numbers = compare_implementations(
        lambda: image_by_image_traversal(images[:FEW], texts, null),
        lambda: traverse(images, texts, null),
        repeats,
    )
    return {
        "name": "traversal to the inclusion root, 50 steps",
        "size": f"{count} images x {captions} captions, {dims} dimensions",
        "reference": f"image by image and step by step, log inclusion broadcast to (M, D); {FEW} images timed, "
        f"scaled to {count}",
        **_scale_reference(numbers, count / FEW),
    }


def _scale_reference(numbers: dict[str, Any], factor: float) -> dict[str, Any]:
    """Scale the reference's seconds up to all classes or images; drop its memory, which is that of a few."""
    numbers["reference_seconds"] *= factor
    numbers["times_faster"] = numbers["reference_seconds"] / numbers["ours_seconds"]
    numbers.pop("times_smaller", None)
    return numbers
