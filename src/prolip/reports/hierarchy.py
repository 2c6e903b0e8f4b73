"""Figures of hierarchies: uncertainty along chains of captions and levels of HierarImgs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prolip.data.sources.hierarimgs import HierarImgs
from prolip.evaluation.controls import LABELS as CONTROL_LABELS
from prolip.evaluation.hierarcaps import ChainUncertainty, HierarCapsResult
from prolip.evaluation.hierarimgs import HierarImgsResult, LevelInclusion
from prolip.evaluation.order_controls import OrderControl, OrderControls
from prolip.evaluation.result import get_value
from prolip.preprocessing.images import read_image
from prolip.reports import figures

LEVEL_COLORS = (figures.ORANGE, figures.GREEN, figures.BLUE, figures.GRAY)
MAX_FAILURES = 8
"""Images on the sheet of failures."""


def save_hierarcaps_figure(result: HierarCapsResult, out: Path) -> list[Path]:
    """Save the figure of HierarCaps: uncertainty by level, how often one level is above another, and controls.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG. A deterministic model has the panel of controls only; [] without any panel.
    """
    panels: list[tuple[float, Callable[[Any], None]]] = []
    if result.uncertainty is not None:
        panels.append((6.0, partial(_draw_levels, uncertainty=result.uncertainty)))
        panels.append((4.0, partial(_draw_level_pairs, uncertainty=result.uncertainty)))
    if result.order_controls is not None and len(result.order_controls.scores[0].level_pairs) > 1:
        panels.append((5.6, partial(draw_order_controls, controls=result.order_controls)))
    if not panels:
        return []
    widths = [width for width, _ in panels]
    with figures.figure_style():
        figure = figures.make_figure(sum(widths), 4.0)
        axes = figure.subplots(1, len(panels), width_ratios=widths, squeeze=False)[0]
        for panel, (_, draw) in zip(axes, panels, strict=True):
            draw(panel)
        return figures.save_figure(figure, out)


def draw_order_controls(axes: Any, controls: OrderControls) -> None:
    """Draw the fraction of adjacent levels in order by each score: a row for each, a color for each pair of levels.

    Args:
        axes: Matplotlib axes to draw on.
        controls: The order by the model's uncertainty and by its controls.
    """
    scores = controls.scores
    num_pairs = len(scores[0].level_pairs) - 1
    rows = range(len(scores))
    for level in range(num_pairs):
        fractions = [get_value(score.level_pairs[level][level + 1]) for score in scores]
        color = LEVEL_COLORS[level % len(LEVEL_COLORS)]
        axes.scatter(
            _in_percent(fractions), rows, s=30, color=color, label=f"{level} > {level + 1}", zorder=3
        )
    every = _in_percent([get_value(score.adjacent_order) for score in scores])
    axes.scatter(every, rows, s=160, marker="|", color="#000000", label="all", zorder=4)
    _draw_equal_pieces(axes, scores)
    axes.axvline(50, color="#444", linewidth=0.8, linestyle=":")
    axes.set(
        title="adjacent levels in order, and controls",
        xlabel="percent of chains (50: chance)",
        yticks=rows,
        yticklabels=[CONTROL_LABELS[score.name] for score in scores],
        ylim=(len(scores) - 0.5, -0.5),  # the first score, the model's own, is at the top
    )
    figures.set_share_limits(axes, horizontal=True, top=100)
    axes.grid(axis="y", color=figures.GRAY, alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, handletextpad=0.2)


def _draw_equal_pieces(axes: Any, scores: Sequence[OrderControl]) -> None:
    """Draw the fraction among pairs of equally many word pieces, with its interval, as diamonds."""
    tests = [(row, score.equal_pieces) for row, score in enumerate(scores) if score.equal_pieces is not None]
    if not tests:
        return
    found = [test.in_order for _, test in tests]
    values = _in_percent([proportion.value for proportion in found])
    errors = [
        [100 * (proportion.value - proportion.low) for proportion in found],
        [100 * (proportion.high - proportion.value) for proportion in found],
    ]
    axes.errorbar(
        values, [row for row, _ in tests], xerr=errors, fmt="D", markersize=5, markerfacecolor="none",
        color=figures.PURPLE, linewidth=1.0, label="all, equal pieces", zorder=2,
    )  # fmt: skip


def _in_percent(fractions: Sequence[float | None]) -> list[float]:
    """Fractions in percent, NaN for those that are undefined."""
    return [float("nan") if fraction is None else 100 * fraction for fraction in fractions]


def save_hierarimgs_figures(result: HierarImgsResult, data: HierarImgs, folder: Path) -> list[Path]:
    """Save the figures of HierarImgs: histograms by level (hierarimgs), and a sheet of failures (hierarimgs-failures).

    Failures are originals that level 0 doesn't include; without any there is no sheet.

    Args:
        result: The result.
        data: The images of the result.
        folder: Folder in which the figures are written.

    Returns:
        Paths of the PNGs and SVGs; [] for a deterministic model.
    """
    return [
        *_save_histograms(result, folder / "hierarimgs"),
        *_save_failures(result, data, folder / "hierarimgs-failures"),
    ]


def _save_histograms(result: HierarImgsResult, out: Path) -> list[Path]:
    """Save histograms of H, of its mirror image and of the rise in uncertainty, by level; [] without uncertainty."""
    rows = [level.inclusion for level in result.levels if level.inclusion is not None]
    if not rows:
        return []
    with figures.figure_style():
        figure = figures.make_figure(3.6 * len(rows), 5.6)
        axes = figure.subplots(2, len(rows), squeeze=False)
        for level, row in enumerate(rows):
            draw_inclusion(axes[0][level], level, row)
            _draw_difference(axes[1][level], level, row)
        figure.legend(*_make_inclusion_legend(), loc="outside lower center", ncols=2)
        for grid_row in axes:
            grid_row[0].set_ylabel("images")
        return figures.save_figure(figure, out)


def _save_failures(result: HierarImgsResult, data: HierarImgs, out: Path) -> list[Path]:
    """Save a sheet of the originals that level 0 includes least, with their levels; [] if it includes all."""
    failures = result.failures or ()
    indices = failures[:MAX_FAILURES]
    if not indices:
        return []
    files_by_row = [data.originals, *data.levels]
    with figures.figure_style():
        figure = figures.make_figure(1.35 * len(indices) + 0.7, 1.42 * len(files_by_row) + 0.35)
        axes = figure.subplots(len(files_by_row), len(indices), squeeze=False)
        for row, files in enumerate(files_by_row):
            for column, index in enumerate(indices):
                _draw_image(axes[row][column], files[index])
            axes[row][0].set_ylabel("original" if row == 0 else f"level {row - 1}", labelpad=6)
        for column, index in enumerate(indices):
            axes[0][column].set_title(f"{index}", fontsize=8.5, fontweight="normal")
        count = f"{len(failures)} of {result.n} originals not included in level 0"
        figure.suptitle(f"{count}; the worst {len(indices)}, by index", fontsize=10.5, fontweight="bold")
        return figures.save_figure(figure, out)


def _draw_levels(axes: Any, uncertainty: ChainUncertainty) -> None:
    """Draw one histogram of caption uncertainty per level."""
    edges = uncertainty.edges
    for level, summary in enumerate(uncertainty.levels):
        color = LEVEL_COLORS[level % len(LEVEL_COLORS)]
        dash = "-" if level < len(LEVEL_COLORS) else "--"
        axes.stairs(summary.counts, edges, fill=True, color=color, alpha=0.22)
        axes.stairs(
            summary.counts,
            edges,
            color=color,
            linewidth=1.3,
            linestyle=dash,
            label=f"level {level}, mean {summary.mean:.3g}",
        )
    axes.set(
        title="uncertainty by level (0: the most general)", xlabel="uncertainty, tr Σ", ylabel="captions"
    )
    axes.legend(loc="best")
    axes.margins(x=0.01)


def _draw_level_pairs(axes: Any, uncertainty: ChainUncertainty) -> None:
    """Draw a matrix of levels: the fraction of chains whose caption of level i (row) is more uncertain than of j."""
    pairs = [[get_value(fraction) for fraction in row] for row in uncertainty.level_pairs]
    fractions = [[float("nan") if fraction is None else fraction for fraction in row] for row in pairs]
    axes.imshow(fractions, cmap="RdBu", vmin=0, vmax=1)
    for i, row in enumerate(pairs):
        for j, fraction in enumerate(row):
            if fraction is not None:
                is_dark = abs(fraction - 0.5) > 0.3  # of the color map
                axes.text(
                    j, i, f"{fraction:.3f}", ha="center", va="center", color="white" if is_dark else "black"
                )
    names = [f"level {level}" for level in range(len(pairs))]
    # chains of one level have no adjacent ones
    adjacent = uncertainty.adjacent_order
    order = "" if adjacent is None else f" ({100 * adjacent.value:.1f} % of adjacent levels in order)"
    axes.set(
        title=f"chains whose row is more uncertain than\nits column{order}",
        xticks=range(len(pairs)),
        yticks=range(len(pairs)),
        xticklabels=names,
        yticklabels=names,
    )
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_inclusion(axes: Any, level: int, row: LevelInclusion, *, show_untrained: bool = True) -> None:
    """Draw the histogram of H(original in level), and as an outline that of H(level in original).

    Args:
        axes: Matplotlib axes to draw on.
        level: Number of the level.
        row: Inclusion of this level.
        show_untrained: Write the range of untrained models, if there are any, into the title.
    """
    edges, counts = row.h_histogram.edges, row.h_histogram.counts
    # H(level in original) = -H(original in level): the same histogram, mirrored
    axes.stairs(counts[::-1], [-edge for edge in edges[::-1]], color=figures.ORANGE, linewidth=1.2)
    axes.stairs(counts, edges, fill=True, color=figures.BLUE, alpha=0.75)
    axes.axvline(0, color="#444", linewidth=0.8)
    title = f"level {level}: {100 * row.included.value:.1f} % included"
    if show_untrained and row.untrained_included:
        fractions = [fraction.value for fraction in row.untrained_included]
        title += f"\nuntrained: {100 * min(fractions):.1f} to {100 * max(fractions):.1f} %"
    axes.set(title=title, xlabel="H, nats")


def _make_inclusion_legend() -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend of `draw_inclusion`."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [Patch(color=figures.BLUE, alpha=0.75), Line2D([], [], color=figures.ORANGE, linewidth=1.2)]
    return handles, ["H(original in level)", "H(level in original)"]


def _draw_difference(axes: Any, level: int, row: LevelInclusion) -> None:
    """Draw the histogram of the uncertainty of a level minus that of the original; `row` as for `draw_inclusion`."""
    histogram = row.difference_histogram
    axes.stairs(histogram.counts, histogram.edges, fill=True, color=figures.GREEN, alpha=0.75)
    axes.axvline(0, color="#444", linewidth=0.8)
    axes.set(
        title=f"more uncertain: {100 * row.more_uncertain.value:.1f} %",
        xlabel=f"uncertainty of level {level} − original",
    )
    axes.locator_params(axis="x", nbins=5)


def _draw_image(axes: Any, path: Path) -> None:
    """Draw the image of a file with a thin frame, without ticks."""
    axes.imshow(read_image(path))
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.6)
