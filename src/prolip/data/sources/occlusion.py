"""Hiding the middle of a picture, as the paper's occlusion test does."""

from __future__ import annotations

import math

from PIL import Image

from prolip.preprocessing.images import require_rgb

GRAY = 128


def occlude_center(image: Image.Image, share: float, level: int = GRAY) -> Image.Image:
    """A copy of an RGB image whose middle is one grey level: a box of the image's own aspect, `share` of its area."""
    require_rgb(image)
    if not 0 <= share <= 1:
        raise ValueError(f"the share that is hidden must be in 0..1, not {share!r}")
    if not isinstance(level, int) or not 0 <= level <= 255:
        raise ValueError(f"the grey level of the box must be in 0..255, not {level!r}")
    hidden = image.copy()
    width, height = (round(side * math.sqrt(share)) for side in image.size)
    if width and height:
        left, top = (image.width - width) // 2, (image.height - height) // 2
        hidden.paste((level,) * 3, (left, top, left + width, top + height))
    return hidden
