from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from scipy.stats import chisquare

from prolip.scenes.world import (
    COLORS,
    FAMILIES,
    HARD,
    SHAPES,
    SIMPLE,
    SINGLE,
    SIZES,
    STYLES,
    TONES,
    VARIED,
    World,
    get_unseen_pairs,
    get_world,
    require_image_size,
)
from tests.scenes.worlds import WORLDS


@pytest.fixture(scope="module", params=WORLDS)
def world_and_scenes(request):
    world = WORLDS[request.param]
    return world, [world.draw_scene(4, index) for index in range(6000)]


def test_draw_scene_follows_distribution(world_and_scenes):
    world, scenes = world_and_scenes
    objects = [obj for scene in scenes for obj in scene.objects]
    cells = [divmod(i, world.grid) for i in range(world.grid**2)]
    tables = [
        (Counter(len(scene.objects) for scene in scenes), dict(enumerate(world.counts, start=1))),
        (Counter(scene.style for scene in scenes), dict(world.styles)),
        (Counter(scene.background for scene in scenes), dict.fromkeys(world.backgrounds, 1 / len(world.backgrounds))),
        (Counter(obj.size for obj in objects), dict(zip(SIZES, world.size_weights, strict=True))),
        (Counter((t.row, t.column) for t in objects), dict.fromkeys(cells, 1 / len(cells))),
        (Counter((t.shape, t.color, t.size) for t in objects), dict(zip(world.object_kinds,
        world.kind_probabilities, strict=True))),
    ]  # fmt: skip
    for counts, shares in tables:
        assert set(counts) <= {name for name, share in shares.items() if share > 0}
        expected = {name: share * counts.total() for name, share in shares.items() if share > 0}
        if len(expected) > 1:
            assert chisquare([counts[name] for name in expected], list(expected.values())).pvalue > 1e-5


def test_draw_scene_puts_objects_in_different_cells(world_and_scenes):
    _, scenes = world_and_scenes
    assert all(len({(t.row, t.column) for t in scene.objects}) == len(scene.objects) for scene in scenes)


def test_draw_scene_never_shows_unseen_pairs(world_and_scenes):
    world, scenes = world_and_scenes
    pairs = {(obj.color, obj.shape) for scene in scenes for obj in scene.objects}
    assert pairs == {(color, shape) for color in COLORS for shape in SHAPES} - world.unseen


def test_draw_scene_depends_on_seed_and_index_alone():
    assert HARD.draw_scene(1, 2) == HARD.draw_scene(1, 2)
    assert HARD.draw_scene(1, 2) != HARD.draw_scene(2, 1)
    assert len({HARD.draw_scene(0, index) for index in range(500)}) == 500


def test_families_and_tones_halve_shapes_and_colors():
    assert sorted(len(group) for group in (*FAMILIES.values(), *TONES.values())) == [4, 4, 4, 4]
    assert len(set(SHAPES)) == len(set(COLORS)) == 8


def test_kind_probabilities_are_products_without_unseen_pairs():
    world = get_world("varied", 8)
    products = {
        (shape, color, size): p * q * r
        for shape, p in zip(SHAPES, world.shape_weights, strict=True)
        for color, q in zip(COLORS, world.color_weights, strict=True)
        for size, r in zip(SIZES, world.size_weights, strict=True)
        if (color, shape) not in world.unseen
    }
    assert tuple(products) == world.object_kinds
    expected = [product / sum(products.values()) for product in products.values()]
    assert world.kind_probabilities == pytest.approx(expected, rel=1e-12)
    assert sum(world.kind_probabilities) == pytest.approx(1, abs=1e-12)


def test_equal_weights_are_the_default():
    """So that worlds without weights draw the scenes, and have the fingerprints, that they always had."""
    equal = replace(HARD, shape_weights=[1 / 8] * 8, color_weights=[1 / 8] * 8, size_weights=[0.5, 0.5])
    assert equal == HARD
    assert equal.has_uniform_kinds
    assert not VARIED.has_uniform_kinds
    assert len(HARD.fingerprint_values()) == 5
    assert set(get_world("hard", 8).kind_weights) == {1 / 128}


def test_fingerprint_values_depend_on_weights_and_passes():
    worlds = [
        SIMPLE,
        replace(SIMPLE, shape_weights=VARIED.shape_weights),
        replace(SIMPLE, color_weights=VARIED.shape_weights),
        replace(SIMPLE, size_weights=VARIED.size_weights),
        replace(SIMPLE, style_passes=2),
        replace(SIMPLE, style_passes=3),
    ]
    assert len({str(world.fingerprint_values()) for world in worlds}) == 6


def test_varied_world_has_no_pair_too_rare_to_learn():
    pairs = Counter()
    for (shape, color, _), probability in zip(VARIED.object_kinds, VARIED.kind_probabilities, strict=True):
        pairs[color, shape] += probability
    assert 1 / 400 <= min(pairs.values()) < max(pairs.values()) / 30


def test_varying_attributes():
    assert SIMPLE.varying_attributes == {"count", "background"}
    assert HARD.varying_attributes == {"count", "background", "style"}
    assert World().varying_attributes == frozenset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": (0.5, 0.5, 0.5)}, "counts must be 3 probabilities"),
        ({"counts": (1.0,)}, "counts must be 3 probabilities"),
        ({"counts": (1.5, -0.5, 0.0)}, "counts must be 3 probabilities"),
        ({"grid": 4}, "grid must be 2 or 3"),
        ({"grid": 2.0}, "grid must be 2 or 3"),
        ({"styles": "clean"}, r"styles pairs \(style, probability\)"),
        ({"unseen": {"red"}}, r"unseen pairs \(color, shape\)"),
        ({"backgrounds": ()}, "backgrounds must be distinct, and at least one"),
        ({"backgrounds": ("white", "white")}, "backgrounds must be distinct"),
        ({"backgrounds": ("puce",)}, "'puce' is not one of"),
        ({"styles": (("clean", 0.5),)}, "styles must be 1 probabilities"),
        ({"styles": (("clean", 0.5), ("clean", 0.5))}, "styles must be distinct"),
        ({"styles": (("rococo", 1.0),)}, "'rococo' is not one of"),
        ({"unseen": frozenset({("circle", "red")})}, "unseen color 'circle'"),
        ({"unseen": frozenset((c, s) for c in COLORS for s in SHAPES)}, "all pairs"),
        ({"size_weights": (0.5, 0.6)}, "size_weights must be 2 probabilities"),
        ({"color_weights": (0.5, 0.5)}, "color_weights must be 8 probabilities"),
        ({"shape_weights": (1.0, *[0.0] * 7)}, "shape_weights must be positive"),
        ({"style_passes": 0}, "style_passes"),
        ({"shape_weights": 8}, "weights must be sequences"),
    ],
)
def test_world_rejects_invalid_values(change, message):
    with pytest.raises(ValueError, match=message):
        replace(HARD, **change)


def test_world_accepts_lists_and_sets():
    listed = replace(
        HARD, counts=list(HARD.counts), backgrounds=list(HARD.backgrounds), styles=[list(pair) for pair in HARD.styles],
        unseen=set(),
    )  # fmt: skip
    assert listed == HARD
    assert hash(listed) == hash(HARD)


def test_get_world_by_name():
    assert get_world("hard") is HARD
    with pytest.raises(
        ValueError, match=r"world 'harder' is not one of \('single', 'simple', 'hard', 'varied', 'styled'\)"
    ):
        get_world("harder")


@pytest.mark.parametrize("size", [31, 225, 0, 48.0])
def test_require_image_size_rejects(size):
    with pytest.raises(ValueError, match="size must be"):
        require_image_size(size)


def test_all_styles_are_in_the_hard_world():
    assert {style for style, share in HARD.styles if share > 0} == set(STYLES)


def test_single_world_is_simple_world_of_one_object():
    assert replace(SINGLE, counts=SIMPLE.counts) == SIMPLE
    assert get_world("single") is SINGLE
    assert {len(SINGLE.draw_scene(0, index).objects) for index in range(200)} == {1}
    assert SINGLE.varying_attributes == {"background"}


def unseen_in_order():
    """The pair that each further one of 63 adds."""
    sets = [get_unseen_pairs(count) for count in range(64)]
    assert all(fewer < more for fewer, more in pairwise(sets))
    return [next(iter(more - fewer)) for fewer, more in pairwise(sets)]


def test_each_eight_unseen_pairs_cover_colors_and_shapes():
    pairs = unseen_in_order()
    pairs += {(color, shape) for color in COLORS for shape in SHAPES} - set(pairs)
    assert len(pairs) == len(set(pairs)) == 64
    for start in range(0, 64, 8):
        colors, shapes = zip(*pairs[start : start + 8], strict=True)
        assert set(colors) == set(COLORS)
        assert set(shapes) == set(SHAPES)


@pytest.mark.parametrize("count", [-1, 64, 1000])
def test_get_unseen_pairs_rejects_out_of_range(count):
    with pytest.raises(ValueError, match=f"unseen must be from 0 to 63 pairs, not {count}"):
        get_unseen_pairs(count)
    with pytest.raises(ValueError, match="unseen must be from 0 to 63"):
        get_world("simple", count)


@pytest.mark.parametrize("count", [8.0, "8", None])
def test_get_unseen_pairs_requires_integer(count):
    with pytest.raises(TypeError):
        get_unseen_pairs(count)


@pytest.mark.parametrize("name", ["single", "simple", "hard", "varied", "styled"])
def test_get_world_without_unseen_pairs(name):
    world = get_world(name, 8)
    assert world == replace(get_world(name), unseen=get_unseen_pairs(8))
    assert len(world.object_kinds) == 2 * (64 - 8)
    assert get_world(name, 0) is get_world(name)
