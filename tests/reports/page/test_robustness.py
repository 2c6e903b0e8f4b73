"""What is said of pictures made worse."""

import pytest

from prolip.reports.page import robustness


def test_a_small_change_is_no_finding():
    rows = [{"accuracy": 0.9, "uncertainty": value} for value in (1.0, 0.999)]
    assert "hardly changes (−0.1\u00a0%)" in robustness.describe_uncertainty(rows)


@pytest.mark.parametrize(("fresh", "is_close"), [(0.09, True), (0.02, False), (-0.5, False)])
def test_a_rise_that_needs_no_training_is_named(fresh, is_close):
    rows = [{"accuracy": 0.9, "uncertainty": value} for value in (1.0, 1.1)]
    assert ("nothing learned" in robustness.describe_uncertainty(rows, [-0.01, fresh])) == is_close


def test_no_uncertainty_cannot_grow():
    rows = [{"accuracy": 0.9, "uncertainty": value} for value in (0.0, 0.0)]
    assert "no uncertainty" in robustness.describe_uncertainty(rows)


def test_accuracy_is_told_from_end_to_end():
    told = robustness.describe_accuracy([{"accuracy": value} for value in (0.9, 0.7, 0.5)])
    assert "from 90.0\u00a0% to 50.0\u00a0%" in told
