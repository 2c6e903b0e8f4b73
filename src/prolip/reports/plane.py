"""Figure of Gaussians in a plane: means as dots, covariances as ellipses, as in the paper's figure 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from prolip.data.source import Source
from prolip.evaluation.plane import ProjectedGaussian, ProjectedPairs
from prolip.reports import figures
from prolip.reports.sheets import draw_image, read_sample_image, wrap_text

SIGMAS = 2.0
"""Size of ellipses: two standard deviations hold 86 % of the projected samples."""
NUM_VERTICES = 73
"""Vertices of the closed line that draws an ellipse; the last is the first."""
LABEL_DISTANCE = 0.035
"""Points closer than this fraction of the axes' extent share one label."""
CAPTION_WIDTH = 46  # characters


def compute_ellipses(gaussians: Sequence[ProjectedGaussian], sigmas: float = SIGMAS) -> Tensor:
    """Outlines of the ellipses of Gaussians in the plane.

    Args:
        gaussians: N Gaussians in the plane.
        sigmas: Size in standard deviations.

    Returns:
        Closed lines (N, NUM_VERTICES, 2).
    """
    angle = torch.linspace(0, 2 * math.pi, NUM_VERTICES, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])  # (2, NUM_VERTICES)
    covariances = torch.tensor([z.covariance for z in gaussians], dtype=torch.float64).reshape(-1, 3)
    values, vectors = torch.linalg.eigh(covariances[:, [0, 1, 1, 2]].reshape(-1, 2, 2))
    # a root R of each covariance, R R^T: it maps the unit circle to the ellipse of one standard deviation
    roots = vectors * values.clamp_min(0).sqrt()[:, None, :]
    outlines: Tensor = _stack_means(gaussians)[:, None] + sigmas * (roots @ circle).mT
    return outlines


def compute_mean_size(gaussians: Sequence[ProjectedGaussian]) -> float:
    """Mean size of ellipses: `SIGMAS` times the square root of the trace.

    Args:
        gaussians: Gaussians in the plane, at least one.

    Returns:
        The mean.
    """
    return sum(SIGMAS * math.sqrt(z.covariance[0] + z.covariance[2]) for z in gaussians) / len(gaussians)


def _stack_means(gaussians: Sequence[ProjectedGaussian]) -> Tensor:
    """Means of N Gaussians in the plane, float64 (N, 2)."""
    return torch.tensor([z.mean for z in gaussians], dtype=torch.float64).reshape(-1, 2)


def save_plane_figure(projected: ProjectedPairs, out: Path, *, source: Source | None = None) -> list[Path]:
    """Save a figure of similar images and their captions, as ellipses in a plane with a numbered list next to it.

    Args:
        projected: `plane` of an `UncertaintyResult`.
        out: Path without suffix.
        source: The data of the result; its images are drawn in the margin. None: only captions.

    Returns:
        Paths of the PNG and the SVG.
    """
    pictures = None
    if source is not None:
        pictures = [read_sample_image(source, image.index) for image in projected.images]
    with figures.figure_style():
        figure = figures.make_figure(11.0, max(5.6, 0.72 * len(projected.images)))
        left, right = figure.add_gridspec(1, 2, width_ratios=(1.45, 1.0))
        draw_plane(figure.add_subplot(left), projected)
        captions = [projected.captions_of(position) for position in range(len(projected.images))]
        _draw_numbered_list(figure, right, captions, pictures)
        return figures.save_figure(figure, out)


def draw_plane(axes: Any, projected: ProjectedPairs) -> None:
    """Draw images and captions as dots with ellipses; a line joins a caption to its image.

    An image is labeled with its number, counted from 1, and a caption with that of its image.

    Args:
        axes: Matplotlib axes to draw on.
        projected: Images and captions in the plane.
    """
    groups: tuple[tuple[str, str, Sequence[ProjectedGaussian]], ...] = (
        ("images", figures.BLUE, projected.images),
        ("captions", figures.ORANGE, projected.captions),
    )
    for name, color, gaussians in groups:
        for outline in compute_ellipses(gaussians):
            axes.fill(*outline.T, color=color, alpha=0.05, linewidth=0)
            axes.plot(*outline.T, color=color, linewidth=0.8, alpha=0.6)
        axes.scatter(*_stack_means(gaussians).T, s=14, color=color, zorder=3, label=name)
    centers, caption_centers = _stack_means(projected.images), _stack_means(projected.captions)
    image_positions = [caption.image for caption in projected.captions]
    for position, point in zip(image_positions, caption_centers, strict=True):
        axes.plot(*torch.stack([centers[position], point]).T, color=figures.GRAY, linewidth=0.5, zorder=1)
    _write_numbers(axes, centers, range(len(centers)), figures.BLUE)
    _write_numbers(axes, caption_centers, image_positions, figures.ORANGE)
    axis_labels = [
        f"direction {k + 1} ({100 * ratio:.0f} % of the variance)"
        for k, ratio in enumerate(projected.explained_variance_ratio)
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
