"""Display of a run while it trains: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Self, TextIO, cast

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prolip.console import ASCII_BLOCKS, BLOCKS, FailSafeFile, format_duration, sparkline
from prolip.proportions import compute_wilson_interval
from prolip.training.config import DisplayMode

SECONDS_PER_FRAME = 0.25
MAX_TREND = 80
"""Values of a sparkline; a terminal of 80 columns shows the last 50 or so."""
FRAME_WIDTH = 4
"""Columns of the panel's border and padding."""

HELD_OUT, TERM = "held_out/", "loss/"
"""Prefixes of the names of held-out metrics and of loss terms."""
TRENDS = {"loss": "loss", "image/uncertainty": "image uncertainty", "text/uncertainty": "text uncertainty"}
"""Metrics that the panel draws as sparklines, and their labels."""
LINES = (
    {"scale": "scale {:.4g}", "logit_bias": "logit bias {:.4g}", "grad_norm": "grad norm {:.4g}", "lr": "lr {:.3g}"},
    {"data_wait": "waiting for data {:.0%}", "peak_memory": "memory {:.3g} GiB",
     "skipped_steps": "skipped steps {:.0f}"},
)  # fmt: skip
"""Metrics that are shown as text: the formats of each line's metrics, by name."""
HELD_OUT_LINES = (
    {"r1": "R@1 {:.1%}", "image_to_text_r1": "to text {:.1%}", "text_to_image_r1": "to image {:.1%}",
     "reference_r1": "reference {:.1%}"},
    {"image_uncertainty": "uncertainty of images {:#.4g}", "text_uncertainty": "of texts {:#.4g}",
     "text_above_image": "text above image {:.1%}"},
)  # fmt: skip
"""The same for held-out metrics, whose names are without `HELD_OUT`."""
PROPORTIONS = ("image_to_text_r1", "text_to_image_r1", "text_above_image")
"""Held-out metrics that are shares of the samples: they are shown with Wilson's interval."""


def open_display(mode: DisplayMode, name: str, *, steps: int, batch_size: int, first_step: int) -> Display:
    """Open a display on stderr.

    Args:
        mode: "auto": a live panel if stderr is a terminal, else plain lines.
        name: Name of the run.
        steps: Steps of the whole run.
        batch_size: Samples per step.
        first_step: Steps that were done before this process started. They don't count for the speed.

    Returns:
        The display, a context manager.
    """
    progress = StepProgress(steps, batch_size, first_step)
    if mode == "none":
        return Display(progress)
    file = cast("TextIO", FailSafeFile(sys.stderr))
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if mode == "rich" or (mode == "auto" and is_terminal):
        return LiveDisplay(progress, name, Console(file=file, force_terminal=mode == "rich" or None))
    return PlainDisplay(progress, name, file)


class StepProgress:
    """Steps done, speed over the last thousand steps (rich's maximum) and time left.

    Args:
        steps: Steps of the whole run.
        batch_size: Samples per step.
        first_step: Steps that were done before this process started.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, steps: int, batch_size: int, first_step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.steps, self.batch_size, self.clock = steps, batch_size, clock
        self._progress = Progress(auto_refresh=False, get_time=clock, speed_estimate_period=math.inf)
        self._id = self._progress.add_task("", total=steps, completed=first_step)

    @property
    def step(self) -> int:
        """Steps that are done."""
        return int(self._progress.tasks[0].completed)

    @property
    def elapsed(self) -> float:
        """Seconds since this process started."""
        return self._progress.tasks[0].elapsed or 0.0

    def reach(self, step: int) -> None:
        """Record that `step` steps are done; fewer than before are ignored."""
        self._progress.update(self._id, completed=max(step, self.step))

    def describe(self, values: Mapping[str, float]) -> list[str]:
        """Steps, samples, speed and time left, a short text each; what isn't known yet is omitted.

        `values`: metrics by name. Their samples_per_second, if there, is shown as the speed.
        """
        speed = self._progress.tasks[0].speed
        rate = values.get("samples_per_second", speed and speed * self.batch_size)
        texts = [f"step {self.step:,}/{self.steps:,}", f"{self.step * self.batch_size:,} samples"]
        texts += [f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s"] if rate else []
        return texts + ([f"left {format_duration((self.steps - self.step) / speed)}"] if speed else [])


class Display:
    """Shows nothing: the display of ranks other than zero, and the base of the others."""

    def __init__(self, progress: StepProgress) -> None:
        self._progress = progress
        self._final_messages: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for text in self._final_messages:
            self.print_message(text)

    def tick(self, step: int) -> None:
        """Record that `step` steps are done. Cheap enough for every step."""
        self._progress.reach(step)

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """Show metrics, by name, after `step` steps: those of training, held-out ones, or both."""
        self._progress.reach(step)
        is_held_out = {name: name.startswith(HELD_OUT) for name in values}
        if training := {name: value for name, value in values.items() if not is_held_out[name]}:
            self._show_training(training)
        if any(is_held_out.values()):
            held_out = {name.removeprefix(HELD_OUT): values[name] for name in values if is_held_out[name]}
            self._show_held_out(*_format_held_out(step, held_out))
        self.tick(step)

    def print_message(self, text: str) -> None:
        """Print a line that stays on the screen, above a live panel."""

    def print_at_end(self, text: str) -> None:
        """Print a line after the display has closed."""
        self._final_messages.append(text)

    def _show_training(self, values: Mapping[str, float]) -> None:
        """Show metrics of a training step, by name."""

    def _show_held_out(self, title: str, lines: list[list[str]]) -> None:
        """Show held-out metrics: a title, and lines of formatted values."""


class PlainDisplay(Display):
    """One line per update, for log files and pipes."""

    def __init__(self, progress: StepProgress, name: str, file: TextIO) -> None:
        super().__init__(progress)
        self._file = file
        after = f", after step {progress.step:,}" if progress.step else ""
        self.print_message(f"{name}: {progress.steps:,} steps of {progress.batch_size:,} samples{after}")

    def print_message(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def _show_training(self, values: Mapping[str, float]) -> None:
        trends = [f"{label} {values[name]:#.4g}" for name, label in TRENDS.items() if name in values]
        self.print_message(
            "  ".join(chain(self._progress.describe(values), trends, *_format_training_metrics(values)))
        )

    def _show_held_out(self, title: str, lines: list[list[str]]) -> None:
        self.print_message("  ".join(chain([f"{title}:"], *lines)))


class LiveDisplay(Display):
    """A live panel at the bottom of a console: progress bar, sparklines, metrics, held-out results.

    The training thread draws it, at most four times per second. A drawing thread might hold the console's lock when a
    worker process is forked, and the worker could then never print.
    """

    def __init__(self, progress: StepProgress, name: str, console: Console) -> None:
        super().__init__(progress)
        self._name, self._console, self._last_drawn = name, console, progress.clock()
        self._values: Mapping[str, float] = {}
        self._held_out: list[list[str]] = []
        self._trends = {metric: deque[float](maxlen=MAX_TREND) for metric in TRENDS}
        redirect = sys.stdout.isatty()  # else stdout is a file or a pipe, which must get its own output
        self._live = Live(
            get_renderable=self.draw, console=console, auto_refresh=False, redirect_stdout=redirect
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()  # the last panel stays on the screen
        super().__exit__(*error)

    def tick(self, step: int) -> None:
        super().tick(step)
        if self._progress.clock() - self._last_drawn >= SECONDS_PER_FRAME:
            self._last_drawn = self._progress.clock()
            self._live.refresh()

    def print_message(self, text: str) -> None:
        self._console.print(Text(text))  # a Text, because brackets are not markup

    def _show_training(self, values: Mapping[str, float]) -> None:
        self._values = values
        for metric in TRENDS.keys() & values.keys():
            self._trends[metric].append(values[metric])

    def _show_held_out(self, title: str, lines: list[list[str]]) -> None:
        self._held_out = [[title], *lines] if lines else []

    def draw(self) -> RenderableType:
        """The panel in its current state, as wide as the console."""
        progress = self._progress
        bar = Table.grid(expand=True, padding=(0, 2))
        bar.add_column(ratio=1)
        status = f"{progress.step / progress.steps:.1%}   elapsed {format_duration(progress.elapsed)}"
        bar.add_row(ProgressBar(total=progress.steps, completed=progress.step), status)
        rows: list[RenderableType] = [
            bar,
            _make_line(progress.describe(self._values)),
            *(self._draw_trend(metric) for metric in TRENDS if metric in self._values),
            *map(_make_line, _format_training_metrics(self._values) + self._held_out),
        ]
        return Panel(Group(*rows), title=Text(self._name), title_align="left", border_style="bright_black")

    def _draw_trend(self, metric: str) -> Text:
        """A row of the panel: label, latest value and sparkline of a metric of `TRENDS`.

        The sparkline has as many of the metric's last values as fit into the rest of the console's width.
        """
        row = Text(f"{TRENDS[metric]:<18}", no_wrap=True, overflow="ellipsis")
        row.append(f"{self._values[metric]:>#9.4g}  ", style="bold")
        width = max(0, self._console.width - FRAME_WIDTH - row.cell_len)
        values = list(self._trends[metric])[-width:] if width else []
        blocks = ASCII_BLOCKS if self._console.options.ascii_only else BLOCKS
        return row.append(sparkline(values, blocks), style="cyan")


def _make_line(texts: Sequence[str]) -> Columns:
    """Lay out texts side by side, in several lines if the panel is too narrow."""
    return Columns(texts, padding=(0, 3, 0, 0))


def _format_training_metrics(values: Mapping[str, float]) -> list[list[str]]:
    """Format metrics with their labels, as lines of texts: a line of the loss terms, then those of `LINES`."""
    term_labels = {
        name: name.removeprefix(TERM).replace("_", " ") for name in values if name.startswith(TERM)
    }
    term_formats = {name: label + " {:#.4g}" for name, label in term_labels.items()}
    # as long as no step was skipped, nothing is said of skipped steps
    shown_values = {name: value for name, value in values.items() if name != "skipped_steps" or value}
    return _format_lines(shown_values, (term_formats, *LINES))


def _format_held_out(step: int, values: Mapping[str, float]) -> tuple[str, list[list[str]]]:
    """Format held-out metrics: a title, and lines of texts, in which proportions have their intervals.

    Args:
        step: Steps that are done.
        values: By name, without `HELD_OUT`; the number of samples is `n`.
    """
    title, count = f"held-out at step {step:,}", values.get("n", 0.0)
    n = round(count) if math.isfinite(count) else 0
    if n < 1:
        return title, _format_lines(values, HELD_OUT_LINES)
    intervals = {
        name: " ({:.1f} to {:.1f})".format(*(100 * end for end in compute_wilson_interval(values[name], n)))
        for name in PROPORTIONS
        if 0 <= values.get(name, math.nan) <= 1
    }
    formats = [
        {name: text + intervals.get(name, "") for name, text in line.items()} for line in HELD_OUT_LINES
    ]
    return f"{title}, n = {n:,}", _format_lines(values, formats)


def _format_lines(
    values: Mapping[str, float], formats_by_line: Sequence[Mapping[str, str]]
) -> list[list[str]]:
    """Format metrics as lines of texts; missing metrics and empty lines are omitted.

    Args:
        values: By name.
        formats_by_line: For each line, the formats of its metrics by name: {"lr": "lr {:.3g}"}.
    """
    lines = (
        [template.format(values[name]) for name, template in formats.items() if name in values]
        for formats in formats_by_line
    )
    return [line for line in lines if line]
