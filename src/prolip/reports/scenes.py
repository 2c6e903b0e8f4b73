"""Sheets of scenes: images with captions from general to specific, images behind veils; their true ambiguity."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from PIL import Image

from prolip import scenes
from prolip.reports import figures
from prolip.scenes import RandomDraws, Veil, World
from prolip.scenes.world import get_world

ROWS, COLUMNS = 3, 4
"""Of the sheet with captions."""
VEILED_ROWS = 4
"""Scenes of the sheet with veils."""
VEILED_FACTS = (
    (), ("color",), ("shape",), ("size",), ("position",), ("color", "shape"), ("color", "shape", "size", "position"),
)  # fmt: skip
"""Facts that the first columns of the sheet with veils hide."""
CURTAIN_STREAM = 2
"""Last number of the seeds of the cells behind curtains."""
PIXELS = 128
CAPTION_WIDTH, VEIL_WIDTH = 34, 18  # characters


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


def save_veil_sheet(out: Path, level: str = "hard", seed: int = 0) -> list[Path]:
    """Save a sheet of scenes, one per row, behind veils, one per column, each with its true log-ambiguity.

    Args:
        out: Path without suffix.
        level: World of the scenes, by name.
        seed: Seed of the scenes.

    Returns:
        Paths of the PNG and the SVG.
    """
    world = get_world(level)
    with figures.figure_style():
        columns = len(make_sheet_veils(world, seed, 0))
        figure = figures.make_figure(1.3 * columns, 1.78 * VEILED_ROWS)
        axes = figure.subplots(VEILED_ROWS, columns)
        for index in range(VEILED_ROWS):
            scene = world.draw_scene(seed, index)
            for column, veil in enumerate(make_sheet_veils(world, seed, index)):
                truth = scenes.image_log_ambiguity(scenes.observe(scene, veil), world)
                _show_image(axes[index][column], scenes.render_veiled(scene, PIXELS, veil))
                axes[index][column].set_xlabel(
                    f"{textwrap.fill(veil.name, VEIL_WIDTH)}\n{format_nats(truth)}", fontsize=7.6
                )
        return figures.save_figure(figure, out)


def make_sheet_veils(world: World, seed: int, index: int) -> list[Veil]:
    """Make the veils of a row of the sheet with veils.

    Args:
        world: The distribution of scenes.
        seed: Seed of the scenes.
        index: Index of the scene.

    Returns:
        Veils that hide facts; two curtains; a curtain that hides the first object, and colors.
    """
    cells = RandomDraws(seed, index, CURTAIN_STREAM).sample(world.grid**2, 2)
    first = world.draw_scene(seed, index).objects[0]
    return [
        *(scenes.hide_facts(*names) for names in VEILED_FACTS),
        scenes.hide_facts(curtains=frozenset(divmod(cell, world.grid) for cell in cells)),
        scenes.hide_facts("color", curtains=frozenset([(first.row, first.column)])),
    ]


def format_nats(log_ambiguity: float) -> str:
    """Format a log-ambiguity: "−7.2 nats".

    Args:
        log_ambiguity: In nats.

    Returns:
        The text.
    """
    return f"{log_ambiguity + 0.0:.1f} nats".replace("-", "\N{MINUS SIGN}")


def _draw_scene(axes: Any, world: World, seed: int, index: int) -> None:
    """Draw the scene with this seed and index."""
    _show_image(axes, scenes.render(world.draw_scene(seed, index), PIXELS))


def _show_image(axes: Any, image: Image.Image) -> None:
    """Draw an image without ticks and frame."""
    axes.imshow(image, interpolation="nearest")
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
