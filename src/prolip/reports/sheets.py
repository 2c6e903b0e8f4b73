"""Sheets: images with captions and numbers below them, and lists of captions."""

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
"""Inches: width of a sheet, margin around it, gap between its items."""
POINTS = 8.0
LINE = POINTS * 1.3 / 72
"""Font size in points, and height of a line in inches."""
CHARACTER = POINTS * 0.54 / 72
"""Approximate width of a character in inches."""
MAX_LINES = 6
"""Lines of a caption."""
HEADING = 0.36
"""Height of a heading in inches."""
MAX_PIXELS = 320
"""Longest side of an image on a sheet: a larger one is scaled down."""


@dataclass(frozen=True, kw_only=True)
class SheetItem:
    """An image of any size with a caption and notes, one per line."""

    image: Image.Image
    caption: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SheetGroup:
    """Items under one heading."""

    title: str
    items: Sequence[SheetItem]


def save_image_sheet(out: Path, groups: Sequence[SheetGroup], columns: int = 6) -> list[Path]:
    """Save a sheet of images with captions and notes, one group below the other.

    Args:
        out: Path without suffix.
        groups: At least one must have an item.
        columns: Images per row.

    Returns:
        Paths of the PNG and the SVG.

    Raises:
        ValueError: There is no item.
    """
    if not any(group.items for group in groups):
        raise ValueError(f"{out}: no group has an image, so there is nothing to draw")
    side = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    rows = list(_arrange_rows(groups, columns, side))
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
    """Save a sheet of text: numbered captions below each other.

    Args:
        out: Path without suffix.
        title: Title of the sheet.
        captions: (number as it is printed, caption) pairs.

    Returns:
        Paths of the PNG and the SVG.
    """
    left = 0.7  # inches for the numbers
    spacing = 0.6  # lines between two captions
    width = int((WIDTH - 2 * MARGIN - left) / CHARACTER)
    wrapped = [(number, wrap_text(caption, width)) for number, caption in captions]
    height = 2 * MARGIN + HEADING + sum((len(lines) + spacing) * LINE for _, lines in wrapped)
    with figures.figure_style():
        figure = figures.make_figure(WIDTH, height)
        canvas = SheetCanvas(figure, height)
        canvas.write_text(MARGIN, MARGIN, title, size=11, weight="bold")
        top = MARGIN + HEADING
        for number, lines in wrapped:
            canvas.write_text(MARGIN, top, number, color=figures.BLUE)
            canvas.write_text(MARGIN + left, top, "\n".join(lines))
            top += (len(lines) + spacing) * LINE
        return figures.save_figure(figure, out)


def wrap_text(text: str, width: int, max_lines: int = MAX_LINES) -> list[str]:
    """Break a text into lines. White space and characters that no font can draw become single spaces.

    Args:
        text: Text of any length.
        width: Maximum number of characters per line.
        max_lines: A longer text ends in an ellipsis.

    Returns:
        At least one line.
    """
    printable = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return textwrap.wrap(printable, width, max_lines=max_lines, placeholder=" …") or [""]


@dataclass(frozen=True)
class _Row:
    """A row of images. height: inches, with the title above and the captions below."""

    title: str
    items: Sequence[SheetItem]
    height: float


def _arrange_rows(groups: Sequence[SheetGroup], columns: int, side: float) -> Iterator[_Row]:
    """Break groups into rows of `columns` items of `side` inches; only the first row of a group has its title."""
    for group in groups:
        for first in range(0, len(group.items), columns):
            items = group.items[first : first + columns]
            num_lines = max(len(item.notes) + len(_wrap_caption(item, side)) for item in items)
            title = group.title if first == 0 else ""
            # 0.4 lines between an image and its notes, one below the row
            yield _Row(title, items, (HEADING if title else 0) + side + (num_lines + 1.4) * LINE)


def _wrap_caption(item: SheetItem, side: float) -> list[str]:
    """Lines of the caption below an image of `side` inches; [] without a caption."""
    return wrap_text(item.caption, int(side / CHARACTER)) if item.caption else []


class SheetCanvas:
    """A figure of the width `WIDTH` with positions in inches from its upper left corner.

    The constructor switches the layout engine of the figure off.
    """

    def __init__(self, figure: Any, height: float) -> None:
        self.figure, self.height = figure, height
        figure.set_layout_engine("none")  # all positions are given

    def write_text(self, left: float, top: float, text: str, *, size: float = POINTS, **options: Any) -> None:
        """Write text whose top is at a position.

        Args:
            left: Inches from the left.
            top: Inches from the top.
            text: One or several lines; a $ is a dollar, not the start of a formula.
            size: Points.
            options: Options of matplotlib's `Figure.text`.
        """
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
        self, image: Image.Image, left: float, top: float, side: float, *, anchor: str = "C"
    ) -> None:
        """Draw an image into a square.

        Args:
            image: Any mode.
            left: Inches from the left.
            top: Inches from the top.
            side: Side of the square in inches.
            anchor: Position in the square if the image is not square, as in matplotlib: "C" is the center, "NW" the
                upper left.
        """
        box = (left / WIDTH, 1 - (top + side) / self.height, side / WIDTH, side / self.height)
        axes = self.figure.add_axes(box, anchor=anchor)
        axes.set_axis_off()
        draw_image(axes, image)


def _draw_item(canvas: SheetCanvas, item: SheetItem, left: float, top: float, side: float) -> None:
    """Draw an image of `side` inches with notes and caption below it; left and top are in inches."""
    canvas.draw_image(item.image, left, top, side)
    below = top + side + 0.4 * LINE
    canvas.write_text(left, below, "\n".join(item.notes), color=figures.BLUE)
    canvas.write_text(left, below + len(item.notes) * LINE, "\n".join(_wrap_caption(item, side)))


def read_sample_image(source: Source, index: int) -> Image.Image:
    """Read the image of a sample.

    Args:
        source: The data.
        index: Index of the sample in the source.

    Returns:
        The image.
    """
    return read_image(source.read(index).image)


def draw_image(axes: Any, image: Image.Image) -> None:
    """Draw an image as large as fits, with its own aspect; a small image with sharp pixels.

    Args:
        axes: Matplotlib axes to draw on.
        image: Any mode; it is not changed.
    """
    small = image.convert("RGB")
    small.thumbnail((MAX_PIXELS, MAX_PIXELS))
    axes.imshow(small, interpolation="nearest" if max(small.size) < MAX_PIXELS // 2 else "antialiased")
