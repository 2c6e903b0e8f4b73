"""More general captions: each follows from what it was made of, and says strictly less."""

import pytest

from prolip.scenes.captions import LEVELS, caption, complete
from prolip.scenes.general import generalise
from prolip.scenes.meaning import Meaning, Pattern, holds, implies
from prolip.scenes.random_draws import Draws
from prolip.scenes.world import FAMILIES, TONES
from tests.scenes.worlds import WORLDS


def meanings(world, count=150):
    for index in range(count):
        scene, draws = world.scene(8, index), Draws(8, index, 1)
        for level in range(LEVELS):
            yield scene, caption(scene, level, draws, world).meaning
        yield scene, complete(scene, draws, world).meaning


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_left_follows_and_says_less(name):
    for number, (scene, meaning) in enumerate(meanings(WORLDS[name])):
        less = generalise(meaning, Draws(9, number))
        if less is None:
            assert meaning in (Meaning(), Meaning((Pattern(),)))
            continue
        assert holds(less, scene)
        assert implies(meaning, less)
        assert not implies(less, meaning)


def test_without_broader_words_none_is_used():
    groups = {*FAMILIES, *TONES}
    world = WORLDS["hard"]
    told = {True: 0, False: 0}
    for number, (scene, _) in enumerate(meanings(world, 60)):
        full = complete(scene, Draws(1), world).meaning
        for some in (True, False):
            less = generalise(full, Draws(3, number), broader=0.4 if some else 0.0)
            told[some] += sum({thing.shape, thing.colour} & groups != set() for thing in less.things)
    assert told[False] == 0 < told[True]


def test_steps_are_short_and_long():
    """Of five words some twins keep four, some none."""
    meaning = Meaning((Pattern("star", "red", "small", "top left"),), background="white")
    kept = set()
    for number in range(300):
        less = generalise(meaning, Draws(number), broader=0.0)
        (thing,) = less.things
        words = (thing.shape, thing.colour, thing.size, thing.place, less.background)
        kept.add(sum(word is not None for word in words))
    assert kept == {0, 1, 2, 3, 4}
