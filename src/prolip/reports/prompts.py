"""Figures of prompt weights: the largest weights of a few classes, and histograms over all classes."""

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

MAX_CLASSES = 6
MAX_IMAGES = 3
"""Images per class."""
PROMPT_WIDTH = 44
"""Characters of a prompt next to its bar."""
BINS = 30


def save_prompt_weights_figure(
    result: Mapping[str, Any], out: Path, *, source: Source | None = None
) -> list[Path]:
    """Save bars of the largest prompt weights of a few classes, from the most peaked weights to the flattest.

    A dashed line marks uniform weights, 1 / number of templates.

    Args:
        result: Result of `evaluate_prompts`; the last entry of result["learned"] is drawn.
        out: Path without suffix.
        source: The data, for images of each class. None: no images.

    Returns:
        Paths of the PNG and the SVG.
    """
    entry = _get_learned(result)[-1]
    class_indices = _choose_classes(entry)
    examples: list[list[Image.Image]] = [[] for _ in class_indices]
    if source is not None:
        examples = [
            [read_sample_image(source, n) for n in result["examples"][class_index][:MAX_IMAGES]]
            for class_index in class_indices
        ]
    with figures.figure_style():
        rows, columns = math.ceil(len(class_indices) / 2), min(2, len(class_indices))
        figure = figures.make_figure(5.6 * columns, 0.8 + 1.75 * rows)
        uniform = f"uniform 1/{result['templates_per_class']}"
        figure.suptitle(f"{entry['name']}: largest prompt weights (dashed: {uniform})", x=0.01, ha="left")
        num_slots = max(map(len, examples))  # columns for images, after the bars of each class
        widths = [3.4, *([1.0] * num_slots)] * columns
        grid = figure.subplots(rows, len(widths), width_ratios=widths, squeeze=False)
        for axes in grid.flatten():
            axes.set_axis_off()
        largest_weight = max(
            weight for class_index in class_indices for _, weight in entry["top_templates"][class_index]
        )
        for position, class_index in enumerate(class_indices):
            row, column = divmod(position, columns)
            panels_of_class = grid[row][column * (1 + num_slots) : (column + 1) * (1 + num_slots)]
            _draw_weights(
                panels_of_class[0], result, class_index, entry["top_templates"][class_index], largest_weight
            )
            for axes, image in zip(panels_of_class[1:], examples[position], strict=False):
                axes.imshow(image)
        return figures.save_figure(figure, out)


def save_prompt_histograms_figure(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Save histograms over classes of the largest weight and of the entropy of a class's weights.

    Lines mark uniform weights of T templates: 1/T and ln T.

    Args:
        result: Result of `evaluate_prompts`.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    num_templates = result["templates_per_class"]
    with figures.figure_style():
        figure = figures.make_figure(10.0, 3.6)
        panels = figure.subplots(1, 2)
        uniform = 1.0 / num_templates, math.log(num_templates)
        kinds = (
            ("max", "Largest weight of a class", uniform[0]),
            ("entropy", "Entropy of a class's weights", uniform[1]),
        )
        for axes, (key, title, line) in zip(panels, kinds, strict=True):
            _draw_histograms(axes, _get_learned(result), key, line)
            axes.set(title=title, ylabel="classes")
        panels[0].set_xlabel(f"max π   (uniform: 1/{num_templates} = {uniform[0]:.4g})")
        panels[1].set_xlabel(f"entropy in nats   (uniform: ln {num_templates} = {uniform[1]:.3g})")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figures.save_figure(figure, out)


def _draw_weights(
    axes: Any,
    result: Mapping[str, Any],
    class_index: int,
    top_templates: Sequence[tuple[int, float]],
    largest_weight: float,
) -> None:
    """Draw the largest weights of a class as bars, the largest on top, each with its prompt.

    Args:
        axes: Matplotlib axes to draw on.
        result: Result of `evaluate_prompts`.
        class_index: The class.
        top_templates: (template, weight) of the class, the largest weight first.
        largest_weight: The largest weight of all panels, for a common scale.
    """
    axes.set_axis_on()
    positions = range(len(top_templates))
    axes.barh(positions, [weight for _, weight in top_templates], color=figures.BLUE, height=0.72)
    axes.axvline(1.0 / result["templates_per_class"], color=figures.ORANGE, linestyle="--", linewidth=1.2)
    axes.set(yticks=positions, xlim=(0.0, 1.08 * largest_weight))
    axes.set_yticklabels([_format_prompt(result, template) for template, _ in top_templates], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.invert_yaxis()
    axes.set_title(_get_class_name(result, class_index), fontsize=9.5)


def _draw_histograms(axes: Any, learned: Sequence[Mapping[str, Any]], key: str, uniform: float) -> None:
    """Draw outlined histograms over classes of entry[key], one per entry of result["learned"], on common bins.

    `uniform` is the value of uniform weights, marked by a line.
    """
    series = [[value for value in entry[key] if value is not None] for entry in learned]
    all_values = [uniform, *(value for values in series for value in values)]
    low, high = min(all_values), max(all_values)
    margin = 0.02 * (high - low) or 0.01  # equal values need bins of some width, too
    edges = [low - margin + i * (high - low + 2 * margin) / BINS for i in range(BINS + 1)]
    colors = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.GRAY)
    for index, (entry, values) in enumerate(zip(learned, series, strict=True)):
        color = colors[index % len(colors)]
        axes.hist(values, bins=edges, histtype="stepfilled", color=color, alpha=0.12)
        axes.hist(values, bins=edges, histtype="step", color=color, linewidth=1.6, label=entry["name"])
    axes.axvline(uniform, color="black", linestyle="--", linewidth=1.2, label="uniform weights")


def _choose_classes(entry: Mapping[str, Any]) -> list[int]:
    """Indices of at most `MAX_CLASSES` classes with weights, evenly spaced from the most peaked to the flattest."""
    with_weights = [class_index for class_index, value in enumerate(entry["entropy"]) if value is not None]
    order = sorted(with_weights, key=lambda class_index: entry["entropy"][class_index])
    count = min(MAX_CLASSES, len(order))
    return [order[i * (len(order) - 1) // max(1, count - 1)] for i in range(count)]


def _get_learned(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """result["learned"]; raises ValueError if no weights were learned."""
    learned: Sequence[Mapping[str, Any]] = result["learned"]
    if not learned:
        raise ValueError(
            "the result of evaluate_prompts has no learned weights to draw: BPRW needs a model with uncertainty"
        )
    return learned


def _format_prompt(result: Mapping[str, Any], template: int) -> str:
    """A template (by index) as a label: the place of its class name is an ellipsis, and its length is limited."""
    if "templates" not in result:
        return f"template {template}"
    text = result["templates"][template].rstrip(".").replace("{c}", "…")
    return textwrap.shorten(text, PROMPT_WIDTH, placeholder=" […]")


def _get_class_name(result: Mapping[str, Any], class_index: int) -> str:
    return str(result["class_names"][class_index]) if "class_names" in result else f"class {class_index}"
