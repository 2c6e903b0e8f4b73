"""Veils: the image depends on the formula alone, the formula's probability is exact, and more veils hide more."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from prolip.scenes.image_ambiguity import image_log_ambiguity, image_probability
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render
from prolip.scenes.source import Scenes
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veils import FACTS, VEILS, Veil, combine_veils, draw_veil, hide_facts, observe
from prolip.scenes.world import COLORS, HARD, SHAPES, SIMPLE, SIZES, SceneObject, World, get_world

SEEDS = range(60)


def draw_random_veil(seed, world=HARD):
    return draw_veil(RandomDraws(seed, 99), world)


def change_hidden(scene, veil, seed):
    """A scene that differs where the veil hides it, with the same render seed."""
    draws = RandomDraws(seed, 98)
    objects = tuple(
        SceneObject(
            draws.choice(SHAPES) if veil.shape or (obj.row, obj.column) in veil.curtains else obj.shape,
            draws.choice(COLORS) if veil.color or (obj.row, obj.column) in veil.curtains else obj.color,
            draws.choice(SIZES) if veil.size or (obj.row, obj.column) in veil.curtains else obj.size,
            obj.row,
            obj.column,
        )
        for obj in scene.objects
    )
    return replace(scene, objects=objects)


@pytest.mark.parametrize("world", [SIMPLE, HARD], ids=["simple", "hard"])
def test_scenes_with_the_same_formula_have_the_same_image(world):
    """By construction of scenes that differ in what is hidden; many of them do differ."""
    num_changed = 0
    for seed in SEEDS:
        scene, veil = world.draw_scene(3, seed), draw_random_veil(seed, world)
        other = change_hidden(scene, veil, seed)
        assert observe(scene, veil) == observe(other, veil)
        image, other_image = (np.asarray(render_veiled(s, 48, veil)) for s in (scene, other))
        assert np.array_equal(image, other_image)
        num_changed += scene != other
    assert num_changed > 20


def test_what_is_visible_changes_the_image():
    num_compared = 0
    for seed in SEEDS:
        scene, veil = SIMPLE.draw_scene(4, seed), draw_random_veil(seed, SIMPLE)
        other = replace(SIMPLE.draw_scene(5, seed), render_seed=scene.render_seed)
        if observe(scene, veil) == observe(other, veil):
            continue
        image, other_image = (np.asarray(render_veiled(s, 48, veil)) for s in (scene, other))
        assert not np.array_equal(image, other_image)
        num_compared += 1
    assert num_compared > 30


def test_a_veil_that_hides_nothing_leaves_the_image():
    for seed in range(10):
        scene = HARD.draw_scene(0, seed)
        assert np.array_equal(np.asarray(render_veiled(scene, 48, Veil())), np.asarray(render(scene, 48)))


@pytest.mark.parametrize("name", ["color", "shape, size", "position", "color, shape, size", "row"])
def test_probabilities_agree_with_frequencies(name):
    world, veil, count = get_world("varied"), VEILS[name], 4000
    meanings = [observe(world.draw_scene(1, index), veil) for index in range(count)]
    frequencies = Counter(meanings)
    for meaning, frequency in frequencies.most_common(5):
        p = image_probability(meaning, world)
        assert frequency / count == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / count))


@pytest.mark.parametrize("curtains", [frozenset(), frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})])
def test_probabilities_of_all_formulas_add_up_to_one(curtains):
    """Of a world whose visible formulas can all be met by sampling: shape and color are hidden."""
    world = World(counts=(0.5, 0.3, 0.2))
    veil = hide_facts("color", "shape", curtains=curtains)
    meanings = {observe(world.draw_scene(0, index), veil) for index in range(6000)}
    assert math.fsum(image_probability(meaning, world) for meaning in meanings) == pytest.approx(1.0)


def test_more_veils_hide_more():
    for seed in SEEDS:
        scene = SIMPLE.draw_scene(6, seed)
        first, second = (draw_veil(RandomDraws(seed, k), SIMPLE) for k in (1, 2))
        try:
            both = observe(scene, combine_veils(first, second))
        except ValueError:  # a curtain over a part of a row whose position is hidden
            continue
        ambiguity = image_log_ambiguity(observe(scene, first), SIMPLE)
        assert image_log_ambiguity(observe(scene, Veil()), SIMPLE) <= ambiguity + 1e-12
        assert ambiguity <= image_log_ambiguity(both, SIMPLE) + 1e-12


def test_nothing_is_known_behind_curtains_over_everything():
    curtains = frozenset((row, column) for row in range(2) for column in range(2))
    veil = Veil(curtains=curtains)
    for seed in range(5):
        meaning = observe(SIMPLE.draw_scene(0, seed), veil)
        assert image_log_ambiguity(meaning, SIMPLE) == pytest.approx(0.0)


def test_a_complete_image_has_the_probability_of_its_scene():
    scene = SIMPLE.draw_scene(0, 2)
    expected = (
        0.5  # background
        * SIMPLE.counts[len(scene.objects) - 1]
        * math.factorial(len(scene.objects)) * (1 / 128) ** len(scene.objects)
        / math.perm(4, len(scene.objects))
    )  # fmt: skip
    assert image_probability(observe(scene, Veil()), SIMPLE) == pytest.approx(expected)


def test_curtains_outside_of_the_grid_raise():
    with pytest.raises(ValueError, match="outside"):
        observe(SIMPLE.draw_scene(0, 0), Veil(curtains=frozenset({(2, 0)})))
    with pytest.raises(ValueError, match="whole"):
        observe(SIMPLE.draw_scene(0, 0), Veil(row=True, curtains=frozenset({(0, 0)})))


def test_names_of_veils():
    assert Veil().name == "nothing"
    assert hide_facts("position", "color").name == "color, position"
    assert Veil(color=True, curtains=frozenset({(0, 0)})).name == "color, 1 curtain"
    assert {fact for seed in range(300) for fact in draw_random_veil(seed).facts} == set(FACTS)


def test_source_veils_a_fraction_of_its_images():
    plain, veiled = (Scenes("simple", length=400, seed=3, veiled=fraction) for fraction in (0.0, 0.5))
    hidden = [index for index in range(400) if not veiled.draw_veil(index).hides_nothing()]
    assert 150 < len(hidden) < 230  # a twentieth of random veils hide nothing
    for index in (hidden[0], next(i for i in range(400) if i not in hidden)):
        before, after = plain.read(index), veiled.read(index)
        assert before.captions == after.captions
        assert (np.asarray(before.image) != np.asarray(after.image)).any() == (index in hidden)
        annotation = veiled.image_annotation(index)
        assert annotation.veil == after.extra["veil"].name
        assert annotation.log_ambiguity >= plain.image_annotation(index).log_ambiguity
    assert plain.fingerprint() == Scenes("simple", length=400, seed=3).fingerprint() != veiled.fingerprint()
