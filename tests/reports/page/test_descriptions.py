"""Descriptions of figures follow from the numbers: they change when the numbers do."""

import pytest

from prolip.evaluation.prompts import PromptsResult
from prolip.evaluation.result import Mean, Proportion
from prolip.evaluation.robustness_result import AccuracyUncertainty
from prolip.evaluation.strategies import StrategyRow
from prolip.reports.page import curves, hierarimgs, plane, robustness, traversal, uncertainty, zeroshot
from prolip.retrieval.traversal.api import CaptionPath, CaptionStep
from tests.reports.page.uncertainty_results import (
    make_ambiguity,
    make_comparison,
    make_levels,
    make_regressions,
)

REVERSED = "opposite to the expectation"


def make_rows(accuracy=None, uncertainty=None):
    """Rows of robustness with these values."""
    accuracy, uncertainty = accuracy or (0.9,) * len(uncertainty), uncertainty or (1.0,) * len(accuracy)
    return [
        AccuracyUncertainty(
            accuracy=Proportion.from_mean(fraction, 10),
            uncertainty=None if mean is None else Mean(value=mean, n=10, std_error=0.0),
        )
        for fraction, mean in zip(accuracy, uncertainty, strict=True)
    ]


def path(*uncertainties):
    return CaptionPath(tuple(CaptionStep("a", value, 0.5) for value in uncertainties), None, "null", 0.1)


def prompts(gain):
    found = [("ensemble", 0.5), ("bprw", 0.5 + gain), ("control", 0.9)]
    rows = tuple(
        StrategyRow(name=family, family=family, accuracy=Proportion.from_mean(value, 1000))
        for family, value in found
    )
    return PromptsResult(
        data="data", n=1000, num_classes=4, num_templates=3, num_train_images=0, training_source="split",
        rank_by="csd", variance="average", seed=0, runs=1, single_template=0, rows=rows, learned=(),
    )  # fmt: skip


PAIRS = {
    "modalities": [uncertainty.describe_modalities(image, text) for image, text in ((1, 2), (2, 1))],
    "pairs": [uncertainty.describe_pairs(Proportion.from_mean(fraction, 100)) for fraction in (0.9, 0.1)],
    "length": [uncertainty.describe_length(rho) for rho in (-0.5, 0.5)],
    "levels": [uncertainty.describe_levels(make_levels(*medians)) for medians in ((3, 2, 1), (1, 2, 3))],
    "truth": [uncertainty.describe_truth(make_ambiguity(rho, rho)) for rho in (0.6, -0.6)],
    "regression": [
        uncertainty.describe_regression(make_regressions(ambiguity=make_comparison(0.2, weight)))
        for weight in (0.3, -0.3)
    ],
    "training": [curves.describe_uncertainty(image, text) for image, text in ((1, 2), (2, 1))],
    "plane": [plane.describe_plane(image, text, 0.5) for image, text in ((1, 2), (2, 1))],
    "hierarimgs": [hierarimgs.describe_level(fraction, []) for fraction in (0.9, 0.1)],
    "paths": [traversal.describe_paths([path(*values)], []) for values in ((1, 2), (2, 1))],
    "order": [traversal.describe_order(fraction, 10) for fraction in (0.9, 0.1)],
    "deciles": [zeroshot.describe_deciles(rho) for rho in (-0.5, 0.5)],
    "strategies": [zeroshot.describe_strategies(prompts(gain)) for gain in (0.2, -0.2)],
    "robustness": [
        robustness.describe_uncertainty(make_rows(uncertainty=ends)) for ends in ((0.1, 0.2), (0.2, 0.1))
    ],
}


@pytest.mark.parametrize("name", PAIRS)
def test_description_reports_a_reversed_result(name):
    expected, reversed_ = PAIRS[name]
    assert REVERSED not in expected
    assert REVERSED in reversed_
