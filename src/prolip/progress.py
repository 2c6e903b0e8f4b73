"""Progress bars on stderr, with rate and remaining time, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    description: str, total: int | None, unit: str, show: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr: `with progress_bar("embedding", 1000, "images") as advance: advance(64)`.

    The bar disappears when the block ends.

    Args:
        description: Text before the bar.
        total: Number of items; None: unknown.
        unit: Name of the items, for the rate.
        show: Whether to show the bar; None: if stderr is a terminal.

    Returns:
        A context manager; its value is a function that advances the bar by a number of items.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items per second since the start."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.completed / task.elapsed:,.3g} {unit}/s" if task.elapsed else "")

    columns = (
        TextColumn("{task.description}", markup=False),  # a path may hold brackets
        BarColumn(),
        TextColumn("{task.completed:,.0f}" if total is None else "{task.completed:,.0f}/{task.total:,.0f}"),
        Rate(),
        *(() if total is None else (TextColumn("left"), TimeRemainingColumn())),
    )
    with Progress(*columns, console=Console(stderr=True, force_terminal=show), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)
