"""What is said of uncertainty."""

import pytest

from prolip.reports.page import uncertainty


def levels(*medians):
    told = [{"level": level, "median": median} for level, median in enumerate(medians)]
    return {"levels": told, "spearman": -0.5}


def test_one_pair_of_levels_out_of_order_is_named():
    told = uncertainty.describe_levels(levels(3, 1, 2))
    assert "2 above 1" in told
    assert "wrong way" not in told
    assert "one level" in uncertainty.describe_levels(levels(3))
    assert "nothing learned" in uncertainty.describe_levels(levels(3, 2, 1), [-0.6, 0.1])
    assert "ρ −0.50; without training −0.20 to +0.10." in uncertainty.describe_levels(
        levels(3, 2, 1), [-0.2, 0.1]
    )


def test_a_control_that_does_as_well_is_named():
    share = {"text_above_own_image": 0.95}
    assert "nothing learned" in uncertainty.describe_pairs(share, [0.94])
    assert "nothing learned" not in uncertainty.describe_pairs(share, [0.4])
    assert "40.0\u00a0%" in uncertainty.describe_pairs(share, [0.4])
    truth = {"spearman": 0.6, "within_length": {"mean": None}}
    assert "without training +0.17." in uncertainty.describe_truth(truth, [0.17])
    assert "nothing learned" in uncertainty.describe_truth(truth, [-0.3, 0.55])
    assert "nothing learned" not in uncertainty.describe_truth(truth, [-0.9, 0.17])


@pytest.mark.parametrize(("fresh", "is_close"), [(-0.6, True), (0.6, False), (-0.1, False)])
def test_a_fall_with_length_that_needs_no_training_is_named(fresh, is_close):
    told = uncertainty.describe_length({"by_length": {"spearman": -0.5}}, [0.0, fresh])
    assert ("nothing learned" in told) == is_close


def test_a_gain_that_may_be_nothing_is_no_finding():
    fit = {"r2_with": 0.1, "difference": 0.01, "coefficients": {"log uncertainty": -0.3}}
    told = uncertainty.describe_regression({"own_image": {**fit, "interval": [-0.02, 0.04]}, "truth": None})
    assert "nothing that is sure (+0.01)" in told
    assert "wrong way" not in told


def test_nothing_is_said_of_a_regression_that_could_not_be_fitted():
    assert uncertainty.describe_regression({"own_image": {"r2_with": None}, "truth": None}) == ""
