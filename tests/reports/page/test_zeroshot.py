"""Descriptions on zero-shot classification."""

import pytest

from prolip.reports.page import zeroshot
from tests.reports.page.test_descriptions import prompts

NAMES = {"uncertainty": "image uncertainty", "match": "match", "max_softmax": "softmax"}


def test_describe_accuracy_compares_with_chance_and_untrained():
    result = {"top1": 0.3, "top5": 0.9, "n": 100, "classes": 10}
    assert "no better" not in zeroshot.describe_accuracy(result, [0.1])
    assert "no better" in zeroshot.describe_accuracy(result, [0.3])
    assert "no better" in zeroshot.describe_accuracy({**result, "top1": 0.1}, [])


def test_describe_accuracy_omits_top5_for_few_classes():
    assert "top 5" not in zeroshot.describe_accuracy({"top1": 0.9, "top5": None, "n": 100, "classes": 2}, [])


@pytest.mark.parametrize(("own", "is_chance"), [(0.35, True), (0.2, False)])
def test_describe_risk_reports_useless_uncertainty(own, is_chance):
    parts = {"error": 0.3, "uncertainty": {"aurc": own}, "match": {"aurc": 0.1}, "max_softmax": None}
    text = zeroshot.describe_risk(parts, NAMES)
    assert ("no better than chance" in text) == is_chance
    assert "match ranks predictions best" in text


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
