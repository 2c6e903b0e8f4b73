"""Figures of prompt weights: the largest weights of a few classes, and histograms over all classes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from prolip.data.source import Source
from prolip.evaluation.prompts import PromptsResult
from prolip.evaluation.strategies import ClassWeights, LearnedWeights, TemplateWeight
from prolip.reports import figures
from prolip.reports.sheets import read_sample_image

MAX_CLASSES = 6
MAX_IMAGES = 3
"""Images per class."""
PROMPT_WIDTH = 44
"""Characters of a prompt next to its bar."""
BINS = 30


def save_prompt_weights_figure(
    result: PromptsResult, out: Path, *, source: Source | None = None
) -> list[Path]:
    """Save bars of the largest prompt weights of a few classes, from the most peaked weights to the flattest.

    A dashed line marks uniform weights, 1 / number of templates.

    Args:
        result: The result; the last of its learned weights are drawn.
        out: Path without suffix.
        source: The data, for images of each class. None: no images.

    Returns:
        Paths of the PNG and the SVG.
    """
    entry = _get_learned(result)[-1]
    classes = _choose_classes(entry)
    examples: list[list[Image.Image]] = [[] for _ in classes]
    if source is not None:
        examples = [
            [read_sample_image(source, n) for n in result.examples[class_index][:MAX_IMAGES]]
            for class_index, _ in classes
        ]
    with figures.figure_style():
        rows, columns = math.ceil(len(classes) / 2), min(2, len(classes))
        figure = figures.make_figure(5.6 * columns, 0.8 + 1.75 * rows)
        uniform = f"uniform 1/{result.num_templates}"
        figure.suptitle(f"{entry.name}: largest prompt weights (dashed: {uniform})", x=0.01, ha="left")
        num_slots = max(map(len, examples))  # columns for images, after the bars of each class
        widths = [3.4, *([1.0] * num_slots)] * columns
        grid = figure.subplots(rows, len(widths), width_ratios=widths, squeeze=False)
        for axes in grid.flatten():
            axes.set_axis_off()
        largest_weight = max(top.weight for _, weights in classes for top in weights.top_templates)
        for position, (class_index, weights) in enumerate(classes):
            row, column = divmod(position, columns)
            panels_of_class = grid[row][column * (1 + num_slots) : (column + 1) * (1 + num_slots)]
            _draw_weights(panels_of_class[0], result, class_index, weights.top_templates, largest_weight)
            for axes, image in zip(panels_of_class[1:], examples[position], strict=False):
                axes.imshow(image)
        return figures.save_figure(figure, out)


def save_prompt_histograms_figure(result: PromptsResult, out: Path) -> list[Path]:
    """Save histograms over classes of the largest weight and of the entropy of a class's weights.

    Lines mark uniform weights of T templates: 1/T and ln T.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    num_templates = result.num_templates
    with figures.figure_style():
        figure = figures.make_figure(10.0, 3.6)
        panels = figure.subplots(1, 2)
        uniform = 1.0 / num_templates, math.log(num_templates)
        kinds: tuple[tuple[Literal["max", "entropy"], str, float], ...] = (
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
    result: PromptsResult,
    class_index: int,
    top_templates: Sequence[TemplateWeight],
    largest_weight: float,
) -> None:
    """Draw the largest weights of a class as bars, the largest on top, each with its prompt.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
        class_index: The class.
        top_templates: Templates of the class, the largest weight first.
        largest_weight: The largest weight of all panels, for a common scale.
    """
    axes.set_axis_on()
    positions = range(len(top_templates))
    axes.barh(positions, [top.weight for top in top_templates], color=figures.BLUE, height=0.72)
    axes.axvline(1.0 / result.num_templates, color=figures.ORANGE, linestyle="--", linewidth=1.2)
    axes.set(yticks=positions, xlim=(0.0, 1.08 * largest_weight))
    axes.set_yticklabels([_format_prompt(result, top.template) for top in top_templates], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.invert_yaxis()
    axes.set_title(_get_class_name(result, class_index), fontsize=9.5)


def _draw_histograms(
    axes: Any, learned: Sequence[LearnedWeights], key: Literal["max", "entropy"], uniform: float
) -> None:
    """Draw outlined histograms over classes of the largest weight or the entropy, one per strategy, on common bins.

    `uniform` is the value of uniform weights, marked by a line.
    """
    series = [
        [weights.max if key == "max" else weights.entropy for _, weights in entry.sort_classes()]
        for entry in learned
    ]
    all_values = [uniform, *(value for values in series for value in values)]
    low, high = min(all_values), max(all_values)
    margin = 0.02 * (high - low) or 0.01  # equal values need bins of some width, too
    edges = [low - margin + i * (high - low + 2 * margin) / BINS for i in range(BINS + 1)]
    colors = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.GRAY)
    for index, (entry, values) in enumerate(zip(learned, series, strict=True)):
        color = colors[index % len(colors)]
        axes.hist(values, bins=edges, histtype="stepfilled", color=color, alpha=0.12)
        axes.hist(values, bins=edges, histtype="step", color=color, linewidth=1.6, label=entry.name)
    axes.axvline(uniform, color="black", linestyle="--", linewidth=1.2, label="uniform weights")


def _choose_classes(entry: LearnedWeights) -> list[tuple[int, ClassWeights]]:
    """At most `MAX_CLASSES` classes with weights, evenly spaced from the most peaked to the flattest."""
    order = entry.sort_classes()
    count = min(MAX_CLASSES, len(order))
    return [order[i * (len(order) - 1) // max(1, count - 1)] for i in range(count)]


def _get_learned(result: PromptsResult) -> Sequence[LearnedWeights]:
    """The learned weights; raises ValueError if there are none."""
    if not result.learned:
        raise ValueError(
            "the result of evaluate_prompts has no learned weights to draw: BPRW needs a model with uncertainty"
        )
    return result.learned


def _format_prompt(result: PromptsResult, template: int) -> str:
    """A template (by index) as a label: the place of its class name is an ellipsis, and its length is limited."""
    if not result.templates:
        return f"template {template}"
    text = result.templates[template].rstrip(".").replace("{c}", "…")
    return textwrap.shorten(text, PROMPT_WIDTH, placeholder=" […]")


def _get_class_name(result: PromptsResult, class_index: int) -> str:
    return result.class_names[class_index] if result.class_names else f"class {class_index}"
