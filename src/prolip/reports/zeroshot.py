"""Figure of zero-shot classification: reliability, risk and coverage, accuracy by uncertainty, OOD."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from prolip.data.source import Source
from prolip.evaluation.metrics.confidence import CONFIDENCES, confidence_labels
from prolip.reports import figures, sheets
from prolip.reports.sheets import SheetGroup, SheetItem, read_sample_image

COLORS = dict(zip(CONFIDENCES, (figures.BLUE, figures.ORANGE, figures.GREEN), strict=True))
WIDTH, HEIGHT = 3.9, 3.4
"""Inches: width and height of a panel."""

Panel = Callable[[Any], None]
"""Draws on matplotlib axes."""


def save_zeroshot_figure(result: dict[str, Any], out: Path) -> list[Path]:
    """Save one figure with a panel per analysis that the result holds.

    Args:
        result: Result of `evaluate_zeroshot`.
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


def save_confident_errors_sheet(result: dict[str, Any], source: Source, out: Path) -> list[Path]:
    """Save a sheet of the wrong predictions with the highest confidence.

    Args:
        result: Result of `evaluate_zeroshot`.
        source: The data of the result; its images are read again.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG; [] if no prediction is wrong.
    """
    items = [
        SheetItem(
            image=read_sample_image(source, entry["index"]),
            caption=f"predicted {entry['predicted_class']}, true {entry['true_class']}",
            notes=(f"confidence {entry['confidence']:.2f}",),
        )
        for entry in result["most_confident_errors"]
    ]
    return (
        sheets.save_image_sheet(out, [SheetGroup(title="Most confident errors", items=items)])
        if items
        else []
    )


def _list_accuracy_panels(result: dict[str, Any]) -> list[Panel]:
    """Panels of calibration and of accuracy by uncertainty, if the result has them, and of selective prediction."""
    panels: list[Panel] = []
    if calibration := result["calibration"]:
        softmax = {kind: calibration["softmax"][kind] for kind in ("raw", "fitted")}
        panels.append(partial(draw_reliability, title="softmax over classes", curves=softmax))
        if sigmoid := calibration["sigmoid"]:
            labels = {
                "raw": "raw",
                "fitted": "fitted to all pairs",
                "fitted_to_predictions": "fitted to predictions",
            }
            predicted = {name: sigmoid[kind]["predicted"] for kind, name in labels.items() if sigmoid[kind]}
            panels.append(partial(draw_reliability, title="match with the predicted class", curves=predicted))
    panels.append(partial(draw_risk, selective=result["selective"], labels=_get_confidence_labels(result)))
    if result["uncertainty"]:
        panels.append(partial(draw_deciles, uncertainty=result["uncertainty"]))
    return panels


def _list_ood_panels(result: dict[str, Any]) -> list[Panel]:
    """Panels of out-of-distribution detection, one per confidence; [] without out-of-distribution data."""
    ood = result["ood"] or {}
    return [
        partial(_draw_ood_histograms, label=label, ood=ood[key])
        for key, label in _get_confidence_labels(result).items()
        if ood.get(key)
    ]


def _get_confidence_labels(result: dict[str, Any]) -> dict[str, str]:
    """Label of each confidence, by its key; it depends on whether the logits have a bias, as those of a sigmoid."""
    return confidence_labels(result["logits"]["bias"] is not None)


def draw_reliability(axes: Any, title: str, curves: dict[str, Any]) -> None:
    """Draw accuracy against confidence; the area of a dot grows with the number of its samples.

    Args:
        axes: Matplotlib axes to draw on.
        title: Title of the panel.
        curves: By label of the probability, {ece, bins} of `calibration` of the result of `evaluate_zeroshot`.
    """
    colors = (figures.ORANGE, figures.BLUE, figures.GREEN)
    axes.plot([0, 1], [0, 1], color=figures.GRAY, linewidth=0.9, linestyle="--")
    for (kind, curve), color in zip(curves.items(), colors, strict=False):  # two or three curves
        columns = {key: [row[key] for row in curve["bins"]] for key in ("n", "confidence", "accuracy")}
        largest = max(columns["n"])
        axes.plot(columns["confidence"], columns["accuracy"], color=color, linewidth=1.3)
        areas = [8 + 60 * n / largest for n in columns["n"]]
        label = f"{kind}, ECE {curve['ece']:.3f}"
        axes.scatter(
            columns["confidence"], columns["accuracy"], areas, color, alpha=0.75, linewidths=0, label=label
        )
    axes.set(title=title, xlabel="probability", ylabel="accuracy", xlim=(-0.03, 1.03))
    # space for the legend above the curves
    axes.set(ylim=(-0.03, 1.42), yticks=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    legend = axes.legend(loc="upper left", handletextpad=0.2)
    for handle in legend.legend_handles:
        handle.set_sizes([30])


def draw_risk(axes: Any, selective: dict[str, Any], labels: dict[str, str]) -> None:
    """Draw the error rate against coverage, by each confidence.

    Args:
        axes: Matplotlib axes to draw on.
        selective: `selective` of the result of `evaluate_zeroshot`.
        labels: Label of each confidence, by its key.
    """
    axes.axhline(selective["error"], color=figures.GRAY, linewidth=0.9, linestyle="--", label="at random")
    for key, label in labels.items():
        if by_confidence := selective[key]:
            curve = by_confidence["curve"]
            text = f"{label}, AURC {by_confidence['aurc']:.3f}"
            axes.plot(curve["coverage"], curve["risk"], color=COLORS[key], label=text)
    top = 1.45 * max(axes.get_ylim()[1], 0.05)  # space for the legend above the curves
    axes.set(title="selective prediction", xlabel="coverage", ylabel="error rate")
    axes.set(xlim=(0, 1), ylim=(-0.03 * top, top))
    axes.legend(loc="upper left", handlelength=1.4)


def draw_deciles(axes: Any, uncertainty: dict[str, Any]) -> None:
    """Draw accuracy by decile of image uncertainty, with standard errors and the number of samples.

    Args:
        axes: Matplotlib axes to draw on.
        uncertainty: `uncertainty` of the result of `evaluate_zeroshot`.
    """
    rows = uncertainty["deciles"]
    positions, heights = [row["bin"] + 1 for row in rows], [row["accuracy"] for row in rows]
    errors = [math.sqrt(row["accuracy"] * (1.0 - row["accuracy"]) / row["n"]) for row in rows]
    axes.errorbar(
        positions, heights, errors, color=figures.BLUE, marker="o", markersize=4.5, linewidth=1.3, capsize=2
    )
    low = max(0.0, min(height - error for height, error in zip(heights, errors, strict=True)))
    high = min(1.0, max(height + error for height, error in zip(heights, errors, strict=True)))
    span = max(high - low, 0.1)  # at least 0.1: small differences must not look large
    axes.set(
        xticks=positions, xlabel="deciles of image uncertainty, low to high", ylabel="accuracy (n below)"
    )
    axes.set_ylim(low - 0.2 * span, high + 0.06 * span)  # space for the numbers of samples below the curve
    for position, row in zip(positions, rows, strict=True):
        axes.text(
            position, low - 0.15 * span, _format_count(row["n"]), ha="center", fontsize=7.5, color="#444"
        )
    correlation = uncertainty["correlation"]["deciles"]
    axes.set(title="accuracy by uncertainty" + ("" if correlation is None else f", r {correlation:+.2f}"))


def _format_count(count: int) -> str:
    """Format a number of samples in few characters, "950" or "12k": ten of them stand side by side."""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _draw_ood_histograms(axes: Any, label: str, ood: dict[str, Any]) -> None:
    """Draw histograms of a confidence in and out of distribution.

    label: that of the confidence. ood: its entry of `ood` in the result of `evaluate_zeroshot`.
    """
    for kind, color in (("in_distribution", figures.BLUE), ("out_of_distribution", figures.ORANGE)):
        axes.stairs(ood[kind], ood["edges"], fill=True, color=color, alpha=0.45, label=kind.replace("_", "-"))
    axes.set(
        title=f"out of distribution: AUROC {ood['auroc']:.3f} by {label}",
        xlabel=label,
        ylabel="fraction of images",
    )
    axes.margins(x=0.01)
    axes.legend(loc="upper center", ncols=2)
    axes.set_ylim(0, 1.2 * max(*ood["in_distribution"], *ood["out_of_distribution"]))
