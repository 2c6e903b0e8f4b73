"""Pictures made worse on purpose, after the model's own resizing: common corruptions, and a hidden centre.

The corruptions and their severities are those of ImageNet-C (Hendrycks and Dietterich, 2019). Lengths in pixels are
for pictures of 224 and are scaled to the model's. Nothing is random but by the number of the sample.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from PIL import Image, ImageFilter
from torch import Tensor

from prolip.checks import describe_type, require_choice
from prolip.data.order import derive_seed
from prolip.data.sources.foreground import GRAY, occlude_center
from prolip.embeddings.embedder import ImageTransform
from prolip.preprocessing.images import pil_to_tensor

Corruption = Literal["gaussian_noise", "gaussian_blur", "jpeg", "contrast", "brightness", "pixelate"]
CORRUPTIONS: tuple[Corruption, ...] = get_args(Corruption)

SEVERITIES: dict[Corruption, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "gaussian_blur": (1.0, 2.0, 3.0, 4.0, 6.0),
    "jpeg": (25, 18, 15, 10, 7),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
}
"""Of severity 1 to 5. noise: sigma as a share of full scale. blur: sigma in pixels at 224. jpeg: quality. contrast: the
factor on the distance to the mean colour. brightness: what is added to the value (of hue, saturation, value), as a
share of full scale. pixelate: the share of the side that is kept."""

BLUR_SIDE = 224


def make_corruption(kind: Corruption, severity: int, *, seed: int = 0) -> ImageTransform:
    """One of the common corruptions, at a severity from 1 to 5. seed: of the noise."""
    require_choice(kind, CORRUPTIONS, "kind")
    if severity not in (1, 2, 3, 4, 5):
        raise ValueError(f"severity must be a whole number from 1 to 5, not {severity!r}")
    amount = SEVERITIES[kind][severity - 1]
    if kind == "gaussian_noise":
        return ImageTransform(f"{kind} {amount:g} seed {seed}", partial(_noise, sigma=amount, seed=seed))
    work = _WORK[kind]
    return ImageTransform(f"{kind} {amount:g}", lambda pixels, _: work(_checked(pixels), amount))


def make_occlusion(share: float, level: int = GRAY) -> ImageTransform:
    """The centre hidden behind one grey level: `share` of the area that the model sees. Nothing else changes."""

    def hide(pixels: Tensor, _: int) -> Tensor:
        return pil_to_tensor(occlude_center(_picture(_checked(pixels)), share, level))

    occlude_center(
        Image.new("RGB", (1, 1)), share, level
    )  # a share that can't be is told now, not in a thread
    return ImageTransform(f"occluded centre {share:g} level {level}", hide)


def _noise(pixels: Tensor, number: int, *, sigma: float, seed: int) -> Tensor:
    """The same draw for every severity, so that a severer one is the same picture further away."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "gaussian noise", number))
    draw = torch.randn(_checked(pixels).shape, generator=generator)
    return _levels(pixels / 255 + sigma * draw)


def _blur(pixels: Tensor, sigma: float) -> Tensor:
    radius = sigma * pixels.shape[-1] / BLUR_SIDE
    return pil_to_tensor(_picture(pixels).filter(ImageFilter.GaussianBlur(radius)))


def _jpeg(pixels: Tensor, quality: float) -> Tensor:
    file = io.BytesIO()
    _picture(pixels).save(file, format="jpeg", quality=int(quality))
    with Image.open(file) as image:
        return pil_to_tensor(image.convert("RGB"))


def _contrast(pixels: Tensor, factor: float) -> Tensor:
    shares = pixels / 255
    centre = shares.mean((1, 2), keepdim=True)
    return _levels(centre + factor * (shares - centre))


def _brightness(pixels: Tensor, added: float) -> Tensor:
    """More value at the same hue and saturation: each colour is scaled; black, which has no hue, becomes grey."""
    shares = pixels / 255
    value = shares.amax(0, keepdim=True)
    brighter = (value + added).clamp_max(1.0)
    return _levels(torch.where(value > 0, shares * brighter / value.clamp_min(1e-9), brighter))


def _pixelate(pixels: Tensor, share: float) -> Tensor:
    picture = _picture(pixels)
    small = picture.resize([max(1, int(side * share)) for side in picture.size], Image.Resampling.BOX)
    return pil_to_tensor(small.resize(picture.size, Image.Resampling.NEAREST))


_WORK: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian_blur": _blur,
    "jpeg": _jpeg,
    "contrast": _contrast,
    "brightness": _brightness,
    "pixelate": _pixelate,
}


def _levels(shares: Tensor) -> Tensor:
    """Shares of full scale to the nearest of 256 grey levels."""
    return (shares.clamp(0.0, 1.0) * 255).round().to(torch.uint8)


def _picture(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.movedim(0, 2).contiguous().numpy())


def _checked(pixels: Tensor) -> Tensor:
    if not isinstance(pixels, Tensor) or pixels.dtype != torch.uint8:
        raise TypeError(f"pixels to change must be a torch.uint8 tensor, not {describe_type(pixels)}")
    if pixels.ndim != 3 or pixels.shape[0] != 3:
        raise ValueError(f"pixels to change must have the shape (3, S, S), not {tuple(pixels.shape)}")
    return pixels
