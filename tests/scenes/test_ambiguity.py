import math
import statistics
from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest

from prolip.scenes.ambiguity import log_ambiguity, probability
from prolip.scenes.captions import make_caption, make_caption_chain, make_description
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation, is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import HARD, SIMPLE, VARIED, Scene, SceneObject, World, get_world
from tests.scenes.worlds import GRID_OF_THREE, WORLDS


@pytest.mark.parametrize(
    ("meaning", "expected"),
    [
        (CaptionMeaning(), 1.0),
        (CaptionMeaning((ObjectPattern(),)), 1.0),
        (CaptionMeaning((ObjectPattern("round"),)), 0.65 * 0.5 + 0.35 * 0.75),
        (CaptionMeaning((ObjectPattern("circle"),)), 0.65 / 8 + 0.35 * (1 - (7 / 8) ** 2)),
        (CaptionMeaning((ObjectPattern("circle", "red"),)), 0.65 / 64 + 0.35 * (1 - (63 / 64) ** 2)),
        (CaptionMeaning((ObjectPattern(), ObjectPattern())), 0.35),
        (CaptionMeaning(count=1, background="silver"), 0.65 / 2),
        (CaptionMeaning((ObjectPattern("circle", position="top left"),), count=1), 0.65 / 8 / 4),
        (
            CaptionMeaning(
                (ObjectPattern("circle"), ObjectPattern("star")), frozenset({SpatialRelation(0, "above", 1)})
            ),
            0.35 * 2 / 64 / 3,
        ),
        (CaptionMeaning(style="blurry"), 0.0),
        (CaptionMeaning((ObjectPattern(),) * 3), 0.0),
    ],
)
def test_probability_by_hand_in_simple_world(meaning, expected):
    """One thing .65, two .35; of 4 x 3 placements of two things a third has the first one above."""
    assert probability(meaning, SIMPLE) == pytest.approx(expected, rel=1e-12, abs=0)


WEIGHTS = {name: getattr(VARIED, name) for name in ("shape_weights", "color_weights", "size_weights")}


def by_enumeration(meaning, world):
    """Every scene of a world, one by one."""
    cells = [divmod(cell, world.grid) for cell in range(world.grid**2)]
    total = 0.0
    for count, share in enumerate(world.counts, start=1):
        if share == 0:
            continue
        placements = list(permutations(cells, count))
        for kinds in product(zip(world.object_kinds, world.kind_probabilities, strict=True), repeat=count):
            for placement in placements:
                objects = tuple(
                    SceneObject(*kind, *cell) for (kind, _), cell in zip(kinds, placement, strict=True)
                )
                if is_true(meaning, Scene(objects, "white", "clean", world.grid, 0)):
                    total += share / len(placements) * math.prod(p for _, p in kinds)
    return total


@pytest.mark.parametrize("weights", [{}, WEIGHTS], ids=["equal kinds", "unequal kinds"])
def test_probability_matches_enumeration_of_small_world(weights):
    """Five kinds of pairs are left of 64, so that all scenes of three things can be gone through."""
    kept = {("red", "circle"), ("red", "star"), ("blue", "ring")}
    unseen = frozenset((c, s) for s, c, _ in World().object_kinds if (c, s) not in kept)
    world = World(counts=(0.3, 0.4, 0.3), unseen=unseen, **weights)
    relation = frozenset({SpatialRelation(0, "above", 1)})
    for meaning in (
        CaptionMeaning((ObjectPattern("round"), ObjectPattern("round", None, "small")), relation),
        CaptionMeaning(
            (
                ObjectPattern(None, "red"),
                ObjectPattern(None, "warm", "large"),
                ObjectPattern("round", position="left"),
            )
        ),
        CaptionMeaning(
            (ObjectPattern("star", position="top"), ObjectPattern(None, "cold")),
            frozenset({SpatialRelation(1, "left of", 0)}),
        ),
        CaptionMeaning((ObjectPattern("round"),) * 3, relation | {SpatialRelation(1, "left of", 2)}),
    ):
        assert probability(meaning, world) == pytest.approx(by_enumeration(meaning, world), rel=1e-9)


@pytest.mark.parametrize("name", WORLDS)
def test_probability_matches_large_sample(name):
    """6,000 scenes, 60 captions of all levels: each count within five standard deviations of the exact number."""
    world = WORLDS[name]
    scenes = [world.draw_scene(10, index) for index in range(6_000)]
    meanings = {}
    for index in range(15):
        for level in range(4):
            made = make_caption(scenes[index], level, RandomDraws(11, index, level), world).meaning
            meanings[made] = probability(made, world)
    assert len(meanings) > 25
    checked = 0
    for meaning, p in meanings.items():
        count = sum(is_true(meaning, scene) for scene in scenes)
        spread = math.sqrt(max(len(scenes) * p * (1 - p), 1e-12))
        assert abs(count - len(scenes) * p) <= max(5 * spread, 6), meaning
        checked += 5 < count < len(scenes)
    assert checked >= 8


@pytest.mark.parametrize(
    ("pattern", "p"),
    [
        (("round",), 0.3),
        ((None, "warm"), 0.8),
        ((None, None, "small"), 0.42),
        (("heart", "purple"), 0.044 * 0.057),
    ],
)
def test_probability_by_hand_in_varied_world(pattern, p):
    """One thing .7, two .3."""
    meaning = CaptionMeaning((ObjectPattern(*pattern),))
    assert probability(meaning, VARIED) == pytest.approx(0.7 * p + 0.3 * (1 - (1 - p) ** 2), rel=1e-12)


def test_broad_captions_of_varied_world_differ_in_ambiguity():
    """In the simple world nearly all broad captions have one of two ambiguities, .05 nats apart."""
    for unseen in (0, 8):
        world = get_world("varied", unseen)
        values = [
            log_ambiguity(make_caption(world.draw_scene(1, i), 1, RandomDraws(1, i, 1), world).meaning, world)
            for i in range(2000)
        ]
        distinct = sorted({round(value, 6) for value in values})
        assert statistics.pstdev(values) > 0.35
        assert len(distinct) >= 8
        assert min(high - low for low, high in pairwise(distinct)) > 0.05


@pytest.mark.parametrize("name", WORLDS)
def test_probability_falls_along_chain(name):
    world = WORLDS[name]
    for index in range(40):
        steps = make_caption_chain(world.draw_scene(12, index), RandomDraws(12, index, 1), world)
        values = [log_ambiguity(step.meaning, world) for step in steps]
        assert values[0] == 0
        assert all(general > specific for general, specific in pairwise(values))


def test_log_ambiguity_of_impossible_is_minus_infinity():
    assert log_ambiguity(CaptionMeaning(style="blurry"), SIMPLE) == -math.inf
    assert log_ambiguity(CaptionMeaning((ObjectPattern(position="centre"),)), HARD) == -math.inf
    assert log_ambiguity(CaptionMeaning((ObjectPattern(position="centre"),)), GRID_OF_THREE) == pytest.approx(
        math.log((0.2 + 2 * 0.3 + 3 * 0.5) / 9)
    )


def test_log_ambiguity_of_most_specific_is_finite():
    three = replace(HARD, counts=(0.0, 0.0, 1.0), grid=3)
    for index in range(5):
        assert math.isfinite(
            log_ambiguity(make_description(three.draw_scene(0, index), RandomDraws(0)).meaning, three)
        )
