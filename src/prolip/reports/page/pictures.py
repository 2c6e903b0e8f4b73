"""Pictures inside the page."""

from __future__ import annotations

import base64
import io

from PIL import Image

from prolip.reports.page.components import Picture

SMALL = 96
"""Pixels a side up to which a picture is kept as it is."""
LARGEST = 224


def inline(image: Image.Image, alt: str) -> Picture:
    """A picture as a data URI: PNG if it is tiny, else a smaller JPEG, as a page of photographs would be too large."""
    image = image.convert("RGB")
    small = max(image.size) <= SMALL
    file = io.BytesIO()
    if small:
        image.save(file, format="png", optimize=True)
    else:
        image.thumbnail((LARGEST, LARGEST))
        image.save(file, format="jpeg", quality=80)
    kind = "png" if small else "jpeg"
    return Picture(
        uri=f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}", alt=alt, small=small
    )
