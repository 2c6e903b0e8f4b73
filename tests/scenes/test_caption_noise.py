from collections import Counter

import pytest

from prolip.scenes import SIMPLE, is_true
from prolip.scenes.caption_noise import NoisyCaptions, SceneSequence

SCENES = SceneSequence(SIMPLE, 8, 600)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_noisy_captions_false_fraction(fraction):
    noisy = NoisyCaptions(SCENES, SIMPLE, 8, fraction)
    true = [is_true(noisy.get_caption(i).meaning, scene) for i, scene in enumerate(SCENES)]
    assert true == [noisy.is_correct(i) for i in range(600)]
    assert true.count(False) == round(fraction * 600)


def test_noisy_captions_need_two_scenes():
    with pytest.raises(ValueError, match="at least two scenes"):
        NoisyCaptions([SCENES[0]], SIMPLE, 8, 0.9)


def test_noisy_captions_levels_are_independent_of_truth():
    noisy = NoisyCaptions(SCENES, SIMPLE, 8, 0.5)
    levels = {right: Counter() for right in (True, False)}
    for index in range(600):
        levels[noisy.is_correct(index)][noisy.get_caption(index).level] += 1 / 300
    for level in (1, 2, 3):
        assert levels[True][level] == pytest.approx(levels[False][level], abs=0.12)
    assert 0 not in levels[True]


def test_scene_sequence():
    assert len(SCENES) == len(list(SCENES)) == 600
    assert SCENES[7] == SIMPLE.draw_scene(8, 7)
    with pytest.raises(IndexError):
        SCENES[600]
