"""More general captions: each follows from what it was made of, and says strictly less."""

import pytest

from prolip.scenes.captions import NUM_LEVELS, make_caption, make_complete_caption
from prolip.scenes.generalization import generalize
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, entails, is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import FAMILIES, TONES
from tests.scenes.worlds import WORLDS


def meanings(world, count=150):
    for index in range(count):
        scene, draws = world.draw_scene(8, index), RandomDraws(8, index, 1)
        for level in range(NUM_LEVELS):
            yield scene, make_caption(scene, level, draws, world).meaning
        yield scene, make_complete_caption(scene, draws, world).meaning


@pytest.mark.parametrize("name", WORLDS)
def test_generalize_is_entailed_and_says_less(name):
    for number, (scene, meaning) in enumerate(meanings(WORLDS[name])):
        less = generalize(meaning, RandomDraws(9, number))
        if less is None:
            assert meaning in (CaptionMeaning(), CaptionMeaning((ObjectPattern(),)))
            continue
        assert is_true(less, scene)
        assert entails(meaning, less)
        assert not entails(less, meaning)


def test_generalize_without_broader_words():
    groups = {*FAMILIES, *TONES}
    world = WORLDS["hard"]
    told = {True: 0, False: 0}
    for number, (scene, _) in enumerate(meanings(world, 60)):
        full = make_complete_caption(scene, RandomDraws(1), world).meaning
        for some in (True, False):
            less = generalize(full, RandomDraws(3, number), broader=0.4 if some else 0.0)
            told[some] += sum({obj.shape, obj.color} & groups != set() for obj in less.objects)
    assert told[False] == 0 < told[True]


def test_generalize_steps_have_all_lengths():
    """Of five words some twins keep four, some none."""
    meaning = CaptionMeaning((ObjectPattern("star", "red", "small", "top left"),), background="white")
    kept = set()
    for number in range(300):
        less = generalize(meaning, RandomDraws(number), broader=0.0)
        (obj,) = less.objects
        words = (obj.shape, obj.color, obj.size, obj.position, less.background)
        kept.add(sum(word is not None for word in words))
    assert kept == {0, 1, 2, 3, 4}
