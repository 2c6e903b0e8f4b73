import math
import os

import pytest

from prolip.console import (
    BLOCKS,
    FailSafeFile,
    describe_bad_samples,
    format_duration,
    format_number,
    format_percent,
    format_size,
    make_console,
    make_table,
    print_tables,
    printable,
    sparkline,
)


def test_print_tables_shows_brackets_and_wraps_long_text(capsys):
    table = make_table(
        "a title", ["name"], ["n"], [["[bold]x[/bold] " + "word " * 60, "12"]], caption="a note"
    )
    print_tables([table], width=60)
    printed = capsys.readouterr().out
    assert "[bold]x[/bold]" in printed
    assert printed.count("word") == 60
    assert "a title" in printed
    assert "a note" in printed
    assert max(map(len, printed.splitlines())) <= 60


def test_number_columns_are_right_aligned(capsys):
    print_tables([make_table(None, ["k"], ["value"], [["a", "1"], ["b", "12345"]])])
    rows = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "a" in line.split("│")[1:2][0:1] or " 1 " in line
    ]
    assert any(line.rstrip().endswith("1 │") for line in rows)


@pytest.mark.parametrize("stderr", [False, True])
def test_console_writes_to_the_stream_asked_for(stderr, capsys):
    make_console(stderr=stderr).print("here")
    captured = capsys.readouterr()
    assert (captured.err if stderr else captured.out) == "here\n"


def test_printable_removes_control_characters():
    assert printable("a\x1b[31mb\nc") == "a [31mb c"


@pytest.mark.parametrize(("fraction", "text"), [(0.618, "61.8"), (0.0, "0.0"), (1.0, "100.0"), (None, "–")])
def test_format_percent_has_one_decimal(fraction, text):
    assert format_percent(fraction) == text


def test_format_number_has_four_significant_digits_by_default():
    assert [format_number(v) for v in (0.00123456, 12345.6, 0.0, None)] == ["0.001235", "1.235e+04", "0", "–"]
    assert [format_number(v, "+.3f") for v in (0.5, None)] == ["+0.500", "–"]


def test_describe_bad_samples_is_none_without_any():
    assert describe_bad_samples(0) is None
    assert describe_bad_samples(1) == "1 bad sample was skipped"
    assert describe_bad_samples(1234) == "1,234 bad samples were skipped"


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.4, "42 s"), (720, "12 min"), (9000, "2.5 h"), (439_300, "5.1 d"), (None, "–")]
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 kB"), (1, "1 kB"), (43_210, "44 kB"), (1e6, "1.0 MB"), (1.25e9, "1,250.0 MB")],
)
def test_format_size(num_bytes, text):
    assert format_size(num_bytes) == text


def test_sparkline_scales_values_to_eight_levels():
    values = [3.0, -1.0, 0.5, 7.0, 6.9]
    expected = "".join(BLOCKS[round((value + 1) / 8 * 7)] for value in values)
    assert sparkline(values) == expected
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([0.0, math.nan, 1.0, math.inf]) == "▁!█!"
    assert sparkline([math.nan]) == "!"


def test_what_a_closed_pipe_did_not_take_is_dropped():
    """A write that failed stays in the buffer: Python would flush it again when it ends, and fail with code 120."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe:
        file = FailSafeFile(pipe)
        print("x", file=file, flush=True)
        assert not file.isatty()
        pipe.flush()  # BrokenPipeError, if the text were still to be written
