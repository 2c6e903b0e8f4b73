"""Scene to picture: cached sprites on a plain or patterned background, then the drawing style. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from prolip.scenes.random_draws import Draws
from prolip.scenes.shapes import coverage
from prolip.scenes.world import Scene, Thing, require_size

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
GREY_LEVELS: Mapping[str, tuple[int, int]] = {  # of the two halves of a pattern
    "white": (244, 244),
    "silver": (200, 200),
    "striped": (240, 216),
    "checked": (240, 216),
}
RADIUS: Mapping[str, float] = {"small": 0.32, "large": 0.45}  # as a share of a cell
STRETCHES = (0.95, 1.0, 1.05)
ANGLES = (-0.12, -0.06, 0.0, 0.06, 0.12)  # radians
HUE_JITTER = 8  # grey levels
PATTERN_PERIODS = 6  # stripes or squares a side
BLUR_SIDE = 64
BLOCKS = 16  # a side of a pixelated picture
NOISE = 18.0  # standard deviation in grey levels
NOISE_SIDE = 512


def picture(scene: Scene, size: int) -> Image.Image:
    """The scene as an RGB image, size x size pixels."""
    require_size(size)
    draws = Draws(scene.nuance)
    canvas = _background(scene.background, size, draws)
    for sprite in _sprites(scene, size, draws):
        canvas.paste(sprite.colour, (sprite.left, sprite.top), sprite.cover)
    return FINISH[scene.style](canvas, draws)


def masks(scene: Scene, size: int) -> np.ndarray:
    """Which pixels show each thing: bool (things, size, size). No two things share a pixel."""
    require_size(size)
    draws = Draws(scene.nuance)
    _background(
        scene.background, size, draws
    )  # takes its draws, so that the things come out where they are drawn
    shown = np.zeros((len(scene.things), size, size), dtype=bool)
    for mask, sprite in zip(shown, _sprites(scene, size, draws), strict=True):
        width, height = sprite.cover.size
        part = np.asarray(sprite.cover) >= 128
        mask[sprite.top : sprite.top + height, sprite.left : sprite.left + width] = part
    return shown


class _Sprite(NamedTuple):
    cover: Image.Image  # mode L: how much of each pixel the thing covers
    top: int
    left: int
    colour: tuple[int, ...]


def _sprites(scene: Scene, size: int, draws: Draws) -> Iterator[_Sprite]:
    for thing in scene.things:
        yield _sprite(thing, scene, size, draws)


def _sprite(thing: Thing, scene: Scene, size: int, draws: Draws) -> _Sprite:
    cell = size / scene.grid
    radius = min(RADIUS[thing.size] * cell * draws.choice(STRETCHES), (int(cell) - 1) / 2)
    cover = coverage(thing.shape, round(radius, 3), draws.choice(ANGLES), scene.style == "outlined")
    room = max(0, int(cell) - cover.width)  # so that a sprite stays inside its cell
    top, left = (
        int(place * cell) + room // 4 + draws.below(room // 2 + 1) for place in (thing.row, thing.column)
    )
    return _Sprite(cover, top, left, tuple(_jittered(level, draws) for level in PALETTE[thing.colour]))


def _background(name: str, size: int, draws: Draws) -> Image.Image:
    """One grey level or two, a little lighter or darker, the pattern somewhere."""
    shift = draws.below(2 * HUE_JITTER + 1) - HUE_JITTER
    low, high = (min(255, level + shift) for level in GREY_LEVELS[name])
    starts = draws.uniform(), draws.uniform()
    if name in ("white", "silver"):
        return Image.new("RGB", (size, size), (low, low, low))
    period = max(4, size // PATTERN_PERIODS)
    left, top = (int(start * period) for start in starts)
    pattern = _pattern(name, size, period).crop((left, top, left + size, top + size))
    pattern.putpalette([low] * 3 + [high] * 3)
    return pattern.convert("RGB")


@lru_cache(maxsize=64)
def _pattern(name: str, size: int, period: int) -> Image.Image:
    """0 or 1, mode P: a period larger than the picture, so that it can start anywhere."""
    rows, columns = np.indices((size + period, size + period)) % period < period / 2
    pattern = rows if name == "striped" else rows ^ columns
    return Image.fromarray(pattern.astype(np.uint8)).convert("P")


@lru_cache(maxsize=1)
def _noise() -> np.ndarray:
    """int16 (NOISE_SIDE, NOISE_SIDE, 3): grain, from which each picture takes a piece."""
    values = np.random.Generator(np.random.PCG64(20250424)).standard_normal((NOISE_SIDE, NOISE_SIDE, 3))
    return np.rint(values * NOISE).astype(np.int16)


def _jittered(level: int, draws: Draws) -> int:
    return min(255, max(0, level + draws.below(2 * HUE_JITTER + 1) - HUE_JITTER))


def _blurry(image: Image.Image, draws: Draws) -> Image.Image:
    """A large picture is blurred small: it looks the same, in half the time."""
    side = min(image.width, BLUR_SIDE)
    small = image.resize((side, side), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(side / 40))
    return small.resize(image.size, Image.Resampling.BICUBIC)


def _noisy(image: Image.Image, draws: Draws) -> Image.Image:
    size = image.width
    top, left = draws.below(NOISE_SIDE - size + 1), draws.below(NOISE_SIDE - size + 1)
    noisy = np.asarray(image) + _noise()[top : top + size, left : left + size]
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _pixelated(image: Image.Image, draws: Draws) -> Image.Image:
    blocks = image.resize((BLOCKS, BLOCKS), Image.Resampling.BOX)
    return blocks.resize(image.size, Image.Resampling.NEAREST)


def _grey(image: Image.Image, draws: Draws) -> Image.Image:
    return image.convert("L").convert("RGB")


def _towards(level: int, share: float) -> Callable[[Image.Image, Draws], Image.Image]:
    """So much of a picture, the rest one grey level. (`Image.point` would round a table anew each time.)"""
    return lambda image, draws: Image.blend(_plain(image.width, level), image, share)


@lru_cache(maxsize=512)
def _plain(size: int, level: int) -> Image.Image:
    return Image.new("RGB", (size, size), (level, level, level))


FINISH: Mapping[str, Callable[[Image.Image, Draws], Image.Image]] = {
    "clean": lambda image, draws: image,
    "outlined": lambda image, draws: image,  # the sprites are
    "blurry": _blurry,
    "dark": _towards(0, 0.6),
    "faded": _towards(225, 0.6),
    "noisy": _noisy,
    "pixelated": _pixelated,
    "grey": _grey,
}
