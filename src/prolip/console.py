"""The console, the tables and the number formats that commands print."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PLAIN_WIDTH = 120
"""Columns where the output is not a terminal: a file or a pipe has no width of its own."""
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
"""Characters of a sparkline, from the smallest value to the largest."""
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


def format_tables(tables: Iterable[Table], width: int = PLAIN_WIDTH) -> str:
    """Format tables as text, one after another, without colors.

    Args:
        tables: Tables of `make_table`.
        width: Columns of the text.

    Returns:
        The lines that `print_tables` would print to a file.
    """
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    return capture.get().rstrip("\n")


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
        value: The number; None: unknown.
        spec: A format spec of Python.

    Returns:
        The text; `MISSING` for None.
    """
    return MISSING if value is None else format(value, spec)


def format_duration(seconds: float | None) -> str:
    """Format a duration: "90 s", "12 min", "3.4 h" or "2.5 d".

    Args:
        seconds: The duration; None: unknown.

    Returns:
        The text; `MISSING` for None.
    """
    if seconds is None:
        return MISSING
    for limit, seconds_per_unit, unit in ((100, 1, "s"), (6000, 60, "min")):
        if seconds < limit:
            return f"{seconds / seconds_per_unit:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"


def format_size(num_bytes: float) -> str:
    """Format the size of files: "12 kB", "3.4 MB", "1,234.5 MB".

    Args:
        num_bytes: The size.

    Returns:
        The text; below a megabyte in kB, rounded up.
    """
    return f"{math.ceil(num_bytes / 1e3)} kB" if num_bytes < 1e6 else f"{num_bytes / 1e6:,.1f} MB"


def sparkline(values: Sequence[float], blocks: str = BLOCKS) -> str:
    """Draw values as text, one character each.

    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'

    Args:
        values: Any numbers.
        blocks: Characters from the smallest value to the largest.

    Returns:
        As many characters as values; ! where a value is not finite.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round(scale * (v - low))] if math.isfinite(v) else "!" for v in values)


def describe_bad_samples(count: int) -> str | None:
    """Describe how many bad samples were skipped, as the caption of a table.

    Args:
        count: Number of bad samples.

    Returns:
        The caption; None if there were none.
    """
    if not count:
        return None
    return f"{count:,} bad {'sample was' if count == 1 else 'samples were'} skipped"


class FailSafeFile:
    """A text file that ignores all writes after one has failed.

    So a long run goes on when the reader of its output ends, as in `prolip train ... 2>&1 | head -1`.

    Args:
        file: Where the text goes. Characters that its encoding lacks are escaped.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._failed = file, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write text, if no write has failed before; returns its length in either case."""
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._attempt(lambda: self._file.write(text.encode(encoding, "backslashreplace").decode(encoding)))
        return len(text)

    def flush(self) -> None:
        """Flush the file, if no write has failed before."""
        self._attempt(self._file.flush)

    def isatty(self) -> bool:
        """Whether the file is a terminal that still takes text."""
        return not self._failed and self._file.isatty()

    def _attempt(self, work: Callable[[], object]) -> None:
        """Call `work`, unless a call has failed before. Its OSError or ValueError is not raised: it ends all writes."""
        try:
            if not self._failed:
                work()
        except BrokenPipeError:
            self._failed = True
            # what is still buffered goes nowhere: Python would fail to flush it at its end
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._file.fileno())
                os.close(null)
        except (OSError, ValueError):  # ValueError: the file is closed
            self._failed = True
