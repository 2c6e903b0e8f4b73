"""Benchmark of evaluation: batched BPRW and traversal against one class or image at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measures import broadcast_log_inclusion, class_by_class_em, print_result
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
"""Classes or images of the reference that are timed; scaled up, since all would take many minutes."""


def run(*, scale: float = 1.0, repeats: int = 3, dims: int = 768) -> list[dict[str, Any]]:
    """All comparisons, a dict each. scale: of the numbers of classes, prompts, images and captions."""
    if not 0 < scale <= 4 or repeats < 1:
        raise ValueError(f"scale {scale} must be above 0 and at most 4, repeats {repeats} at least 1")
    classes, prompts, images, captions = (max(FEW, round(scale * n)) for n in (1000, 80, 1000, 4000))
    works: list[Callable[[], dict[str, Any]]] = [
        partial(_bench_bprw, classes, prompts, max(10, 10 * classes), dims, repeats),
        partial(_bench_few_shot, classes, prompts, dims, repeats),
        partial(_bench_traversal, images, captions, dims, repeats),
    ]
    return [work() for work in track(works, "measuring", console=Console(stderr=True), transient=True)]


def class_by_class_bprw(prompts: Gaussian, images: Gaussian, noise: Tensor, iterations: int) -> Tensor:
    """Algorithm 1 by the book, without labels: for each class its nearest images, then as with labels.

    noise: (M, draws, D). Returns weights (C, T).
    """
    near = []
    for c in range(len(prompts)):
        one = pool(prompts[c])
        distance = (one.mean - images.mean).square().sum(-1) + one.uncertainty + images.uncertainty
        near.append(images[distance.topk(len(noise), largest=False).indices])
    return class_by_class_reweighing(prompts, Gaussian.stack(near), noise, ZERO_SHOT_CONFIG, iterations)


def class_by_class_reweighing(
    prompts: Gaussian, observed: Gaussian, noise: Tensor, settings: BPRWConfig, iterations: int
) -> Tensor:
    """Algorithm 1 by the book: for each class draws of its images (C, M, D), and EM with all densities anew in each
    iteration. noise: (M, draws, D). Returns weights (C, T)."""
    found = []
    for c in range(len(prompts)):
        draws = (observed[c].mean[:, None] + observed[c].std[:, None] * noise).flatten(0, 1)
        wide = Gaussian(prompts[c].mean, (prompts[c].var + settings.extra_variance).log())
        found.append(class_by_class_em(draws[None], wide[None], settings.alpha, iterations)[0])
    return torch.stack(found)


def image_by_image_traversal(images: Gaussian, captions: Gaussian, null: Gaussian, steps: int = 50) -> Tensor:
    """SPEC section 7 by the book: for each image the log inclusion in each caption, for each step all captions."""
    visited = []
    for i in range(len(images)):
        start = (captions.mean @ images.mean[i] - 0.5 * captions.uncertainty).argmax()
        root = broadcast_log_inclusion(images[i : i + 1], captions)[0].argmax()
        end = normalize(captions.mean[root] + null.mean[0], dim=0)
        way = []
        for step in range(steps):
            point = normalize(captions.mean[start] + step / steps * (end - captions.mean[start]), dim=0)
            way.append((captions.mean @ point - 0.5 * captions.uncertainty).argmax())
        visited.append(torch.stack(way))
    return torch.stack(visited)


def _bench_bprw(classes: int, prompts: int, images: int, dims: int, repeats: int) -> dict[str, Any]:
    z, pictures, generator = _classes_and_images(classes, prompts, images, dims)
    assert ZERO_SHOT_CONFIG.nearest_images is not None
    noise = torch.randn(
        ZERO_SHOT_CONFIG.nearest_images, ZERO_SHOT_CONFIG.samples_per_image, dims, generator=generator
    )

    def ours() -> MixingWeights:
        found = zero_shot_weights(z, pictures, ZERO_SHOT_CONFIG, torch.Generator().manual_seed(0))
        pool(z, found.weights)
        return found

    iterations = int(ours().iterations.float().mean())
    numbers = compare_implementations(
        lambda: class_by_class_bprw(z[:FEW], pictures, noise, iterations), ours, repeats
    )
    return {
        "name": "BPRW without labels: nearest images, draws, EM, pooling",
        "size": f"{classes} classes x {prompts} prompts, {images} images, {dims} dimensions",
        "reference": _told(iterations, classes),
        **_scaled_up(numbers, classes / FEW),
    }


def _bench_few_shot(classes: int, prompts: int, dims: int, repeats: int, shots: int = 5) -> dict[str, Any]:
    z, pictures, generator = _classes_and_images(classes, prompts, shots * classes, dims)
    settings = few_shot_config(shots)
    observed = pictures[
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
        "name": f"BPRW with {shots} images a class: draws, EM, pooling",
        "size": f"{classes} classes x {prompts} prompts, {dims} dimensions",
        "reference": _told(iterations, classes),
        **_scaled_up(numbers, classes / FEW),
    }


def _classes_and_images(
    classes: int, prompts: int, images: int, dims: int
) -> tuple[Gaussian, Gaussian, torch.Generator]:
    """Prompts (C, T, D) about a centre a class, images (N, D) about the same centres in turn."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(classes, 1, dims, generator=generator)
    mean = normalize(centre + 0.6 * torch.randn(classes, prompts, dims, generator=generator), dim=-1)
    z = Gaussian(mean, -8.0 + 0.5 * torch.randn(classes, prompts, dims, generator=generator))
    around = centre[torch.arange(images) % classes, 0]
    pictures = Gaussian(
        normalize(around + 0.8 * torch.randn(images, dims, generator=generator), dim=-1),
        -10.0 + 0.5 * torch.randn(images, dims, generator=generator),
    )
    return z, pictures, generator


def _told(iterations: int, classes: int) -> str:
    return (
        f"class by class, densities anew in each of {iterations} iterations (the mean of ours); {FEW} classes timed, "
        f"scaled to {classes}"
    )


def _bench_traversal(images: int, captions: int, dims: int, repeats: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    centre = 2 * torch.randn(dims, generator=generator)

    def around(count: int, log_var: float) -> Gaussian:
        mean = normalize(centre + torch.randn(count, dims, generator=generator), dim=-1)
        return Gaussian(mean, log_var + 0.2 * torch.randn(count, dims, generator=generator))

    pictures, texts, null = around(images, -10.9), around(captions, -9.6), around(1, -9.0)
    numbers = compare_implementations(
        lambda: image_by_image_traversal(pictures[:FEW], texts, null),
        lambda: traverse(pictures, texts, null),
        repeats,
    )
    return {
        "name": "traversal to the inclusion root, 50 steps",
        "size": f"{images} images x {captions} captions, {dims} dimensions",
        "reference": f"image by image and step by step, log inclusion broadcast to (M, D); {FEW} images timed, "
        f"scaled to {images}",
        **_scaled_up(numbers, images / FEW),
    }


def _scaled_up(numbers: dict[str, Any], factor: float) -> dict[str, Any]:
    """The reference's seconds for all; its memory is of a few, and no comparison."""
    numbers["reference_seconds"] *= factor
    numbers["times_faster"] = numbers["reference_seconds"] / numbers["ours_seconds"]
    numbers.pop("times_smaller", None)
    return numbers
