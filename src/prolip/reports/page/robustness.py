"""Section on robustness: accuracy and uncertainty under occlusion and under PGD."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from prolip.evaluation.robustness_result import AccuracyUncertainty, RobustnessResult, make_corruption_tables
from prolip.reports import figures
from prolip.reports import robustness as plots
from prolip.reports.page.components import PageFigure, PageSection, convert_table
from prolip.reports.page.formatting import (
    NOT_LEARNED,
    REVERSED,
    describe_untrained,
    drop_none,
    format_change,
    format_percentage,
)
from prolip.reports.page.svg import DrawFunction, render_panel

MIN_CHANGE = 0.01
"""A smaller relative change of mean uncertainty is called no change."""
MAX_UNTRAINED = 0.5
"""Fraction of the change that an untrained model may show if the rest is to count as learned."""

Rows = Sequence[AccuracyUncertainty]
"""Accuracy and uncertainty, from the clean images to the strongest perturbation."""


def build_section(result: RobustnessResult, untrained: Sequence[RobustnessResult]) -> PageSection:
    """Build the section: accuracy and mean uncertainty against the strength of each perturbation.

    Args:
        result: Result of the model.
        untrained: Results of untrained models.

    Returns:
        The section.
    """
    figures: list[PageFigure] = []
    if rows := result.occlusion:
        changes = drop_none(compute_change(other.occlusion) for other in untrained)
        figures += _build_figures("Center occluded", rows, partial(plots.draw_occlusion, rows=rows), changes)
    if pgd := result.pgd:
        changes = drop_none(compute_change(other.pgd.rows) for other in untrained if other.pgd is not None)
        figures += _build_figures("PGD", pgd.rows, partial(plots.draw_pgd, pgd=pgd), changes)
    intro = f"{result.num_classes} classes, {result.n:,} images"
    if pgd:
        intro += f"; PGD on {pgd.n} of them, at most {255 * pgd.epsilon:.3g}/255 per pixel value"
    tables = [convert_table(table) for table in make_corruption_tables(result)]
    return PageSection(id="robustness", title="Robustness", intro=f"{intro}.", blocks=[*figures, *tables])


def _build_figures(
    title: str, rows: Rows, draw: partial[None], untrained: Sequence[float]
) -> list[PageFigure]:
    """Figures of one perturbation: accuracy and, if the model has it, uncertainty.

    Args:
        title: Name of the perturbation.
        rows: Rows of the model.
        draw: Draws a quantity: draw(axes, quantity="accuracy" or "uncertainty").
        untrained: `compute_change` of untrained models.
    """
    figures = [
        PageFigure(
            title=f"{title}: accuracy",
            description=describe_accuracy(rows),
            svg=render_panel(_make_accuracy_panel(draw), f"Accuracy against perturbation: {title}"),
        )
    ]
    if (clean := rows[0].uncertainty) is not None:
        figures.append(
            PageFigure(
                title=f"{title}: uncertainty",
                description=describe_uncertainty(rows, untrained),
                svg=render_panel(
                    _make_uncertainty_panel(draw, clean.value),
                    f"Mean image uncertainty against perturbation: {title}",
                ),
            )
        )
    return figures


def _make_accuracy_panel(draw: partial[None]) -> DrawFunction:
    """Make the function that draws accuracy on axes from 0 to 100 %; `draw` as for `_build_figures`."""

    def draw_scaled(axes: Any) -> None:
        draw(axes, quantity="accuracy")
        figures.set_share_limits(axes, top=100)
        axes.set(ylabel="accuracy, %")

    return draw_scaled


def _make_uncertainty_panel(draw: partial[None], clean: float) -> DrawFunction:
    """Make the function that draws uncertainty on the scale of `set_common_scale`; `draw` as for `_build_figures`."""

    def draw_scaled(axes: Any) -> None:
        draw(axes, quantity="uncertainty")
        plots.set_common_scale([axes], clean)
        axes.set_ylabel("mean image uncertainty, tr Σ")

    return draw_scaled


def describe_accuracy(rows: Rows) -> str:
    """Describe how accuracy changes from the clean images to the strongest perturbation.

    Args:
        rows: Rows of the model.

    Returns:
        The expectation and what was measured.
    """
    first, last = format_percentage(rows[0].accuracy.value), format_percentage(rows[-1].accuracy.value)
    return f"Accuracy should fall slowly with the perturbation. Here it goes from {first} to {last}."


def describe_uncertainty(rows: Rows, untrained: Sequence[float] = ()) -> str:
    """Say how mean uncertainty changes from the clean images to the strongest perturbation.

    Args:
        rows: Rows of the model.
        untrained: `compute_change` of untrained models.

    Returns:
        The expectation and what was measured.
    """
    expected, change = "Uncertainty should rise with the perturbation.", compute_change(rows)
    if change is None:
        return f"{expected} This model has no uncertainty."
    if abs(change) < MIN_CHANGE:
        text = f"hardly changes ({format_change(change)})"
    else:
        text = f"changes by {format_change(change)}" + ("" if change > 0 else f", {REVERSED}")
    is_close = change >= MIN_CHANGE and bool(untrained) and max(untrained) > MAX_UNTRAINED * change
    text = f"{expected} Here its mean {text}{describe_untrained(untrained, format_change)}."
    return f"{text} {NOT_LEARNED}" if is_close else text


def compute_change(rows: Rows) -> float | None:
    """Relative change of mean uncertainty from the first row to the last.

    Args:
        rows: Rows of a model.

    Returns:
        The change (0.1: a rise by 10 %); None for a deterministic model.
    """
    first, last = rows[0].uncertainty, rows[-1].uncertainty
    return None if first is None or last is None else last.value / first.value - 1
