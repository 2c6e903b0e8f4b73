"""Drawings as inline SVG that follows the colours of the page, light or dark."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from prolip.reports import figures

WIDTH, HEIGHT = 4.7, 3.1
"""Inches of a panel: letters are still readable on a phone, where it is as wide as the screen."""
COLOURS = {
    figures.FIRST: "--first",
    figures.SECOND: "--second",
    figures.THIRD: "--third",
    figures.MUTED: "--muted",
    "#8d5ea8": "--fourth",
    "#b8a020": "--fifth",
    "#000000": "--ink",
    "#444444": "--soft",
}
"""What is drawn in these colours takes those that style.css gives for light and for dark."""

Draw = Callable[[Any], None]
"""Draws on matplotlib axes."""


def panel(draw: Draw, alt: str, *, width: float = WIDTH, height: float = HEIGHT) -> str:
    """One panel, inches wide and high, without its title: the page has a heading. alt: what it shows, in words."""
    with figures.style():
        figure = figures.canvas(width, height)
        axes = figure.subplots()
        draw(axes)
        axes.set_title("")
        content = io.StringIO()
        figure.savefig(content, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    return themed(content.getvalue(), alt)


def themed(text: str, alt: str) -> str:
    """A file that matplotlib wrote, as an element of a page: no header, no size, ids of its own, the page's colours."""
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(
        r'<svg [^>]*(viewBox="[^"]*")[^>]*>',
        rf'<svg \1 role="img" aria-label="{_quoted(alt)}">',
        text,
        count=1,
    )
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    for colour, variable in COLOURS.items():
        text = text.replace(f": {colour}", f": var({variable})")
    return _with_own_names(text).strip()


def _with_own_names(text: str) -> str:
    """Two drawings of one page must not share ids."""
    own = "f" + hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    text = re.sub(r'\bid="', f'id="{own}-', text)
    return text.replace("url(#", f"url(#{own}-").replace('href="#', f'href="#{own}-')


def _quoted(text: str) -> str:
    return escape(text).replace("\\", "\\\\")
