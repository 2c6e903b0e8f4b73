"""Rendering of a page: components and images into one self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from PIL import Image

from prolip import extras
from prolip.reports.page.components import PageBlock, PageHeader, PageImage, PageSection

PIXELATED_SIZE = 96
"""Pixels per side up to which an image is embedded losslessly, at its own size."""
MAX_CHARACTERS = 600
"""Characters of a caption that the page shows."""
MAX_IMAGE_SIZE = 224
"""Pixels of the longer side to which a larger image is scaled down."""


def render_page(header: PageHeader, sections: Sequence[PageSection]) -> str:
    """Render a page with the template page.html.

    Text that comes from data is escaped. Only the plots, which matplotlib wrote, are inserted as markup.

    Args:
        header: The top of the page.
        sections: In the order of the page.

    Returns:
        The HTML text. It refers to no other file.
    """
    jinja2 = extras.import_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["group_by_kind"] = group_by_kind
    environment.globals["MAX_CHARACTERS"] = MAX_CHARACTERS
    html: str = environment.get_template("page.html").render(header=header, sections=sections)
    return html


def group_by_kind(blocks: Sequence[PageBlock]) -> list[tuple[str, list[PageBlock]]]:
    """Group adjacent blocks of one kind: figures stand side by side.

    Args:
        blocks: Blocks of one section.

    Returns:
        (kind, blocks) in the order of the section.
    """
    return [(kind, list(group)) for kind, group in groupby(blocks, key=lambda block: block.kind)]


def embed_image(image: Image.Image, alt: str) -> PageImage:
    """Encode an image as a data URI: a tiny one as PNG, any other as a smaller JPEG to limit the size of the page.

    Args:
        image: Image of any mode and size; it is not changed.
        alt: The alternative text.

    Returns:
        The image for the page.
    """
    image = image.convert("RGB")
    is_tiny = max(image.size) <= PIXELATED_SIZE
    file = io.BytesIO()
    if is_tiny:
        image.save(file, format="png", optimize=True)
    else:
        image.thumbnail((MAX_IMAGE_SIZE, MAX_IMAGE_SIZE))
        image.save(file, format="jpeg", quality=80)
    encoded = base64.b64encode(file.getvalue()).decode()
    return PageImage(
        uri=f"data:image/{'png' if is_tiny else 'jpeg'};base64,{encoded}", alt=alt, is_pixelated=is_tiny
    )
