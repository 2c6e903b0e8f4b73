"""Renders scenes through veils: an image is a function of its formula and the render seed, so that nothing leaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from PIL import Image

from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import (
    ANGLES,
    FINISHES,
    PALETTE,
    RADIUS,
    STRETCHES,
    jitter_level,
    make_background,
    render,
)
from prolip.scenes.shapes import rasterize_blob, rasterize_shape
from prolip.scenes.veils import ImageMeaning, Veil, VisibleObject, observe
from prolip.scenes.world import Scene, require_image_size

HIDDEN_RADIUS = 0.385  # of an object of hidden size, as a fraction of a cell: between small and large
HIDDEN_LEVEL = (
    127  # gray level of an object of hidden color, jittered; no color in the style "grey" is near it
)
HIDDEN_BACKGROUND_LEVEL = 24
BAR_LEVEL = 90  # gray level of the bars at the edges between which a row or a column is not known
BARS = 16  # widths of a bar per side of the image
CURTAIN_LEVELS = (78, 112)  # darkest and lightest gray level of the folds of a curtain
FOLDS = 4  # per curtain

Center = tuple[float, float]
"""Where the center of an object is drawn: y and x, as fractions of the side of the image."""
TRIANGLE: tuple[Center, ...] = ((0.25, 0.5), (0.75, 0.25), (0.75, 0.75))


def render_veiled(scene: Scene, size: int, veil: Veil) -> Image.Image:
    """Render a scene through a veil.

    Args:
        scene: What to draw.
        size: Height and width in pixels, 32 to 224.
        veil: What is hidden; if that is nothing, the image is that of `render`.

    Returns:
        An RGB image.
    """
    if veil.hides_nothing():
        return render(scene, size)
    return render_meaning(observe(scene, veil), size, scene.render_seed)


def render_meaning(meaning: ImageMeaning, size: int, render_seed: int) -> Image.Image:
    """Render what an image shows.

    Args:
        meaning: What is visible.
        size: Height and width in pixels, 32 to 224.
        render_seed: Fixes all that the formula doesn't state, as `Scene.render_seed` does.

    Returns:
        An RGB image.
    """
    require_image_size(size)
    veil, draws = meaning.veil, RandomDraws(render_seed)
    style = min(meaning.styles) if meaning.styles else "clean"  # of styles that look the same, any
    if meaning.background is None:
        canvas = Image.new("RGB", (size, size), (HIDDEN_BACKGROUND_LEVEL,) * 3)
    else:
        canvas = make_background(meaning.background, size, draws)
    if veil.row or veil.column:
        _draw_bars(canvas, veil)
    for obj, center in zip(meaning.objects, _iter_centers(meaning, draws), strict=True):
        _draw_object(canvas, obj, center, size / meaning.grid, style == "outlined", draws)
    canvas = FINISHES[style](canvas, draws)
    if veil.curtains:
        _draw_curtains(canvas, meaning)
    return canvas


def _iter_centers(meaning: ImageMeaning, draws: RandomDraws) -> Iterator[Center]:
    """Yield the center of each visible object, in order; no two objects overlap. draws: order hidden positions."""
    veil, grid, count = meaning.veil, meaning.grid, len(meaning.objects)
    if veil.row and veil.column:
        centers = TRIANGLE if count == 3 else tuple((0.5, x) for x in _divide(count))
        yield from (centers[i] for i in draws.sample(count, count))
    elif veil.row:
        places = _spread([obj.column for obj in meaning.objects], draws)
        yield from ((next(y), (x + 0.5) / grid) for x, y in places)
    elif veil.column:
        places = _spread([obj.row for obj in meaning.objects], draws)
        yield from (((y + 0.5) / grid, next(x)) for y, x in places)
    else:
        for obj in meaning.objects:
            assert obj.row is not None
            assert obj.column is not None
            yield (obj.row + 0.5) / grid, (obj.column + 0.5) / grid


def _spread(lines: list[int | None], draws: RandomDraws) -> Iterator[tuple[int, Iterator[float]]]:
    """For each object its line (row or column), and the random places along it that the line's objects take in turn."""
    places: dict[int, Iterator[float]] = {}
    for line in lines:
        assert line is not None
        if line not in places:
            count = lines.count(line)
            along = _divide(count)
            places[line] = iter([along[i] for i in draws.sample(count, count)])
        yield line, places[line]


def _divide(count: int) -> tuple[float, ...]:
    """Centers of `count` equal parts of the unit interval."""
    return tuple((i + 0.5) / count for i in range(count))


def _draw_object(
    canvas: Image.Image, obj: VisibleObject, center: Center, cell: float, outlined: bool, draws: RandomDraws
) -> None:
    """Paste an object on the canvas. cell: side of a cell in pixels. draws: exact size, angle, position and color."""
    fraction = HIDDEN_RADIUS if obj.size is None else RADIUS[obj.size]
    radius = round(min(fraction * cell * draws.choice(STRETCHES), (int(cell) - 1) / 2), 3)
    angle = draws.choice(ANGLES)
    cover = (
        rasterize_blob(radius, outlined)
        if obj.shape is None
        else rasterize_shape(obj.shape, radius, angle, outlined)
    )
    margin = max(0, int(cell) - cover.width)  # pixels by which the sprite may move, as in `rendering`
    top, left = (
        int(position * canvas.width - cell / 2) + margin // 4 + draws.randbelow(margin // 2 + 1)
        for position in center
    )
    color = (
        (jitter_level(HIDDEN_LEVEL, draws),) * 3
        if obj.color is None
        else tuple(jitter_level(level, draws) for level in PALETTE[obj.color])
    )
    canvas.paste(color, (left, top), cover)


def _draw_bars(canvas: Image.Image, veil: Veil) -> None:
    """Draw bars at the top and bottom if the row is hidden, at the left and right if the column is."""
    size = canvas.width
    width = max(2, size // BARS)
    for start in (0, size - width):
        if veil.row:
            canvas.paste((BAR_LEVEL,) * 3, (0, start, size, start + width))
        if veil.column:
            canvas.paste((BAR_LEVEL,) * 3, (start, 0, start + width, size))


def _draw_curtains(canvas: Image.Image, meaning: ImageMeaning) -> None:
    """Draw the curtains over their cells, whatever the style."""
    edges = [round(i * canvas.width / meaning.grid) for i in range(meaning.grid + 1)]
    for row, column in meaning.veil.curtains:
        width, height = edges[column + 1] - edges[column], edges[row + 1] - edges[row]
        canvas.paste(_make_curtain(width, height), (edges[column], edges[row]))


@lru_cache(maxsize=256)
def _make_curtain(width: int, height: int) -> Image.Image:
    """A curtain with vertical folds, an RGB image of this size."""
    low, high = CURTAIN_LEVELS
    wave = 0.5 - 0.5 * np.cos(2 * np.pi * FOLDS * (np.arange(width) + 0.5) / width)
    levels = np.rint(low + (high - low) * wave).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(levels, (height, width)).copy()).convert("RGB")
