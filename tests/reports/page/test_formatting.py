"""Numbers as sentences tell them."""

import pytest

from prolip.reports.page.formatting import (
    describe_trend,
    describe_untrained,
    drop_none,
    format_count,
    format_duration,
    format_percent,
    format_range,
)


@pytest.mark.parametrize(
    ("value", "hoped", "says", "wrong"),
    [
        (0.6, 1, "rises", False),
        (-0.6, 1, "falls", True),
        (-0.6, -1, "falls", False),
        (0.6, -1, "rises", True),
        (0.05, 1, "no trend", False),
        (None, 1, "nothing", False),
    ],
)
def test_a_trend_knows_which_way_is_right(value, hoped, says, wrong):
    told = describe_trend(value, hoped)
    assert says in told
    assert ("the wrong way round" in told) == wrong


@pytest.mark.parametrize(
    ("count", "told"), [(950, "950"), (278_000, "278 k"), (1.5e6, "1.5 M"), (12.8e9, "12.8 B")]
)
def test_large_numbers(count, told):
    assert format_count(count) == told


@pytest.mark.parametrize(("seconds", "told"), [(42.4, "42 s"), (720, "12 min"), (9000, "2.5 h"), (None, "–")])
def test_times(seconds, told):
    assert format_duration(seconds) == told


def test_a_span_has_two_ends_unless_they_are_alike():
    assert format_range([0.3, 0.1, 0.2], percent) == "10.0\u00a0% to 30.0\u00a0%"
    assert format_range([0.1, 0.10001], percent) == "10.0\u00a0%"
    assert format_range([], percent) == "–"
    assert describe_untrained([], percent) == ""


def test_shares_and_gaps():
    assert format_percent(0.618) == "61.8\u00a0%"
    assert format_percent(None) == "–"
    assert drop_none([1.0, None, 0.0]) == [1.0, 0.0]
