import pytest

from reproduction.formatting import format_count, format_range, format_values


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        ([0.981], "percent", "98.1 %"),
        ([0.97, 0.99], "percent", "98.0 ± 1.4 %"),
        ([0.012], "points", "+1.2 points"),
        ([-0.012], "points", "-1.2 points"),
        ([0.9, 0.9], "correlation", "+0.90 ± 0.00"),
        ([1.0021], "ratio", "1.002"),
        ([], "percent", ""),
    ],
)
def test_values_are_expected_with_their_spread(values, form, expected):
    assert format_values(values, form) == expected


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [([0.7, 0.04], "percent", "4.0 to 70.0 %"), ([0.5], "percent", "50.0 %"), ([], "percent", ""),
     ([0.01, -0.02], "points", "-2.0 to +1.0 points"), ([0.2, -0.1], "correlation", "-0.10 to +0.20")],
)  # fmt: skip
def test_format_range(values, form, expected):
    assert format_range(values, form) == expected


def test_format_count():
    assert [format_count(count, "seed") for count in (0, 1, 3)] == ["0 seeds", "1 seed", "3 seeds"]
