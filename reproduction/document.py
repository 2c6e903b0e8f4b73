"""A generated part of a hand-written page, between two markers."""

from __future__ import annotations

from pathlib import Path

from prolip.files import write_whole

BEGIN = "<!-- prolip reproduce --docs writes from here -->"
END = "<!-- to here -->"


def put_between(page: Path, content: str) -> Path:
    """Replace what stands between the markers of a page."""
    before, _, after = _parts(page)
    new = f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"
    return write_whole(page, lambda aside: aside.write_text(new, encoding="utf-8"))


def between(page: Path) -> str:
    """What stands there now. A page without markers is an error."""
    return _parts(page)[1].strip() + "\n"


def _parts(page: Path) -> tuple[str, str, str]:
    """What stands before, between and after the markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    content, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{page} has no place for the table: put the lines {BEGIN} and {END} where it belongs"
        )
    return before, content, after
