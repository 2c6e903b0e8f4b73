"""What people see: the right numbers, on 80 and 120 columns, after a resume, with values missing."""

import io
import math
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from rich.console import Console
from rich.live import Live
from scipy.stats import binomtest

from prolip.console import ASCII_BLOCKS, sparkline
from prolip.training.display import LiveDisplay, PlainDisplay, StepProgress, open_display

TERMS = ("ppcl", "inclusion", "masked_images", "masked_texts", "vib_images", "vib_texts")
CHECK = {
    "held_out/n": 1000,
    "held_out/r1": 0.431,
    "held_out/image_to_text_r1": 0.42,
    "held_out/text_to_image_r1": 0.442,
    "held_out/image_uncertainty": 0.0351,
    "held_out/text_uncertainty": 0.0372,
    "held_out/text_above_image": 0.712,
}


def line(step):
    """All that a probabilistic run reports."""
    spread = {
        f"{kind}/{name}": value
        for kind in ("image", "text")
        for name, value in {
            "uncertainty": 0.035 + step * 1e-6,
            "uncertainty_q05": 0.0301,
            "uncertainty_q50": 0.035,
            "uncertainty_q95": 0.0412,
            "log_var": -10.0,
        }.items()
    }
    return {
        "loss": 4.812,
        **{f"loss/{term}": 4.0 + math.sin(step) for term in TERMS},
        "scale": 10.2,
        "logit_bias": -9.8,
        **spread,
        "grad_norm": 3.1,
        "lr": 5e-4,
        "samples": step * 128,
        "samples_per_second": 612.0,
        "data_wait": 0.031,
        "peak_memory": 1.234,
        "skipped_steps": 0,
    }


class StepTimer:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return StepTimer()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def make_panel(clock, width=80, steps=2000, batch_size=128, file=None):
    console = Console(width=width, file=file or io.StringIO(), force_terminal=True, color_system=None)
    return LiveDisplay(StepProgress(steps, batch_size, 0, clock), "runs/tiny", console), console


def draw(screen, console):
    with console.capture() as capture:
        console.print(screen.draw())
    return capture.get()


def test_speed_and_time_left_count_from_the_start_of_the_process(clock):
    progress = StepProgress(1000, 32, 600, clock)
    assert progress.describe({}) == ["step 600/1,000", "19,200 samples"]
    for step in range(601, 701):
        clock.now += 0.5
        progress.reach(step)
    assert progress.elapsed == pytest.approx(50.0)
    assert progress.describe({}) == ["step 700/1,000", "22,400 samples", "64 samples/s", "left 2 min"]


def test_speed_ignores_slow_first_steps(clock):
    progress = StepProgress(10_000, 10, 0, clock)
    clock.now = 3600.0
    for step in range(1, 1502):
        progress.reach(step)
        clock.now += 1.0 if step > 500 else 100.0
    assert "10 samples/s" in progress.describe({})


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("phase", ["early", "middle", "end"])
def test_panel_fits_the_width_and_cuts_nothing_off(clock, width, phase):
    screen, console = make_panel(clock, width, steps=781_250, batch_size=16_384)
    last = {"early": 0, "middle": 100, "end": 110}[phase]
    for number in range(1, last + 1):
        clock.now += 700.0
        screen.update(number * 7_000, {**line(number), "skipped_steps": 9})
    if phase == "end":
        screen.update(781_250, CHECK)
    rows = draw(screen, console).splitlines()
    assert {len(row) for row in rows} == {width}
    assert len(rows) <= 23
    assert not any("…" in row for row in rows)


def test_panel_shows_every_metric(clock):
    screen, console = make_panel(clock)
    for step in range(10, 610, 10):
        clock.now += 2.0
        screen.update(step, line(step) | {"loss": 4 + math.sin(step)})
    screen.update(600, CHECK)
    text = draw(screen, console)
    for part in (
        "runs/tiny",
        "30.0%",
        "elapsed 2 min",
        "left 5 min",
        "step 600/2,000",
        "76,800 samples",
        "612 samples/s",
        "masked images 4.044",
        "vib texts 4.044",
        "image uncertainty   0.03560",
        "scale 10.2",
        "logit bias -9.8",
        "grad norm 3.1",
        "lr 0.0005",
        "waiting for data 3%",
        "memory 1.23 GiB",
        "held-out at step 600, n = 1,000",
        "R@1 43.1%   to text 42.0% (39.0 to 45.1)   to image 44.2% (41.1 to 47.3)",
        "text above image 71.2% (68.3 to 73.9)",
    ):
        assert part in text
    assert "skipped" not in text
    trend = next(row for row in text.splitlines() if row.startswith("│ loss"))
    assert sparkline([4 + math.sin(step) for step in range(10, 610, 10)][-47:]) in trend
    screen.update(610, {**line(610), "skipped_steps": 3})
    assert "skipped steps 3" in draw(screen, console)


def test_panel_keeps_held_out_results_and_drops_terms_of_earlier_stages(clock):
    screen, console = make_panel(clock)
    screen.update(10, {"loss": 1.0, "loss/pml": 1.0} | CHECK)
    screen.update(20, {"loss": 1.0, "loss/ppcl": 1.0})
    text = draw(screen, console)
    assert "held-out at step 10, n = 1,000 " in text
    assert "ppcl" in text
    assert "pml" not in text


@pytest.mark.parametrize("missing", [*line(1), None])
def test_displays_accept_missing_metrics(clock, missing):
    values = {name: value for name, value in line(1).items() if name != missing and missing is not None}
    screen, console = make_panel(clock)
    screen.update(1, values)
    assert "step 1/2,000" in draw(screen, console)
    file = io.StringIO()
    PlainDisplay(StepProgress(10, 1, 0, clock), "x", file).update(1, values)
    assert len(file.getvalue().splitlines()) == (2 if values else 1)


@pytest.mark.parametrize(
    "check", [{"held_out/r1": 0.5}, {"held_out/text_above_image": 0.5}, {"held_out/x": 1.0}]
)
def test_panel_shows_partial_held_out_results(clock, check):
    screen, console = make_panel(clock)
    screen.update(1, check)
    assert ("50.0%" in draw(screen, console)) == ("held_out/x" not in check)


def test_panel_does_not_call_104_of_104_certain(clock):
    screen, console = make_panel(clock)
    screen.update(1, {"held_out/n": 104.0, "held_out/r1": 1.0, "held_out/image_to_text_r1": 1.0})
    interval = binomtest(104, 104).proportion_ci(method="wilson")
    assert f"to text 100.0% ({100 * interval.low:.1f} to 100.0)" in draw(screen, console)


def test_panel_of_a_deterministic_model_has_no_uncertainty(clock):
    screen, console = make_panel(clock)
    screen.update(1, {"loss": 3.0, "loss/siglip": 3.0, "scale": 10.0, "logit_bias": -10.0})
    assert "uncertainty" not in draw(screen, console)


def test_panel_shows_nonfinite_values(clock):
    screen, console = make_panel(clock)
    for bad in (math.nan, math.inf):
        screen.update(1, dict.fromkeys([*line(1), *CHECK], bad))
        assert str(bad) in draw(screen, console)


def test_panel_is_ascii_on_an_ascii_terminal(clock):
    screen, console = make_panel(clock, file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    screen.update(1, line(1))
    screen.update(2, line(2) | CHECK)
    text = draw(screen, console)
    assert text.isascii()
    assert ASCII_BLOCKS[0] + ASCII_BLOCKS[-1] in text


def test_panel_is_drawn_at_most_four_times_per_second(clock, monkeypatch):
    frames = []
    monkeypatch.setattr(Live, "refresh", lambda _: frames.append(clock.now))
    screen, _ = make_panel(clock)
    for step in range(1, 1001):
        clock.now += 1 / 128
        screen.tick(step)
        screen.update(step, {"loss": 1.0})
    assert 25 <= len(frames) <= 4 * clock.now
    assert all(after - before >= 0.25 for before, after in pairwise(frames))


def test_messages_stay_above_the_panel_without_markup(clock):
    file = Terminal()
    console = Console(width=80, file=file, force_terminal=True, color_system=None)
    with LiveDisplay(StepProgress(20, 4, 0, clock), "runs/[/b][red]x", console) as watch:
        assert "runs/[/b][red]x" in file.getvalue()  # there at once
        watch.update(10, {"loss": 2.5})
        watch.print_message("saved [bold]checkpoint[/b]")
        watch.tick(20)
    text = file.getvalue()
    assert "saved [bold]checkpoint[/b]" in text
    last = text[text.rindex("╭") :]  # the last frame, drawn at the end however young the one before
    assert "step 20/20" in last
    assert "saved" not in last
    assert text.endswith("\x1b[?25h")  # the cursor is back


def test_error_restores_the_cursor(clock):
    file = Terminal()
    screen, _ = make_panel(clock, file=file)
    with pytest.raises(KeyError), screen:
        raise KeyError("x")
    assert "\x1b[?25h" in file.getvalue()


def test_plain_display_prints_one_line_per_update(clock):
    file = io.StringIO()
    lines = PlainDisplay(StepProgress(2000, 128, 100, clock), "runs/tiny", file)
    for step in range(101, 121):
        clock.now += 0.1
        lines.tick(step)
    values = {**line(120), "skipped_steps": 2}
    lines.update(120, {name: value for name, value in values.items() if not name.startswith("loss/")})
    lines.update(120, {"loss": 4.812, "loss/ppcl": 4.8, "loss/inclusion": 0.69})
    lines.update(120, CHECK)
    lines.print_message("saved")
    assert file.getvalue().splitlines() == [
        "runs/tiny: 2,000 steps of 128 samples, after step 100",
        "step 120/2,000  15,360 samples  612 samples/s  left 3 min  loss 4.812  image uncertainty 0.03512  "
        "text uncertainty 0.03512  scale 10.2  logit bias -9.8  grad norm 3.1  lr 0.0005  waiting for data 3%  "
        "memory 1.23 GiB  skipped steps 2",
        "step 120/2,000  15,360 samples  1,280 samples/s  left 3 min  loss 4.812  ppcl 4.800  inclusion 0.6900",
        "held-out at step 120, n = 1,000:  R@1 43.1%  to text 42.0% (39.0 to 45.1)  to image 44.2% (41.1 to 47.3)  "
        "uncertainty of images 0.03510  of texts 0.03720  text above image 71.2% (68.3 to 73.9)",
        "saved",
    ]


@pytest.mark.parametrize(
    ("choice", "terminal", "kind", "seen"),
    [
        ("auto", "xterm", "rich", True),
        ("auto", "dumb", "plain", True),
        ("auto", None, "plain", True),
        ("rich", None, "rich", True),
        ("plain", "xterm", "plain", True),
        ("none", "xterm", "none", False),
    ],
)
def test_open_display_chooses_by_mode_and_terminal(choice, terminal, kind, seen, monkeypatch, capsys):
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", terminal or "")
    monkeypatch.setenv("COLUMNS", "80")
    with open_display(choice, "runs/x", steps=10, batch_size=2, first_step=0) as watch:
        watch.tick(1)
        watch.update(2, {"loss": 1.5})
        watch.print_message("hello")
        print("a result")
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stderr.getvalue())
    assert ("hello" in text) == seen
    assert ("╭" in text) == (kind == "rich")
    assert ("step 2/10" in text) == seen
    assert capsys.readouterr().out == "a result\n"


class Broken(Terminal):
    """A stderr whose reader goes after the first few writes."""

    def __init__(self, error, good):
        super().__init__()
        self.error, self.good = error, good

    def write(self, text):
        self.good -= 1
        if self.good < 0:
            raise self.error
        return super().write(text)

    def flush(self):
        if self.good < 0:
            raise self.error


@pytest.mark.parametrize("good", [0, 1, 3])
@pytest.mark.parametrize("error", [BrokenPipeError(32, "x"), OSError(28, "x"), ValueError("closed file")])
@pytest.mark.parametrize("choice", ["plain", "rich"])
def test_displays_survive_a_broken_stderr(choice, error, good, monkeypatch):
    stderr = Broken(error, good)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr("prolip.training.display.SECONDS_PER_FRAME", 0.0)
    with open_display(choice, "runs/x", steps=10, batch_size=2, first_step=0) as watch:
        for step in range(1, 6):
            watch.tick(step)
            watch.update(step, {"loss": 1.5} | CHECK)
            watch.print_message("hello")
    assert stderr.good == -1  # it was tried once and then left alone
    assert sys.stderr is stderr


def test_plain_display_escapes_characters_the_file_cannot_encode(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii"))
    with open_display("plain", "Läufe/ü", steps=1, batch_size=1, first_step=0) as display:
        display.print_message("then")
        assert raw.getvalue() == b"L\\xe4ufe/\\xfc: 1 steps of 1 samples\nthen\n"


def test_closed_pipe_keeps_exit_code_zero():
    code = (
        "import time\nfrom prolip.training.display import open_display\n"
        "for mode in ('plain', 'rich'):\n"
        "    with open_display(mode, 'x', steps=9, batch_size=1, first_step=0) as display:\n"
        "        for step in range(9):\n            display.print_message('hello')\n            time.sleep(0.02)\n"
        "print('done')"
    )
    command = ["bash", "-c", '"$0" -c "$1" 2> >(head -1 > /dev/null)', sys.executable, code]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("done\n", 0)


def test_final_message_is_printed_below_the_panel(clock):
    file = io.StringIO()
    screen, _ = make_panel(clock, file=file)
    with screen as watch:
        watch.print_at_end("the model is in x/model")
        watch.tick(10)
        assert "the model is in" not in file.getvalue()
    assert file.getvalue().rstrip().endswith("the model is in x/model")
