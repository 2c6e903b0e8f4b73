"""Figure of agreement with human judgements: AUROC of yes and Spearman's correlation of each score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prolip.evaluation.judgements_result import (
    SCORE_LABELS,
    HumanAgreement,
    JudgementsResult,
    describe_judgements,
)
from prolip.evaluation.metrics.bootstrap import BootstrapEstimate
from prolip.reports import figures

INCHES_PER_SCORE = 0.34
"""Height of the figure for each score."""
OFFSET = 0.16
"""Distance of a score's two dots from the middle of its row."""


def save_judgements_figure(result: JudgementsResult, out: Path) -> list[Path]:
    """Save a figure with AUROC and Spearman's correlation of each score, on all pairs and without own captions.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    scores = result.scores[::-1]  # the first is drawn at the top
    all_pairs = [score.all_pairs for score in scores]
    without_own = [score.without_own for score in scores]
    with figures.figure_style():
        figure = figures.make_figure(8.6, 1.5 + INCHES_PER_SCORE * len(scores))
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, metric, chance in ((left, "auroc", 0.5), (right, "spearman", 0.0)):
            axes.axvline(chance, color="#444", linewidth=0.8, linestyle=":")
            _draw_estimates(axes, all_pairs, metric, OFFSET, figures.BLUE, "all pairs")
            if any(found is not None for found in without_own):
                _draw_estimates(axes, without_own, metric, -OFFSET, figures.ORANGE, "without own captions")
        left.set(title="AUROC of people's yes", xlabel="AUROC, 95 % interval; dotted: chance")
        right.set(title="Correlation with people", xlabel="Spearman, 95 % interval; dotted: none")
        left.set_yticks(range(len(scores)), [SCORE_LABELS[score.name] for score in scores])
        figure.suptitle(describe_judgements(result), fontsize=9)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower right", ncols=2)
        return figures.save_figure(figure, out)


def _draw_estimates(
    axes: Any, found: Sequence[HumanAgreement | None], metric: str, offset: float, color: str, label: str
) -> None:
    """Draw the estimates of all scores, one row each, as dots with their intervals; undefined ones are omitted.

    metric: name of a field of `HumanAgreement`.
    """
    for row, agreement in enumerate(found):
        estimate: BootstrapEstimate | None = getattr(agreement, metric, None)
        if estimate is None or estimate.value is None:
            continue
        if (interval := estimate.interval) is not None:
            axes.plot([interval.low, interval.high], [row + offset] * 2, color=color, linewidth=1.6)
        axes.plot([estimate.value], [row + offset], "o", color=color, markersize=4.5, label=label)
        label = "_nolegend_"  # one entry of the legend for all rows
