"""Toy figure of inclusion: every measure on pairs of 1-D Gaussians.

After the paper's figures of the inclusion loss (section 3.3 and appendix A.6), with containment besides its measures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.reports import figures

PAIRS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "Z1 inside Z2": ((0.0, 0.5), (0.0, 2.0)),
    "Z2 inside Z1": ((0.0, 2.0), (0.0, 0.5)),
    "equal sigmas, apart": ((-2.0, 0.7), (2.0, 0.7)),
    "disjoint, Z2 wider": ((-4.0, 0.4), (3.0, 1.4)),
}
"""Name -> (mean, sigma) of Z1 and of Z2."""


def make_gaussian(mean: float | Tensor, sigma: float) -> Gaussian:
    """Make 1-D Gaussians with one standard deviation.

    Args:
        mean: A number, or (N,).
        sigma: Standard deviation.

    Returns:
        Gaussians (N, 1) in float64.
    """
    means = torch.as_tensor(mean, dtype=torch.float64).reshape(-1, 1)
    return Gaussian(means, torch.full_like(means, sigma).square().log())


def compute_measures(a: Gaussian, b: Gaussian) -> dict[str, Tensor]:
    """Compute every measure of "a in b", row by row.

    Args:
        a: (N, 1).
        b: (N, 1) or (1, 1).

    Returns:
        Values (N,) by the name that the figure prints.
    """
    forward, backward = public.kl_divergence(a, b), public.kl_divergence(b, a)
    return {
        "log inclusion": public.log_inclusion(a, b),
        "H": public.inclusion(a, b),
        "KL": forward,
        "DKL": forward - backward,
        "containment": public.containment(a, b),
    }


def compute_measure_table() -> dict[str, dict[str, tuple[float, float]]]:
    """Compute every measure for each pair of `PAIRS`.

    Returns:
        By name of the pair, then by name of the measure: values of (Z1 in Z2, Z2 in Z1).
    """
    rows = {}
    for name, (first, second) in PAIRS.items():
        a, b = make_gaussian(*first), make_gaussian(*second)
        forward, backward = compute_measures(a, b), compute_measures(b, a)
        rows[name] = {key: (forward[key].item(), backward[key].item()) for key in forward}
    return rows


def save_toy_figure(out: Path) -> list[Path]:
    """Save a figure of densities and measures of `PAIRS`, and of measures against the distance of the means.

    Args:
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    with figures.figure_style():
        figure = figures.make_figure(11.0, 7.4)
        grid = figure.add_gridspec(3, len(PAIRS), height_ratios=(1.0, 0.8, 1.3))
        for column, (name, measures) in enumerate(compute_measure_table().items()):
            _draw_pair(figure.add_subplot(grid[0, column]), name)
            _write_measure_table(figure.add_subplot(grid[1, column]), measures)
        half = len(PAIRS) // 2
        distance, by_distance = _compute_by_distance()
        _draw_log_measures(figure.add_subplot(grid[2, :half]), distance, by_distance)
        _draw_containment(figure.add_subplot(grid[2, half:]), distance, by_distance)
        return figures.save_figure(figure, out)


def _draw_pair(axes: Any, name: str) -> None:
    """Draw the densities of Z1 and Z2 of a pair, a key of `PAIRS`."""
    x = torch.linspace(-7, 7, 561, dtype=torch.float64)
    for label, color, (mean, sigma) in zip(
        ("Z1", "Z2"), (figures.BLUE, figures.ORANGE), PAIRS[name], strict=True
    ):
        density = public.log_density(x[:, None], make_gaussian(mean, sigma)).exp()
        axes.fill_between(x, density, color=color, alpha=0.25, linewidth=0)
        axes.plot(x, density, color=color, linewidth=1.5, label=label)
    axes.set(title=name, yticks=[], xlim=(-7, 7), ylim=(0, 1.12))
    axes.spines["left"].set_visible(False)
    axes.legend(loc="upper right", handlelength=1.0, borderaxespad=0.0)


def _write_measure_table(axes: Any, measures: dict[str, tuple[float, float]]) -> None:
    """Write a table of the measures of a pair; `measures` has (Z1 in Z2, Z2 in Z1) by name."""
    axes.set_axis_off()
    rows = [[key, f"{forward:.2f}", f"{backward:.2f}"] for key, (forward, backward) in measures.items()]
    table = axes.table(
        rows,
        colLabels=["", "Z1 in Z2", "Z2 in Z1"],
        colWidths=[0.42, 0.29, 0.29],
        edges="open",
        bbox=(0, 0, 1, 1),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, column), cell in table.get_celld().items():
        cell.set_text_props(ha="left" if column == 0 else "right", weight="bold" if row == 0 else "normal")


def _compute_by_distance() -> tuple[Tensor, dict[str, Tensor]]:
    """Distances of the means (N,) and measures (N,) by name, of a narrow Z1 (sigma 0.5) in a wide Z2 (sigma 2)."""
    distance = torch.linspace(0, 12, 241, dtype=torch.float64)
    return distance, compute_measures(make_gaussian(distance, 0.5), make_gaussian(0.0, 2.0))


def _draw_log_measures(axes: Any, distance: Tensor, measures: dict[str, Tensor]) -> None:
    """Draw KL, H and log inclusion, all in nats, of Z1 in Z2 against the distance of the means, (N,) each."""
    for key, color in (("KL", figures.GRAY), ("H", figures.ORANGE), ("log inclusion", figures.BLUE)):
        axes.plot(distance, measures[key], color=color, label=key)
    axes.axhline(0, color=figures.GRAY, linewidth=0.8)
    axes.set(
        title="Z1 (σ 0.5) leaves Z2 (σ 2): H and KL rise, log inclusion falls",
        ylabel="nats",
        xlabel="distance of the means",
    )
    axes.margins(x=0)
    axes.legend(loc="upper left")


def _draw_containment(axes: Any, distance: Tensor, measures: dict[str, Tensor]) -> None:
    """Draw containment of Z1 in Z2 (from `measures`) and of Z2 in Z1 against the distance of the means, (N,) each."""
    reverse = public.containment(make_gaussian(0.0, 2.0), make_gaussian(distance, 0.5))
    axes.plot(distance, measures["containment"], color=figures.GREEN, label="Z1 in Z2")
    axes.plot(distance, reverse, color=figures.GREEN, linestyle="--", label="Z2 in Z1")
    axes.set(title="containment: a probability, 0 both ways when disjoint", xlabel="distance of the means")
    axes.set(ylim=(0, 1.03), ylabel="probability")
    axes.margins(x=0)
    axes.legend(loc="upper right")
