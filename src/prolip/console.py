"""The console, the tables and the number formats that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PLAIN_WIDTH = 120
"""Columns where the output is not a terminal: a file or a pipe has no width of its own."""
MISSING = "–"
"""Shown in place of a value that is unknown or undefined."""


def make_console(*, stderr: bool = False, width: int = PLAIN_WIDTH) -> Console:
    """A console that prints text as it is: captions and paths may hold brackets, which rich would read as markup.

    Args:
        stderr: Print to stderr instead of stdout.
        width: Columns where the output is not a terminal.

    Returns:
        A rich console as wide as the terminal, or `width` columns wide.
    """
    from rich.console import Console

    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = width
    return console


def make_table(
    title: str | None,
    text_columns: Sequence[str],
    number_columns: Sequence[str] = (),
    rows: Iterable[Sequence[RenderableType]] = (),
    *,
    caption: str | None = None,
) -> Table:
    """A table: columns of text on the left, columns of numbers, right-aligned, after them.

    Args:
        title: Above the table.
        text_columns: Headings of the text columns. Long text is wrapped, never cut.
        number_columns: Headings of the number columns.
        rows: One value per column; more rows can be added later with `add_row`.
        caption: Below the table.

    Returns:
        A rich table for `print_tables`.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in text_columns:
        table.add_column(heading, overflow="fold")
    for heading in number_columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def print_tables(tables: Iterable[Table], *, stderr: bool = False, width: int = PLAIN_WIDTH) -> None:
    """Print tables one after another.

    Args:
        tables: Tables of `make_table`.
        stderr, width: As for `make_console`.
    """
    console = make_console(stderr=stderr, width=width)
    for table in tables:
        console.print(table)


def printable(text: str) -> str:
    """Replace every character that could control a terminal by a space.

    Args:
        text: Any text, such as a caption or a file name.

    Returns:
        Text of the same length.
    """
    return "".join(character if character.isprintable() else " " for character in text)


def format_percent(fraction: float | None) -> str:
    """Format a fraction in percent, with one decimal and no sign: 0.618 is "61.8".

    Args:
        fraction: From 0 to 1; None: unknown.

    Returns:
        The text; `MISSING` for None.
    """
    return MISSING if fraction is None else f"{100 * fraction:.1f}"


def format_number(value: float | None, spec: str = ".4g") -> str:
    """Format a number: 0.00123456 is "0.001235".

    Args:
        value: None: unknown.
        spec: A format spec of Python.

    Returns:
        The text; `MISSING` for None.
    """
    return MISSING if value is None else format(value, spec)


def describe_bad_samples(count: int) -> str | None:
    """Caption of a table whose data had bad samples.

    Args:
        count: Number of bad samples.

    Returns:
        The caption; None if there were none.
    """
    if not count:
        return None
    return f"{count:,} bad {'sample was' if count == 1 else 'samples were'} skipped"
