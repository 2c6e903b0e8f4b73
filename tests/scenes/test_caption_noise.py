from collections import Counter

import pytest

from prolip.scenes import SIMPLE, is_true
from prolip.scenes.caption_noise import NoisyCaptions, SceneSequence

SCENES = SceneSequence(SIMPLE, 8, 600)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_share_that_was_asked_for_is_false(share):
    pollution = NoisyCaptions(SCENES, SIMPLE, 8, share)
    true = [is_true(pollution.caption(i).meaning, scene) for i, scene in enumerate(SCENES)]
    assert true == [pollution.is_correct(i) for i in range(600)]
    assert true.count(False) == round(share * 600)


def test_levels_do_not_give_pollution_away():
    pollution = NoisyCaptions(SCENES, SIMPLE, 8, 0.5)
    levels = {right: Counter() for right in (True, False)}
    for index in range(600):
        levels[pollution.is_correct(index)][pollution.caption(index).level] += 1 / 300
    for level in (1, 2, 3):
        assert levels[True][level] == pytest.approx(levels[False][level], abs=0.12)
    assert 0 not in levels[True]


def test_scenes_are_those_of_the_world_and_end():
    assert len(SCENES) == len(list(SCENES)) == 600
    assert SCENES[7] == SIMPLE.draw_scene(8, 7)
    with pytest.raises(IndexError):
        SCENES[600]
