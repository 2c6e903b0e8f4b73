"""What is said of zero-shot classification."""

import pytest

from prolip.reports.page import zeroshot
from tests.reports.page.test_sentences import prompts

NAMES = {"uncertainty": "image uncertainty", "match": "match", "max_softmax": "softmax"}


def test_accuracy_is_held_against_chance_and_untrained_models():
    result = {"top1": 0.3, "top5": 0.9, "n": 100, "classes": 10}
    assert "no better" not in zeroshot.describe_accuracy(result, [0.1])
    assert "no better" in zeroshot.describe_accuracy(result, [0.3])
    assert "no better" in zeroshot.describe_accuracy({**result, "top1": 0.1}, [])


def test_with_few_classes_there_are_no_first_five():
    assert "five" not in zeroshot.describe_accuracy({"top1": 0.9, "top5": None, "n": 100, "classes": 2}, [])


@pytest.mark.parametrize(("own", "is_chance"), [(0.35, True), (0.2, False)])
def test_uncertainty_that_is_no_better_than_chance_is_told(own, is_chance):
    parts = {"error": 0.3, "uncertainty": {"aurc": own}, "match": {"aurc": 0.1}, "max_softmax": None}
    told = zeroshot.describe_risk(parts, NAMES)
    assert ("no better than chance" in told) == is_chance
    assert "match orders them best" in told


def test_a_fit_that_does_not_help_is_told():
    assert "scale helps" in zeroshot.describe_reliability(0.2, 0.1)
    assert "does not help" in zeroshot.describe_reliability(0.1, 0.2)


def test_a_gain_that_a_control_has_too_is_told():
    assert "but control has 90.0\u00a0% as well" in zeroshot.describe_strategies(prompts(0.2))
    assert "as well" not in zeroshot.describe_strategies(prompts(0.45))


def test_small_differences_are_no_finding():
    assert "within chance" in zeroshot.describe_strategies(prompts(0.001))
    assert "hardly a trend" in zeroshot.describe_deciles(0.01)
    assert "hardly a trend" in zeroshot.describe_deciles(None)
