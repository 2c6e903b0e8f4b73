from collections import Counter

import pytest
import torch

from prolip.scenes import is_true
from reproduction import filtering
from reproduction.tests.factories import WORLD

SCENES = [WORLD.draw_scene(8, index) for index in range(600)]


def test_noisy_pairs_are_false_where_marked():
    pairs = filtering.make_noisy_pairs(SCENES, WORLD, seed=8)
    true = [is_true(caption.meaning, scene) for caption, scene in zip(pairs.captions, SCENES, strict=True)]
    assert true == pairs.correct.tolist()
    assert true.count(False) == round(0.3 * len(SCENES))


def test_noisy_pairs_levels_are_independent_of_truth():
    pairs = filtering.make_noisy_pairs(SCENES, WORLD, seed=8)
    shares = [
        {level: count / total for level, count in Counter(levels).items()}
        for levels in (
            [c.level for c, right in zip(pairs.captions, pairs.correct, strict=True) if right == wanted]
            for wanted in (True, False)
        )
        for total in [len(levels)]
    ]
    for level in (1, 2, 3):
        assert shares[0][level] == pytest.approx(shares[1][level], abs=0.12)
    assert 0 not in shares[0]


def test_precision_against_a_loop(generator):
    right, score = torch.rand(50, generator=generator) < 0.7, torch.randn(50, generator=generator)
    best = sorted(range(50), key=lambda i: -score[i])[:35]
    found = filtering.evaluate_score(right, score)
    assert found["precision"] == pytest.approx(sum(bool(right[i]) for i in best) / 35)
    assert filtering.evaluate_score(right, right.double())["auroc"] == 1.0


def test_a_perfect_score_keeps_only_what_is_right():
    right = torch.arange(100) < 70
    assert filtering.evaluate_score(right, right.double())["precision"] == 1.0
    assert filtering.evaluate_score(right, -right.double())["precision"] == pytest.approx(40 / 70)
