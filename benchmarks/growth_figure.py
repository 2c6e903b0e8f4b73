"""The figure of the benchmark of growth: time and memory by size, as measured and as predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import Growth
from prolip.reports import figures

COLUMNS = 4
"""Panels in a row."""


def draw(result: Sequence[Growth], path: Path) -> list[Path]:
    """Draw time and memory of each work, relative to those of its smallest size, with the predictions as lines.

    Args:
        result: What `run` returned.
        path: Path of the figure; a suffix .png or .svg is dropped.

    Returns:
        Paths of the PNG and the SVG.
    """
    rows = math.ceil(len(result) / COLUMNS)
    with figures.figure_style():
        figure = figures.make_figure(3.1 * COLUMNS, 2.7 * rows)
        panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel, growth in zip(panels, result, strict=False):
            _draw_panel(panel, growth)
        for panel in panels[len(result) :]:
            panel.axis("off")
        handles, labels = panels[0].get_legend_handles_labels()
        panels[-1].legend(handles, labels, loc="center") if len(result) < len(panels) else panels[0].legend()
        return figures.save_figure(figure, path)


def _draw_panel(panel: Any, growth: Growth) -> None:
    """Draw one work: points as measured, lines as predicted, both on logarithmic axes."""
    relative_sizes = [size / growth.sizes[0] for size in growth.sizes]
    series = [("time", growth.seconds, growth.predicted_time_exponent, growth.time_exponent, figures.BLUE)]
    if growth.mebibytes is not None and growth.memory_exponent is not None:
        series.append(
            (
                "memory",
                growth.mebibytes,
                growth.predicted_memory_exponent,
                growth.memory_exponent,
                figures.ORANGE,
            )
        )
    notes = []
    for name, values, predicted, fitted, color in series:
        panel.plot(
            growth.sizes, [value / values[0] for value in values], "o", color=color, label=name, markersize=5
        )
        panel.plot(
            growth.sizes,
            [x**predicted for x in relative_sizes],
            "-",
            color=color,
            linewidth=1,
            label=f"{name}, predicted",
        )
        notes.append(f"{name} {fitted:.2f} ({predicted:.2f})")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(growth.sizes, [f"{size:,}" for size in growth.sizes])
    panel.set_title(f"{growth.quantity}: {growth.work}\n{', '.join(notes)}", fontsize=8, fontweight="normal")
    low, high = panel.get_ylim()
    ticks = figures.choose_log_ticks(low, high, max_ticks=5)
    panel.set_yticks(ticks, [f"{tick:g} x" for tick in ticks])
    panel.minorticks_off()
