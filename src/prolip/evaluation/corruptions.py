"""Image transforms for robustness tests: common corruptions (ImageNet-C) and an occluded center.

They are applied after the model's resizing. Corruptions and severities are those of ImageNet-C (Hendrycks and
Dietterich, 2019). Lengths in pixels are for images of 224 and are scaled to the model's size. Noise is seeded by the
sample index.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from PIL import Image, ImageFilter
from torch import Tensor

from prolip.checks import require_choice
from prolip.choices import Corruption
from prolip.data.order import derive_seed
from prolip.data.sources.foreground import GRAY, occlude_center
from prolip.embeddings.base_embedder import ImageTransform
from prolip.preprocessing.images import pil_to_tensor, tensor_to_pil
from prolip.tensor_checks import describe_type

CORRUPTIONS: tuple[Corruption, ...] = get_args(Corruption)
"""All corruptions, in the order of the tables."""

SEVERITIES: dict[Corruption, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "gaussian_blur": (1.0, 2.0, 3.0, 4.0, 6.0),
    "jpeg": (25, 18, 15, 10, 7),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
}
"""Parameters of the severities 1 to 5. noise: sigma as a fraction of full scale. blur: sigma in pixels at 224. jpeg:
quality. contrast: factor on the distance to the mean color. brightness: added to the value (of HSV), as a fraction of
full scale. pixelate: the smaller side as a fraction of the original."""

BLUR_SIDE = 224
"""Image side for which the sigma of blur is given."""


def make_corruption(kind: Corruption, severity: int, *, seed: int = 0) -> ImageTransform:
    """Make one of the common corruptions as an image transform.

    Args:
        kind: Which corruption.
        severity: 1 to 5.
        seed: Seed of the noise, combined with the sample index.

    Returns:
        The transform of pixels (3, S, S), uint8.
    """
    require_choice(kind, CORRUPTIONS, "kind")
    if severity not in (1, 2, 3, 4, 5):
        raise ValueError(f"severity must be an integer from 1 to 5, not {severity!r}")
    amount = SEVERITIES[kind][severity - 1]
    if kind == "gaussian_noise":
        return ImageTransform(f"{kind} {amount:g} seed {seed}", partial(_add_noise, sigma=amount, seed=seed))
    corrupt = _CORRUPTION_FUNCTIONS[kind]  # deterministic, so the sample index is not needed
    return ImageTransform(f"{kind} {amount:g}", lambda pixels, _: corrupt(_check_pixels(pixels), amount))


def make_occlusion(fraction: float, level: int = GRAY) -> ImageTransform:
    """Make the occlusion of the center as an image transform.

    Args:
        fraction: Fraction of the area that is hidden, 0 to 1.
        level: Gray level (0 to 255) that hides it.

    Returns:
        The transform of pixels (3, S, S), uint8.
    """

    def occlude(pixels: Tensor, _: int) -> Tensor:
        """Occlude the center of pixels, uint8 (3, S, S); the sample index is not needed."""
        return pil_to_tensor(occlude_center(tensor_to_pil(_check_pixels(pixels)), fraction, level))

    # an invalid fraction or level is an error now, not later in a thread that reads images
    occlude_center(Image.new("RGB", (1, 1)), fraction, level)
    return ImageTransform(f"occluded center {fraction:g} level {level}", occlude)


def _add_noise(pixels: Tensor, index: int, *, sigma: float, seed: int) -> Tensor:
    """Add Gaussian noise of standard deviation `sigma` (fraction of full scale) to pixels, uint8 (3, S, S).

    The draw depends on seed and sample index only, so that a higher severity is the same noise, amplified.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "gaussian noise", index))
    draw = torch.randn(_check_pixels(pixels).shape, generator=generator)
    return _to_uint8(pixels / 255 + sigma * draw)


def _blur(pixels: Tensor, sigma: float) -> Tensor:
    """Blur with a Gaussian; sigma in pixels of an image of side BLUR_SIDE."""
    radius = sigma * pixels.shape[-1] / BLUR_SIDE
    return pil_to_tensor(tensor_to_pil(pixels).filter(ImageFilter.GaussianBlur(radius)))


def _compress_as_jpeg(pixels: Tensor, quality: float) -> Tensor:
    """Encode as JPEG of this quality (1 to 95) and decode."""
    file = io.BytesIO()
    tensor_to_pil(pixels).save(file, format="jpeg", quality=int(quality))
    with Image.open(file) as image:
        return pil_to_tensor(image.convert("RGB"))


def _reduce_contrast(pixels: Tensor, factor: float) -> Tensor:
    """Multiply the difference of each pixel from the mean color of the image by `factor`, below 1."""
    fractions = pixels / 255
    center = fractions.mean((1, 2), keepdim=True)
    return _to_uint8(center + factor * (fractions - center))


def _brighten(pixels: Tensor, increment: float) -> Tensor:
    """Add `increment`, a fraction of full scale, to the value (of HSV) at the same hue and saturation.

    Colors are scaled; black, which has no hue, becomes gray.
    """
    fractions = pixels / 255
    value = fractions.amax(0, keepdim=True)
    brighter = (value + increment).clamp_max(1.0)
    return _to_uint8(torch.where(value > 0, fractions * brighter / value.clamp_min(1e-9), brighter))


def _pixelate(pixels: Tensor, fraction: float) -> Tensor:
    """Shrink to this fraction of the side, then enlarge without interpolation."""
    image = tensor_to_pil(pixels)
    small = image.resize([max(1, int(side * fraction)) for side in image.size], Image.Resampling.BOX)
    return pil_to_tensor(small.resize(image.size, Image.Resampling.NEAREST))


_CORRUPTION_FUNCTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian_blur": _blur,
    "jpeg": _compress_as_jpeg,
    "contrast": _reduce_contrast,
    "brightness": _brighten,
    "pixelate": _pixelate,
}
"""The corruptions without noise: pixels, uint8 (3, S, S), and an amount of `SEVERITIES` -> pixels."""


def _to_uint8(fractions: Tensor) -> Tensor:
    """Round fractions of full scale, clipped to 0..1, to 256 levels."""
    return (fractions.clamp(0.0, 1.0) * 255).round().to(torch.uint8)


def _check_pixels(pixels: Tensor) -> Tensor:
    """The same pixels; TypeError unless they are a uint8 tensor, ValueError unless their shape is (3, S, S)."""
    if not isinstance(pixels, Tensor) or pixels.dtype != torch.uint8:
        raise TypeError(f"pixels must be a torch.uint8 tensor, not {describe_type(pixels)}")
    if pixels.ndim != 3 or pixels.shape[0] != 3:
        raise ValueError(f"pixels must have the shape (3, S, S), not {tuple(pixels.shape)}")
    return pixels
