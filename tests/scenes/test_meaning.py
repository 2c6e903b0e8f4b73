from itertools import permutations, product

import pytest

from prolip.scenes.captions import iter_true_meanings, make_caption, make_caption_chain, make_description
from prolip.scenes.meaning import POSITIONS, CaptionMeaning, ObjectPattern, SpatialRelation, entails, is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import COLORS, FAMILIES, SHAPES, SIZES, STYLES, TONES, Scene, SceneObject
from tests.scenes.worlds import GRID_OF_THREE, HARD, WORLDS

CIRCLE = SceneObject("circle", "red", "small", 0, 0)
STAR = SceneObject("star", "blue", "large", 1, 1)
SCENE = Scene((CIRCLE, STAR), "white", "blurry", 2, render_seed=0)


@pytest.mark.parametrize(
    ("meaning", "true"),
    [
        (CaptionMeaning(), True),
        (CaptionMeaning((ObjectPattern(),)), True),
        (CaptionMeaning((ObjectPattern(), ObjectPattern())), True),
        (CaptionMeaning((ObjectPattern(), ObjectPattern(), ObjectPattern())), False),
        (CaptionMeaning((ObjectPattern("round"),)), True),
        (CaptionMeaning((ObjectPattern("circle", "red", "small", "top left"),)), True),
        (CaptionMeaning((ObjectPattern("circle", "blue"),)), False),
        (CaptionMeaning((ObjectPattern("round"), ObjectPattern("round"))), False),
        (CaptionMeaning((ObjectPattern(None, "warm"), ObjectPattern(None, "cold"))), True),
        (
            CaptionMeaning(
                (ObjectPattern("circle"), ObjectPattern("star")), frozenset({SpatialRelation(0, "above", 1)})
            ),
            True,
        ),
        (
            CaptionMeaning(
                (ObjectPattern("circle"), ObjectPattern("star")), frozenset({SpatialRelation(1, "above", 0)})
            ),
            False,
        ),
        (
            CaptionMeaning(
                (ObjectPattern("star"), ObjectPattern()), frozenset({SpatialRelation(1, "left of", 0)})
            ),
            True,
        ),
        (CaptionMeaning((ObjectPattern(position="top"),)), True),
        (CaptionMeaning((ObjectPattern("star", position="top"),)), False),
        (CaptionMeaning((ObjectPattern(position="centre"),)), False),
        (CaptionMeaning(count=2), True),
        (CaptionMeaning(count=1), False),
        (CaptionMeaning(style="blurry", background="white"), True),
        (CaptionMeaning(style="clean"), False),
        (CaptionMeaning(background="silver"), False),
    ],
)
def test_is_true_of_circle_and_star(meaning, true):
    assert is_true(meaning, SCENE) is true


def test_positions_of_3x3_grid():
    for row, column in product(range(3), repeat=2):
        obj = SceneObject("circle", "red", "small", row, column)
        found = {position for position in POSITIONS if ObjectPattern(position=position).matches(obj, 3)}
        expected = {"top": row == 0, "bottom": row == 2, "left": column == 0, "right": column == 2}
        expected["centre"] = row == column == 1
        corners = {
            f"{a} {b}" for a in ("top", "bottom") for b in ("left", "right") if expected[a] and expected[b]
        }
        assert found == {name for name, true in expected.items() if true} | corners


def test_meaning_ignores_order_of_objects():
    patterns = (
        ObjectPattern("circle"),
        ObjectPattern("star", "blue"),
        ObjectPattern("circle", None, "small"),
    )
    relations = {SpatialRelation(0, "above", 1), SpatialRelation(2, "left of", 0)}
    meanings = set()
    for order in permutations(range(3)):
        new = {old: number for number, old in enumerate(order)}
        renamed = frozenset(SpatialRelation(new[i], kind, new[j]) for i, kind, j in relations)
        meanings.add(CaptionMeaning(tuple(patterns[old] for old in order), renamed))
    assert len(meanings) == 1


def test_meaning_of_equal_patterns_keeps_relation():
    above = CaptionMeaning(
        (ObjectPattern("star"), ObjectPattern("star")), frozenset({SpatialRelation(0, "above", 1)})
    )
    below = CaptionMeaning(
        (ObjectPattern("star"), ObjectPattern("star")), frozenset({SpatialRelation(1, "above", 0)})
    )
    assert above == below != CaptionMeaning((ObjectPattern("star"), ObjectPattern("star")))


def all_patterns():
    shapes, colors = (None, *FAMILIES, *SHAPES), (None, *TONES, *COLORS)
    return [ObjectPattern(*words) for words in product(shapes, colors, (None, *SIZES), (None, *POSITIONS))]


@pytest.mark.parametrize("world", ["hard", "grid of three"])
def test_iter_true_meanings_yields_exactly_true_ones(world):
    """All 3630 patterns of one thing, gone through."""
    world = WORLDS[world]
    patterns = all_patterns()
    for index in range(6):
        scene = world.draw_scene(1, index)
        told = list(iter_true_meanings(scene))
        assert len(told) == len(set(told))
        assert all(is_true(meaning, scene) for meaning in told)
        expected = {
            CaptionMeaning((pattern,)) for pattern in patterns if is_true(CaptionMeaning((pattern,)), scene)
        }
        assert {meaning for meaning in told if len(meaning.objects) == 1} == expected
        whole = {meaning for meaning in told if not meaning.objects}
        facts = [
            CaptionMeaning(),
            *(CaptionMeaning(count=n) for n in (1, 2, 3)),
            *(CaptionMeaning(style=s) for s in STYLES),
        ]
        facts += [CaptionMeaning(background=b) for b in ("white", "silver", "striped", "checked")]
        assert whole == {meaning for meaning in facts if is_true(meaning, scene)}


def test_iter_true_meanings_yields_exactly_true_pairs():
    words = [
        ObjectPattern(*w) for w in product((None, "round", "star"), (None, "warm", "blue"), (None, "small"))
    ]
    relations = [frozenset(), *(frozenset({SpatialRelation(0, kind, 1)}) for kind in ("above", "left of"))]
    pairs = {
        CaptionMeaning(patterns, relation) for patterns in product(words, words) for relation in relations
    }
    some = 0
    for index in range(25):
        scene = HARD.draw_scene(2, index)
        told = {meaning for meaning in iter_true_meanings(scene) if len(meaning.objects) == 2}
        expected = {meaning for meaning in pairs if is_true(meaning, scene)}
        assert told & pairs == expected
        some += len(expected)
    assert some > 100


def meanings_of(world, seed, count):
    for index in range(count):
        scene, draws = world.draw_scene(seed, index), RandomDraws(seed, index, 9)
        yield from (step.meaning for step in make_caption_chain(scene, draws, world))
        yield make_caption(scene, 3, draws, world).meaning
        yield make_description(scene, draws).meaning


@pytest.mark.parametrize("world", WORLDS)
def test_entailed_meaning_is_true_wherever_specific_is(world):
    """Soundness, on random pairs of meanings and random scenes."""
    world = WORLDS[world]
    meanings = list(dict.fromkeys(meanings_of(world, 3, 40)))
    scenes = [world.draw_scene(4, index) for index in range(300)]
    true = {m: frozenset(i for i, scene in enumerate(scenes) if is_true(m, scene)) for m in meanings}
    implied = 0
    for specific, general in product(meanings, meanings):
        if entails(specific, general):
            implied += 1
            assert true[specific] <= true[general]
    assert implied > len(meanings)


def test_entails_is_reflexive_and_transitive():
    meanings = list(dict.fromkeys(meanings_of(GRID_OF_THREE, 5, 12)))
    follows = {(a, b) for a, b in product(meanings, meanings) if entails(a, b)}
    assert all((m, m) in follows for m in meanings)
    assert all((a, c) in follows for a, b in follows for c in meanings if (b, c) in follows)


@pytest.mark.parametrize(
    ("specific", "general", "follows"),
    [
        (CaptionMeaning(count=2), CaptionMeaning((ObjectPattern(), ObjectPattern())), True),
        (
            CaptionMeaning((ObjectPattern(), ObjectPattern())),
            CaptionMeaning(count=2),
            False,
        ),  # there may be three
        (CaptionMeaning(), CaptionMeaning((ObjectPattern(),)), True),
        (CaptionMeaning(), CaptionMeaning((ObjectPattern(), ObjectPattern())), False),
        (CaptionMeaning((ObjectPattern("circle"),)), CaptionMeaning((ObjectPattern("round"),)), True),
        (CaptionMeaning((ObjectPattern("round"),)), CaptionMeaning((ObjectPattern("circle"),)), False),
        (
            CaptionMeaning((ObjectPattern(position="top left"),)),
            CaptionMeaning((ObjectPattern(position="left"),)),
            True,
        ),
        (
            CaptionMeaning((ObjectPattern("circle", "red"),)),
            CaptionMeaning((ObjectPattern("circle"), ObjectPattern(None, "red"))),
            False,
        ),
    ],
)
def test_entails_examples(specific, general, follows):
    assert entails(specific, general) is follows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObjectPattern("dog"), "Pattern: shape 'dog' is not one of"),
        (lambda: ObjectPattern(position="up"), "ObjectPattern: position 'up'"),
        (lambda: CaptionMeaning(style="cubist"), "Meaning: style 'cubist'"),
        (lambda: CaptionMeaning((ObjectPattern(),) * 4), "at most 3 objects"),
        (
            lambda: CaptionMeaning((ObjectPattern(),), frozenset({SpatialRelation(0, "above", 1)})),
            "between two of its objects",
        ),
        (
            lambda: CaptionMeaning((ObjectPattern(),) * 2, frozenset({SpatialRelation(0, "below", 1)})),
            "relation 'below'",
        ),
    ],
)
def test_meaning_rejects_invalid_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_meaning_rejects_relation_of_object_to_itself():
    with pytest.raises(ValueError, match="between two of its objects"):
        CaptionMeaning((ObjectPattern(), ObjectPattern()), frozenset({SpatialRelation(0, "above", 0)}))
