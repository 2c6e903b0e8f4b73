"""Figure of retrieval: recall both ways, by CSD and by cosine; mAP@R and R-Precision where positives are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prolip.console import format_percent
from prolip.evaluation.retrieval import METRIC_NAMES
from prolip.reports import figures

WAYS = {"image_to_text": "image → text", "text_to_image": "text → image"}
SEARCHED = {"image_to_text": "texts", "text_to_image": "images"}
SCORES = {"csd": ("CSD", figures.BLUE), "cosine": ("cosine", figures.ORANGE)}
WIDTH = 0.4
"""Of a bar; two stand at each metric."""


def save_retrieval_figure(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Bars, two a metric, one panel each way. PNG and SVG. result: of `evaluate.retrieval.evaluate`."""
    ways = {way: {by: _values(result[by], way) for by in SCORES} for way in WAYS}
    most = max(len(values) for scores in ways.values() for values in scores.values())
    with figures.figure_style():
        figure = figures.make_figure(2 * (1.1 + 0.72 * most), 3.3)
        drawn = figure.subplots(1, len(WAYS), sharey=True)
        for axes, (way, scores) in zip(drawn, ways.items(), strict=True):
            _draw(axes, scores)
            axes.set(title=f"{WAYS[way]} (among {result[SEARCHED[way]]:,})")
        drawn[0].set(ylabel="percent", ylim=(0, 108), yticks=range(0, 101, 20))  # room for a number above 100
        handles, labels = drawn[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2)
        return figures.save_figure(figure, out)


def _values(part: Mapping[str, Any], way: str) -> dict[str, float]:
    """Shares by metric; those that aren't known are left out."""
    found = {**part.get("many_to_many", {}).get(way, {}), **part[way]}
    return {name: found[name] for name in METRIC_NAMES if found.get(name) is not None}


def _draw(axes: Any, scores: Mapping[str, Mapping[str, float]]) -> None:
    names = [name for name in METRIC_NAMES if any(name in values for values in scores.values())]
    for side, (by, values) in enumerate(scores.items()):
        label, color = SCORES[by]
        places = [names.index(name) + (side - 0.5) * WIDTH for name in values]
        heights = [100 * share for share in values.values()]
        bars = axes.bar(places, heights, 0.94 * WIDTH, color=color, label=label)
        axes.bar_label(bars, [format_percent(share) for share in values.values()], fontsize=7.5, padding=1.5)
    axes.set_xticks(range(len(names)), [METRIC_NAMES[name] for name in names])
    axes.tick_params(axis="x", length=0)
