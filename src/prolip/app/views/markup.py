"""Pieces of HTML that several tabs share: escaped texts, messages, bars, heat maps, cards, pictures."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence

from PIL import Image

THUMBNAIL = (224, 224)
STRONGEST = 0.62
"""Opacity of the largest value of a heat map: the text above it stays readable, light and dark."""


def escape(text: object) -> str:
    """Escape a text for HTML.

    Args:
        text: Any text, perhaps of a user.

    Returns:
        The text, isolated so that its writing direction doesn't reorder what stands around it.
    """
    return f'<bdi dir="auto">{html.escape(str(text))}</bdi>'


def format_value(value: float | None) -> str:
    """Format a number with three significant digits.

    Args:
        value: The number; None: "-".

    Returns:
        Such as 0.324, 2.16, 103 or 2.4e-10.
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "-"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:#.3g}".removesuffix(".") if value else "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1e}".replace("e-0", "e-")


def format_log(log_value: float | None) -> str:
    """Format a number that is given by its natural logarithm, and may be too small for a float.

    Args:
        log_value: The logarithm; None: "-".

    Returns:
        Such as 0.324 or 2e-45.
    """
    if log_value is None or log_value == -math.inf:
        return "-" if log_value is None else "0"
    exponent = math.floor(log_value / math.log(10))
    if exponent >= -3:
        return format_value(math.exp(log_value))
    return f"{math.exp(log_value - exponent * math.log(10)):.1f}e{exponent}"


def format_percent(value: float | None) -> str:
    """Format a probability as a percentage.

    Args:
        value: From 0 to 1; None: "-".

    Returns:
        Such as 33.3%, 0.84% or <0.01%.
    """
    if value is None:
        return "-"
    if value >= 0.1:
        return f"{value:.1%}"
    return f"{value:.2%}" if value >= 0.0001 else "<0.01%"


def make_message(text: str, kind: str = "note") -> str:
    """A message on the page.

    Args:
        text: The message; it is escaped.
        kind: note, warning or error.

    Returns:
        HTML.
    """
    role = "alert" if kind == "error" else "note"
    return f'<div class="pl-message pl-{kind}" role="{role}">{escape(text)}</div>'


def make_lines(lines: Sequence[str]) -> str:
    """Sentences below each other.

    Args:
        lines: The sentences; they are escaped.

    Returns:
        HTML; "" without sentences.
    """
    entries = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="pl-lines">{entries}</ul>' if entries else ""


def make_section(title: str, explanation: str, body: str) -> str:
    """A titled part of a result, with one line that explains it.

    Args:
        title: The title; ours.
        explanation: What the numbers mean; ours.
        body: HTML.

    Returns:
        HTML.
    """
    return (
        f'<section class="pl-section"><h3>{title}</h3><p class="pl-explain">{explanation}</p>{body}</section>'
    )


def make_bars(labels: Sequence[str], values: Sequence[float], kind: str, largest: float) -> str:
    """Horizontal bars with their numbers.

    Args:
        labels: HTML of each label.
        values: Lengths, at least 0.
        kind: image or text, which have their own colors.
        largest: Value of a full bar.

    Returns:
        HTML.
    """
    rows = [
        f'<div class="pl-bar"><span class="pl-bar-label">{label}</span>'
        f'<span class="pl-track"><span class="pl-fill pl-{kind}" style="width:{_percent(value, largest)}"></span>'
        f'</span><span class="pl-number">{format_value(value)}</span></div>'
        for label, value in zip(labels, values, strict=True)
    ]
    return f'<div class="pl-bars">{"".join(rows)}</div>'


def _percent(value: float, largest: float) -> str:
    """A length in CSS."""
    return f"{100 * min(max(value / largest, 0.0), 1.0) if largest > 0 else 0:.2f}%"


def make_heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    strengths: Sequence[Sequence[float]],
) -> str:
    """A table with colored cells.

    Args:
        rows: HTML of each row's label.
        columns: HTML of each column's label.
        cells: Text of each cell.
        strengths: Color of each cell: from 0 (none) to 1 (strongest); negative ones have the other color.

    Returns:
        HTML.
    """
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{row}</th>'
        + "".join(
            f'<td style="--pl-strength:{STRONGEST * abs(strength):.3f}" '
            f'class="{"pl-low" if strength < 0 else "pl-high"}">{text}</td>'
            for text, strength in zip(texts, values, strict=True)
        )
        + "</tr>"
        for row, texts, values in zip(rows, cells, strengths, strict=True)
    )
    table = f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="pl-scroll"><table class="pl-heat">{table}</table></div>'


def make_picture(image: Image.Image, alt: str, size: tuple[int, int] = THUMBNAIL) -> str:
    """An image as part of the page, made small.

    Args:
        image: RGB.
        alt: What it is, for people who don't see it; it is escaped.
        size: Largest width and height.

    Returns:
        HTML.
    """
    small = image.copy()
    small.thumbnail(size)
    file = io.BytesIO()
    small.save(file, "webp", quality=85, method=0)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img class="pl-picture" alt="{html.escape(alt)}" src="data:image/webp;base64,{data}">'


def make_card(picture: str, lines: Sequence[str], row: int | None = None, title: str = "") -> str:
    """A card with a picture and lines below it.

    Args:
        picture: HTML of the picture; "": none.
        lines: HTML of each line; the first one is set off.
        row: Row of the database that a click searches for; None: it can't be clicked.
        title: What a click does.

    Returns:
        HTML.
    """
    text = "".join(
        f'<div class="{"pl-card-title" if first else "pl-card-line"}">{line}</div>'
        for first, line in _mark_first(lines)
    )
    if row is None:
        return f'<div class="pl-card">{picture}{text}</div>'
    start = f'<button type="button" class="pl-card pl-click" data-row="{row:d}" title="{html.escape(title)}">'
    return f"{start}{picture}{text}</button>"


def _mark_first(lines: Sequence[str]) -> list[tuple[bool, str]]:
    """Each line with whether it is the first one."""
    return [(index == 0, line) for index, line in enumerate(lines)]


def make_grid(cards: Sequence[str]) -> str:
    """Cards in a grid that fits the width of the window.

    Args:
        cards: HTML of each card.

    Returns:
        HTML.
    """
    return f'<div class="pl-grid">{"".join(cards)}</div>'


def make_facts(facts: Sequence[tuple[str, str]]) -> str:
    """A row of large numbers with their names.

    Args:
        facts: HTML of each number, and its name.

    Returns:
        HTML.
    """
    entries = "".join(
        f'<div class="pl-fact"><span class="pl-big">{value}</span><span class="pl-name">{name}</span></div>'
        for value, name in facts
    )
    return f'<div class="pl-facts">{entries}</div>'
