"""Figure of retrieval: recall in both directions by CSD, by cosine and by match; mAP@R and R-Precision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prolip.choices import RankBy
from prolip.console import format_percent
from prolip.evaluation.retrieval import METRIC_NAMES, Direction, RetrievalMetrics, RetrievalResult
from prolip.reports import figures

DIRECTIONS: dict[Direction, str] = {"image_to_text": "image → text", "text_to_image": "text → image"}
SCORES: dict[RankBy, tuple[str, str]] = {
    "csd": ("CSD", figures.BLUE),
    "cosine": ("cosine", figures.ORANGE),
    "match": ("match", figures.GREEN),
}
BARS_WIDTH = 0.8
"""Width of all bars of a metric, as a fraction of the distance of two metrics."""
INCHES_PER_BAR = 0.36
"""Width of a bar in the figure: its number must fit above it."""


def save_retrieval_figure(result: RetrievalResult, out: Path) -> list[Path]:
    """Save a figure with bars of each metric by CSD, by cosine and, for a likelihood model, by match.

    There is one panel per direction.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    by_direction = {
        direction: {score: _get_metrics(metrics, direction) for score, metrics in result.by_metric().items()}
        for direction in DIRECTIONS
    }
    num_items = {"image_to_text": result.num_texts, "text_to_image": result.n}
    num_metrics = max(len(values) for scores in by_direction.values() for values in scores.values())
    num_scores = len(result.by_metric())
    with figures.figure_style():
        figure = figures.make_figure(2 * (1.1 + INCHES_PER_BAR * num_scores * num_metrics), 3.3)
        panels = figure.subplots(1, len(DIRECTIONS), sharey=True)
        for axes, (direction, scores) in zip(panels, by_direction.items(), strict=True):
            _draw_bars(axes, scores)
            axes.set(title=f"{DIRECTIONS[direction]} (among {num_items[direction]:,})")
        # room for a number above a bar of 100 %
        panels[0].set(ylabel="percent", ylim=(0, 108), yticks=range(0, 101, 20))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=num_scores)
        return figures.save_figure(figure, out)


def _get_metrics(metrics: RetrievalMetrics, direction: Direction) -> dict[str, float]:
    """Fractions by metric for one score and direction; metrics without a value are omitted."""
    return {name: found.value for name, found in metrics.by_name(direction).items() if found is not None}


def _draw_bars(axes: Any, scores: Mapping[RankBy, Mapping[str, float]]) -> None:
    """Draw the bars of each metric, one for each score side by side; `scores` has fractions by score and metric."""
    names = [name for name in METRIC_NAMES if any(name in values for values in scores.values())]
    width = BARS_WIDTH / len(scores)
    for place, (score, values) in enumerate(scores.items()):  # from the left; the tick is in the middle
        label, color = SCORES[score]
        positions = [names.index(name) + (place - (len(scores) - 1) / 2) * width for name in values]
        heights = [100 * fraction for fraction in values.values()]
        bars = axes.bar(positions, heights, 0.94 * width, color=color, label=label)
        axes.bar_label(
            bars, [format_percent(fraction) for fraction in values.values()], fontsize=7.5, padding=1.5
        )
    axes.set_xticks(range(len(names)), [METRIC_NAMES[name] for name in names])
    axes.tick_params(axis="x", length=0)
