"""Sheet of scenes: each image with captions from general to specific, and their true ambiguity."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from prolip import scenes
from prolip.reports import figures
from prolip.scenes import RandomDraws, World
from prolip.scenes.world import get_world

ROWS, COLUMNS = 3, 4
PIXELS = 128
CAPTION_WIDTH = 34  # characters


def save_scene_sheet(out: Path, level: str = "hard", seed: int = 0) -> list[Path]:
    """Save a sheet of random scenes, each with its chain of captions and their probabilities.

    Args:
        out: Path without suffix.
        level: World of the scenes, by name.
        seed: Seed of the scenes.

    Returns:
        Paths of the PNG and the SVG.
    """
    world = get_world(level)
    with figures.figure_style():
        figure = figures.make_figure(11.0, 10.6)
        axes = figure.subplots(2 * ROWS, COLUMNS, height_ratios=[1.0, 0.72] * ROWS)
        for index in range(ROWS * COLUMNS):
            row, column = divmod(index, COLUMNS)
            _draw_scene(axes[2 * row][column], world, seed, index)
            _write_captions(axes[2 * row + 1][column], world, seed, index)
        return figures.save_figure(figure, out)


def _draw_scene(axes: Any, world: World, seed: int, index: int) -> None:
    """Draw the scene with this seed and index."""
    axes.imshow(scenes.render(world.draw_scene(seed, index), PIXELS), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _write_captions(axes: Any, world: World, seed: int, index: int) -> None:
    """Write the chain of captions of this scene, each after the probability that it is true of a random scene."""
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    top = 1.0
    for step in scenes.make_caption_chain(world.draw_scene(seed, index), RandomDraws(seed, index, 1), world):
        text = textwrap.fill(step.text, CAPTION_WIDTH)
        axes.text(0.19, top, text, va="top", fontsize=7.6, linespacing=1.15)
        axes.text(
            0.16,
            top,
            format_probability(scenes.probability(step.meaning, world)),
            va="top",
            ha="right",
            fontsize=7.6,
            color=figures.BLUE,
        )
        # 0.1 of the height of the axes per line, and a gap between captions
        top -= 0.1 * (text.count("\n") + 1) + 0.06


def format_probability(p: float) -> str:
    """Format a probability: "100 %", "2.6 %", "1 in 14,000".

    Args:
        p: Above 0, at most 1.

    Returns:
        The text.
    """
    return f"{100 * p:.3g} %" if p >= 1e-3 else f"1 in {float(f'{1 / p:.2g}'):,.0f}"
