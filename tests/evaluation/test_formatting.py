import io

import pytest
from rich.console import Console

from prolip.evaluation.formatting import describe_bad_samples, format_number, format_percent, table


@pytest.mark.parametrize(("share", "text"), [(0.618, "61.8"), (0.0, "0.0"), (1.0, "100.0"), (None, "–")])
def test_percent(share, text):
    assert format_percent(share) == text


def test_number():
    assert [format_number(v) for v in (0.00123456, 12345.6, 0.0, None)] == ["0.001235", "1.235e+04", "0", "–"]
    assert [format_number(v, "+.3f") for v in (0.5, None)] == ["+0.500", "–"]


def test_bad_samples_are_told_if_there_are_any():
    assert describe_bad_samples(0) is None
    assert describe_bad_samples(1) == "1 bad sample is left out"
    assert describe_bad_samples(1234) == "1,234 bad samples are left out"


def test_words_stand_left_and_numbers_right():
    made = table("a title", ("name", "way"), ["R@1"], caption="a note")
    assert (made.title, made.caption) == ("a title", "a note")
    columns = [(column.header, column.justify) for column in made.columns]
    assert columns == [("name", "left"), ("way", "left"), ("R@1", "right")]
    assert table(None, ["name"], []).caption is None


def test_a_long_name_is_not_cut_off():
    made = table(None, ["name"], ["value"])
    made.add_row("x" * 30, "1.0")
    console = Console(width=24, record=True, file=io.StringIO())
    console.print(made)
    assert console.export_text().count("x") == 30
