"""Plots as inline SVG in the colors of the page, light or dark."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from prolip.reports import figures

WIDTH, HEIGHT = 4.7, 3.1
"""Inches of a panel: its text stays readable on a phone, where a panel is as wide as the screen."""
CSS_COLORS = {
    figures.BLUE: "--first",
    figures.ORANGE: "--second",
    figures.GREEN: "--third",
    figures.GRAY: "--muted",
    "#8d5ea8": "--fourth",
    "#b8a020": "--fifth",
    "#000000": "--ink",
    "#444444": "--soft",
}
"""CSS variable of each plot color: style.css sets them for light and for dark."""

DrawFunction = Callable[[Any], None]
"""Draws on matplotlib axes."""


def render_panel(draw: DrawFunction, alt: str, *, width: float = WIDTH, height: float = HEIGHT) -> str:
    """Draw one panel and return it as inline SVG.

    Args:
        draw: Draws on matplotlib axes. A title is removed: the page has a heading.
        alt: What the panel shows, as alternative text.
        width: Inches.
        height: Inches.

    Returns:
        An <svg> element.
    """
    with figures.figure_style():
        figure = figures.make_figure(width, height)
        axes = figure.subplots()
        draw(axes)
        axes.set_title("")
        content = io.StringIO()
        figure.savefig(content, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    return inline_svg(content.getvalue(), alt)


def inline_svg(text: str, alt: str) -> str:
    """Turn an SVG file of matplotlib into an element of a page: no prolog, no size, unique ids, CSS colors.

    Args:
        text: The file.
        alt: The alternative text.

    Returns:
        An <svg> element.
    """
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(
        r'<svg [^>]*(viewBox="[^"]*")[^>]*>',
        rf'<svg \1 role="img" aria-label="{_escape(alt)}">',
        text,
        count=1,
    )
    # two decimals in the coordinates of paths: smaller pages
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    for color, variable in CSS_COLORS.items():
        text = text.replace(f": {color}", f": var({variable})")
    return _make_ids_unique(text).strip()


def _make_ids_unique(text: str) -> str:
    """Prefix all ids by a hash of the plot: two plots of one page must not share ids."""
    prefix = "f" + hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return text.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')


def _escape(text: str) -> str:
    """Escape text for an HTML attribute that is inserted as the replacement of a regular expression."""
    return escape(text).replace("\\", "\\\\")
