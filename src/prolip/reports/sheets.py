"""Sheets to look at: pictures with a caption and numbers under each; lists of captions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.data.source import Source
from prolip.preprocessing.images import read_image
from prolip.reports import figures

WIDTH, MARGIN, GAP = 11.0, 0.3, 0.16
"""Inches: of a sheet, around it, between its items."""
POINTS = 8.0
LINE = POINTS * 1.3 / 72
"""The size of letters, and the inches of a line."""
LETTER = POINTS * 0.54 / 72
"""About the inches of a letter."""
MOST_LINES = 6
HEADING = 0.36
MOST_PIXELS = 320


@dataclass(frozen=True, kw_only=True)
class SheetItem:
    """A picture of any size, the numbers that are told of it, one a line, and its caption."""

    image: Image.Image
    caption: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SheetGroup:
    """Cells under one heading."""

    title: str
    items: Sequence[SheetItem]


def save_image_sheet(out: Path, groups: Sequence[SheetGroup], columns: int = 6) -> list[Path]:
    """Draw groups of pictures below each other, `columns` pictures in a row; write PNG and SVG."""
    if not any(group.items for group in groups):
        raise ValueError(f"{out}: there is no picture to put on the sheet")
    side = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    rows = list(_rows(groups, columns, side))
    height = 2 * MARGIN + sum(row.height for row in rows)
    with figures.figure_style():
        figure = figures.make_figure(WIDTH, height)
        canvas = SheetCanvas(figure, height)
        top = MARGIN
        for row in rows:
            if row.title:
                canvas.write_text(MARGIN, top, row.title, size=11, weight="bold")
            for column, item in enumerate(row.items):
                left, below = MARGIN + column * (side + GAP), top + (HEADING if row.title else 0)
                _draw_item(canvas, item, left, below, side)
            top += row.height
        return figures.save_figure(figure, out)


def save_caption_sheet(out: Path, title: str, captions: Sequence[tuple[str, str]]) -> list[Path]:
    """Write a list of (number, caption) as a sheet of text, PNG and SVG."""
    left = 0.7
    wide = int((WIDTH - 2 * MARGIN - left) / LETTER)
    told = [(number, wrap_text(caption, wide)) for number, caption in captions]
    height = 2 * MARGIN + HEADING + sum((len(lines) + 0.6) * LINE for _, lines in told)
    with figures.figure_style():
        figure = figures.make_figure(WIDTH, height)
        canvas = SheetCanvas(figure, height)
        canvas.write_text(MARGIN, MARGIN, title, size=11, weight="bold")
        top = MARGIN + HEADING
        for number, lines in told:
            canvas.write_text(MARGIN, top, number, color=figures.BLUE)
            canvas.write_text(MARGIN + left, top, "\n".join(lines))
            top += (len(lines) + 0.6) * LINE
        return figures.save_figure(figure, out)


def wrap_text(text: str, width: int, most: int = MOST_LINES) -> list[str]:
    """Lines of at most `width` letters; what goes beyond `most` lines ends in an ellipsis. Blank space is one space,
    and what no font can draw is a blank."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return textwrap.wrap(plain, width, max_lines=most, placeholder=" …") or [""]


@dataclass(frozen=True)
class _Row:
    title: str
    items: Sequence[SheetItem]
    height: float


def _rows(groups: Sequence[SheetGroup], columns: int, side: float) -> Iterator[_Row]:
    for group in groups:
        for first in range(0, len(group.items), columns):
            items = group.items[first : first + columns]
            lines = max(len(item.notes) + len(_caption(item, side)) for item in items)
            title = group.title if first == 0 else ""
            yield _Row(title, items, (HEADING if title else 0) + side + (lines + 1.4) * LINE)


def _caption(item: SheetItem, side: float) -> list[str]:
    return wrap_text(item.caption, int(side / LETTER)) if item.caption else []


class SheetCanvas:
    """A figure that is drawn on in inches from its upper left corner."""

    def __init__(self, figure: Any, height: float) -> None:
        self.figure, self.height = figure, height
        figure.set_layout_engine("none")  # every place is given

    def write_text(self, left: float, top: float, text: str, *, size: float = POINTS, **options: Any) -> None:
        self.figure.text(
            left / WIDTH,
            1 - top / self.height,
            text,
            va="top",
            fontsize=size,
            linespacing=1.25,
            parse_math=False,
            **options,
        )

    def draw_image(
        self, picture: Image.Image, left: float, top: float, side: float, *, anchor: str = "C"
    ) -> None:
        """A picture in a square, in its middle or at the `anchor` that matplotlib knows: "NW" is the upper left."""
        place = (left / WIDTH, 1 - (top + side) / self.height, side / WIDTH, side / self.height)
        axes = self.figure.add_axes(place, anchor=anchor)
        axes.set_axis_off()
        draw_image(axes, picture)


def _draw_item(canvas: SheetCanvas, item: SheetItem, left: float, top: float, side: float) -> None:
    canvas.draw_image(item.image, left, top, side)
    below = top + side + 0.4 * LINE
    canvas.write_text(left, below, "\n".join(item.notes), color=figures.BLUE)
    canvas.write_text(left, below + len(item.notes) * LINE, "\n".join(_caption(item, side)))


def read_sample_image(source: Source, number: int) -> Image.Image:
    """The picture of a sample, read again from the data."""
    return read_image(source.read(number).image)


def draw_image(axes: Any, picture: Image.Image) -> None:
    """As large as fits, of its own aspect; small ones with sharp pixels."""
    small = picture.convert("RGB")
    small.thumbnail((MOST_PIXELS, MOST_PIXELS))
    axes.imshow(small, interpolation="nearest" if max(small.size) < MOST_PIXELS // 2 else "antialiased")
