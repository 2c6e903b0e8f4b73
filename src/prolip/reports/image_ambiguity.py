"""Figure of the evaluation on images of known ambiguity: scores against the truth, and nested sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prolip.console import format_number
from prolip.evaluation.image_ambiguity_result import (
    PERPLEXITY,
    UNCERTAINTY,
    ImageAmbiguityResult,
    SequenceMetrics,
)
from prolip.reports import figures

KIND_COLORS = (figures.GREEN, figures.BLUE, figures.ORANGE, figures.PURPLE, "#b8a020", "#4aa3b5")
"""Colors of kinds of veils, the most frequent first; all others are gray."""
TRUTH_LABEL = "true log-ambiguity (nats)"


def save_image_ambiguity_figure(result: ImageAmbiguityResult, out: Path) -> list[Path]:
    """Save one figure with a panel per analysis that the result holds.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    panels: list[Callable[[Any], None]] = []
    if result.points.uncertainty is not None:
        panels.append(
            partial(draw_points, result=result, score=UNCERTAINTY, values=result.points.uncertainty)
        )
    if result.points.perplexity is not None:
        panels.append(partial(draw_points, result=result, score=PERPLEXITY, values=result.points.perplexity))
    panels.append(partial(draw_correlations, result=result))
    if result.accuracy is not None:
        panels.append(partial(draw_errors, result=result))
    if result.points.uncertainty is not None:
        panels += [partial(draw_sequence, sequence=sequence) for sequence in result.sequences]
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    with figures.figure_style():
        figure = figures.make_figure(4.1 * columns, 3.7 * rows)
        figure.get_layout_engine().set(h_pad=0.12, w_pad=0.08)
        grid = figure.add_gridspec(rows, columns)
        for number, draw in enumerate(panels):
            draw(figure.add_subplot(grid[divmod(number, columns)]))
        return figures.save_figure(figure, out)


def draw_points(axes: Any, result: ImageAmbiguityResult, score: str, values: Sequence[float]) -> None:
    """Draw a score against the true log-ambiguity, colored by kind of veil.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
        score: Name of the score.
        values: Its values for the result's points.
    """
    points = result.points
    for kind, color in _choose_colors(points.kind).items():
        rows = [row for row, other in enumerate(points.kind) if other == kind]
        axes.scatter(
            [points.log_ambiguity[row] for row in rows],
            [values[row] for row in rows],
            s=9, alpha=0.5, color=color, linewidth=0, rasterized=True, label=kind,
        )  # fmt: skip
    found = result.score(score)
    rho = _use_minus_sign(format_number(None if found is None else found.spearman, ".2f"))
    name = "uncertainty tr(Σ)" if score == UNCERTAINTY else "ln pool perplexity"
    axes.set(title=f"Image {score} (ρ {rho})", xlabel=TRUTH_LABEL, ylabel=name)
    if len(set(points.kind)) <= len(KIND_COLORS):
        axes.margins(y=0.05)
        low, high = axes.get_ylim()
        axes.set_ylim(top=high + 0.28 * (high - low))  # space for the legend
        axes.legend(
            loc="upper left", ncols=2, title="hidden:", alignment="left", markerscale=1.6, fontsize=8,
            title_fontsize=8, columnspacing=1.0, handletextpad=0.2, borderpad=0.0,
        )  # fmt: skip


def draw_correlations(axes: Any, result: ImageAmbiguityResult) -> None:
    """Draw the correlation of each score with the truth: over all images, and the mean within a veil.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    scores = result.scores[::-1]  # the first is drawn at the top
    for offset, color, label, name in (
        (0.2, figures.BLUE, "all images", "spearman"),
        (-0.2, figures.GRAY, "within a veil, mean", "mean_within_veil"),
    ):
        lengths = [getattr(score, name) or 0.0 for score in scores]
        axes.barh([row + offset for row in range(len(scores))], lengths, 0.38, color=color, label=label)
    axes.plot([0.0, 0.0], [-0.5, len(scores) - 0.5], color="#444", linewidth=0.8)
    axes.set_yticks(range(len(scores)), [score.name for score in scores])
    axes.set(title="With the true ambiguity", xlabel="Spearman's correlation", xlim=(-1.0, 1.0))
    axes.set_ylim(-0.6, len(scores) + 0.5)  # space for the legend
    axes.legend(loc="upper left", ncols=2, fontsize=8, columnspacing=1.0, handlelength=1.2, borderpad=0.0)


def draw_errors(axes: Any, result: ImageAmbiguityResult) -> None:
    """Draw the AUROC of each score for wrong zero-shot answers.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    scores = [score for score in result.scores[::-1] if score.errors is not None]
    aurocs = [None if score.errors is None else score.errors.auroc for score in scores]
    colors = [figures.BLUE if score.name == UNCERTAINTY else figures.GRAY for score in scores]
    axes.barh(range(len(scores)), [value or 0.0 for value in aurocs], 0.62, color=colors)
    for row, value in enumerate(aurocs):
        axes.text((value or 0.0) + 0.02, row, format_number(value, ".2f"), va="center", fontsize=8)
    axes.axvline(0.5, color="#444", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(scores)), [score.name for score in scores])
    accuracy = "" if result.accuracy is None else f" (accuracy {100 * result.accuracy.value:.0f} %)"
    axes.set(title=f"Wrong answers{accuracy}", xlabel="AUROC; dotted: chance", xlim=(0.0, 1.0))
    axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0])


def draw_sequence(axes: Any, sequence: SequenceMetrics) -> None:
    """Draw the mean uncertainty by step, with the fraction of images whose uncertainty rises at each step.

    Args:
        axes: Matplotlib axes to draw on.
        sequence: The sequence.
    """
    steps = [step for step in sequence.steps if step.uncertainty is not None]
    means = [step.uncertainty.value for step in steps if step.uncertainty is not None]
    axes.plot(range(len(steps)), means, "o-", color=figures.BLUE)
    for row, step in enumerate(steps):
        share = None if step.rises is None else step.rises.uncertainty
        if share is not None and row:
            axes.annotate(
                f"{100 * share.value:.1f} %", (row - 0.5, 0.5 * (means[row - 1] + means[row])), (0, 9),
                textcoords="offset points", ha="right" if means[row] >= means[row - 1] else "left", fontsize=8.5,
                color=figures.BLUE,
            )  # fmt: skip
    axes.set_xticks(
        range(len(steps)), [f"{step.step}\n{_use_minus_sign(f'{step.log_ambiguity:.1f}')}" for step in steps]
    )
    axes.set(
        title=f"Hidden step by step: {sequence.name}",
        xlabel="step; below it the mean true log-ambiguity",
        ylabel="mean uncertainty; % that rise",
    )
    axes.margins(x=0.12, y=0.18)


def _use_minus_sign(number: str) -> str:
    """A number with the minus sign of the axes."""
    return number.replace("-", "\N{MINUS SIGN}")


def _choose_colors(kinds: Sequence[str]) -> dict[str, str]:
    """The color of each kind: that of KIND_COLORS for the most frequent, gray for the others."""
    by_frequency = sorted(dict.fromkeys(kinds), key=lambda kind: -kinds.count(kind))
    return {
        kind: KIND_COLORS[number] if number < len(KIND_COLORS) else figures.GRAY
        for number, kind in enumerate(by_frequency)
    }
