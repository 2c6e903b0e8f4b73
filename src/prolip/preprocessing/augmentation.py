"""Training augmentation of the paper: random resized crop, color jitter, random grayscale; no flip.

Drawing (`draw_crop`, `draw_jitter`) is separate from applying: each color operation is a pure function of an RGB
image and one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.preprocessing.images import ImagePreprocessing, pil_to_tensor, require_rgb

LEVELS = np.arange(256)
CROP_TRIES = 10
HUE_CIRCLE = 255
"""Steps of a full turn of Pillow's H channel, where 255 is the same hue as 0."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Ranges of the augmentation, named as in torchvision. The defaults are the paper's.

    Attributes:
        scale: Smallest and largest fraction of the image's area that a crop covers.
        ratio: Smallest and largest width / height of a crop.
        brightness: The factor is uniform on [max(0, 1 - x), 1 + x]; 1 leaves the image as it is.
        contrast: Likewise.
        saturation: Likewise.
        hue: The shift is uniform on [-hue, hue], as a fraction of the color circle.
        jitter_probability: Jitter probability of all four color operations together.
        grayscale_probability: Grayscale probability of grayscale, drawn independently of the jitter.
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
        for name, maximum in (("scale", 1.0), ("ratio", math.inf)):
            object.__setattr__(self, name, _check_interval(getattr(self, name), name, maximum))
        for name in ("brightness", "contrast", "saturation"):
            _require_between(getattr(self, name), name, math.inf)
        _require_between(self.hue, "hue", 0.5)
        _require_between(self.jitter_probability, "jitter_probability", 1.0)
        _require_between(self.grayscale_probability, "grayscale_probability", 1.0)


def augment(
    image: Image.Image,
    preprocessing: ImagePreprocessing,
    augmentation: Augmentation,
    generator: torch.Generator,
) -> Tensor:
    """Draw an augmented view of an image.

    The crop is resized from the whole image, so that pixels at its edge are interpolated with their true neighbors.

    Args:
        image: RGB, of any size.
        preprocessing: Size and interpolation are read, the resize mode is not.
        augmentation: The ranges.
        generator: Source of all random numbers.

    Returns:
        Pixels (3, S, S), uint8.
    """
    require_rgb(image)
    left, top, width, height = draw_crop(image.width, image.height, augmentation, generator)
    image = image.resize(
        (preprocessing.size, preprocessing.size),
        Image.Resampling[preprocessing.interpolation.upper()],
        box=(left, top, left + width, top + height),
    )
    if _draw_bool(augmentation.jitter_probability, generator):
        for operation, amount in draw_jitter(augmentation, generator):
            image = COLOR_OPERATIONS[operation](image, amount)
    if _draw_bool(augmentation.grayscale_probability, generator):
        image = to_grayscale(image)
    return pil_to_tensor(image)


def required_short_side(preprocessing: ImagePreprocessing, augmentation: Augmentation) -> int:
    """Short side that an image needs so that no crop is enlarged: `min_short_side` of `read_image`.

    Args:
        preprocessing: Preprocessing of the model.
        augmentation: Augmentation of the training.

    Returns:
        In pixels.
    """
    minimum, maximum = augmentation.ratio
    return math.ceil(preprocessing.size / math.sqrt(augmentation.scale[0] * min(minimum, 1 / maximum)))


def draw_crop(
    width: int, height: int, augmentation: Augmentation, generator: torch.Generator
) -> tuple[int, int, int, int]:
    """Draw the crop of torchvision's RandomResizedCrop.

    The area is uniform on `scale`, the ratio log-uniform on `ratio`. If ten draws don't fit into the image, the crop is
    the largest centered one whose ratio is allowed.

    Args:
        width: Width of the image, in pixels.
        height: Likewise.
        augmentation: Scale and ratio.
        generator: Source of the random numbers.

    Returns:
        (left, top, width, height) in pixels.
    """
    minimum, maximum = augmentation.ratio
    for _ in range(CROP_TRIES):
        area = width * height * _draw_uniform(*augmentation.scale, generator)
        ratio = math.exp(_draw_uniform(math.log(minimum), math.log(maximum), generator))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return _draw_int(width - wide + 1, generator), _draw_int(height - high + 1, generator), wide, high
    wide = min(width, max(1, round(height * maximum)))
    high = min(height, max(1, round(width / minimum)))
    return (width - wide) // 2, (height - high) // 2, wide, high


def draw_jitter(augmentation: Augmentation, generator: torch.Generator) -> list[tuple[str, float]]:
    """Draw the four color operations in random order.

    Args:
        augmentation: With the ranges.
        generator: Generator of random numbers.

    Returns:
        Names of the operations, each with its factor or, for hue, its shift.
    """
    amounts = {"hue": _draw_uniform(-augmentation.hue, augmentation.hue, generator)}
    for name in ("brightness", "contrast", "saturation"):
        spread = getattr(augmentation, name)
        amounts[name] = _draw_uniform(max(0.0, 1 - spread), 1 + spread, generator)
    names = list(amounts)
    return [(names[i], amounts[names[i]]) for i in torch.randperm(4, generator=generator).tolist()]


def adjust_brightness(image: Image.Image, factor: float) -> Image.Image:
    """factor * x, clipped: 0 is black.

    Args:
        image: RGB.
        factor: At least 0; 1: no change.

    Returns:
        RGB, of the same size.
    """
    return image.point(_linear_table(factor, 0.0) * 3)


def adjust_contrast(image: Image.Image, factor: float) -> Image.Image:
    """gray + factor * (x - gray), clipped, where gray is the mean luma of the image: 0 is plain gray.

    Args:
        image: RGB.
        factor: At least 0; 1: no change.

    Returns:
        RGB, of the same size.
    """
    histogram = image.convert("L").histogram()
    gray = round(int(LEVELS @ np.array(histogram)) / sum(histogram))
    return image.point(_linear_table(factor, (1 - factor) * gray) * 3)


def adjust_saturation(image: Image.Image, factor: float) -> Image.Image:
    """luma + factor * (x - luma) at each pixel, clipped: 0 is grayscale.

    Args:
        image: RGB.
        factor: At least 0; 1: no change.

    Returns:
        RGB, of the same size.
    """
    return Image.blend(to_grayscale(image), image, factor)


def adjust_hue(image: Image.Image, shift: float) -> Image.Image:
    """Rotate the color circle. Exact to 8-bit HSV.

    Args:
        image: RGB.
        shift: Fraction of the circle: 1/3 makes red green.

    Returns:
        RGB, of the same size.
    """
    steps = round(shift * HUE_CIRCLE) % HUE_CIRCLE
    if steps == 0:
        return image
    turned = [(hue + steps) % HUE_CIRCLE for hue in range(256)]
    return image.convert("HSV").point(turned + list(range(256)) * 2).convert("RGB")


def to_grayscale(image: Image.Image) -> Image.Image:
    """The luma (ITU-R 601) in all three channels.

    Args:
        image: RGB.

    Returns:
        RGB, of the same size.
    """
    return image.convert("L").convert("RGB")


COLOR_OPERATIONS = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}


def _linear_table(slope: float, start: float) -> list[int]:
    """A table for `Image.point`: each level x to start + slope * x, rounded and clipped."""
    levels: list[int] = np.rint(start + slope * LEVELS).clip(0, 255).astype(int).tolist()
    return levels


def _draw_uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _draw_int(limit: int, generator: torch.Generator) -> int:
    """An integer, uniform on 0 .. limit - 1."""
    return int(torch.randint(limit, (), generator=generator))


def _draw_bool(probability: float, generator: torch.Generator) -> bool:
    return _draw_uniform(0.0, 1.0, generator) < probability


def _check_interval(values: object, name: str, maximum: float) -> tuple[float, ...]:
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if len(numbers) != 2 or not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"{name} must be two numbers, smallest and largest, not {values!r}")
    if not 0 < numbers[0] <= numbers[1] <= maximum or math.isinf(numbers[1]):
        limit = "" if math.isinf(maximum) else f" and at most {maximum:g}"
        raise ValueError(f"{name} must go from small to large, above 0{limit}, not {values!r}")
    return tuple(float(n) for n in numbers)


def _require_between(value: float, name: str, maximum: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= maximum or math.isinf(value):
        limit = "at least 0" if math.isinf(maximum) else f"in 0..{maximum:g}"
        raise ValueError(f"{name} must be a number {limit}, not {value!r}")
