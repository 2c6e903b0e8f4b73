"""The training augmentation of the paper: a random resized crop, colour jitter, now and then no colour. No flip.

What is drawn (`draw_crop`, `draw_jitter`) is apart from what is done with it: each colour operation is a pure
function of an RGB image and one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.preprocessing.images import PixelRules, pixels_of, require_rgb

LEVELS = np.arange(256)
CROP_TRIES = 10
HUE_CIRCLE = 255
"""Steps of a full turn of Pillow's H channel, where 255 is the same hue as 0."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How far a training image may stray from its file. The defaults are the paper's.

    scale:       smallest and largest share of the image's area that a crop covers.
    ratio:       smallest and largest width / height of a crop.
    brightness, contrast, saturation: the factor is uniform on [max(0, 1 - x), 1 + x]; 1 leaves the image as it is.
    hue:         the shift is uniform on [-hue, hue], as a share of the colour circle.
    jitter_probability:    of all four colour operations together.
    grayscale_probability: of no colour at all, drawn apart from the jitter.
    """

    scale: tuple[float, float] = (0.8, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    brightness: float = 0.32
    contrast: float = 0.32
    saturation: float = 0.32
    hue: float = 0.08
    jitter_probability: float = 0.8
    grayscale_probability: float = 0.2

    def __post_init__(self) -> None:
        for name, most in (("scale", 1.0), ("ratio", math.inf)):
            object.__setattr__(self, name, _interval(getattr(self, name), name, most))
        for name in ("brightness", "contrast", "saturation"):
            _require_between(getattr(self, name), name, math.inf)
        _require_between(self.hue, "hue", 0.5)
        _require_between(self.jitter_probability, "jitter_probability", 1.0)
        _require_between(self.grayscale_probability, "grayscale_probability", 1.0)


def augment(
    image: Image.Image, rules: PixelRules, augmentation: Augmentation, generator: torch.Generator
) -> Tensor:
    """An RGB image of any size, seen anew: uint8 (3, S, S). Of `rules`, size and resampling count, not fit.

    The outermost pixels of the crop are resampled with their true neighbours: nothing is cut out before.
    """
    require_rgb(image)
    left, top, width, height = draw_crop(image.width, image.height, augmentation, generator)
    image = image.resize(
        (rules.size, rules.size),
        Image.Resampling[rules.resampling.upper()],
        box=(left, top, left + width, top + height),
    )
    if _happens(augmentation.jitter_probability, generator):
        for operation, amount in draw_jitter(augmentation, generator):
            image = OPERATIONS[operation](image, amount)
    if _happens(augmentation.grayscale_probability, generator):
        image = grayscale(image)
    return pixels_of(image)


def short_side_for(rules: PixelRules, augmentation: Augmentation) -> int:
    """Pixels that the shorter side of an image needs for no crop to be enlarged: `read_image` may drop the others."""
    least, most = augmentation.ratio
    return math.ceil(rules.size / math.sqrt(augmentation.scale[0] * min(least, 1 / most)))


def draw_crop(
    width: int, height: int, augmentation: Augmentation, generator: torch.Generator
) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a crop, in pixels of an image of width x height.

    The area is uniform on `scale`, the ratio log-uniform on `ratio`. Where ten draws don't fit into the image, it
    is the largest centred crop whose ratio is allowed.
    """
    least, most = augmentation.ratio
    for _ in range(CROP_TRIES):
        area = width * height * _uniform(*augmentation.scale, generator)
        ratio = math.exp(_uniform(math.log(least), math.log(most), generator))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return _below(width - wide + 1, generator), _below(height - high + 1, generator), wide, high
    wide = min(width, max(1, round(height * most)))
    high = min(height, max(1, round(width / least)))
    return (width - wide) // 2, (height - high) // 2, wide, high


def draw_jitter(augmentation: Augmentation, generator: torch.Generator) -> list[tuple[str, float]]:
    """The four colour operations in random order, each with its factor or, for hue, its shift."""
    amounts = {"hue": _uniform(-augmentation.hue, augmentation.hue, generator)}
    for name in ("brightness", "contrast", "saturation"):
        spread = getattr(augmentation, name)
        amounts[name] = _uniform(max(0.0, 1 - spread), 1 + spread, generator)
    names = list(amounts)
    return [(names[i], amounts[names[i]]) for i in torch.randperm(4, generator=generator).tolist()]


def change_brightness(image: Image.Image, factor: float) -> Image.Image:
    """factor * x, clipped: 0 is black."""
    return image.point(_line(factor, 0.0) * 3)


def change_contrast(image: Image.Image, factor: float) -> Image.Image:
    """grey + factor * (x - grey), clipped, where grey is the mean luma of the image: 0 is plain grey."""
    histogram = image.convert("L").histogram()
    grey = round(int(LEVELS @ np.array(histogram)) / sum(histogram))
    return image.point(_line(factor, (1 - factor) * grey) * 3)


def change_saturation(image: Image.Image, factor: float) -> Image.Image:
    """luma + factor * (x - luma) at each pixel, clipped: 0 is grayscale."""
    return Image.blend(grayscale(image), image, factor)


def shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Turn the colour circle by `shift` of it: 1/3 makes red green. Exact to what HSV in 8 bits can hold."""
    steps = round(shift * HUE_CIRCLE) % HUE_CIRCLE
    if steps == 0:
        return image
    turned = [(hue + steps) % HUE_CIRCLE for hue in range(256)]
    return image.convert("HSV").point(turned + list(range(256)) * 2).convert("RGB")


def grayscale(image: Image.Image) -> Image.Image:
    """The luma (ITU-R 601) in all three channels."""
    return image.convert("L").convert("RGB")


OPERATIONS = {
    "brightness": change_brightness,
    "contrast": change_contrast,
    "saturation": change_saturation,
    "hue": shift_hue,
}


def _line(slope: float, start: float) -> list[int]:
    """A table for `Image.point`: each grey level x to start + slope * x, rounded and clipped."""
    levels: list[int] = np.rint(start + slope * LEVELS).clip(0, 255).astype(int).tolist()
    return levels


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _below(limit: int, generator: torch.Generator) -> int:
    """A whole number, uniform on 0 .. limit - 1."""
    return int(torch.randint(limit, (), generator=generator))


def _happens(probability: float, generator: torch.Generator) -> bool:
    return _uniform(0.0, 1.0, generator) < probability


def _interval(values: object, name: str, most: float) -> tuple[float, ...]:
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if len(numbers) != 2 or not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"{name} must be two numbers, smallest and largest, not {values!r}")
    if not 0 < numbers[0] <= numbers[1] <= most or math.isinf(numbers[1]):
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise ValueError(f"{name} must go from small to large, above 0{limit}, not {values!r}")
    return tuple(float(n) for n in numbers)


def _require_between(value: float, name: str, most: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
        limit = "at least 0" if math.isinf(most) else f"in 0..{most:g}"
        raise ValueError(f"{name} must be a number {limit}, not {value!r}")
