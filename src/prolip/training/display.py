"""What people see of a run while it goes: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from prolip.training.config import Display

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SECONDS_A_FRAME = 0.25
REMEMBERED = 80
"""Values in the longest trend; on 80 columns the last 40 or so are seen."""
RECENT_STEPS = 500
"""Steps over which the speed is taken: the slow first ones are forgotten, checks and checkpoints are not."""

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-:=+*#"

HELD_OUT = "held_out/"
TERM = "loss/"
FRAME = 4
"""Columns that the frame of the panel takes."""


class Watch(Protocol):
    """Someone who looks at a run."""

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """A line of metrics; any of them may be missing."""

    def tick(self, step: int) -> None:
        """A step is done. Cheap."""

    def say(self, text: str) -> None:
        """A line that stays on the screen."""

    def say_last(self, text: str) -> None:
        """What is left to read when the display has closed."""


def open_display(
    choice: Display, *, name: str, steps: int, batch: int, begin: int
) -> AbstractContextManager[Watch]:
    """A display on stderr of a run of `steps` steps of `batch` samples that goes on after step `begin`."""
    if choice == "none":
        return nullcontext(_Nobody())
    pace = Pace(steps=steps, batch=batch, begin=begin)
    if choice == "rich" or (choice == "auto" and _can_move_the_cursor()):
        from rich.console import Console

        console = Console(file=_forgiving(sys.stderr), force_terminal=choice == "rich" or None)
        return open_screen(console, name, pace)
    return nullcontext(Lines(sys.stderr, name, pace))


def _forgiving(file: TextIO) -> TextIO:
    return cast("TextIO", _Forgiving(file))


class _Forgiving:
    """A file that is silent once it can't be written to (2>&1 | head -1): a run goes on though nobody looks."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._silent = file, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        try:
            self._try(lambda: self._file.write(text))
        except UnicodeEncodeError:
            self._try(lambda: self._file.write(text.encode("ascii", "backslashreplace").decode()))
        return len(text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def isatty(self) -> bool:
        return not self._silent and self._file.isatty()

    def _try(self, work: Callable[[], object]) -> None:
        if self._silent:
            return
        try:
            work()
        except UnicodeEncodeError:
            raise
        except (OSError, ValueError):  # ValueError: the file is closed
            self._silent = True


class Pace:
    """How far a run is, how fast, and how long it will take. What an earlier process did has no part in the speed."""

    def __init__(
        self, *, steps: int, batch: int, begin: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.steps, self.batch, self.step = steps, batch, begin
        self.clock = clock
        self._began = clock()
        self._recent = deque([(self._began, begin)], maxlen=RECENT_STEPS + 1)

    def reach(self, step: int) -> None:
        if step > self.step:
            self.step = step
            self._recent.append((self.clock(), step))

    @property
    def samples(self) -> int:
        return self.step * self.batch

    @property
    def elapsed(self) -> float:
        """Seconds since this process began."""
        return self.clock() - self._began

    @property
    def speed(self) -> float | None:
        """Samples a second, over the recent steps; None before the first."""
        (since, first), (until, last) = self._recent[0], self._recent[-1]
        return self.batch * (last - first) / (until - since) if last > first and until > since else None

    @property
    def left(self) -> float | None:
        """Seconds until the last step, if the speed stays."""
        return None if self.speed is None else (self.steps - self.step) * self.batch / self.speed


class Lines:
    """A line for each update, of ASCII: for log files and pipes."""

    def __init__(self, file: TextIO, name: str, pace: Pace) -> None:
        self._file, self._pace = _forgiving(file), pace
        after = f", after step {pace.step:,}" if pace.step else ""
        self.say(f"{name}: {pace.steps:,} steps of {pace.batch:,} samples{after}")

    def update(self, step: int, values: Mapping[str, float]) -> None:
        self._pace.reach(step)
        usual, checked = _split(values)
        if usual:
            self.say("  ".join(filter(None, [*self._progress(usual), *_plain_metrics(usual)])))
        if checked:
            retrieval, spread = _checked_pieces(checked)
            self.say("  ".join([f"held out at step {step:,}:", *retrieval, *spread]))

    def tick(self, step: int) -> None:
        self._pace.reach(step)

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    say_last = say

    def _progress(self, values: Mapping[str, float]) -> Iterator[str]:
        pace = self._pace
        yield f"step {pace.step:,}/{pace.steps:,}"
        yield f"{pace.samples:,} samples"
        speed = values.get("samples_per_second", pace.speed)
        if speed is not None:
            yield f"{_speed(speed)}/s"
        if "data_wait" in values:
            yield f"data {values['data_wait']:.0%}"
        if pace.left is not None:
            yield f"left {_span(pace.left)}"


@contextmanager
def open_screen(console: Console, name: str, pace: Pace) -> Iterator[Watch]:
    """A live panel at the bottom of a console; its last state stays there."""
    from rich.live import Live

    screen = Screen(console, name, pace, lambda: live.refresh())
    live = Live(
        get_renderable=screen.draw,
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),  # else it goes to a file or a pipe, which are not ours
    )
    with live:
        live.refresh()
        yield screen
    for text in screen.last:
        screen.say(text)


class Screen:
    """What the live panel shows. It is drawn by the thread that trains, at most four times a second: a thread of its
    own might hold the console's lock when a worker process is forked, which then could never write.
    """

    def __init__(self, console: Console, name: str, pace: Pace, redraw: Callable[[], object]) -> None:
        self._console, self._name, self._pace, self._redraw = console, name, pace, redraw
        self.last: list[str] = []
        self._drawn = pace.clock()
        self._values: dict[str, float] = {}
        self._checked: dict[str, float] = {}
        self._checked_at = 0
        self._trends: dict[str, deque[float]] = {}

    def update(self, step: int, values: Mapping[str, float]) -> None:
        usual, checked = _split(values)
        if usual:
            self._values = usual
            for name, value in usual.items():
                self._trends.setdefault(name, deque(maxlen=REMEMBERED)).append(value)
        if checked:
            self._checked, self._checked_at = checked, step
        self.tick(step)

    def tick(self, step: int) -> None:
        self._pace.reach(step)
        now = self._pace.clock()
        if now - self._drawn >= SECONDS_A_FRAME:
            self._drawn = now
            self._redraw()

    def say(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))

    def say_last(self, text: str) -> None:
        self.last.append(text)

    def draw(self) -> RenderableType:
        """The panel as it is now, for the width of the console."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        parts: list[RenderableType] = [self._bar(), self._progress()]
        for section in (self._losses(), self._uncertainties(), self._rest(), self._check()):
            if section:
                parts += [Text(), *section]
        return Panel(Group(*parts), title=Text(self._name), title_align="left", border_style="bright_black")

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        pace = self._pace
        times = [
            f"elapsed {_span(pace.elapsed)}",
            *([] if pace.left is None else [f"left {_span(pace.left)}"]),
        ]
        row = Table.grid(expand=True, padding=(0, 2))
        row.add_column(ratio=1)
        row.add_column()
        bar = ProgressBar(total=pace.steps, completed=pace.step, finished_style="green")
        row.add_row(bar, _line(_share(pace.step / pace.steps), *times))
        return row

    def _progress(self) -> Text:
        pace = self._pace
        speed = self._values.get("samples_per_second", pace.speed)
        return _line(
            f"step {pace.step:,}/{pace.steps:,}",
            f"{pace.samples:,} samples",
            *([] if speed is None else [f"{_speed(speed)} samples/s"]),
        )

    def _losses(self) -> list[Text]:
        """The sum, and its terms below it."""
        names = [name for name in self._values if name == "loss" or name.startswith(TERM)]
        return [self._trend(name, _loss_label(name), "cyan") for name in names]

    def _uncertainties(self) -> list[Text]:
        kinds = [kind for kind in ("image", "text") if f"{kind}/uncertainty" in self._values]
        rows = [
            self._trend(f"{kind}/uncertainty", f"  {kind}", "magenta", self._range(kind)) for kind in kinds
        ]
        ranged = any(self._range(kind) for kind in kinds)
        return [_row("uncertainty", "mean", "5% .. 95%" if ranged else ""), *rows] if rows else []

    def _range(self, kind: str) -> str:
        ends = [self._values.get(f"{kind}/uncertainty_{end}") for end in ("q05", "q95")]
        return " .. ".join(_number(end) for end in ends if end is not None) if None not in ends else ""

    def _rest(self) -> list[Text]:
        lines = [_optimisation(self._values), _machine(self._values)]
        return [_line(*pieces) for pieces in lines if pieces]

    def _check(self) -> list[Text]:
        retrieval, spread = _checked_pieces(self._checked)
        if not retrieval and not spread:
            return []
        head = _line(f"held out at step {self._checked_at:,}", *retrieval)
        return [head, _line(*spread)] if spread else [head]

    def _trend(self, name: str, label: str, colour: str, note: str = "") -> Text:
        """A value, and its last values as a line of blocks that fills what is left of the width."""
        row = _row(label, _number(self._values[name]), f"{note:<20}" if note else "")
        room = max(0, self._console.width - FRAME - row.cell_len - 2)
        values = list(self._trends[name])[-room:] if room else []
        levels = ASCII_BLOCKS if self._console.options.ascii_only else BLOCKS
        width = min(
            room, max(len(trend) for trend in self._trends.values())
        )  # what began later ends with the others
        return row.append("  ").append(sparkline(values, levels).rjust(width), style=colour)


class _Nobody:
    def update(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def tick(self, step: int) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    say_last = say


def sparkline(values: Sequence[float], levels: str = BLOCKS) -> str:
    """A character for each value, from the lowest level for the smallest to the highest for the largest; ! for what is
    not finite.

    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    top = len(levels) - 1

    def level(value: float) -> int:
        return round(top * (value - low) / (high - low)) if high > low else 0

    return "".join(levels[level(value)] if math.isfinite(value) else "!" for value in values)


def _can_move_the_cursor() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _split(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of training, and those of a check."""
    usual = {name: value for name, value in values.items() if not name.startswith(HELD_OUT)}
    return usual, {name: value for name, value in values.items() if name.startswith(HELD_OUT)}


def _plain_metrics(values: Mapping[str, float]) -> Iterator[str]:
    terms = [
        f"{name.removeprefix(TERM)} {_number(value)}"
        for name, value in values.items()
        if name.startswith(TERM)
    ]
    if "loss" in values:
        yield f"loss {_number(values['loss'])}" + (f" ({' '.join(terms)})" if terms else "")
    temperature = {"a": values.get("scale"), "b": values.get("bias")}
    yield " ".join(f"{name} {value:.4g}" for name, value in temperature.items() if value is not None)
    spreads = {kind: values.get(f"{kind}/uncertainty") for kind in ("image", "text")}
    known = " ".join(f"{kind} {_number(value)}" for kind, value in spreads.items() if value is not None)
    yield f"unc {known}" if known else ""
    yield f"grad {values['gradient_norm']:.3g}" if "gradient_norm" in values else ""
    yield f"lr {values['rate']:.3g}" if "rate" in values else ""
    yield f"skipped {values['skipped']:.0f}" if values.get("skipped") else ""


def _optimisation(values: Mapping[str, float]) -> list[str]:
    labels = {"scale": "scale", "bias": "bias", "gradient_norm": "gradient norm"}
    pieces = [f"{label} {_number(values[name])}" for name, label in labels.items() if name in values]
    return [*pieces, *([f"learning rate {values['rate']:.3g}"] if "rate" in values else [])]


def _machine(values: Mapping[str, float]) -> list[str]:
    pieces = []
    if "data_wait" in values:
        pieces.append(f"waiting for data {values['data_wait']:.0%}")
    if "memory" in values:
        pieces.append(f"memory {values['memory']:.3g} GiB")
    if values.get("skipped"):
        pieces.append(f"steps skipped {values['skipped']:.0f}")
    return pieces


def _checked_pieces(values: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Retrieval; uncertainty."""

    def pieces(labels: Mapping[str, str], write: Callable[[float], str]) -> list[str]:
        found = {label: values.get(HELD_OUT + name) for name, label in labels.items()}
        return [f"{label} {write(value)}" for label, value in found.items() if value is not None]

    recalls = {"r1": "R@1", "image_to_text_r1": "to text", "text_to_image_r1": "to image"}
    spreads = {"image_uncertainty": "uncertainty of images", "text_uncertainty": "of texts"}
    above = {"text_above_image": "text above image"}
    return pieces(recalls, _share), [*pieces(spreads, _number), *pieces(above, _share)]


def _line(*pieces: str) -> Text:
    """Labels with their values, on one line: what doesn't fit is cut off."""
    from rich.text import Text

    line = Text("   ".join(pieces), no_wrap=True, overflow="ellipsis")
    line.highlight_regex(r"(?<!\S)-?\d\S*", "bold")
    line.highlight_regex(r"steps skipped \d+", "yellow")
    return line


def _row(label: str, value: str, note: str = "") -> Text:
    from rich.text import Text

    row = Text(f"{label:<16}", no_wrap=True, overflow="ellipsis").append(f"{value:>9}", style="bold")
    return row.append(f"  {note}" if note else "", style="bright_black")


def _loss_label(name: str) -> str:
    return name if name == "loss" else f"  {name.removeprefix(TERM).replace('_', ' ')}"


def _number(value: float) -> str:
    """Four digits, however large."""
    return f"{value:#.4g}"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _span(seconds: float) -> str:
    """3:10, 2:03:10 or 5d 2h."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
