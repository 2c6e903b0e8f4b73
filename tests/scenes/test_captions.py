from collections import Counter
from dataclasses import astuple, replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare, spearmanr

from prolip.scenes import World
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.captions import (
    EXACT_ATTRIBUTES,
    NUM_LEVELS,
    get_position,
    make_caption,
    make_caption_chain,
    make_complete_caption,
    make_description,
    make_position_caption,
)
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, entails, is_true
from prolip.scenes.parsing import parse_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.source import make_tokenizer
from prolip.scenes.world import COLORS, FAMILIES, HARD, SHAPES, SIMPLE, SINGLE, SceneObject
from tests.scenes.worlds import GRID_OF_THREE, WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_captions_are_true(name):
    world = WORLDS[name]
    for index in range(200):
        scene, draws = world.draw_scene(3, index), RandomDraws(3, index, 1)
        for level in range(NUM_LEVELS):
            made = make_caption(scene, level, draws, world)
            assert made.level == level
            assert is_true(made.meaning, scene)
        assert is_true(make_description(scene, draws).meaning, scene)


@pytest.mark.parametrize("name", WORLDS)
def test_entailment_is_transitive_along_levels(name):
    world = WORLDS[name]
    for index in range(200):
        scene = world.draw_scene(4, index)
        steps = make_caption_chain(scene, RandomDraws(4, index, 1), world)
        assert [step.level for step in steps] == [0, 1, 2, 3]
        assert all(is_true(step.meaning, scene) for step in steps)
        for general, specific in pairwise(steps):
            assert entails(specific.meaning, general.meaning)
            assert not entails(general.meaning, specific.meaning)
        assert all(entails(steps[b].meaning, steps[a].meaning) for a in range(4) for b in range(a, 4))


def test_captions_omit_what_all_scenes_share():
    texts = " ".join(
        make_caption(SIMPLE.draw_scene(5, i), i % 4, RandomDraws(5, i, 1), SIMPLE).text for i in range(600)
    )
    assert "clean" not in texts
    assert "silver" in texts


def test_levels_differ_in_ambiguity_and_length_does_not_give_it_away():
    rows = []
    for index in range(1200):
        made = make_caption(HARD.draw_scene(6, index), index % 4, RandomDraws(6, index, 1), HARD)
        rows.append((made.level, len(made.text.split()), log_ambiguity(made.meaning, HARD)))
    level, length, ambiguity = np.array(rows).T
    means = [ambiguity[level == k].mean() for k in range(4)]
    assert all(general - specific > 0.3 for general, specific in pairwise(means))
    below = level < 3
    assert abs(spearmanr(length[below], ambiguity[below]).statistic) < 0.2
    assert abs(spearmanr(length, ambiguity).statistic) < 0.6
    long_and_vague = (length >= 12) & (ambiguity > -1)
    short_and_specific = (length <= 8) & (ambiguity < -4)
    assert long_and_vague.mean() > 0.05
    assert short_and_specific.mean() > 0.05
    for k in (1, 2, 3):  # within a level there is something to rank
        assert len(set(ambiguity[level == k].round(6))) >= 3


def test_descriptions_are_longer_than_64_tokens_and_complete():
    tokens = make_tokenizer(context_length=256)
    for index in range(100):
        scene = HARD.draw_scene(7, index)
        told = make_description(scene, RandomDraws(7, index, 1))
        assert tokens([told.text]).shape[1] > 64
        assert (told.meaning.count, told.meaning.style) == (len(scene.objects), scene.style)
        other = HARD.draw_scene(8, index)
        assert not is_true(told.meaning, other)


def test_tokenizer_has_every_word():
    tokens = make_tokenizer(context_length=128)
    text = make_description(HARD.draw_scene(0, 0), RandomDraws(0)).text
    assert tokens([text]).shape[1] == len(text.split())
    spelt = tokens(["a zebra, naïve"])
    assert tokens.decode(spelt) == ["a zebra naïve"]
    assert tokens.config.mask_id is not None


def test_make_caption_rejects_unknown_level():
    with pytest.raises(ValueError, match="level '4' is not one of"):
        make_caption(HARD.draw_scene(0, 0), 4, RandomDraws(0), HARD)


def test_get_position():
    assert get_position(SceneObject("ring", "red", "small", 0, 1), 2) == "top right"
    assert get_position(SceneObject("ring", "red", "small", 1, 1), 3) == "centre"
    assert get_position(SceneObject("ring", "red", "small", 2, 1), 3) == "bottom"


def test_level_3_states_more_than_one_object_in_full():
    for world in (SIMPLE, HARD):
        for index in range(300):
            made = make_caption(world.draw_scene(9, index), 3, RandomDraws(9, index, 1), world).meaning
            beside = (
                len(made.objects) > 1,
                made.count,
                made.background,
                made.style,
                made.objects[0].position,
            )
            assert any(beside), made


def test_level_1_states_every_attribute():
    told = [make_caption(HARD.draw_scene(9, i), 1, RandomDraws(9, i, 1), HARD).meaning for i in range(600)]
    patterns = [meaning.objects[0] for meaning in told if meaning.objects]
    for side in ("shape", "color", "size", "position"):
        assert any(getattr(pattern, side) is not None for pattern in patterns), side
    assert any(meaning.count for meaning in told)
    assert any(meaning.style for meaning in told)


def test_captions_of_world_without_varying_attributes():
    world = World()
    for index in range(300):
        made = make_caption(world.draw_scene(5, index), index % 4, RandomDraws(5, index, 1), world).meaning
        assert (made.count, made.background, made.style) == (None, None, None)


def test_description_states_every_relation():
    for index in range(100):
        scene = HARD.draw_scene(7, index)
        rows, columns = ([getattr(t, axis) for t in scene.objects] for axis in ("row", "column"))
        pairs = sum(a < b for positions in (rows, columns) for a in positions for b in positions)
        assert len(make_description(scene, RandomDraws(7, index, 1)).meaning.relations) == pairs


# -- exact captions ----------------------------------------------------------------------------------------------------


def stated_attributes(pattern):
    """What an exact pattern states, by the names of EXACT_ATTRIBUTES."""
    shape = "family" if pattern.shape in FAMILIES else "shape"
    stated = {
        shape: pattern.shape,
        "color": pattern.color,
        "size": pattern.size,
        "position": pattern.position,
    }
    return frozenset(name for name, word in stated.items() if word is not None)


@pytest.mark.parametrize("world", [SIMPLE, GRID_OF_THREE], ids=["grid of two", "grid of three"])
def test_level_2_follows_attribute_probabilities(world):
    drawn = (
        make_caption(world.draw_scene(10, i), 2, RandomDraws(10, i, 1), world).meaning for i in range(1500)
    )
    counts = Counter(stated_attributes(obj) for meaning in drawn for obj in meaning.objects)
    shares = {frozenset(names): share for names, share in EXACT_ATTRIBUTES.items()}
    assert sum(shares.values()) == pytest.approx(1)
    assert counts.keys() == shares.keys()
    assert chisquare([counts[n] for n in shares], [1500 * share for share in shares.values()]).pvalue > 1e-4


@pytest.mark.parametrize("world", [SIMPLE, GRID_OF_THREE], ids=["grid of two", "grid of three"])
def test_chain_keeps_stated_position(world):
    """Also in a grid of three, where the place of a thing at the middle of a side is one word: none is broader."""
    placed_ones = set()
    for index in range(400):
        scene = world.draw_scene(11, index)
        _, broad, exact, full = (
            step.meaning for step in make_caption_chain(scene, RandomDraws(11, index, 1), world)
        )
        (obj,) = exact.objects
        if obj.position is not None:
            placed_ones.add(obj.position)
            assert any(obj.position == other.position for other in full.objects)
            assert entails(exact, broad)
            assert not entails(broad, exact)
    assert len(placed_ones) == world.grid**2


# -- complete captions -------------------------------------------------------------------------------------------------

TINY = replace(
    SIMPLE, unseen={(c, s) for c in COLORS for s in SHAPES} - {("red", "ring"), ("blue", "star")},
    styles=(("clean", 0.5), ("grey", 0.5)),
)  # fmt: skip
"""So few scenes that some come twice."""


@pytest.mark.parametrize("name", WORLDS)
def test_complete_caption_is_true_and_parses(name):
    world = WORLDS[name]
    for index in range(150):
        scene = world.draw_scene(12, index)
        made = make_complete_caption(scene, RandomDraws(12, index, 1), world)
        assert made.level == 3
        assert is_true(made.meaning, scene)
        assert parse_caption(made.text) == made.meaning, made.text


@pytest.mark.parametrize("world", [*WORLDS.values(), SINGLE, TINY], ids=[*WORLDS, "single", "tiny"])
def test_complete_captions_are_equal_iff_scenes_are(world):
    """A scene but for its nuance, which no caption tells, and for the order of its things."""
    scenes = [world.draw_scene(13, index) for index in range(500)]
    shown = [(frozenset(map(astuple, scene.objects)), scene.background, scene.style) for scene in scenes]
    said = [make_complete_caption(scene, RandomDraws(13), world).meaning for scene in scenes]
    assert len(set(shown)) == len(set(said)) == len(set(zip(shown, said, strict=True)))
    if world is TINY:
        assert len(set(shown)) < len({scene.render_seed for scene in scenes}) == 500


def test_complete_caption_states_what_varies_only():
    scene = SIMPLE.draw_scene(14, 0)
    made = make_complete_caption(scene, RandomDraws(14), SIMPLE).meaning
    assert (made.background, made.style, made.count) == (scene.background, None, None)
    assert make_complete_caption(scene, RandomDraws(14), World()).meaning.background is None
    for index in range(100):
        scene = HARD.draw_scene(14, index)
        made = make_complete_caption(scene, RandomDraws(14, index), HARD).meaning
        assert (made.background, made.style) == (scene.background, scene.style)
        assert len(made.objects) == len(scene.objects)
        assert all(None not in astuple(obj) for obj in made.objects)


# -- captions of a place -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_position_caption_states_position_and_size_only(name):
    world, sized = WORLDS[name], 0
    for index in range(300):
        scene = world.draw_scene(15, index)
        made = make_position_caption(scene, RandomDraws(15, index, 1))
        (obj,) = made.meaning.objects
        assert made.meaning == CaptionMeaning((ObjectPattern(size=obj.size, position=obj.position),))
        assert obj.position in {get_position(shown, scene.grid) for shown in scene.objects}
        assert is_true(made.meaning, scene)
        assert parse_caption(made.text) == made.meaning, made.text
        assert made.level == 2
        sized += obj.size is not None
    assert 110 < sized < 190
