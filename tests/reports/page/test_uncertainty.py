"""Descriptions of uncertainty."""

import pytest

from prolip.evaluation.result import Proportion
from prolip.reports.page import uncertainty
from tests.reports.page.uncertainty_results import (
    make_ambiguity,
    make_comparison,
    make_levels,
    make_regressions,
)


def test_describe_levels_names_levels_out_of_order():
    text = uncertainty.describe_levels(make_levels(3, 1, 2))
    assert "2 above 1" in text
    assert "opposite" not in text
    assert "only one level" in uncertainty.describe_levels(make_levels(3))
    assert "anything was learned" in uncertainty.describe_levels(make_levels(3, 2, 1), [-0.6, 0.1])
    assert "ρ −0.50; untrained models: −0.20 to +0.10." in uncertainty.describe_levels(
        make_levels(3, 2, 1), [-0.2, 0.1]
    )


def test_descriptions_report_untrained_models_that_do_as_well():
    assert "anything was learned" in uncertainty.describe_pairs(Proportion.from_mean(0.95, 100), [0.94])
    assert "anything was learned" not in uncertainty.describe_pairs(Proportion.from_mean(0.95, 100), [0.4])
    assert "40.0\u00a0%" in uncertainty.describe_pairs(Proportion.from_mean(0.95, 100), [0.4])


def test_differences_within_noise_are_not_called_reversed():
    """photos-small on 250 pairs: 46.8 % of the captions, and means that differ by a thousandth."""
    text = uncertainty.describe_pairs(Proportion.from_mean(0.468, 250))
    assert text.endswith("as many as by chance.")
    assert "opposite" in uncertainty.describe_pairs(Proportion.from_mean(0.468, 25_000))
    same = uncertainty.describe_modalities(0.2522, 0.252)
    assert "equally uncertain: the mean of texts is 0.999 times" in same
    assert "opposite" in uncertainty.describe_modalities(0.26, 0.25)
    truth = make_ambiguity(0.6)
    assert "untrained models: +0.17." in uncertainty.describe_truth(truth, [0.17])
    assert "anything was learned" in uncertainty.describe_truth(truth, [-0.3, 0.55])
    assert "anything was learned" not in uncertainty.describe_truth(truth, [-0.9, 0.17])


@pytest.mark.parametrize(("fresh", "is_close"), [(-0.6, True), (0.6, False), (-0.1, False)])
def test_describe_length_compares_with_untrained(fresh, is_close):
    text = uncertainty.describe_length(-0.5, [0.0, fresh])
    assert ("anything was learned" in text) == is_close


def test_describe_regression_reports_insignificant_gain():
    fit = make_comparison(0.01, weight=-0.3, interval=(-0.02, 0.04))
    text = uncertainty.describe_regression(make_regressions(fit))
    assert "+0.01 (not significant)" in text
    assert "opposite" not in text


def test_describe_regression_is_empty_without_fit():
    assert uncertainty.describe_regression(make_regressions()) == ""
