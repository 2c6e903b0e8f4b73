"""Progress of a run for people: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO, cast

from prolip.training.config import DisplayMode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SECONDS_PER_FRAME = 0.25
MAX_TREND = 80
"""Values in the longest sparkline; 80 columns have room for the last 40 or so."""
RECENT_STEPS = 500
"""Steps over which the speed is measured: the slow first ones drop out, evaluations and checkpoints stay in."""
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
HELD_OUT, TERM = "held_out/", "loss/"
FRAME_WIDTH = 4


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
        name: Of the run.
        steps: Of the whole run.
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
        steps: Of the whole run.
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
            terms = {
                name.removeprefix(TERM): value for name, value in training.items() if name.startswith(TERM)
            }
            spread = {
                m: training[f"{m}/uncertainty"] for m in ("image", "text") if f"{m}/uncertainty" in training
            }
            loss = _describe(training, {"loss": "loss {}"})
            parts = [
                " ".join([*loss, f"({_join_values(terms)})"] if terms else loss),
                f"uncertainty {_join_values(spread)}" if spread else "",
                *_describe_optimization(training),
                *_describe_resources(training),
            ]
            self.print_message("  ".join(filter(None, [*self._progress.describe(training), *parts])))
        if held_out:
            retrieval, uncertainty = _describe_held_out(held_out)
            self.print_message("  ".join([f"held-out at step {step:,}:", *retrieval, *uncertainty]))

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
    """The live panel: progress bar, metrics with sparklines, held-out results.

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
        self._held_out: dict[str, float] = {}
        self._held_out_step = 0
        self._trends: dict[str, deque[float]] = {}

    def update(self, step: int, values: Mapping[str, float]) -> None:
        training, held_out = _split_metrics(values)
        if training:
            self._values = training
            for name, value in training.items():
                self._trends.setdefault(name, deque(maxlen=MAX_TREND)).append(value)
        if held_out:
            self._held_out, self._held_out_step = held_out, step
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

        progress = self._progress
        bar = Table.grid(expand=True, padding=(0, 2))
        bar.add_column(ratio=1)
        bar.add_row(
            ProgressBar(total=progress.steps, completed=progress.step, finished_style="green"),
            _make_line(
                f"{progress.step / progress.steps:.1%}", f"elapsed {_format_duration(progress.elapsed)}"
            ),
        )
        rows: list[RenderableType] = [bar, _make_line(*progress.describe(self._values))]
        for section in (self._draw_losses(), self._draw_uncertainty(), self._draw_lines()):
            rows += [Text(), *section] if section else []
        return Panel(Group(*rows), title=Text(self._name), title_align="left", border_style="bright_black")

    def _draw_losses(self) -> list[Text]:
        names = [name for name in self._values if name == "loss" or name.startswith(TERM)]
        labels = [name.replace(TERM, "  ").replace("_", " ") for name in names]
        return [self._draw_trend(name, label, "cyan") for name, label in zip(names, labels, strict=True)]

    def _draw_uncertainty(self) -> list[Text]:
        rows = []
        for modality in ("image", "text"):
            name = f"{modality}/uncertainty"
            ends = _describe(self._values, {f"{name}_q05": "{}", f"{name}_q95": "{}"})
            if name in self._values:
                note = " .. ".join(ends) if len(ends) == 2 else ""
                rows.append(self._draw_trend(name, f"  {modality}", "magenta", note))
        has_range = any("uncertainty_q95" in name for name in self._values)
        return [_make_row("uncertainty", "mean", "5% .. 95%" if has_range else ""), *rows] if rows else []

    def _draw_lines(self) -> list[Text]:
        lines = [_describe_optimization(self._values), _describe_resources(self._values)]
        retrieval, uncertainty = _describe_held_out(self._held_out)
        if retrieval or uncertainty:
            lines += [[f"held-out at step {self._held_out_step:,}", *retrieval], uncertainty]
        return [_make_line(*parts) for parts in lines if parts]

    def _draw_trend(self, name: str, label: str, color: str, note: str = "") -> Text:
        """A value and its sparkline, which fills the rest of the width."""
        row = _make_row(label, _format_value(self._values[name]), f"{note:<20}" if note else "")
        width = max(0, self._console.width - FRAME_WIDTH - row.cell_len - 2)
        values = list(self._trends[name])[-width:] if width else []
        blocks = ASCII_BLOCKS if self._console.options.ascii_only else BLOCKS
        width = min(
            width, max(map(len, self._trends.values()))
        )  # trends that started later end with the others
        return row.append("  ").append(sparkline(values, blocks).rjust(width), style=color)


def sparkline(values: Sequence[float], blocks: str = BLOCKS) -> str:
    """One character per value, from the first block for the smallest to the last for the largest; ! if not finite.

    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round(scale * (v - low))] if math.isfinite(v) else "!" for v in values)


def _split_metrics(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of training, and of held-out data."""
    training = {name: value for name, value in values.items() if not name.startswith(HELD_OUT)}
    return training, {name: value for name, value in values.items() if name.startswith(HELD_OUT)}


def _describe(values: Mapping[str, float], templates: Mapping[str, str]) -> list[str]:
    """The templates of the metrics that are there; {} takes the value with four digits."""
    found = {template: values.get(name) for name, template in templates.items()}
    return [
        template.format(_format_value(value) if "{}" in template else value)
        for template, value in found.items()
        if value is not None
    ]


def _describe_optimization(values: Mapping[str, float]) -> list[str]:
    labels = {
        "scale": "scale {}",
        "logit_bias": "logit bias {}",
        "grad_norm": "grad norm {}",
        "lr": "lr {:.3g}",
    }
    return _describe(values, labels)


def _describe_resources(values: Mapping[str, float]) -> list[str]:
    labels = {"data_wait": "waiting for data {:.0%}", "peak_memory": "memory {:.3g} GiB"}
    skipped = {"skipped_steps": "skipped steps {:.0f}"} if values.get("skipped_steps") else {}
    return _describe(values, labels | skipped)


def _describe_held_out(values: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Retrieval; uncertainty."""
    retrieval = {
        "r1": "R@1 {:.1%}",
        "image_to_text_r1": "to text {:.1%}",
        "text_to_image_r1": "to image {:.1%}",
    }
    uncertainty = {
        "image_uncertainty": "uncertainty of images {}", "text_uncertainty": "of texts {}",
        "text_above_image": "text above image {:.1%}",
    }  # fmt: skip
    plain = {name.removeprefix(HELD_OUT): value for name, value in values.items()}
    return _describe(plain, retrieval), _describe(plain, uncertainty)


def _make_line(*parts: str) -> Text:
    """Labels and values on one line; what doesn't fit is cut off."""
    from rich.text import Text

    line = Text("   ".join(parts), no_wrap=True, overflow="ellipsis")
    line.highlight_regex(r"(?<!\S)-?\d\S*", "bold")
    line.highlight_regex(r"skipped steps \d+", "yellow")
    return line


def _make_row(label: str, value: str, note: str = "") -> Text:
    from rich.text import Text

    row = Text(f"{label:<16}", no_wrap=True, overflow="ellipsis").append(f"{value:>9}", style="bold")
    return row.append(f"  {note}" if note else "", style="bright_black")


def _join_values(values: Mapping[str, float]) -> str:
    return " ".join(f"{name} {_format_value(value)}" for name, value in values.items())


def _format_value(value: float) -> str:
    """Four significant digits."""
    return f"{value:#.4g}"


def _format_duration(seconds: float) -> str:
    """3:10, 2:03:10 or 5d 2h."""
    total = max(0, round(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"
