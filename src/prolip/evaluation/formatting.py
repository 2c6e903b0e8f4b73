"""Tables for people, and numbers as they show them; what is not known is a dash."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

MISSING = "–"


def table(
    title: str | None, left: Sequence[str], right: Sequence[str], *, caption: str | None = None
) -> Table:
    """A table without rows. left: headings of columns of words. right: of columns of numbers, which stand right."""
    made = Table(title=title, caption=caption)
    for heading in left:
        made.add_column(
            heading, overflow="fold"
        )  # in a narrow terminal a name goes on below; nothing is cut off
    for heading in right:
        made.add_column(heading, justify="right")
    return made


def format_percent(share: float | None) -> str:
    """A share, 0 to 1, in percent with one decimal and no sign: 0.618 is "61.8"."""
    return MISSING if share is None else f"{100 * share:.1f}"


def format_number(value: float | None, form: str = ".4g") -> str:
    """Four significant digits, if no other form is asked for: 0.00123456 is "0.001235"."""
    return MISSING if value is None else format(value, form)


def describe_bad_samples(count: int) -> str | None:
    """What a table says of samples that could not be used; None if there are none."""
    if not count:
        return None
    return f"{count:,} bad samples are left out" if count > 1 else "1 bad sample is left out"
