"""Figures of learned prompt weights: which prompts a few classes prefer, and how peaked the weights of all are."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.data.source import Source
from prolip.reports import figures
from prolip.reports.sheets import read_sample_image

CLASSES = 6
PICTURES = 3
LETTERS = 44
"""Of a prompt beside its bar."""
BINS = 30


def save_prompt_weights_figure(
    result: Mapping[str, Any], out: Path, *, source: Source | None = None
) -> list[Path]:
    """The largest learned weights of a few classes as bars, with the uniform weight 1/T as a line. PNG and SVG.

    Of the last entry of result["learned"], evenly from the class with the most peaked weights to the flattest.
    result: of `evaluation.prompts`. source: the data, for pictures of each class (result["examples"] says which);
    None: no pictures.
    """
    entry = _learned(result)[-1]
    shown = _spread_classes(entry)
    examples: list[list[Image.Image]] = [[] for _ in shown]
    if source is not None:
        examples = [
            [read_sample_image(source, n) for n in result["examples"][number][:PICTURES]] for number in shown
        ]
    with figures.figure_style():
        rows, columns = math.ceil(len(shown) / 2), min(2, len(shown))
        figure = figures.make_figure(5.6 * columns, 0.8 + 1.75 * rows)
        uniform = f"uniform 1/{result['templates_per_class']}"
        figure.suptitle(f"{entry['name']}: largest prompt weights (dashed: {uniform})", x=0.01, ha="left")
        slots = max(map(len, examples))
        widths = [3.4, *([1.0] * slots)] * columns
        grid = figure.subplots(rows, len(widths), width_ratios=widths, squeeze=False)
        for axes in grid.flatten():
            axes.set_axis_off()
        widest = max(weight for number in shown for _, weight in entry["top_templates"][number])
        for place, number in enumerate(shown):
            row, column = divmod(place, columns)
            cells = grid[row][column * (1 + slots) : (column + 1) * (1 + slots)]
            _draw_weights(cells[0], result, number, entry["top_templates"][number], widest)
            for axes, picture in zip(cells[1:], examples[place], strict=False):
                axes.imshow(picture)
        return figures.save_figure(figure, out)


def save_prompt_histograms_figure(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Over classes: the largest weight and the entropy of the weights, and where uniform weights lie: 1/T and ln T."""
    count = result["templates_per_class"]
    with figures.figure_style():
        figure = figures.make_figure(10.0, 3.6)
        panels = figure.subplots(1, 2)
        uniform = 1.0 / count, math.log(count)
        kinds = (
            ("max", "Largest weight of a class", uniform[0]),
            ("entropy", "Entropy of a class's weights", uniform[1]),
        )
        for axes, (key, title, line) in zip(panels, kinds, strict=True):
            _draw_histograms(axes, _learned(result), key, line)
            axes.set(title=title, ylabel="classes")
        panels[0].set_xlabel(f"max π   (uniform: 1/{count} = {uniform[0]:.4g})")
        panels[1].set_xlabel(f"entropy in nats   (uniform: ln {count} = {uniform[1]:.3g})")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figures.save_figure(figure, out)


def _draw_weights(
    axes: Any, result: Mapping[str, Any], number: int, largest: Sequence[tuple[int, float]], widest: float
) -> None:
    """Bars, the largest on top."""
    axes.set_axis_on()
    places = range(len(largest))
    axes.barh(places, [weight for _, weight in largest], color=figures.BLUE, height=0.72)
    axes.axvline(1.0 / result["templates_per_class"], color=figures.ORANGE, linestyle="--", linewidth=1.2)
    axes.set(yticks=places, xlim=(0.0, 1.08 * widest))
    axes.set_yticklabels([_prompt(result, template) for template, _ in largest], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.invert_yaxis()
    axes.set_title(_class_name(result, number), fontsize=9.5)


def _draw_histograms(axes: Any, learned: Sequence[Mapping[str, Any]], key: str, uniform: float) -> None:
    series = [[value for value in entry[key] if value is not None] for entry in learned]
    everything = [uniform, *(value for values in series for value in values)]
    low, high = min(everything), max(everything)
    margin = 0.02 * (high - low) or 0.01
    edges = [low - margin + i * (high - low + 2 * margin) / BINS for i in range(BINS + 1)]
    colors = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.GRAY)
    for index, (entry, values) in enumerate(zip(learned, series, strict=True)):
        color = colors[index % len(colors)]
        axes.hist(values, bins=edges, histtype="stepfilled", color=color, alpha=0.12)
        axes.hist(values, bins=edges, histtype="step", color=color, linewidth=1.6, label=entry["name"])
    axes.axvline(uniform, color="black", linestyle="--", linewidth=1.2, label="uniform weights")


def _spread_classes(entry: Mapping[str, Any]) -> list[int]:
    learned = [number for number, value in enumerate(entry["entropy"]) if value is not None]
    order = sorted(learned, key=lambda number: entry["entropy"][number])
    count = min(CLASSES, len(order))
    return [order[i * (len(order) - 1) // max(1, count - 1)] for i in range(count)]


def _learned(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    learned: Sequence[Mapping[str, Any]] = result["learned"]
    if not learned:
        raise ValueError(
            "no weights were learned (BPRW needs a model with uncertainty): there is nothing to draw"
        )
    return learned


def _prompt(result: Mapping[str, Any], template: int) -> str:
    if "templates" not in result:
        return f"template {template}"
    text = result["templates"][template].rstrip(".").replace("{c}", "…")
    return textwrap.shorten(text, LETTERS, placeholder=" […]")


def _class_name(result: Mapping[str, Any], number: int) -> str:
    return str(result["class_names"][number]) if "class_names" in result else f"class {number}"
