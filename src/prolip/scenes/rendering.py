"""Deterministic rendering: cached sprites on a plain or patterned background, then the drawing style."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.shapes import rasterize_shape
from prolip.scenes.world import Scene, SceneObject, require_image_size

PALETTE: Mapping[str, tuple[int, int, int]] = {
    "red": (222, 28, 32),
    "orange": (248, 132, 14),
    "yellow": (248, 222, 36),
    "pink": (252, 132, 190),
    "green": (24, 150, 48),
    "cyan": (44, 206, 222),
    "blue": (28, 64, 218),
    "purple": (124, 26, 152),
}
GRAY_LEVELS: Mapping[str, tuple[int, int]] = {  # of the two halves of a pattern
    "white": (244, 244),
    "silver": (200, 200),
    "striped": (240, 216),
    "checked": (240, 216),
}
RADIUS: Mapping[str, float] = {"small": 0.32, "large": 0.45}  # as a fraction of a cell
STRETCHES = (0.95, 1.0, 1.05)  # factors of the radius
ANGLES = (-0.12, -0.06, 0.0, 0.06, 0.12)  # radians
LEVEL_JITTER = 8  # largest random change of a channel, in gray levels
PATTERN_PERIODS = 6  # stripes or squares per side
BLUR_SIDE = 64  # pixels per side at which an image is blurred
BLOCKS = 16  # uniform squares per side of a pixelated image
NOISE = 18.0  # standard deviation in gray levels
NOISE_SIDE = 512  # pixels per side of the fixed noise that images take crops of


def render(scene: Scene, size: int) -> Image.Image:
    """Render a scene.

    Args:
        scene: What to draw.
        size: Height and width in pixels, 32 to 224.

    Returns:
        An RGB image.
    """
    require_image_size(size)
    draws = RandomDraws(scene.render_seed)
    canvas = make_background(scene.background, size, draws)
    for sprite in _iter_sprites(scene, size, draws):
        canvas.paste(sprite.color, (sprite.left, sprite.top), sprite.cover)
    for _ in range(scene.style_passes):
        canvas = FINISHES[scene.style](canvas, draws)
    return canvas


def render_masks(scene: Scene, size: int) -> np.ndarray:
    """Render the mask of each object.

    Args:
        scene: What to draw.
        size: Height and width in pixels, 32 to 224.

    Returns:
        bool (objects, size, size): the pixels that show each object. No two objects have a pixel in common.
    """
    require_image_size(size)
    draws = RandomDraws(scene.render_seed)
    # consumes the draws of the background, so that objects are where `render` draws them
    make_background(scene.background, size, draws)
    masks = np.zeros((len(scene.objects), size, size), dtype=bool)
    for mask, sprite in zip(masks, _iter_sprites(scene, size, draws), strict=True):
        width, height = sprite.cover.size
        is_covered = np.asarray(sprite.cover) >= 128  # half of the pixel or more
        mask[sprite.top : sprite.top + height, sprite.left : sprite.left + width] = is_covered
    return masks


class _Sprite(NamedTuple):
    """An object to paste: how much of each pixel it covers (mode L), its place in pixels, its color (RGB)."""

    cover: Image.Image
    top: int
    left: int
    color: tuple[int, ...]


def _iter_sprites(scene: Scene, size: int, draws: RandomDraws) -> Iterator[_Sprite]:
    """Yield the sprites of a scene's objects, in order; each consumes draws."""
    for obj in scene.objects:
        yield _make_sprite(obj, scene, size, draws)


def _make_sprite(obj: SceneObject, scene: Scene, size: int, draws: RandomDraws) -> _Sprite:
    """The sprite of an object, inside its cell of the grid.

    size: side of the image in pixels. draws: give the object's exact size, angle, position and color.
    """
    cell = size / scene.grid  # side of a cell in pixels
    # at most half of a cell, so that the sprite fits into it
    radius = min(RADIUS[obj.size] * cell * draws.choice(STRETCHES), (int(cell) - 1) / 2)
    cover = rasterize_shape(obj.shape, round(radius, 3), draws.choice(ANGLES), scene.style == "outlined")
    margin = max(0, int(cell) - cover.width)  # pixels by which the sprite may move inside its cell
    # somewhere in the middle half of the margin
    top, left = (
        int(position * cell) + margin // 4 + draws.randbelow(margin // 2 + 1)
        for position in (obj.row, obj.column)
    )
    return _Sprite(cover, top, left, tuple(jitter_level(level, draws) for level in PALETTE[obj.color]))


def make_background(name: str, size: int, draws: RandomDraws) -> Image.Image:
    """Make a background of one gray level or two, jittered; a pattern starts at a random offset.

    Args:
        name: One of BACKGROUNDS.
        size: Height and width in pixels.
        draws: The random stream; every background consumes the same number of draws.

    Returns:
        An RGB image.
    """
    shift = draws.randbelow(2 * LEVEL_JITTER + 1) - LEVEL_JITTER
    low, high = (min(255, level + shift) for level in GRAY_LEVELS[name])
    starts = draws.uniform(), draws.uniform()
    if name in ("white", "silver"):
        return Image.new("RGB", (size, size), (low, low, low))
    period = max(4, size // PATTERN_PERIODS)
    left, top = (int(start * period) for start in starts)
    pattern = _make_pattern(name, size, period).crop((left, top, left + size, top + size))
    pattern.putpalette([low] * 3 + [high] * 3)
    return pattern.convert("RGB")


@lru_cache(maxsize=64)
def _make_pattern(name: str, size: int, period: int) -> Image.Image:
    """Stripes or squares: 0 or 1 for the two gray levels, mode P.

    size: side of the image in pixels. period: width of a pair of stripes in pixels; the pattern is larger than the
    image by a period, so that a crop can start anywhere in it.
    """
    rows, columns = np.indices((size + period, size + period)) % period < period / 2
    pattern = rows if name == "striped" else rows ^ columns
    return Image.fromarray(pattern.astype(np.uint8)).convert("P")


@lru_cache(maxsize=1)
def _make_noise() -> np.ndarray:
    """int16 (NOISE_SIDE, NOISE_SIDE, 3): the fixed noise, of which each noisy image gets a crop."""
    values = np.random.Generator(np.random.PCG64(20250424)).standard_normal((NOISE_SIDE, NOISE_SIDE, 3))
    return np.rint(values * NOISE).astype(np.int16)


def jitter_level(level: int, draws: RandomDraws) -> int:
    """Change a level at random by at most LEVEL_JITTER.

    Args:
        level: Level of a channel, 0 to 255.
        draws: The random stream.

    Returns:
        The new level, 0 to 255.
    """
    return min(255, max(0, level + draws.randbelow(2 * LEVEL_JITTER + 1) - LEVEL_JITTER))


def _blur(image: Image.Image, draws: RandomDraws) -> Image.Image:
    """A blurred copy. A large image is blurred at a smaller size: it looks the same, in half the time."""
    side = min(image.width, BLUR_SIDE)
    small = image.resize((side, side), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(side / 40))
    return small.resize(image.size, Image.Resampling.BICUBIC)


def _add_noise(image: Image.Image, draws: RandomDraws) -> Image.Image:
    """A copy with a random crop of the fixed noise added."""
    size = image.width
    top, left = draws.randbelow(NOISE_SIDE - size + 1), draws.randbelow(NOISE_SIDE - size + 1)
    noisy = np.asarray(image) + _make_noise()[top : top + size, left : left + size]
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _pixelate(image: Image.Image, draws: RandomDraws) -> Image.Image:
    """A copy that consists of uniform blocks, BLOCKS per side, each the mean of its pixels."""
    blocks = image.resize((BLOCKS, BLOCKS), Image.Resampling.BOX)
    return blocks.resize(image.size, Image.Resampling.NEAREST)


def _make_gray(image: Image.Image, draws: RandomDraws) -> Image.Image:
    """A copy without colors, still RGB."""
    return image.convert("L").convert("RGB")


def _make_blend_finish(level: int, fraction: float) -> Callable[[Image.Image, RandomDraws], Image.Image]:
    """A function for FINISHES that blends an image with a gray level. fraction: weight of the image.

    (`Image.point` would be slower.)
    """
    return lambda image, draws: Image.blend(_make_plain_image(image.width, level), image, fraction)


@lru_cache(maxsize=512)
def _make_plain_image(size: int, level: int) -> Image.Image:
    """An image of one gray level. size: side in pixels."""
    return Image.new("RGB", (size, size), (level, level, level))


FINISHES: Mapping[str, Callable[[Image.Image, RandomDraws], Image.Image]] = {
    "clean": lambda image, draws: image,
    "outlined": lambda image, draws: image,  # the sprites are drawn as outlines
    "blurry": _blur,
    "dark": _make_blend_finish(0, 0.6),
    "faded": _make_blend_finish(225, 0.6),
    "noisy": _add_noise,
    "pixelated": _pixelate,
    "grey": _make_gray,
}
"""Style -> function of the whole image, applied at the end. All take draws; only "noisy" consumes some."""
