"""Gaussians in a plane: PCA of draws from them, means as dots, ellipses of the projected covariances.

After the paper's first figure and its appendix A.2. The projection is linear, so that a Gaussian stays one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from prolip.data.source import Source
from prolip.evaluation.captions import EmbeddedPairs
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.public import csd_matrix
from prolip.reports import figures
from prolip.reports.sheets import draw_image, read_sample_image, wrap_text

DRAWS = 10
SIGMAS = 2.0
"""How large ellipses are drawn: two standard deviations hold 86 % of the projected draws."""
CORNERS = 73
"""Of the closed line that stands for an ellipse; the last is the first."""
NEAR = 0.035
"""The share of the view within which points share a label."""
LINE = 46  # letters


@dataclass(frozen=True, eq=False)
class Plane:
    """Two orthonormal directions (2, D) through a center (D,), and the share of the variance along each (2,)."""

    center: Tensor
    directions: Tensor
    explained_variance_ratio: Tensor

    def project(self, vectors: Tensor) -> Tensor:
        """Vectors (..., D) in the plane: (..., 2)."""
        return (vectors.double() - self.center) @ self.directions.mT

    def project_covariances(self, z: Gaussian) -> Tensor:
        """P diag(sigma^2) P^T of each: (N, 2, 2)."""
        first, second = self.directions
        products = torch.stack([first * first, first * second, first * second, second * second])
        return (z.var.double() @ products.mT).reshape(-1, 2, 2)

    def compute_ellipses(self, z: Gaussian, sigmas: float = SIGMAS) -> Tensor:
        """The ellipses of `sigmas` standard deviations about the means: (N, CORNERS, 2), closed."""
        angle = torch.linspace(0, 2 * math.pi, CORNERS, dtype=torch.float64)
        circle = torch.stack([angle.cos(), angle.sin()])  # (2, CORNERS)
        values, vectors = torch.linalg.eigh(self.project_covariances(z))
        roots = vectors * values.clamp_min(0).sqrt()[:, None, :]
        outlines: Tensor = self.project(z.mean)[:, None] + sigmas * (roots @ circle).mT
        return outlines


def fit_plane(gaussians: Sequence[Gaussian], generator: torch.Generator, draws: int = DRAWS) -> Plane:
    """PCA of `draws` draws of each Gaussian: of all Gaussians, each (N, D), together.

    The sign of a direction is such that its largest component is positive. A single direction of variance, or none,
    is completed to a plane.
    """
    if (
        not gaussians
        or sum(len(check_gaussian(z, "gaussians")) for z in gaussians) == 0
        or gaussians[0].dim < 2
    ):
        raise ValueError("a plane needs at least one Gaussian of two dimensions or more")
    samples = torch.cat([z.sample(generator, draws).double().reshape(-1, z.dim) for z in gaussians])
    center = samples.mean(0)
    centered = samples - center
    # with full matrices there are D directions, however few samples there are
    _, lengths, directions = torch.linalg.svd(centered, full_matrices=len(centered) < 2)
    directions = directions[:2]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    total = centered.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    shares = torch.zeros(2, dtype=torch.float64)
    shares[: len(lengths[:2])] = lengths[:2].square() / total
    return Plane(center, directions * largest.sign(), shares)


def choose_similar_images(pairs: EmbeddedPairs, first: int = 0, count: int = 10) -> tuple[Tensor, Tensor]:
    """`count` images that are alike: the nearest to image `first` by CSD, itself in front; and of each image its first
    and its last caption (of a chain: the most general, the most specific). Rows of images, and of captions, int64."""
    if not 0 <= first < len(pairs.images):
        raise ValueError(f"there is no image {first} among {len(pairs.images)}")
    distance = csd_matrix(pairs.images[first : first + 1], pairs.images)[0]
    distance[first] = -1.0
    images = distance.argsort(stable=True)[:count]
    captions: list[int] = []
    for image in images.tolist():
        own = (pairs.captions.image_index == image).nonzero()[:, 0].tolist()
        captions += sorted({own[0], own[-1]}) if own else []
    return images, torch.tensor(captions, dtype=torch.int64)


def save_plane_figure(
    out: Path,
    pairs: EmbeddedPairs,
    *,
    first: int = 0,
    count: int = 10,
    source: Source | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw images that are like image `first`, with two captions each, and write PNG and SVG.

    source: the data that the pairs are of; its pictures are read again for the margin. None: only captions stand there.
    """
    rows, captions = choose_similar_images(pairs, first, count)
    images, texts = pairs.images[rows], pairs.texts[captions]
    plane = fit_plane([images, texts], torch.Generator().manual_seed(seed))
    number_of = {int(row): number for number, row in enumerate(rows)}
    numbers = [number_of[int(row)] for row in pairs.captions.image_index[captions]]
    pictures = None
    if source is not None:
        pictures = [read_sample_image(source, int(number)) for number in pairs.indices[rows]]
    with figures.figure_style():
        figure = figures.make_figure(11.0, max(5.6, 0.72 * len(rows)))
        left, right = figure.add_gridspec(1, 2, width_ratios=(1.45, 1.0))
        draw_plane(figure.add_subplot(left), plane, images, texts, numbers)
        told = [[pairs.captions.texts[c] for c, n in zip(captions, numbers, strict=True) if n == number]
                for number in range(len(rows))]  # fmt: skip
        _list(figure, right, told, pictures)
        return figures.save_figure(figure, out)


def draw_plane(axes: Any, plane: Plane, images: Gaussian, texts: Gaussian, numbers: Sequence[int]) -> None:
    for name, color, z in (("images", figures.BLUE, images), ("captions", figures.ORANGE, texts)):
        for outline in plane.compute_ellipses(z):
            axes.fill(*outline.T, color=color, alpha=0.05, linewidth=0)
            axes.plot(*outline.T, color=color, linewidth=0.8, alpha=0.6)
        axes.scatter(*plane.project(z.mean).T, s=14, color=color, zorder=3, label=name)
    centers = plane.project(images.mean)
    for number, point in zip(numbers, plane.project(texts.mean), strict=True):
        axes.plot(*torch.stack([centers[number], point]).T, color=figures.GRAY, linewidth=0.5, zorder=1)
    _write_numbers(axes, centers, range(len(centers)), figures.BLUE)
    _write_numbers(axes, plane.project(texts.mean), numbers, figures.ORANGE)
    along = [
        f"direction {k + 1} ({100 * float(share):.0f} % of the variance)"
        for k, share in enumerate(plane.explained_variance_ratio)
    ]
    axes.set(title=f"PCA of draws; ellipses of {SIGMAS:g} σ", xlabel=along[0], ylabel=along[1])
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best")


def _write_numbers(axes: Any, points: Tensor, numbers: Sequence[int], color: str) -> None:
    """The number of each point beside it; points that lie together share one label."""
    low, high = axes.dataLim.get_points()
    close = NEAR * float(max(high - low))
    left = list(range(len(points)))
    while left:
        near = [i for i in left if float((points[i] - points[left[0]]).norm()) <= close]
        left = [i for i in left if i not in near]
        label = format_ranges([numbers[i] + 1 for i in near])
        at = points[near].mean(0).tolist()
        axes.annotate(label, at, (5, 5), textcoords="offset points", color=color, fontsize=9, weight="bold")


def format_ranges(numbers: Sequence[int]) -> str:
    """Numbers for people: 1–3, 7."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _list(
    figure: Any, place: Any, captions: Sequence[Sequence[str]], pictures: Sequence[Image.Image] | None
) -> None:
    """Number, picture and captions of each image."""
    grid = place.subgridspec(len(captions), 2, width_ratios=(1, 5), wspace=0.02, hspace=0.05)
    for number, texts in enumerate(captions):
        shown = figure.add_subplot(grid[number, 0])
        shown.set_axis_off()
        if pictures is not None:
            draw_image(shown, pictures[number])
        axes = figure.add_subplot(grid[number, 1])
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.text(0.0, 0.5, str(number + 1), va="center", weight="bold", color=figures.BLUE)
        lines = [line for text in texts for line in wrap_text(text, LINE, most=2)]
        axes.text(0.08, 0.5, "\n".join(lines), va="center", fontsize=7.8, parse_math=False)
