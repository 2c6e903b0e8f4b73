"""Which captions a scene gets: four levels of generality, chains of them, full descriptions, all that is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

from prolip.checks import require_choice
from prolip.scenes.meaning import PLACES, Meaning, Pattern, Relation, related
from prolip.scenes.random_draws import Draws
from prolip.scenes.wording import description, say
from prolip.scenes.world import FAMILY_OF, TONE_OF, Scene, Thing, World

LEVELS = 4
"""0: always true ("a thing"); 1: one broad property ("a round thing"); 2: one or two exact ones ("a red circle");
3: a thing in full and something beside it ("a small red circle above a blue star, blurry")."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A text, what it says, and its level; descriptions are of level 3."""

    text: str
    meaning: Meaning
    level: int


def caption(scene: Scene, level: int, draws: Draws, world: World) -> Caption:
    """A true caption of a level from 0 to 3, in one of its wordings. What all scenes of the world share isn't told."""
    require_choice(str(level), tuple(map(str, range(LEVELS))), "level")
    meaning = MEANINGS[level](scene, draws, world)
    return Caption(say(meaning, draws), meaning, level)


def chain(scene: Scene, draws: Draws, world: World) -> tuple[Caption, ...]:
    """Four true captions from general to specific, of one thing; each follows from the next, which says more."""
    things = _shuffled(scene, draws)
    exact = _exact(things[0], scene.grid, draws)
    meanings = (
        _nothing(scene, draws, world),
        Meaning((_broad(exact, draws),)),
        Meaning((exact,)),
        _full(scene, things, draws, world, placed=exact.place is not None),
    )
    return tuple(Caption(say(meaning, draws), meaning, level) for level, meaning in enumerate(meanings))


def describe(scene: Scene, draws: Draws) -> Caption:
    """All there is to say, in sentences of more than 64 words together: for long contexts."""
    patterns = _in_full(scene)
    relations = frozenset(
        Relation(i, kind, j)
        for i, j in permutations(range(len(patterns)), 2)
        for kind in ("above", "left of")
        if _stand(kind, scene.things[i], scene.things[j])
    )
    meaning = Meaning(patterns, relations, len(patterns), scene.background, scene.style)
    return Caption(description(meaning, draws), meaning, LEVELS - 1)


def complete(scene: Scene, draws: Draws, world: World) -> Caption:
    """All that is there, in one sentence: each thing's size, colour, shape and place, and the background and the style,
    if they vary. (That nothing else is there, it doesn't say.)"""
    meaning = Meaning(
        _in_full(scene),
        background=scene.background if "background" in world.facts else None,
        style=scene.style if "style" in world.facts else None,
    )
    return Caption(say(meaning, draws), meaning, LEVELS - 1)


def placed(scene: Scene, draws: Draws) -> Caption:
    """The place of a thing, half of the time its size too, and nothing else."""
    thing = draws.choice(scene.things)
    size = thing.size if draws.chance(0.5) else None
    meaning = Meaning((Pattern(size=size, place=place_of(thing, scene.grid)),))
    return Caption(say(meaning, draws), meaning, 2)


def true_meanings(scene: Scene) -> Iterator[Meaning]:
    """Every meaning of one thing, every one of two things without their places (with one relation or none), and every
    fact about the whole, that holds of a scene; each once."""
    yield Meaning()
    yield Meaning(count=len(scene.things))
    yield Meaning(background=scene.background)
    yield Meaning(style=scene.style)
    yield from dict.fromkeys(
        Meaning((pattern,)) for thing in scene.things for pattern in _generalisations(thing, scene.grid)
    )
    yield from dict.fromkeys(_pairs(scene))


def place_of(thing: Thing, grid: int) -> str:
    """The narrowest name of a thing's place."""
    return _places(thing.row, thing.column, grid)[-1]


@lru_cache(maxsize=32)
def _places(row: int, column: int, grid: int) -> tuple[str, ...]:
    """Every name of a cell, the narrowest last. (The middle of a side of a grid of three is "top", "left", ...)"""
    names = [place for place in PLACES if Pattern(place=place).fits_cell(row, column, grid)]
    return tuple(sorted(names, key=lambda place: len(PLACES[place])))


def _in_full(scene: Scene) -> tuple[Pattern, ...]:
    return tuple(
        Pattern(thing.shape, thing.colour, thing.size, place_of(thing, scene.grid)) for thing in scene.things
    )


def _nothing(scene: Scene, draws: Draws, world: World) -> Meaning:
    """What is always true: it is a picture, or there is a thing in it."""
    return Meaning() if draws.chance(0.2) else Meaning((Pattern(),))


EXACT = {("shape", "colour"): 0.4, ("shape",): 0.1, ("colour",): 0.1, ("shape", "size"): 0.08,
         ("colour", "size"): 0.08, ("family", "colour"): 0.06, ("shape", "place"): 0.06, ("colour", "place"): 0.06,
         ("size", "place"): 0.06}  # fmt: skip
"""How often an exact caption tells each of these."""


def _exact(thing: Thing, grid: int, draws: Draws) -> Pattern:
    told = tuple(EXACT)[draws.weighted(tuple(EXACT.values()))]
    shape = thing.shape if "shape" in told else FAMILY_OF[thing.shape] if "family" in told else None
    return Pattern(
        shape,
        thing.colour if "colour" in told else None,
        thing.size if "size" in told else None,
        place_of(thing, grid) if "place" in told else None,
    )


def _broad(exact: Pattern, draws: Draws) -> Pattern:
    """One property of an exact pattern, made broad: strictly more general than it."""
    choices = []
    if exact.shape is not None:
        choices.append(Pattern(shape=FAMILY_OF.get(exact.shape, exact.shape)))
    if exact.colour is not None:
        choices.append(Pattern(colour=TONE_OF[exact.colour]))
    if exact.size is not None:
        choices.append(Pattern(size=exact.size))
    if exact.place is not None:
        choices.append(Pattern(place=draws.choice(PLACES[exact.place])))
    return draws.choice(choices)


def _full(scene: Scene, things: list[Thing], draws: Draws, world: World, placed: bool = False) -> Meaning:
    """The first thing in full, and at least one more fact: another thing, a place, a style, a background, a count.

    placed: the place is told in any case."""
    first, *others = things
    another = bool(others) and draws.chance(0.6)
    style = scene.style if draws.chance(0.3) and "style" in world.facts else None
    background = scene.background if draws.chance(0.2) and "background" in world.facts else None
    count = len(things) if draws.chance(0.15) and "count" in world.facts else None
    alone = not another and style is None and background is None and count is None
    place = place_of(first, scene.grid) if draws.chance(0.3) or alone or placed else None
    patterns: tuple[Pattern, ...] = (Pattern(first.shape, first.colour, first.size, place),)
    relations: frozenset[Relation] = frozenset()
    if another:
        other, relations = _beside(first, others[0], draws)
        patterns += (other,)
    return Meaning(patterns, relations, count, background, style)


def _beside(first: Thing, second: Thing, draws: Draws) -> tuple[Pattern, frozenset[Relation]]:
    """A second thing, more or less in full, and mostly how it stands to the first."""
    other = Pattern(second.shape, second.colour, second.size if draws.chance(0.5) else None)
    ways = [
        Relation(i, kind, 1 - i)
        for i, (a, b) in enumerate(((first, second), (second, first)))
        for kind in ("above", "left of")
        if _stand(kind, a, b)
    ]
    return other, frozenset([draws.choice(ways)]) if draws.chance(0.8) else frozenset()


def _broad_fact(scene: Scene, draws: Draws, world: World) -> Meaning:
    """Mostly of a thing, sometimes of the whole."""
    thing = draws.choice(scene.things)
    kind = draws.weighted((0.7, 0.1, 0.1, 0.1))
    if kind == 1 and "count" in world.facts:
        return Meaning(count=len(scene.things))
    if kind == 2 and "style" in world.facts:
        return Meaning(style=scene.style)
    if kind == 3:
        return Meaning((Pattern(place=draws.choice(PLACES[place_of(thing, scene.grid)])),))
    return Meaning((_broad(_exact(thing, scene.grid, draws), draws),))


def _shuffled(scene: Scene, draws: Draws) -> list[Thing]:
    return [scene.things[i] for i in draws.sample(len(scene.things), len(scene.things))]


def _stand(kind: str, first: Thing, second: Thing) -> bool:
    return related(kind, (first.row, first.column), (second.row, second.column))


def _generalisations(thing: Thing, grid: int, places: bool = True) -> Iterator[Pattern]:
    """Everything that can be said of one thing."""
    named = _places(thing.row, thing.column, grid) if places else ()
    for words in product(
        (None, FAMILY_OF[thing.shape], thing.shape),
        (None, TONE_OF[thing.colour], thing.colour),
        (None, thing.size),
        (None, *named),
    ):
        yield Pattern(*words)


def _pairs(scene: Scene) -> Iterator[Meaning]:
    for first, second in permutations(scene.things, 2):
        ways = [
            frozenset({Relation(0, kind, 1)}) for kind in ("above", "left of") if _stand(kind, first, second)
        ]
        for patterns in product(
            _generalisations(first, scene.grid, places=False),
            _generalisations(second, scene.grid, places=False),
        ):
            for relations in (frozenset[Relation](), *ways):
                yield Meaning(patterns, relations)


MEANINGS: tuple[Callable[[Scene, Draws, World], Meaning], ...] = (
    _nothing,
    _broad_fact,
    lambda scene, draws, world: Meaning((_exact(draws.choice(scene.things), scene.grid, draws),)),
    lambda scene, draws, world: _full(scene, _shuffled(scene, draws), draws, world),
)
