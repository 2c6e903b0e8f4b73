"""Sheet of traversals: each image beside the captions of its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.reports import figures
from prolip.reports.sheets import HEADING, LINE, MARGIN, POINTS, WIDTH, SheetCanvas, wrap_text
from prolip.retrieval.traversal.api import CaptionPath

MAX_IMAGES = 12
"""Images per sheet."""
MAX_STEPS = 16
"""Captions per path; of a longer one both ends are shown."""
SIDE = 1.8
"""Inches: side of the square of an image."""
NUMBERS, BARS = MARGIN + SIDE + 0.4, MARGIN + SIDE + 0.5
"""Inches from the left: end of the step numbers, begin of the bars (or of the captions without bars)."""
BAR_WIDTH, VALUE_WIDTH = 1.3, 0.6
"""Inches: of the longest bar, and of the number after it."""
CHARACTER, BOLD_CHARACTER = 0.63 * POINTS / 72, 0.72 * POINTS / 72
"""Inches reserved for a character: more than the mean, so that digits and most capitals fit."""
GAP = 0.45
"""Gap between steps, in lines."""
MAX_NAME_LENGTH = 80
EMPTY_CAPTION = "the empty caption"


def save_traversal_figure(
    paths: Mapping[str, CaptionPath], images: Sequence[Image.Image], out: Path
) -> list[Path]:
    """Draw each image with its path on the right, the most specific caption on top, the root last.

    Bars show the uncertainty of each caption, from 0, on one scale for the sheet; a model without uncertainty has no
    bars. At most `MAX_IMAGES` images are drawn.

    Args:
        paths: Paths of `traverse_images`, by the image's file name.
        images: The images, in the order of `paths`.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.

    Raises:
        ValueError: There are no paths, or not as many as images.
    """
    if len(paths) != len(images):
        raise ValueError(f"{out}: {len(paths)} paths need one image each, not {len(images)} images")
    if not paths:
        raise ValueError(f"{out}: there are no paths to draw: pass at least one image and its path")
    cards = [_make_card(name, path) for name, path in list(paths.items())[:MAX_IMAGES]]
    uncertainties = [
        line.uncertainty for card in cards for line in card.lines if line.uncertainty is not None
    ]
    height = 2 * MARGIN + HEADING + sum(card.height for card in cards)
    with figures.figure_style():
        figure = figures.make_figure(WIDTH, height)
        canvas = _TraversalCanvas(figure, height, max(uncertainties, default=0.0))
        canvas.write_text(MARGIN, MARGIN, _format_title(len(paths)), size=11, weight="bold")
        if uncertainties:
            canvas.write_text(
                WIDTH - MARGIN, MARGIN, "bars: uncertainty of a caption", color=figures.BLUE, ha="right"
            )
        top = MARGIN + HEADING
        for card, image in zip(cards, images[:MAX_IMAGES], strict=True):
            canvas.draw_card(card, image, top)
            top += card.height
        return figures.save_figure(figure, out)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A step of a path as it is drawn: its number, the wrapped lines of its caption, its uncertainty (None: no bar)."""

    number: str = ""
    caption_lines: list[str]
    uncertainty: float | None = None

    @property
    def height(self) -> float:
        """Height in inches, with the gap below."""
        return (len(self.caption_lines) + GAP) * LINE


@dataclass(frozen=True)
class _Card:
    """A path as it is drawn; the last of its lines is the root. captions_left: where captions begin, in inches."""

    title: str
    lines: list[_Line]
    captions_left: float

    @property
    def height(self) -> float:
        """Height in inches, with the title above and 1.6 empty lines below."""
        lines_height = sum(line.height for line in self.lines) + LINE  # one line of space above the root
        return HEADING + max(SIDE, lines_height) + 1.6 * LINE


def _make_card(name: str, path: CaptionPath) -> _Card:
    """Lay out one path: wrap its captions, keep both ends of a path longer than `MAX_STEPS`, append the root.

    `name` is the image's file name, for the title.
    """
    note = "" if path.uncertainty is None else f": uncertainty {_format_uncertainty(path.uncertainty)}"
    left = _compute_captions_left(path)
    width = WIDTH - MARGIN - left
    steps = [
        _Line(
            number=str(number),
            caption_lines=wrap_text(step.caption, int(width / CHARACTER), 2),
            uncertainty=step.uncertainty,
        )
        for number, step in enumerate(path.steps, start=1)
    ]
    if (num_hidden := len(steps) - MAX_STEPS) > 0:
        half = MAX_STEPS // 2
        steps[half:-half] = [_Line(caption_lines=[f"… {num_hidden} more …"])]
    root = f"{path.root_label}: {EMPTY_CAPTION if path.root is None else path.root.caption}"
    uncertainty = None if path.root is None else path.root.uncertainty
    root_lines = wrap_text(root, int(width / BOLD_CHARACTER), 2)
    steps.append(_Line(caption_lines=root_lines, uncertainty=uncertainty))
    return _Card(_shorten_file_name(name) + note, steps, left)


def _shorten_file_name(path: str) -> str:
    """The file name of a path; one longer than `MAX_NAME_LENGTH` is shortened in the middle."""
    name, half = Path(path).name, MAX_NAME_LENGTH // 2
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:half]}…{name[-half:]}"


def _compute_captions_left(path: CaptionPath) -> float:
    """Where captions begin, in inches from the left: after the bars, if the captions have uncertainty."""
    has_bars = any(step.uncertainty is not None for step in path.steps)
    return BARS + BAR_WIDTH + VALUE_WIDTH + 0.2 if has_bars else BARS


def _format_uncertainty(uncertainty: float) -> str:
    """Format with three significant digits, trailing zeros included: "0.250"."""
    return f"{uncertainty:#.3g}".rstrip(".")


def _format_title(num_images: int) -> str:
    """Title of the sheet; it says how many are drawn if there are more than `MAX_IMAGES` images."""
    title = "From the nearest caption (top) towards the root or anchor (bottom)"
    return f"{title}, first {MAX_IMAGES} of {num_images} images" if num_images > MAX_IMAGES else title


class _TraversalCanvas(SheetCanvas):
    """A sheet with bars, positioned in inches. max_uncertainty: that of the longest bar."""

    def __init__(self, figure: Any, height: float, max_uncertainty: float) -> None:
        super().__init__(figure, height)
        self.max_uncertainty = max_uncertainty
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()

    def draw_card(self, card: _Card, image: Image.Image, top: float) -> None:
        """Draw a card with its image; `top` is in inches from the top of the sheet."""
        self.write_text(MARGIN, top, card.title, size=9.5, weight="bold")
        top += 0.8 * HEADING
        self.draw_image(image, MARGIN, top, SIDE, anchor="NW")
        for line in card.lines[:-1]:
            self.draw_line(line, card.captions_left, top, figures.BLUE)
            top += line.height
        self.axes.plot([BARS, WIDTH - MARGIN], [top + 0.3 * LINE] * 2, color="#ddd", linewidth=0.8)
        self.draw_line(card.lines[-1], card.captions_left, top + LINE, figures.ORANGE, weight="bold")

    def draw_line(self, line: _Line, left: float, top: float, color: str, **options: Any) -> None:
        """Draw a step: number, bar and value of its uncertainty, caption.

        Args:
            line: The step.
            left: Left end of the caption, in inches.
            top: Upper end of the line, in inches.
            color: Color of the bar and of its value.
            options: Options of the caption, as for `write_text`.
        """
        self.write_text(NUMBERS, top, line.number, color=figures.GRAY, ha="right")
        self.write_text(left, top, "\n".join(line.caption_lines), **options)
        if line.uncertainty is None:
            return
        length = BAR_WIDTH * line.uncertainty / self.max_uncertainty if self.max_uncertainty > 0 else 0.0
        self.axes.barh(top + 0.5 * LINE, length, left=BARS, height=0.4 * LINE, color=color)
        self.write_text(
            BARS + BAR_WIDTH + VALUE_WIDTH,
            top,
            _format_uncertainty(line.uncertainty),
            color=color,
            ha="right",
        )
