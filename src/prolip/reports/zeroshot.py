"""Figure of zero-shot classification: reliability, risk and coverage, accuracy by uncertainty, OOD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prolip.console import format_number
from prolip.data.source import Source
from prolip.evaluation.metrics.calibration import CalibrationMetrics
from prolip.evaluation.metrics.confidence import CONFIDENCES, Confidence
from prolip.evaluation.zeroshot_result import (
    ImageUncertainty,
    OODHistograms,
    SelectiveMetrics,
    ZeroShotResult,
)
from prolip.reports import figures, sheets
from prolip.reports.sheets import SheetGroup, SheetItem, read_sample_image

COLORS = dict(
    zip(CONFIDENCES, (figures.BLUE, figures.ORANGE, figures.GREEN, "#8a4f9e", "#b8952f"), strict=True)
)
WIDTH, HEIGHT = 3.9, 3.4
"""Inches: width and height of a panel."""
MIN_BIN_SIZE = 5
"""Samples of a reliability bin from which on its accuracy says something."""

Panel = Callable[[Any], None]
"""Draws on matplotlib axes."""


def save_zeroshot_figure(result: ZeroShotResult, out: Path) -> list[Path]:
    """Save one figure with a panel per analysis that the result holds.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    rows = [row for row in (_list_accuracy_panels(result), _list_ood_panels(result)) if row]
    with figures.figure_style():
        figure = figures.make_figure(WIDTH * max(map(len, rows)), HEIGHT * len(rows))
        for subfigure, panels in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            for axes, draw in zip(subfigure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
                draw(axes)
        return figures.save_figure(figure, out)


def save_confident_errors_sheet(result: ZeroShotResult, source: Source, out: Path) -> list[Path]:
    """Save a sheet of the wrong predictions with the highest confidence.

    Args:
        result: The result.
        source: The data of the result; its images are read again.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG; [] if no prediction is wrong.
    """
    items = [
        SheetItem(
            image=read_sample_image(source, error.index),
            caption=f"predicted {error.predicted_class}, true {error.true_class}",
            notes=(f"confidence {error.confidence:.2f}",),
        )
        for error in result.most_confident_errors
    ]
    return (
        sheets.save_image_sheet(out, [SheetGroup(title="Most confident errors", items=items)])
        if items
        else []
    )


def _list_accuracy_panels(result: ZeroShotResult) -> list[Panel]:
    """Panels of calibration and of accuracy by uncertainty, if the result has them, and of selective prediction."""
    panels: list[Panel] = []
    if calibration := result.calibration:
        softmax = {"raw": calibration.softmax.raw.metrics, "fitted": calibration.softmax.fitted.metrics}
        panels.append(partial(draw_reliability, title="softmax over classes", curves=softmax))
        if sigmoid := calibration.sigmoid:
            predicted = {"raw": sigmoid.raw.predicted, "fitted to all pairs": sigmoid.fitted.predicted}
            if sigmoid.fitted_to_predictions is not None:
                predicted["fitted to predictions"] = sigmoid.fitted_to_predictions.predicted
            panels.append(partial(draw_reliability, title="match with the predicted class", curves=predicted))
    panels.append(partial(draw_risk, selective=result.selective, labels=result.confidence_labels()))
    if result.uncertainty is not None:
        panels.append(partial(draw_deciles, uncertainty=result.uncertainty))
    return panels


def _list_ood_panels(result: ZeroShotResult) -> list[Panel]:
    """Panels of out-of-distribution detection, one per confidence; [] without out-of-distribution data."""
    if result.ood is None:
        return []
    return [
        partial(_draw_ood_histograms, label=label, ood=histograms)
        for confidence, label in result.confidence_labels().items()
        if (histograms := result.ood.get(confidence)) is not None
    ]


def draw_reliability(axes: Any, title: str, curves: Mapping[str, CalibrationMetrics]) -> None:
    """Draw accuracy against confidence; the area of a dot grows with the number of its samples.

    The line leaves out bins of few samples, whose accuracy is 0 or 1 by chance.

    Args:
        axes: Matplotlib axes to draw on.
        title: Title of the panel.
        curves: Metrics by label of the probability.
    """
    colors = (figures.ORANGE, figures.BLUE, figures.GREEN)
    axes.plot([0, 1], [0, 1], color=figures.GRAY, linewidth=0.9, linestyle="--")
    for (kind, curve), color in zip(curves.items(), colors, strict=False):  # two or three curves
        confidence = [reliability.confidence for reliability in curve.bins]
        accuracy = [reliability.accuracy for reliability in curve.bins]
        largest = max(reliability.n for reliability in curve.bins)
        areas = [8 + 60 * reliability.n / largest for reliability in curve.bins]
        filled = [reliability for reliability in curve.bins if reliability.n >= MIN_BIN_SIZE]
        line = (
            [reliability.confidence for reliability in filled],
            [reliability.accuracy for reliability in filled],
        )
        axes.plot(*line, color=color, linewidth=1.3)
        label = f"{kind}, ECE {curve.ece:.3f}"
        axes.scatter(confidence, accuracy, areas, color, alpha=0.75, linewidths=0, label=label)
    axes.set(title=title, xlabel="probability", ylabel="accuracy", xlim=(0.0, 1.0))
    figures.set_share_limits(axes)
    legend = axes.legend(loc="best", handletextpad=0.2)
    for handle in legend.legend_handles:
        handle.set_sizes([30])


def draw_risk(axes: Any, selective: SelectiveMetrics, labels: Mapping[Confidence, str]) -> None:
    """Draw the error rate against coverage, by each confidence.

    Args:
        axes: Matplotlib axes to draw on.
        selective: The curves.
        labels: Label of each confidence.
    """
    axes.axhline(selective.error, color=figures.GRAY, linewidth=0.9, linestyle="--", label="at random")
    for confidence, label in labels.items():
        if metrics := selective.get(confidence):
            text = f"{label}, AURC {metrics.aurc:.3f}"
            axes.plot(metrics.curve.coverage, metrics.curve.risk, color=COLORS[confidence], label=text)
    axes.set(title="selective prediction", xlabel="coverage", ylabel="error rate", xlim=(0.0, 1.0))
    top = min(1.0, 1.45 * max(axes.get_ylim()[1], 0.05))  # space for the legend
    figures.set_share_limits(axes, top=top)
    is_high = selective.error > 0.6 * top  # then the curves end where the legend would be
    axes.legend(loc="lower right" if is_high else "upper left", handlelength=1.4)


def draw_deciles(axes: Any, uncertainty: ImageUncertainty) -> None:
    """Draw accuracy by decile of image uncertainty, with 95 % intervals and the number of samples.

    Args:
        axes: Matplotlib axes to draw on.
        uncertainty: The deciles.
    """
    deciles = uncertainty.deciles
    positions, heights = [decile.index + 1 for decile in deciles], [decile.accuracy for decile in deciles]
    errors = [[a.value - a.low for a in heights], [a.high - a.value for a in heights]]
    axes.errorbar(
        positions, [a.value for a in heights], errors, color=figures.BLUE, marker="o", markersize=4.5, linewidth=1.3,
        capsize=2,
    )  # fmt: skip
    low, high = min(a.low for a in heights), max(a.high for a in heights)
    span = max(high - low, 0.1)  # at least 0.1: small differences must not look large
    labels = [f"{i}\n{_format_count(a.n)}" for i, a in zip(positions, heights, strict=True)]
    axes.set(xlabel="decile of image uncertainty; below: n", ylabel="accuracy")
    axes.set_xticks(positions, labels, fontsize=8)
    figures.set_share_limits(axes)
    axes.set_ylim(max(0.0, low - 0.1 * span), min(1.0, high + 0.06 * span))
    correlation = uncertainty.correlation.deciles
    axes.set(title="accuracy by uncertainty" + ("" if correlation is None else f", r {correlation:+.2f}"))


def _format_count(count: int) -> str:
    """Format a number of samples in few characters, "950" or "12k": ten of them stand side by side."""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _draw_ood_histograms(axes: Any, label: str, ood: OODHistograms) -> None:
    """Draw histograms of a confidence in and out of distribution. label: that of the confidence."""
    for values, kind, color in (
        (ood.in_distribution, "in-distribution", figures.BLUE),
        (ood.out_of_distribution, "out-of-distribution", figures.ORANGE),
    ):
        axes.stairs(values, ood.edges, fill=True, color=color, alpha=0.45, label=kind)
    axes.set(
        title=f"out of distribution: AUROC {format_number(ood.auroc, '.3f')} by {label}",
        xlabel=label,
        ylabel="fraction of images",
    )
    axes.margins(x=0.01)
    axes.legend(loc="upper center", ncols=2)
    axes.set_ylim(0, 1.2 * max(*ood.in_distribution, *ood.out_of_distribution))
