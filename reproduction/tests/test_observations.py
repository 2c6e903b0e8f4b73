import math

import pytest

from reproduction.observations import (
    compute_fraction_error,
    get_value,
    observe_correlation,
    observe_fraction,
    observe_fraction_below,
    observe_gain,
    observe_log_ratio,
    observe_min_fraction,
    observe_saving,
    observe_weakest,
)

NUMBERS = {"n": 400, "a": 0.8, "b": 0.6, "none": None, "rows": [{"x": 0.9}, {"x": 0.7}], "pairs": [0.4, 0.6],
           "wide": {"mean": 2.0, "error": 0.1}, "narrow": {"mean": 1.0, "error": 0.0},
           "unc": {"median": 1.01, "error": 0.003}, "heads": {"median": 1.05, "error": 0.004}}  # fmt: skip


def test_a_path_leads_through_dicts_and_lists():
    assert get_value(NUMBERS, "rows/1/x") == get_value(NUMBERS, "rows/-1/x") == 0.7
    assert get_value(NUMBERS, "none/anything/0") is None


@pytest.mark.parametrize("path", ["c", "rows/5/x", "rows/first", "rows/0/y"])
def test_get_value_names_the_missing_path(path):
    with pytest.raises(ValueError, match=f"no number at {path}"):
        get_value(NUMBERS, path)


def test_effects_have_the_sign_of_the_claim():
    assert observe_fraction("a", "n")(NUMBERS).effect == pytest.approx(0.3)
    assert observe_fraction_below("a", "n", 0.5)(NUMBERS).effect == pytest.approx(-0.3)
    assert observe_correlation("a", "n", sign=-1)(NUMBERS).effect == -0.8
    assert observe_gain("b", "a", "n")(NUMBERS).effect == pytest.approx(-0.2)
    assert observe_min_fraction("rows", "x", "n")(NUMBERS).value == 0.7
    assert observe_min_fraction("pairs", None, "n")(NUMBERS).effect == pytest.approx(-0.1)
    assert observe_log_ratio("wide", "narrow")(NUMBERS).effect == pytest.approx(math.log(2))
    assert observe_saving("unc", "heads")(NUMBERS).effect == pytest.approx(0.04)


def test_errors_by_their_formulas():
    assert observe_fraction("a", "n")(NUMBERS).error == pytest.approx(math.sqrt(0.8 * 0.2 / 400))
    assert observe_correlation("a", "n")(NUMBERS).error == pytest.approx(1 / math.sqrt(399))
    assert observe_gain("a", "b", "n")(NUMBERS).error == pytest.approx(math.sqrt((0.16 + 0.24) / 400))
    assert observe_log_ratio("wide", "narrow")(NUMBERS).error == pytest.approx(0.05)
    assert observe_saving("unc", "heads")(NUMBERS).error == pytest.approx(0.005)
    assert compute_fraction_error(1.0, 100) == compute_fraction_error(0.0, 100) == pytest.approx(0.01)


def test_the_weakest_of_several_decides():
    read = observe_weakest(observe_fraction("a", "n"), observe_fraction("b", "n"))
    assert read(NUMBERS).value == 0.8
    assert read(NUMBERS).effect == pytest.approx(0.1)
    assert read(NUMBERS).strongest == pytest.approx(0.3)
    assert observe_min_fraction("pairs", None, "n")(NUMBERS).strongest == pytest.approx(0.1)


@pytest.mark.parametrize(
    "read",
    [observe_fraction("none", "n"), observe_fraction_below("none", "n", 1), observe_correlation("none", "n"),
    observe_gain("a", "none", "n"),
     observe_gain("none", "a", "n"), observe_min_fraction("none", "x", "n"), observe_log_ratio("none", "wide"),
     observe_saving("none", "heads"), observe_saving("unc", "none"),
     observe_weakest(observe_fraction("a", "n"), observe_fraction("none", "n"))],
)  # fmt: skip
def test_a_number_that_a_model_lacks_gives_no_reading(read):
    assert read(NUMBERS) is None
