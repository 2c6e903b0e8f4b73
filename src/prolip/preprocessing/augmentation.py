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
"""All values of an 8-bit channel."""
CROP_TRIES = 10
"""Draws of a crop that may fail to fit into the image, as in torchvision."""
HUE_CIRCLE = 255
"""Steps of a full turn of Pillow's H channel, where 255 is the same hue as 0."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Ranges of the augmentation, named as in torchvision. The defaults are the paper's.

    Attributes:
        scale: Smallest and largest fraction of the image's area that a crop covers.
        ratio: Smallest and largest width / height of a crop.
        brightness: Spread b of the factor, which is uniform on [max(0, 1 - b), 1 + b]; a factor of 1 changes nothing.
        contrast: Spread of the factor of the contrast, drawn in the same way.
        saturation: Spread of the factor of the saturation, drawn in the same way.
        hue: The shift is uniform on [-hue, hue], as a fraction of the color circle.
        jitter_probability: Probability that all four color operations are applied; otherwise none is.
        grayscale_probability: Probability that the image becomes grayscale, drawn independently of the jitter.
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
        """Raise ValueError if a field is out of range; turn scale and ratio into tuples of floats."""
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
        generator: CPU generator, from which all random numbers are drawn.

    Returns:
        Pixels (3, S, S), uint8, where S is `preprocessing.size`.
    """
    require_rgb(image)
    left, top, width, height = draw_crop(image.width, image.height, augmentation, generator)
    image = image.resize(
        (preprocessing.size, preprocessing.size),
        Image.Resampling[preprocessing.interpolation.upper()],
        box=(left, top, left + width, top + height),
    )
    if draw_bool(augmentation.jitter_probability, generator):
        for operation, amount in draw_jitter(augmentation, generator):
            image = COLOR_OPERATIONS[operation](image, amount)
    if draw_bool(augmentation.grayscale_probability, generator):
        image = to_grayscale(image)
    return pil_to_tensor(image)


def required_short_side(preprocessing: ImagePreprocessing, augmentation: Augmentation) -> int:
    """Short side that an image needs so that no crop is enlarged: `min_short_side` of `read_image`.

    Args:
        preprocessing: Preprocessing of the model.
        augmentation: Augmentation of the training.

    Returns:
        The short side, in pixels.
    """
    min_ratio, max_ratio = augmentation.ratio
    # The narrowest crop of an image of short side s is s * sqrt(smallest scale * most extreme ratio) pixels wide.
    return math.ceil(preprocessing.size / math.sqrt(augmentation.scale[0] * min(min_ratio, 1 / max_ratio)))


def draw_crop(
    width: int, height: int, augmentation: Augmentation, generator: torch.Generator
) -> tuple[int, int, int, int]:
    """Draw the crop of torchvision's RandomResizedCrop.

    The area is uniform on `scale`, the ratio log-uniform on `ratio`. If ten draws don't fit into the image, the crop is
    the largest centered one whose ratio is allowed.

    Args:
        width: Width of the image, in pixels.
        height: Height of the image, in pixels.
        augmentation: Its scale and ratio are read.
        generator: CPU generator, from which the random numbers are drawn.

    Returns:
        (left, top, width, height) of the crop, in pixels.
    """
    min_ratio, max_ratio = augmentation.ratio
    for _ in range(CROP_TRIES):
        area = width * height * draw_uniform(*augmentation.scale, generator)
        ratio = math.exp(draw_uniform(math.log(min_ratio), math.log(max_ratio), generator))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left = draw_int(width - crop_width + 1, generator)
            top = draw_int(height - crop_height + 1, generator)
            return left, top, crop_width, crop_height
    crop_width = min(width, max(1, round(height * max_ratio)))
    crop_height = min(height, max(1, round(width / min_ratio)))
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


def draw_jitter(augmentation: Augmentation, generator: torch.Generator) -> list[tuple[str, float]]:
    """Draw the four color operations in random order.

    Args:
        augmentation: Its brightness, contrast, saturation and hue are read.
        generator: CPU generator, from which the random numbers are drawn.

    Returns:
        Four pairs (key of COLOR_OPERATIONS, amount): the amount is a factor or, for hue, a shift.
    """
    amounts = {"hue": draw_uniform(-augmentation.hue, augmentation.hue, generator)}
    for name in ("brightness", "contrast", "saturation"):
        spread = getattr(augmentation, name)
        amounts[name] = draw_uniform(max(0.0, 1 - spread), 1 + spread, generator)
    names = list(amounts)
    return [(names[i], amounts[names[i]]) for i in torch.randperm(4, generator=generator).tolist()]


def adjust_brightness(image: Image.Image, factor: float) -> Image.Image:
    """Multiply all values by a factor and clip them: 0 gives black.

    Args:
        image: RGB.
        factor: At least 0; 1: no change.

    Returns:
        RGB, of the same size.
    """
    return image.point(_make_linear_table(factor, 0.0) * 3)


def adjust_contrast(image: Image.Image, factor: float) -> Image.Image:
    """gray + factor * (x - gray), clipped, where gray is the mean luma of the image: 0 gives uniform gray.

    Args:
        image: RGB.
        factor: At least 0; 1: no change.

    Returns:
        RGB, of the same size.
    """
    histogram = image.convert("L").histogram()  # pixels at each of the 256 levels
    gray = round(int(LEVELS @ np.array(histogram)) / sum(histogram))
    return image.point(_make_linear_table(factor, (1 - factor) * gray) * 3)


def adjust_saturation(image: Image.Image, factor: float) -> Image.Image:
    """luma + factor * (x - luma) at each pixel, clipped: 0 gives grayscale.

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
    rotated = [(hue + steps) % HUE_CIRCLE for hue in range(256)]
    unchanged = list(range(256))
    return image.convert("HSV").point(rotated + unchanged + unchanged).convert("RGB")


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
"""By name: functions of an RGB image and the amount that `draw_jitter` draws."""


def _make_linear_table(slope: float, start: float) -> list[int]:
    """The table of 256 levels for `Image.point` that maps x to start + slope * x, rounded and clipped to 0..255."""
    levels: list[int] = np.rint(start + slope * LEVELS).clip(0, 255).astype(int).tolist()
    return levels


def draw_uniform(low: float, high: float, generator: torch.Generator) -> float:
    """Draw a number, uniform on [low, high).

    Args:
        low: Smallest number.
        high: Upper limit.
        generator: CPU generator.

    Returns:
        The number.
    """
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def draw_int(limit: int, generator: torch.Generator) -> int:
    """Draw an integer, uniform on 0 .. limit - 1.

    Args:
        limit: One more than the largest integer.
        generator: CPU generator.

    Returns:
        The integer.
    """
    return int(torch.randint(limit, (), generator=generator))


def draw_bool(probability: float, generator: torch.Generator) -> bool:
    """Draw True with a probability.

    Args:
        probability: 0 to 1.
        generator: CPU generator.

    Returns:
        True with this probability, else False.
    """
    return draw_uniform(0.0, 1.0, generator) < probability


def _check_interval(values: object, name: str, maximum: float) -> tuple[float, ...]:
    """Return (low, high) as floats; ValueError unless they are two finite numbers with 0 < low <= high <= maximum."""
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if len(numbers) != 2 or not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"{name} must be two numbers, smallest and largest, not {values!r}")
    if not 0 < numbers[0] <= numbers[1] <= maximum or math.isinf(numbers[1]):
        limit = "" if math.isinf(maximum) else f" and at most {maximum:g}"
        raise ValueError(f"{name} must be (smallest, largest), both above 0{limit}, not {values!r}")
    return tuple(float(n) for n in numbers)


def _require_between(value: float, name: str, maximum: float) -> None:
    """Raise ValueError unless a value is a finite number from 0 to `maximum`, which may be infinite."""
    if not isinstance(value, int | float) or not 0 <= value <= maximum or math.isinf(value):
        limit = "at least 0" if math.isinf(maximum) else f"in 0..{maximum:g}"
        raise ValueError(f"{name} must be a number {limit}, not {value!r}")
