"""Gaussians projected onto a plane: PCA of samples, means as dots, covariances as ellipses.

As in the paper's figure 1 and appendix A.2. The projection is linear, so that a Gaussian stays a Gaussian.
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

NUM_SAMPLES = 10
"""Samples of each Gaussian that the PCA is fitted to."""
SIGMAS = 2.0
"""Size of ellipses: two standard deviations hold 86 % of the projected samples."""
NUM_VERTICES = 73
"""Vertices of the closed line that draws an ellipse; the last is the first."""
LABEL_DISTANCE = 0.035
"""Points closer than this fraction of the axes' extent share one label."""
CAPTION_WIDTH = 46  # characters


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane in embedding space.

    center:     (D,).
    directions: (2, D), orthonormal.
    explained_variance_ratio: (2,), the fraction of the variance along each direction.
    """

    center: Tensor
    directions: Tensor
    explained_variance_ratio: Tensor

    def project(self, vectors: Tensor) -> Tensor:
        """Coordinates (..., 2) of vectors (..., D) in the plane."""
        return (vectors.double() - self.center) @ self.directions.mT

    def project_covariances(self, z: Gaussian) -> Tensor:
        """Covariances P diag(sigma^2) P^T of Gaussians (N, D) in the plane: (N, 2, 2)."""
        first, second = self.directions
        products = torch.stack([first * first, first * second, first * second, second * second])
        return (z.var.double() @ products.mT).reshape(-1, 2, 2)

    def compute_ellipses(self, z: Gaussian, sigmas: float = SIGMAS) -> Tensor:
        """Outlines of the ellipses of Gaussians in the plane.

        Args:
            z: Gaussians (N, D).
            sigmas: Size in standard deviations.

        Returns:
            Closed lines (N, NUM_VERTICES, 2).
        """
        angle = torch.linspace(0, 2 * math.pi, NUM_VERTICES, dtype=torch.float64)
        circle = torch.stack([angle.cos(), angle.sin()])  # (2, NUM_VERTICES)
        values, vectors = torch.linalg.eigh(self.project_covariances(z))
        # a root R of each covariance, R R^T: it maps the unit circle to the ellipse of one standard deviation
        roots = vectors * values.clamp_min(0).sqrt()[:, None, :]
        outlines: Tensor = self.project(z.mean)[:, None] + sigmas * (roots @ circle).mT
        return outlines


def fit_plane(
    gaussians: Sequence[Gaussian], generator: torch.Generator, num_samples: int = NUM_SAMPLES
) -> Plane:
    """Fit a plane by PCA of samples from Gaussians.

    The sign of a direction makes its largest component positive. If the samples have fewer than two directions of
    variance, orthonormal directions complete the plane.

    Args:
        gaussians: Each (N, D), D at least 2.
        generator: Generator of the samples.
        num_samples: Samples of each Gaussian.

    Returns:
        The plane, in float64.

    Raises:
        ValueError: There is no Gaussian, or D is below 2.
    """
    if (
        not gaussians
        or sum(len(check_gaussian(z, "gaussians")) for z in gaussians) == 0
        or gaussians[0].dim < 2
    ):
        raise ValueError(
            "a plane needs at least one Gaussian with D >= 2 dimensions; these are empty or have D < 2"
        )
    samples = torch.cat([z.sample(generator, num_samples).double().reshape(-1, z.dim) for z in gaussians])
    center = samples.mean(0)
    centered = samples - center
    # with full matrices there are D directions, however few samples there are
    _, lengths, directions = torch.linalg.svd(centered, full_matrices=len(centered) < 2)
    directions = directions[:2]
    largest_components = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    total = centered.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    ratios = torch.zeros(2, dtype=torch.float64)
    ratios[: len(lengths[:2])] = lengths[:2].square() / total  # a single sample has one singular value
    return Plane(center, directions * largest_components.sign(), ratios)


def choose_similar_images(
    pairs: EmbeddedPairs, query_row: int = 0, num_images: int = 10
) -> tuple[Tensor, Tensor]:
    """Choose the images nearest to a query image, and two captions of each.

    Args:
        pairs: Embeddings of images and captions.
        query_row: Row of the query image in `pairs.images`.
        num_images: Number of images, the query included.

    Returns:
        Rows of the images in `pairs.images`, nearest first by CSD, int64 (num_images,); and rows in `pairs.texts` of
        the first and the last caption of each (of a chain: the most general and the most specific), int64. An image
        with a single caption has one row, without captions none.

    Raises:
        ValueError: There is no such image.
    """
    if not 0 <= query_row < len(pairs.images):
        raise ValueError(
            f"query_row must be from 0 to {len(pairs.images) - 1}, a row of the {len(pairs.images)} images, "
            f"not {query_row}"
        )
    distance = csd_matrix(pairs.images[query_row : query_row + 1], pairs.images)[0]
    distance[query_row] = -1.0  # the query itself comes first, also before an equal image
    images = distance.argsort(stable=True)[:num_images]
    captions: list[int] = []
    for image in images.tolist():
        own_captions = (pairs.captions.image_index == image).nonzero()[:, 0].tolist()
        captions += sorted({own_captions[0], own_captions[-1]}) if own_captions else []
    return images, torch.tensor(captions, dtype=torch.int64)


def save_plane_figure(
    out: Path,
    pairs: EmbeddedPairs,
    *,
    query_row: int = 0,
    num_images: int = 10,
    source: Source | None = None,
    seed: int = 0,
) -> list[Path]:
    """Save a figure of similar images and their captions, as ellipses in a plane with a numbered list beside it.

    Args:
        out: Path without suffix.
        pairs: Embeddings of images and captions.
        query_row: Row of the image whose neighbors are drawn.
        num_images: Number of images, this one included.
        source: The data of the pairs; its images are drawn in the margin. None: only captions.
        seed: Seed of the samples that the plane is fitted to.

    Returns:
        Paths of the PNG and the SVG.
    """
    image_rows, caption_rows = choose_similar_images(pairs, query_row, num_images)
    images, texts = pairs.images[image_rows], pairs.texts[caption_rows]
    plane = fit_plane([images, texts], torch.Generator().manual_seed(seed))
    # row of an image -> its position in the figure
    positions = {int(row): position for position, row in enumerate(image_rows)}
    image_positions = [positions[int(row)] for row in pairs.captions.image_index[caption_rows]]
    pictures = None
    if source is not None:
        pictures = [read_sample_image(source, int(index)) for index in pairs.indices[image_rows]]
    with figures.figure_style():
        figure = figures.make_figure(11.0, max(5.6, 0.72 * len(image_rows)))
        left, right = figure.add_gridspec(1, 2, width_ratios=(1.45, 1.0))
        draw_plane(figure.add_subplot(left), plane, images, texts, image_positions)
        captions_by_image: list[list[str]] = [[] for _ in image_rows]
        for row, position in zip(caption_rows, image_positions, strict=True):
            captions_by_image[position].append(pairs.captions.texts[row])
        _draw_numbered_list(figure, right, captions_by_image, pictures)
        return figures.save_figure(figure, out)


def draw_plane(
    axes: Any, plane: Plane, images: Gaussian, texts: Gaussian, image_positions: Sequence[int]
) -> None:
    """Draw images and captions as dots with ellipses; a line joins a caption to its image.

    An image is labeled with its number, counted from 1, and a caption with that of its image.

    Args:
        axes: Matplotlib axes to draw on.
        plane: Result of `fit_plane`.
        images: (N, D).
        texts: (T, D).
        image_positions: Row of each caption's image in `images`, T numbers from 0 to N - 1.
    """
    for name, color, z in (("images", figures.BLUE, images), ("captions", figures.ORANGE, texts)):
        for outline in plane.compute_ellipses(z):
            axes.fill(*outline.T, color=color, alpha=0.05, linewidth=0)
            axes.plot(*outline.T, color=color, linewidth=0.8, alpha=0.6)
        axes.scatter(*plane.project(z.mean).T, s=14, color=color, zorder=3, label=name)
    centers = plane.project(images.mean)
    for position, point in zip(image_positions, plane.project(texts.mean), strict=True):
        axes.plot(*torch.stack([centers[position], point]).T, color=figures.GRAY, linewidth=0.5, zorder=1)
    _write_numbers(axes, centers, range(len(centers)), figures.BLUE)
    _write_numbers(axes, plane.project(texts.mean), image_positions, figures.ORANGE)
    axis_labels = [
        f"direction {k + 1} ({100 * float(ratio):.0f} % of the variance)"
        for k, ratio in enumerate(plane.explained_variance_ratio)
    ]
    axes.set(title=f"PCA of samples; ellipses of {SIGMAS:g} σ", xlabel=axis_labels[0], ylabel=axis_labels[1])
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best")


def _write_numbers(axes: Any, points: Tensor, image_positions: Sequence[int], color: str) -> None:
    """Write the number of its image, counted from 1, next to each point (N, 2); close points share one label.

    Close is nearer than `LABEL_DISTANCE` of the extent of the axes, on which all data must have been drawn before.
    """
    low, high = axes.dataLim.get_points()
    max_distance = LABEL_DISTANCE * float(max(high - low))
    unlabeled = list(range(len(points)))
    while unlabeled:
        group = [i for i in unlabeled if float((points[i] - points[unlabeled[0]]).norm()) <= max_distance]
        unlabeled = [i for i in unlabeled if i not in group]
        label = format_ranges([image_positions[i] + 1 for i in group])
        middle = points[group].mean(0).tolist()
        axes.annotate(
            label, middle, (5, 5), textcoords="offset points", color=color, fontsize=9, weight="bold"
        )


def format_ranges(numbers: Sequence[int]) -> str:
    """Format numbers as ranges: "1–3, 7".

    Args:
        numbers: In any order; repeats count once.

    Returns:
        The text.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _draw_numbered_list(
    figure: Any, area: Any, captions: Sequence[Sequence[str]], pictures: Sequence[Image.Image] | None
) -> None:
    """Draw number, image and captions of each image, one below the other.

    Args:
        figure: The figure, to which axes are added.
        area: Part of its grid that the list fills, a `SubplotSpec`.
        captions: Captions of each image.
        pictures: The images, in the same order; None: only captions.
    """
    grid = area.subgridspec(len(captions), 2, width_ratios=(1, 5), wspace=0.02, hspace=0.05)
    for number, texts in enumerate(captions):
        picture_axes = figure.add_subplot(grid[number, 0])
        picture_axes.set_axis_off()
        if pictures is not None:
            draw_image(picture_axes, pictures[number])
        axes = figure.add_subplot(grid[number, 1])
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.text(0.0, 0.5, str(number + 1), va="center", weight="bold", color=figures.BLUE)
        lines = [line for text in texts for line in wrap_text(text, CAPTION_WIDTH, max_lines=2)]
        axes.text(0.08, 0.5, "\n".join(lines), va="center", fontsize=7.8, parse_math=False)
