"""Descriptions on zero-shot classification."""

import pytest

from prolip.evaluation.metrics.selective import RiskCurve
from prolip.evaluation.result import Proportion
from prolip.evaluation.zeroshot_result import ConfidenceMetrics, SelectiveMetrics, ZeroShotResult
from prolip.reports.page import zeroshot
from tests.reports.page.test_descriptions import prompts


def ranked(aurc):
    curve = RiskCurve(coverage=(1.0,), risk=(0.3,))
    return ConfidenceMetrics(aurc=aurc, excess_aurc=aurc, auroc=0.5, curve=curve)


def make_result(top1, num_classes):
    """A result of 100 images, as far as its description reads it."""
    return ZeroShotResult(
        data="photos", n=100, rank_by="csd", seed=0, num_classes=num_classes, num_empty_classes=0,
        logit_scale=10.0, logit_bias=None, top1=Proportion.from_mean(top1, 100),
        top5=Proportion.from_mean(0.9, 100) if num_classes >= 5 else None, mean_per_class_recall=top1,
        uncertainty=None, calibration=None, ood=None,
        selective=SelectiveMetrics(
            error=1 - top1, oracle_aurc=0.0, uncertainty=None, match=ranked(0.1), max_softmax=ranked(0.2)
        ),
    )  # fmt: skip


NAMES = {"uncertainty": "image uncertainty", "match": "match", "max_softmax": "softmax"}


def test_describe_accuracy_compares_with_chance_and_untrained():
    result = make_result(top1=0.3, num_classes=10)
    assert "no better" not in zeroshot.describe_accuracy(result, [0.1])
    assert "no better" in zeroshot.describe_accuracy(result, [0.3])
    assert "no better" in zeroshot.describe_accuracy(make_result(top1=0.1, num_classes=10), [])
    assert "top 5" in zeroshot.describe_accuracy(result, [])


def test_describe_accuracy_omits_top5_for_few_classes():
    assert "top 5" not in zeroshot.describe_accuracy(make_result(top1=0.9, num_classes=2), [])


@pytest.mark.parametrize(("own", "is_chance"), [(0.35, True), (0.2, False)])
def test_describe_risk_reports_useless_uncertainty(own, is_chance):
    selective = SelectiveMetrics(
        error=0.3, oracle_aurc=0.0, uncertainty=ranked(own), match=ranked(0.1), max_softmax=ranked(0.2)
    )
    text = zeroshot.describe_risk(selective, NAMES)
    assert ("no better than chance" in text) == is_chance
    assert "match ranks predictions best" in text


def test_describe_risk_without_errors_ranks_nothing():
    selective = SelectiveMetrics(
        error=0.0, oracle_aurc=0.0, uncertainty=ranked(0.0), match=ranked(0.0), max_softmax=ranked(0.0)
    )
    text = zeroshot.describe_risk(selective, NAMES)
    assert text.endswith("Here no prediction is wrong.")
    assert "chance" not in text


def test_describe_reliability_reports_useless_fit():
    assert "temperature helps" in zeroshot.describe_reliability(0.2, 0.1)
    assert "does not help" in zeroshot.describe_reliability(0.1, 0.2)


def test_describe_strategies_reports_gain_of_control():
    assert "but control reaches 90.0\u00a0% too" in zeroshot.describe_strategies(prompts(0.2))
    assert " too." not in zeroshot.describe_strategies(prompts(0.45))


def test_small_differences_are_not_called_effects():
    assert "within noise" in zeroshot.describe_strategies(prompts(0.001))
    assert "no clear trend" in zeroshot.describe_deciles(0.01)
    assert "no clear trend" in zeroshot.describe_deciles(None)
