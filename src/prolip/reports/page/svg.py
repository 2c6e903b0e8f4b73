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
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    return inline_svg(file.getvalue(), alt)


def inline_svg(svg: str, alt: str) -> str:
    """Turn an SVG file of matplotlib into an element of a page: no prolog, no size, unique ids, CSS colors.

    Args:
        svg: Content of the file.
        alt: What the plot shows, as alternative text.

    Returns:
        An <svg> element.
    """
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(
        r'<svg [^>]*(viewBox="[^"]*")[^>]*>',
        rf'<svg \1 role="img" aria-label="{_escape_replacement(alt)}">',
        svg,
        count=1,
    )
    # two decimals in the coordinates of paths: smaller pages
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    for color, variable in CSS_COLORS.items():
        svg = svg.replace(f": {color}", f": var({variable})")
    return _make_ids_unique(svg).strip()


def _make_ids_unique(svg: str) -> str:
    """Prefix all ids, and the links to them, by a hash of the plot: two plots of one page must not share ids."""
    prefix = "f" + hashlib.blake2b(svg.encode(), digest_size=4).hexdigest()
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')


def _escape_replacement(text: str) -> str:
    """Escape text for an HTML attribute that is inserted as the replacement of a regular expression."""
    return escape(text).replace("\\", "\\\\")
