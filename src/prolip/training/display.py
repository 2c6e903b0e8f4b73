"""Display of a run while it trains: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from prolip.training.config import DisplayMode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SECONDS_PER_FRAME = 0.25
MAX_TREND = 80
"""Values of a sparkline; a terminal of 80 columns shows the last 50 or so."""
RECENT_STEPS = 500
"""Steps over which the speed is measured: the slow first ones drop out, evaluations and checkpoints stay in."""
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
HELD_OUT, TERM = "held_out/", "loss/"
FRAME_WIDTH = 4
"""Columns of the panel's border and padding."""

TRENDS = {"loss": "loss", "image/uncertainty": "image uncertainty", "text/uncertainty": "text uncertainty"}
"""Metrics that the panel draws as sparklines, and their labels."""
LINES = (
    {"scale": "scale {:.4g}", "logit_bias": "logit bias {:.4g}", "grad_norm": "grad norm {:.4g}", "lr": "lr {:.3g}"},
    {
        "data_wait": "waiting for data {:.0%}", "peak_memory": "memory {:.3g} GiB",
        "skipped_steps": "skipped steps {:.0f}",
    },
)  # fmt: skip
HELD_OUT_LINES = (
    {"r1": "R@1 {:.1%}", "image_to_text_r1": "to text {:.1%}", "text_to_image_r1": "to image {:.1%}"},
    {
        "image_uncertainty": "uncertainty of images {:#.4g}",
        "text_uncertainty": "of texts {:#.4g}",
        "text_above_image": "text above image {:.1%}",
    },
)
"""Metrics that are shown as text, a line each, with their formats."""


class Display:
    """Shows nothing: the display of other ranks, and the base of the others."""

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """Show a line of metrics; any of them may be missing."""

    def tick(self, step: int) -> None:
        """A step is done. Cheap."""

    def print_message(self, text: str) -> None:
        """Print a line that stays on the screen."""

    def print_at_end(self, text: str) -> None:
        """Print a line after the display has closed."""


def open_display(
    mode: DisplayMode, *, name: str, steps: int, batch_size: int, first_step: int
) -> AbstractContextManager[Display]:
    """Open a display on stderr.

    Args:
        mode: "auto": a live panel if stderr is a terminal, else plain lines.
        name: Name of the run.
        steps: Steps of the whole run.
        batch_size: Samples per step.
        first_step: Steps that were done before this process started.
    """
    if mode == "none":
        return nullcontext(Display())
    progress = ProgressTracker(steps=steps, batch_size=batch_size, first_step=first_step)
    file = cast("TextIO", _FailSafeFile(sys.stderr))
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if mode == "rich" or (mode == "auto" and is_terminal):
        from rich.console import Console

        console = Console(file=file, force_terminal=mode == "rich" or None)
        return open_live_display(console, name, progress)
    return nullcontext(PlainDisplay(file, name, progress))


class _FailSafeFile:
    """Ignores all writes after one has failed (2>&1 | head -1): a run goes on though nobody reads its output."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._failed = file, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._attempt(lambda: self._file.write(text.encode(encoding, "backslashreplace").decode(encoding)))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def isatty(self) -> bool:
        return not self._failed and self._file.isatty()

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            if not self._failed:
                work()
        except (OSError, ValueError):  # ValueError: the file is closed
            self._failed = True


class ProgressTracker:
    """Steps done, speed and time left. Steps of earlier processes don't count for the speed.

    Args:
        steps: Steps of the whole run.
        batch_size: Samples per step.
        first_step: Steps done before.
        clock: Seconds.
    """

    def __init__(
        self, *, steps: int, batch_size: int, first_step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.steps, self.batch_size, self.step, self.clock = steps, batch_size, first_step, clock
        self._start = clock()
        self._recent = deque([(self._start, first_step)], maxlen=RECENT_STEPS + 1)

    def reach(self, step: int) -> None:
        """So many steps are done."""
        if step > self.step:
            self.step = step
            self._recent.append((self.clock(), step))

    @property
    def elapsed(self) -> float:
        """Seconds since this process started."""
        return self.clock() - self._start

    @property
    def speed(self) -> float | None:
        """Samples per second over the recent steps; None before the first."""
        (since, first), (until, last) = self._recent[0], self._recent[-1]
        return self.batch_size * (last - first) / (until - since) if last > first and until > since else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step at the current speed."""
        return None if self.speed is None else (self.steps - self.step) * self.batch_size / self.speed

    def describe(self, values: Mapping[str, float]) -> list[str]:
        """Steps, samples, speed and time left, for either display."""
        speed = values.get("samples_per_second", self.speed)
        rate = None if speed is None else f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
        return [
            f"step {self.step:,}/{self.steps:,}",
            f"{self.step * self.batch_size:,} samples",
            *([] if rate is None else [f"{rate} samples/s"]),
            *([] if self.seconds_left is None else [f"left {_format_duration(self.seconds_left)}"]),
        ]


class PlainDisplay(Display):
    """One line per update, for log files and pipes."""

    def __init__(self, file: TextIO, name: str, progress: ProgressTracker) -> None:
        self._file, self._progress = file, progress
        after = f", after step {progress.step:,}" if progress.step else ""
        self.print_message(f"{name}: {progress.steps:,} steps of {progress.batch_size:,} samples{after}")

    def update(self, step: int, values: Mapping[str, float]) -> None:
        self._progress.reach(step)
        training, held_out = _split_metrics(values)
        if training:
            trends = [f"{label} {training[name]:#.4g}" for name, label in TRENDS.items() if name in training]
            lines = [self._progress.describe(training), trends, *format_metrics(training)]
            self.print_message("  ".join(part for line in lines for part in line))
        if held_out:
            parts = [part for line in format_held_out(held_out) for part in line]
            self.print_message("  ".join([f"held-out at step {step:,}:", *parts]))

    def tick(self, step: int) -> None:
        self._progress.reach(step)

    def print_message(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    print_at_end = print_message


@contextmanager
def open_live_display(console: Console, name: str, progress: ProgressTracker) -> Iterator[Display]:
    """A live panel at the bottom of a console. Its last state stays there."""
    from rich.live import Live

    display = LiveDisplay(console, name, progress, lambda: live.refresh())
    live = Live(
        get_renderable=display.draw,
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),  # else stdout is a file or a pipe, which must get its own output
    )
    with live:
        live.refresh()
        yield display
    for text in display.final_messages:
        display.print_message(text)


class LiveDisplay(Display):
    """The live panel: progress bar, sparklines, metrics, held-out results.

    The training thread draws it, at most four times per second. A drawing thread might hold the console's lock when a
    worker process is forked, and the worker could then never print.
    """

    def __init__(
        self, console: Console, name: str, progress: ProgressTracker, redraw: Callable[[], object]
    ) -> None:
        self._console, self._name, self._progress, self._redraw = console, name, progress, redraw
        self.final_messages: list[str] = []
        self._last_drawn = progress.clock()
        self._values: dict[str, float] = {}
        self._held_out: tuple[int, dict[str, float]] = (0, {})
        self._trends: dict[str, deque[float]] = {}

    def update(self, step: int, values: Mapping[str, float]) -> None:
        training, held_out = _split_metrics(values)
        if training:
            self._values = training
            for name in TRENDS.keys() & training.keys():
                self._trends.setdefault(name, deque(maxlen=MAX_TREND)).append(training[name])
        if held_out:
            self._held_out = step, held_out
        self.tick(step)

    def tick(self, step: int) -> None:
        self._progress.reach(step)
        now = self._progress.clock()
        if now - self._last_drawn >= SECONDS_PER_FRAME:
            self._last_drawn = now
            self._redraw()

    def print_message(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))  # a Text, because brackets are not markup

    def print_at_end(self, text: str) -> None:
        self.final_messages.append(text)

    def draw(self) -> RenderableType:
        """The panel in its current state, as wide as the console."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        progress, (held_out_step, held_out) = self._progress, self._held_out
        line = partial(_make_line, width=self._console.width - FRAME_WIDTH)
        done = [f"{progress.step / progress.steps:.1%}", f"elapsed {_format_duration(progress.elapsed)}"]
        bar = Table.grid(expand=True, padding=(0, 2))
        bar.add_column(ratio=1)
        bar.add_row(
            ProgressBar(total=progress.steps, completed=progress.step, finished_style="green"),
            _make_line(done),
        )
        rows: list[RenderableType] = [
            bar,
            line(progress.describe(self._values)),
            *(self._draw_trend(name) for name in TRENDS if name in self._values),
            *map(line, format_metrics(self._values)),
        ]
        if lines := format_held_out(held_out):
            rows += [Text(), line([f"held-out at step {held_out_step:,}"]), *map(line, lines)]
        return Panel(Group(*rows), title=Text(self._name), title_align="left", border_style="bright_black")

    def _draw_trend(self, name: str) -> Text:
        """A value and its sparkline, which fills the rest of the width."""
        from rich.text import Text

        row = Text(f"{TRENDS[name]:<18}", no_wrap=True, overflow="ellipsis")
        row.append(f"{self._values[name]:>#9.4g}  ", style="bold")
        width = max(0, self._console.width - FRAME_WIDTH - row.cell_len)
        values = list(self._trends[name])[-width:] if width else []
        blocks = ASCII_BLOCKS if self._console.options.ascii_only else BLOCKS
        return row.append(sparkline(values, blocks), style="cyan")


def sparkline(values: Sequence[float], blocks: str = BLOCKS) -> str:
    """One character per value, from the first block for the smallest to the last for the largest; ! if not finite.

    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round(scale * (v - low))] if math.isfinite(v) else "!" for v in values)


def format_metrics(values: Mapping[str, float]) -> list[list[str]]:
    """Training metrics as text: a line of loss terms, then those of `LINES`. Missing metrics are left out."""
    terms = [
        f"{name.removeprefix(TERM).replace('_', ' ')} {value:#.4g}"
        for name, value in values.items()
        if name.startswith(TERM)
    ]
    shown = {name: value for name, value in values.items() if name != "skipped_steps" or value}
    return [line for line in (terms, *_format_lines(shown, LINES)) if line]


def format_held_out(values: Mapping[str, float]) -> list[list[str]]:
    """Held-out metrics as text, by the lines of `HELD_OUT_LINES`."""
    short = {name.removeprefix(HELD_OUT): value for name, value in values.items()}
    return _format_lines(short, HELD_OUT_LINES)


def _format_lines(values: Mapping[str, float], lines: Sequence[Mapping[str, str]]) -> list[list[str]]:
    formatted = [
        [form.format(values[name]) for name, form in line.items() if name in values] for line in lines
    ]
    return [line for line in formatted if line]


def _split_metrics(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of training, and of held-out data."""
    training = {name: value for name, value in values.items() if not name.startswith(HELD_OUT)}
    return training, {name: value for name, value in values.items() if name.startswith(HELD_OUT)}


def _make_line(parts: Sequence[str], width: int = 1000) -> Text:
    """Labels and values; a part that doesn't fit into `width` columns begins a new line."""
    from rich.text import Text

    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}   {part}".strip()
        lines = [*lines[:-1], joined] if len(joined) <= width else [*lines, part]
    text = Text("\n".join(lines))
    text.highlight_regex(r"(?<!\S)-?\d\S*", "bold")
    text.highlight_regex(r"skipped steps \d+", "yellow")
    return text


def _format_duration(seconds: float) -> str:
    """3:10, 2:03:10 or 5d 2h."""
    total = max(0, round(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"
