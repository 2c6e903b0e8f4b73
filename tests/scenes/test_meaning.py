from itertools import permutations, product

import pytest

from prolip.scenes.captions import caption, chain, describe, true_meanings
from prolip.scenes.meaning import PLACES, Meaning, Pattern, Relation, holds, implies
from prolip.scenes.random_draws import Draws
from prolip.scenes.world import COLOURS, FAMILIES, SHAPES, SIZES, STYLES, TONES, Scene, Thing
from tests.scenes.worlds import GRID_OF_THREE, HARD, WORLDS

CIRCLE = Thing("circle", "red", "small", 0, 0)
STAR = Thing("star", "blue", "large", 1, 1)
SCENE = Scene((CIRCLE, STAR), "white", "blurry", 2, nuance=0)


@pytest.mark.parametrize(
    ("meaning", "true"),
    [
        (Meaning(), True),
        (Meaning((Pattern(),)), True),
        (Meaning((Pattern(), Pattern())), True),
        (Meaning((Pattern(), Pattern(), Pattern())), False),
        (Meaning((Pattern("round"),)), True),
        (Meaning((Pattern("circle", "red", "small", "top left"),)), True),
        (Meaning((Pattern("circle", "blue"),)), False),
        (Meaning((Pattern("round"), Pattern("round"))), False),
        (Meaning((Pattern(None, "warm"), Pattern(None, "cold"))), True),
        (Meaning((Pattern("circle"), Pattern("star")), frozenset({Relation(0, "above", 1)})), True),
        (Meaning((Pattern("circle"), Pattern("star")), frozenset({Relation(1, "above", 0)})), False),
        (Meaning((Pattern("star"), Pattern()), frozenset({Relation(1, "left of", 0)})), True),
        (Meaning((Pattern(place="top"),)), True),
        (Meaning((Pattern("star", place="top"),)), False),
        (Meaning((Pattern(place="centre"),)), False),
        (Meaning(count=2), True),
        (Meaning(count=1), False),
        (Meaning(style="blurry", background="white"), True),
        (Meaning(style="clean"), False),
        (Meaning(background="silver"), False),
    ],
)
def test_what_holds_of_a_circle_and_a_star(meaning, true):
    assert holds(meaning, SCENE) is true


def test_places_of_a_grid_of_three():
    for row, column in product(range(3), repeat=2):
        thing = Thing("circle", "red", "small", row, column)
        found = {place for place in PLACES if Pattern(place=place).fits(thing, 3)}
        expected = {"top": row == 0, "bottom": row == 2, "left": column == 0, "right": column == 2}
        expected["centre"] = row == column == 1
        corners = {
            f"{a} {b}" for a in ("top", "bottom") for b in ("left", "right") if expected[a] and expected[b]
        }
        assert found == {name for name, true in expected.items() if true} | corners


def test_the_order_of_the_things_does_not_matter():
    patterns = (Pattern("circle"), Pattern("star", "blue"), Pattern("circle", None, "small"))
    relations = {Relation(0, "above", 1), Relation(2, "left of", 0)}
    meanings = set()
    for order in permutations(range(3)):
        new = {old: number for number, old in enumerate(order)}
        renamed = frozenset(Relation(new[i], kind, new[j]) for i, kind, j in relations)
        meanings.add(Meaning(tuple(patterns[old] for old in order), renamed))
    assert len(meanings) == 1


def test_equal_patterns_keep_their_relation():
    above = Meaning((Pattern("star"), Pattern("star")), frozenset({Relation(0, "above", 1)}))
    below = Meaning((Pattern("star"), Pattern("star")), frozenset({Relation(1, "above", 0)}))
    assert above == below != Meaning((Pattern("star"), Pattern("star")))


def all_patterns():
    shapes, colours = (None, *FAMILIES, *SHAPES), (None, *TONES, *COLOURS)
    return [Pattern(*words) for words in product(shapes, colours, (None, *SIZES), (None, *PLACES))]


@pytest.mark.parametrize("world", ["hard", "grid of three"])
def test_the_true_meanings_of_a_scene_are_just_those_that_hold(world):
    """All 3630 patterns of one thing, gone through."""
    world = WORLDS[world]
    patterns = all_patterns()
    for index in range(6):
        scene = world.scene(1, index)
        told = list(true_meanings(scene))
        assert len(told) == len(set(told))
        assert all(holds(meaning, scene) for meaning in told)
        expected = {Meaning((pattern,)) for pattern in patterns if holds(Meaning((pattern,)), scene)}
        assert {meaning for meaning in told if len(meaning.things) == 1} == expected
        whole = {meaning for meaning in told if not meaning.things}
        facts = [Meaning(), *(Meaning(count=n) for n in (1, 2, 3)), *(Meaning(style=s) for s in STYLES)]
        facts += [Meaning(background=b) for b in ("white", "silver", "striped", "checked")]
        assert whole == {meaning for meaning in facts if holds(meaning, scene)}


def test_the_true_pairs_of_a_scene_are_just_those_that_hold():
    words = [Pattern(*w) for w in product((None, "round", "star"), (None, "warm", "blue"), (None, "small"))]
    relations = [frozenset(), *(frozenset({Relation(0, kind, 1)}) for kind in ("above", "left of"))]
    pairs = {Meaning(patterns, relation) for patterns in product(words, words) for relation in relations}
    some = 0
    for index in range(25):
        scene = HARD.scene(2, index)
        told = {meaning for meaning in true_meanings(scene) if len(meaning.things) == 2}
        expected = {meaning for meaning in pairs if holds(meaning, scene)}
        assert told & pairs == expected
        some += len(expected)
    assert some > 100


def meanings_of(world, seed, count):
    for index in range(count):
        scene, draws = world.scene(seed, index), Draws(seed, index, 9)
        yield from (step.meaning for step in chain(scene, draws, world))
        yield caption(scene, 3, draws, world).meaning
        yield describe(scene, draws).meaning


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_implied_holds_wherever_the_other_does(world):
    """Soundness, on random pairs of meanings and random scenes."""
    world = WORLDS[world]
    meanings = list(dict.fromkeys(meanings_of(world, 3, 40)))
    scenes = [world.scene(4, index) for index in range(300)]
    true = {m: frozenset(i for i, scene in enumerate(scenes) if holds(m, scene)) for m in meanings}
    implied = 0
    for specific, general in product(meanings, meanings):
        if implies(specific, general):
            implied += 1
            assert true[specific] <= true[general]
    assert implied > len(meanings)


def test_implication_is_reflexive_and_transitive():
    meanings = list(dict.fromkeys(meanings_of(GRID_OF_THREE, 5, 12)))
    follows = {(a, b) for a, b in product(meanings, meanings) if implies(a, b)}
    assert all((m, m) in follows for m in meanings)
    assert all((a, c) in follows for a, b in follows for c in meanings if (b, c) in follows)


@pytest.mark.parametrize(
    ("specific", "general", "follows"),
    [
        (Meaning(count=2), Meaning((Pattern(), Pattern())), True),
        (Meaning((Pattern(), Pattern())), Meaning(count=2), False),  # there may be three
        (Meaning(), Meaning((Pattern(),)), True),
        (Meaning(), Meaning((Pattern(), Pattern())), False),
        (Meaning((Pattern("circle"),)), Meaning((Pattern("round"),)), True),
        (Meaning((Pattern("round"),)), Meaning((Pattern("circle"),)), False),
        (Meaning((Pattern(place="top left"),)), Meaning((Pattern(place="left"),)), True),
        (Meaning((Pattern("circle", "red"),)), Meaning((Pattern("circle"), Pattern(None, "red"))), False),
    ],
)
def test_some_implications(specific, general, follows):
    assert implies(specific, general) is follows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pattern("dog"), "Pattern: shape 'dog' is not one of"),
        (lambda: Pattern(place="up"), "Pattern: place 'up'"),
        (lambda: Meaning(style="cubist"), "Meaning: style 'cubist'"),
        (lambda: Meaning((Pattern(),) * 4), "at most 3 things"),
        (lambda: Meaning((Pattern(),), frozenset({Relation(0, "above", 1)})), "are not two of its things"),
        (lambda: Meaning((Pattern(),) * 2, frozenset({Relation(0, "below", 1)})), "relation 'below'"),
    ],
)
def test_what_cannot_be_said_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_thing_does_not_stand_to_itself():
    with pytest.raises(ValueError, match="are not two of its things"):
        Meaning((Pattern(), Pattern()), frozenset({Relation(0, "above", 0)}))
