"""The generated part of a hand-written page, between two markers."""

from __future__ import annotations

from pathlib import Path

from prolip.files import atomic_write

BEGIN = "<!-- python -m reproduction --docs: generated from here -->"
END = "<!-- to here -->"


def write_generated(page: Path, content: str) -> Path:
    """Replace the text between the markers of a page; returns the page."""
    before, _, after = _split_page(page)
    new = f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"
    return atomic_write(page, lambda temporary: temporary.write_text(new, encoding="utf-8"))


def read_generated(page: Path) -> str:
    """Read the text between the markers of a page.

    Raises:
        ValueError: The page has no markers.
    """
    return _split_page(page)[1].strip() + "\n"


def _split_page(page: Path) -> tuple[str, str, str]:
    """The text before, between and after the markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    content, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no markers for the table: add the lines {BEGIN} and {END}")
    return before, content, after
