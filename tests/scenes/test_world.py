from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from scipy.stats import chisquare

from prolip.scenes.world import (
    COLOURS,
    FAMILIES,
    HARD,
    SHAPES,
    SIMPLE,
    SINGLE,
    SIZES,
    STYLES,
    TONES,
    World,
    require_size,
    unseen_pairs,
    world_named,
)
from tests.scenes.worlds import WORLDS


@pytest.fixture(scope="module", params=WORLDS)
def world_and_scenes(request):
    world = WORLDS[request.param]
    return world, [world.scene(4, index) for index in range(6000)]


def test_attributes_are_drawn_as_the_world_says(world_and_scenes):
    world, scenes = world_and_scenes
    things = [thing for scene in scenes for thing in scene.things]
    cells = [divmod(i, world.grid) for i in range(world.grid**2)]
    tables = [
        (Counter(len(scene.things) for scene in scenes), dict(enumerate(world.counts, start=1))),
        (Counter(scene.style for scene in scenes), dict(world.styles)),
        (Counter(scene.background for scene in scenes), dict.fromkeys(world.backgrounds, 1 / len(world.backgrounds))),
        (Counter(thing.size for thing in things), dict.fromkeys(SIZES, 0.5)),
        (Counter((t.row, t.column) for t in things), dict.fromkeys(cells, 1 / len(cells))),
        (Counter((t.shape, t.colour, t.size) for t in things), dict.fromkeys(world.kinds, 1 / len(world.kinds))),
    ]  # fmt: skip
    for counts, shares in tables:
        assert set(counts) <= {name for name, share in shares.items() if share > 0}
        expected = {name: share * counts.total() for name, share in shares.items() if share > 0}
        if len(expected) > 1:
            assert chisquare([counts[name] for name in expected], list(expected.values())).pvalue > 1e-5


def test_things_are_in_different_cells(world_and_scenes):
    _, scenes = world_and_scenes
    assert all(len({(t.row, t.column) for t in scene.things}) == len(scene.things) for scene in scenes)


def test_held_out_pairs_never_occur(world_and_scenes):
    world, scenes = world_and_scenes
    pairs = {(thing.colour, thing.shape) for scene in scenes for thing in scene.things}
    assert pairs == {(colour, shape) for colour in COLOURS for shape in SHAPES} - world.unseen


def test_a_scene_is_a_function_of_seed_and_index():
    assert HARD.scene(1, 2) == HARD.scene(1, 2)
    assert HARD.scene(1, 2) != HARD.scene(2, 1)
    assert len({HARD.scene(0, index) for index in range(500)}) == 500


def test_families_and_tones_halve_the_shapes_and_colours():
    assert sorted(len(group) for group in (*FAMILIES.values(), *TONES.values())) == [4, 4, 4, 4]
    assert len(set(SHAPES)) == len(set(COLOURS)) == 8


def test_facts_are_what_varies():
    assert SIMPLE.facts == {"count", "background"}
    assert HARD.facts == {"count", "background", "style"}
    assert World().facts == frozenset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": (0.5, 0.5, 0.5)}, "counts must be 3 probabilities"),
        ({"counts": (1.0,)}, "counts must be 3 probabilities"),
        ({"counts": (1.5, -0.5, 0.0)}, "counts must be 3 probabilities"),
        ({"grid": 4}, "grid must be 2 or 3"),
        ({"grid": 2.0}, "grid must be 2 or 3"),
        ({"styles": "clean"}, r"styles pairs \(style, probability\)"),
        ({"unseen": {"red"}}, r"unseen pairs \(colour, shape\)"),
        ({"backgrounds": ()}, "backgrounds must be different, and at least one"),
        ({"backgrounds": ("white", "white")}, "backgrounds must be different"),
        ({"backgrounds": ("puce",)}, "'puce' is not one of"),
        ({"styles": (("clean", 0.5),)}, "styles must be 1 probabilities"),
        ({"styles": (("clean", 0.5), ("clean", 0.5))}, "styles must be different"),
        ({"styles": (("rococo", 1.0),)}, "'rococo' is not one of"),
        ({"unseen": frozenset({("circle", "red")})}, "unseen colour 'circle'"),
        ({"unseen": frozenset((c, s) for c in COLOURS for s in SHAPES)}, "nothing is left to draw"),
    ],
)
def test_an_impossible_world_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(HARD, **change)


def test_lists_and_sets_will_do():
    listed = replace(
        HARD, counts=list(HARD.counts), backgrounds=list(HARD.backgrounds), styles=[list(pair) for pair in HARD.styles],
        unseen=set(),
    )  # fmt: skip
    assert listed == HARD
    assert hash(listed) == hash(HARD)


def test_names_of_worlds():
    assert world_named("hard") is HARD
    with pytest.raises(ValueError, match=r"world 'harder' is not one of \('single', 'simple', 'hard'\)"):
        world_named("harder")


@pytest.mark.parametrize("size", [31, 225, 0, 48.0])
def test_sizes_that_are_refused(size):
    with pytest.raises(ValueError, match="size must be"):
        require_size(size)


def test_all_styles_are_in_the_hard_world():
    assert {style for style, share in HARD.styles if share > 0} == set(STYLES)


def test_single_scenes_are_simple_ones_of_one_thing():
    assert replace(SINGLE, counts=SIMPLE.counts) == SIMPLE
    assert world_named("single") is SINGLE
    assert {len(SINGLE.scene(0, index).things) for index in range(200)} == {1}
    assert SINGLE.facts == {"background"}


def unseen_in_order():
    """The pair that each further one of 63 adds."""
    sets = [unseen_pairs(count) for count in range(64)]
    assert all(fewer < more for fewer, more in pairwise(sets))
    return [next(iter(more - fewer)) for fewer, more in pairwise(sets)]


def test_each_eight_unseen_pairs_have_all_colours_and_all_shapes():
    pairs = unseen_in_order()
    pairs += {(colour, shape) for colour in COLOURS for shape in SHAPES} - set(pairs)
    assert len(pairs) == len(set(pairs)) == 64
    for start in range(0, 64, 8):
        colours, shapes = zip(*pairs[start : start + 8], strict=True)
        assert set(colours) == set(COLOURS)
        assert set(shapes) == set(SHAPES)


@pytest.mark.parametrize("count", [-1, 64, 1000])
def test_so_many_pairs_can_not_be_unseen(count):
    with pytest.raises(ValueError, match=f"unseen must be from 0 to 63 pairs, not {count}"):
        unseen_pairs(count)
    with pytest.raises(ValueError, match="unseen must be from 0 to 63"):
        world_named("simple", count)


@pytest.mark.parametrize("count", [8.0, "8", None])
def test_the_number_of_unseen_pairs_is_whole(count):
    with pytest.raises(TypeError):
        unseen_pairs(count)


@pytest.mark.parametrize("name", ["single", "simple", "hard"])
def test_a_named_world_without_its_unseen_pairs(name):
    world = world_named(name, 8)
    assert world == replace(world_named(name), unseen=unseen_pairs(8))
    assert len(world.kinds) == 2 * (64 - 8)
    assert world_named(name, 0) is world_named(name)
