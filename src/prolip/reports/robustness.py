"""Figure of robustness: accuracy and uncertainty against occlusion, PGD steps and severity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from prolip.evaluation import paper_numbers
from prolip.evaluation.robustness_result import (
    AccuracyUncertainty,
    OcclusionRow,
    PGDMetrics,
    RobustnessResult,
)
from prolip.reports import figures

COLORS = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE, "#b8a020", figures.GRAY)
MARKERS = "osD^vP"

Quantity = Literal["accuracy", "uncertainty"]
"""What a panel shows."""


def save_robustness_figure(result: RobustnessResult, out: Path) -> list[Path]:
    """Save a figure with one column per kind of perturbation, accuracy above uncertainty.

    Args:
        result: The result. A deterministic model has only accuracy.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG; [] if no perturbation was evaluated.
    """
    draws = _list_draw_functions(result)
    if not draws:
        return []
    clean = result.clean.uncertainty
    has_uncertainty = clean is not None
    with figures.figure_style():
        figure = figures.make_figure(3.9 * len(draws), 6.0 if has_uncertainty else 3.4)
        axes = figure.subplots(1 + has_uncertainty, len(draws), squeeze=False, sharex="col")
        for column, draw in enumerate(draws):
            draw(axes[0][column], "accuracy")
            figures.set_share_limits(axes[0][column], top=100)
            if has_uncertainty:
                draw(axes[1][column], "uncertainty")
                axes[1][column].set_title("")
                axes[0][column].set_xlabel("")
        axes[0][0].set_ylabel("accuracy, %")
        if clean is not None:
            axes[1][0].set_ylabel("mean image uncertainty, tr Σ")
            set_common_scale(axes[1], clean.value)
        return figures.save_figure(figure, out)


def _list_draw_functions(result: RobustnessResult) -> list[Callable[[Any, Quantity], None]]:
    """Functions that draw a quantity on axes, one per perturbation that was evaluated."""
    draws: list[Callable[[Any, Quantity], None]] = []
    if result.occlusion:
        draws.append(lambda axes, quantity: draw_occlusion(axes, result.occlusion, quantity))
    if (pgd := result.pgd) is not None:
        draws.append(lambda axes, quantity: draw_pgd(axes, pgd, quantity))
    if result.corruptions:
        draws.append(lambda axes, quantity: _draw_corruptions(axes, result, quantity))
    return draws


def draw_occlusion(axes: Any, rows: Sequence[OcclusionRow], quantity: Quantity) -> None:
    """Draw a quantity against the occluded fraction, with the paper's accuracy.

    Args:
        axes: Matplotlib axes to draw on.
        rows: `occlusion` of the result.
        quantity: accuracy or uncertainty.
    """
    x = [100 * row.fraction for row in rows]
    axes.plot(x, _get_values(rows, quantity), color=figures.BLUE, marker="o", label="this model")
    if quantity == "accuracy":
        paper = [(percent, _get_paper_accuracy(paper_numbers.OCCLUSION, f"{percent:g} %")) for percent in x]
        _draw_paper(axes, [pair for pair in paper if pair[1] is not None])
    axes.set(title="center occluded", xlabel="occluded area, %")


def draw_pgd(axes: Any, pgd: PGDMetrics, quantity: Quantity) -> None:
    """Draw a quantity against the number of PGD steps, with the paper's accuracy.

    Args:
        axes: Matplotlib axes to draw on.
        pgd: `pgd` of the result.
        quantity: accuracy or uncertainty.
    """
    positions = range(len(pgd.rows))
    axes.plot(positions, _get_values(pgd.rows, quantity), color=figures.BLUE, marker="o", label="this model")
    if quantity == "accuracy":
        paper = [
            (position, _get_paper_accuracy(paper_numbers.PGD, str(row.steps)))
            for position, row in zip(positions, pgd.rows, strict=True)
        ]
        _draw_paper(axes, [pair for pair in paper if pair[1] is not None])
    axes.set(
        title=f"PGD, ε = {255 * pgd.epsilon:.3g}/255, {pgd.n} images",
        xlabel="steps",
        xticks=list(positions),
        xticklabels=[str(row.steps) for row in pgd.rows],
    )


def _draw_corruptions(axes: Any, result: RobustnessResult, quantity: Quantity) -> None:
    """Draw a quantity against severity, one line per corruption, from the clean images on."""
    for number, (kind, rows) in enumerate(result.corruptions.items()):
        x, y = [0, *(row.severity for row in rows)], _get_values([result.clean, *rows], quantity)
        axes.plot(
            x, y, color=COLORS[number % len(COLORS)], marker=MARKERS[number % len(MARKERS)],
            markersize=4.5, label=kind.replace("_", " "),
        )  # fmt: skip
    axes.set(title="corruptions (0: clean)", xlabel="severity")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if quantity == "accuracy":
        axes.legend(loc="best", fontsize=8, ncols=2, columnspacing=1.0, handlelength=1.5)


def _draw_paper(axes: Any, points: Sequence[tuple[float, float | None]]) -> None:
    """Draw (x, accuracy in percent) of the paper as a dashed line, if there are points; then the panel's legend."""
    if points:
        axes.plot(*zip(*points, strict=True), color=figures.GRAY, linestyle="--", marker="o", markersize=4,
                  label="paper, ImageNet, B/16 12.8B")  # fmt: skip
    axes.legend(loc="best", fontsize=8)


def _get_paper_accuracy(table: paper_numbers.PaperTable, row: str) -> float | None:
    """The paper's accuracy on ImageNet in percent, from a row of its table; None if the table has no such number."""
    value = table.value(row, "imagenet") if row in table.rows else None
    return None if value is None else 100 * value


def _get_values(rows: Sequence[AccuracyUncertainty], quantity: Quantity) -> list[float]:
    """The quantity of each row: accuracy in percent, uncertainty in its own unit; 0 for a deterministic model."""
    if quantity == "accuracy":
        return [100 * row.accuracy.value for row in rows]
    return [0.0 if row.uncertainty is None else row.uncertainty.value for row in rows]


def set_common_scale(axes: Sequence[Any], clean: float) -> None:
    """Set one vertical scale for all panels, and mark the clean value with a line.

    The scale extends at least 10 % above and below the clean value, so that small changes don't look large.

    Args:
        axes: Matplotlib axes of uncertainty, already drawn.
        clean: Uncertainty of the clean images.
    """
    low = min(0.9 * clean, *(panel.get_ylim()[0] for panel in axes))
    high = max(1.1 * clean, *(panel.get_ylim()[1] for panel in axes))
    for panel in axes:
        panel.axhline(clean, color=figures.GRAY, linewidth=0.8, linestyle=":")
        panel.set_ylim(low, high)
