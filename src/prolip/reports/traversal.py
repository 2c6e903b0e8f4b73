"""Ways from the specific to the general on one sheet: each picture, and beside it the captions that it passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.reports import figures
from prolip.reports.sheets import HEADING, LINE, MARGIN, POINTS, WIDTH, SheetCanvas, wrap_text
from prolip.retrieval.traversal.api import CaptionPath

MOST = 12
"""Pictures on a sheet."""
MOST_STEPS = 16
"""Of a way; of a longer one its two ends are shown, with the number of those between."""
SIDE = 1.8
"""Inches: of the square that a picture lies in."""
NUMBERS, BARS = MARGIN + SIDE + 0.4, MARGIN + SIDE + 0.5
"""Inches from the left: where the numbers of the steps end, and where bars begin (or captions, if there are none)."""
BAR, TOLD = 1.3, 0.6
"""Inches: of the longest bar, and of the number behind it."""
LETTER, BOLD_LETTER = 0.63 * POINTS / 72, 0.72 * POINTS / 72
"""Inches that are kept for a letter: more than the mean, so that digits and most capitals fit too."""
GAP = 0.45
"""Steps are this much of a line apart."""
NAME_LETTERS = 80
NULL = "the empty caption"


def save_traversal_figure(
    paths: Mapping[str, CaptionPath], pictures: Sequence[Image.Image], out: Path
) -> list[Path]:
    """Draw each picture with its way beside it, the most specific caption on top, the root last; write PNG and SVG.

    paths: of `traverse_images`, by the picture's file. pictures: in the order of `paths`. The bars are the
    captions' uncertainties, from 0, of one scale for the whole sheet; a model without uncertainty has none.
    """
    if len(paths) != len(pictures):
        raise ValueError(f"{out}: {len(paths)} paths need as many pictures, not {len(pictures)}")
    if not paths:
        raise ValueError(f"{out}: there is no way to draw")
    cards = [_card(name, way) for name, way in list(paths.items())[:MOST]]
    uncertain = [line.uncertainty for card in cards for line in card.lines if line.uncertainty is not None]
    height = 2 * MARGIN + HEADING + sum(card.height for card in cards)
    with figures.figure_style():
        figure = figures.make_figure(WIDTH, height)
        canvas = _TraversalCanvas(figure, height, max(uncertain, default=0.0))
        canvas.write_text(MARGIN, MARGIN, _title(len(paths)), size=11, weight="bold")
        if uncertain:
            canvas.write_text(
                WIDTH - MARGIN, MARGIN, "bars: uncertainty of a caption", color=figures.BLUE, ha="right"
            )
        top = MARGIN + HEADING
        for card, picture in zip(cards, pictures[:MOST], strict=True):
            canvas.draw(card, picture, top)
            top += card.height
        return figures.save_figure(figure, out)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A step as it is drawn. number: before the caption. uncertainty: None: no bar."""

    number: str = ""
    texts: list[str]
    uncertainty: float | None = None

    @property
    def height(self) -> float:
        return (len(self.texts) + GAP) * LINE


@dataclass(frozen=True)
class _Card:
    """What is drawn of one way; the last line is the root. captions_at: inches from the left."""

    title: str
    lines: list[_Line]
    captions_at: float

    @property
    def height(self) -> float:
        """Inches, with the title above and the room below."""
        listed = sum(line.height for line in self.lines) + LINE
        return HEADING + max(SIDE, listed) + 1.6 * LINE


def _card(name: str, way: CaptionPath) -> _Card:
    own = "" if way.uncertainty is None else f": uncertainty {_told(way.uncertainty)}"
    left = _captions_at(way)
    wide = WIDTH - MARGIN - left
    steps = [
        _Line(
            number=str(number),
            texts=wrap_text(step.caption, int(wide / LETTER), 2),
            uncertainty=step.uncertainty,
        )
        for number, step in enumerate(way.steps, start=1)
    ]
    if (left_out := len(steps) - MOST_STEPS) > 0:
        half = MOST_STEPS // 2
        steps[half:-half] = [_Line(texts=[f"… {left_out} more …"])]
    root = f"root: {NULL if way.root is None else way.root.caption}"
    uncertainty = None if way.root is None else way.root.uncertainty
    steps.append(_Line(texts=wrap_text(root, int(wide / BOLD_LETTER), 2), uncertainty=uncertainty))
    return _Card(_file_name(name) + own, steps, left)


def _file_name(path: str) -> str:
    """Of a long one its two ends."""
    name, half = Path(path).name, NAME_LETTERS // 2
    return name if len(name) <= NAME_LETTERS else f"{name[:half]}…{name[-half:]}"


def _captions_at(way: CaptionPath) -> float:
    """Inches from the left, behind the bars, if there are any."""
    bars = any(step.uncertainty is not None for step in way.steps)
    return BARS + BAR + TOLD + 0.2 if bars else BARS


def _told(uncertainty: float) -> str:
    """Three digits, ends in 0 kept."""
    return f"{uncertainty:#.3g}".rstrip(".")


def _title(count: int) -> str:
    title = "From the nearest caption (top) towards the root (bottom)"
    return f"{title}, first {MOST} of {count} pictures" if count > MOST else title


class _TraversalCanvas(SheetCanvas):
    """A page with bars, also placed in inches. largest: the uncertainty of the longest bar."""

    def __init__(self, figure: Any, height: float, largest: float) -> None:
        super().__init__(figure, height)
        self.largest = largest
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()

    def draw(self, card: _Card, picture: Image.Image, top: float) -> None:
        self.write_text(MARGIN, top, card.title, size=9.5, weight="bold")
        top += 0.8 * HEADING
        self.draw_image(picture, MARGIN, top, SIDE, anchor="NW")
        for line in card.lines[:-1]:
            self.draw_line(line, card.captions_at, top, figures.BLUE)
            top += line.height
        self.axes.plot([BARS, WIDTH - MARGIN], [top + 0.3 * LINE] * 2, color="#ddd", linewidth=0.8)
        self.draw_line(card.lines[-1], card.captions_at, top + LINE, figures.ORANGE, weight="bold")

    def draw_line(self, line: _Line, left: float, top: float, color: str, **options: Any) -> None:
        self.write_text(NUMBERS, top, line.number, color=figures.GRAY, ha="right")
        self.write_text(left, top, "\n".join(line.texts), **options)
        if line.uncertainty is None:
            return
        long = BAR * line.uncertainty / self.largest if self.largest > 0 else 0.0
        self.axes.barh(top + 0.5 * LINE, long, left=BARS, height=0.4 * LINE, color=color)
        self.write_text(BARS + BAR + TOLD, top, _told(line.uncertainty), color=color, ha="right")
