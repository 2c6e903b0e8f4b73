"""Formats of the page's numbers."""

import pytest

from prolip.reports.page.formatting import (
    describe_trend,
    describe_untrained,
    drop_none,
    format_count,
    format_percentage,
    format_range,
    format_ratio,
)


@pytest.mark.parametrize(
    ("value", "expected_sign", "verb", "is_reversed"),
    [
        (0.6, 1, "rises", False),
        (-0.6, 1, "falls", True),
        (-0.6, -1, "falls", False),
        (0.6, -1, "rises", True),
        (0.05, 1, "no trend", False),
        (None, 1, "undefined", False),
    ],
)
def test_describe_trend_names_reversed_trends(value, expected_sign, verb, is_reversed):
    text = describe_trend(value, expected_sign)
    assert verb in text
    assert ("opposite to the expectation" in text) == is_reversed


@pytest.mark.parametrize(
    ("count", "text"), [(950, "950"), (278_000, "278 k"), (1.5e6, "1.5 M"), (12.8e9, "12.8 B")]
)
def test_format_count(count, text):
    assert format_count(count) == text


def test_format_range_joins_equal_ends():
    assert format_range([0.3, 0.1, 0.2], format_percentage) == "10.0\u00a0% to 30.0\u00a0%"
    assert format_range([0.1, 0.10001], format_percentage) == "10.0\u00a0%"
    assert format_range([], format_percentage) == "–"
    assert describe_untrained([], format_percentage) == ""


def test_format_percent_and_drop_none():
    assert format_percentage(0.618) == "61.8\u00a0%"
    assert format_percentage(None) == "–"
    assert drop_none([1.0, None, 0.0]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.84, "1.8"), (1.05, "1.1"), (1.0008, "1.001"), (0.97, "0.970")]
)
def test_format_ratio_shows_a_difference_from_one(ratio, text):
    assert format_ratio(ratio) == text
