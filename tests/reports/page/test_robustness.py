"""Descriptions on robustness."""

import pytest

from prolip.reports.page import robustness
from tests.reports.page.test_descriptions import make_rows


def test_describe_uncertainty_ignores_small_changes():
    rows = make_rows(uncertainty=(1.0, 0.999))
    assert "hardly changes (−0.1\u00a0%)" in robustness.describe_uncertainty(rows)


@pytest.mark.parametrize(("fresh", "is_close"), [(0.09, True), (0.02, False), (-0.5, False)])
def test_describe_uncertainty_compares_with_untrained(fresh, is_close):
    rows = make_rows(uncertainty=(1.0, 1.1))
    assert ("anything was learned" in robustness.describe_uncertainty(rows, [-0.01, fresh])) == is_close


def test_describe_uncertainty_without_uncertainty():
    rows = make_rows(uncertainty=(None, None))
    assert "no uncertainty" in robustness.describe_uncertainty(rows)


def test_describe_accuracy_gives_both_ends():
    text = robustness.describe_accuracy(make_rows(accuracy=(0.9, 0.7, 0.5)))
    assert "from 90.0\u00a0% to 50.0\u00a0%" in text
