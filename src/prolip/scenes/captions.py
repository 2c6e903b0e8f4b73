"""True captions of a scene: four levels of generality, caption chains, full descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

from prolip.checks import require_choice
from prolip.scenes.meaning import (
    POSITIONS,
    CaptionMeaning,
    ObjectPattern,
    SpatialRelation,
    satisfies_relation,
)
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.wording import verbalize, verbalize_description
from prolip.scenes.world import FAMILY_BY_SHAPE, TONE_BY_COLOR, Scene, SceneObject, World

NUM_LEVELS = 4
"""0: always true ("a thing"); 1: one broad property ("a round thing"); 2: one or two exact ones ("a red circle");
3: an object in full and one more statement ("a small red circle above a blue star, blurry")."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A text, its meaning, and its level of generality (0 to 3, the most specific)."""

    text: str
    meaning: CaptionMeaning
    level: int


def make_caption(scene: Scene, level: int, draws: RandomDraws, world: World) -> Caption:
    """Draw a true caption of a level, in one of its wordings.

    Args:
        scene: The scene that the caption is true of.
        level: 0 (always true) to 3 (most specific).
        draws: Random numbers that choose what is stated, and the wording.
        world: The world of the scene; attributes that don't vary in it are not stated.

    Returns:
        The caption.
    """
    require_choice(str(level), tuple(map(str, range(NUM_LEVELS))), "level")
    meaning = MEANING_SAMPLERS[level](scene, draws, world)
    return Caption(verbalize(meaning, draws), meaning, level)


def make_caption_chain(scene: Scene, draws: RandomDraws, world: World) -> tuple[Caption, ...]:
    """Draw a chain of true captions of one object, from general to specific; each is entailed by the next.

    Args:
        scene: The scene that the captions are true of.
        draws: Random numbers that choose what is stated, and the wording.
        world: The world of the scene; attributes that don't vary in it are not stated.

    Returns:
        Four captions, of levels 0 to 3.
    """
    objects = _shuffle_objects(scene, draws)
    exact = _draw_exact_pattern(objects[0], scene.grid, draws)
    meanings = (
        _draw_tautology(scene, draws, world),
        CaptionMeaning((_draw_broad_pattern(exact, draws),)),
        CaptionMeaning((exact,)),
        # a position that the exact caption states must be stated here too, or this caption wouldn't entail it
        _draw_full_meaning(scene, objects, draws, world, needs_position=exact.position is not None),
    )
    return tuple(Caption(verbalize(meaning, draws), meaning, level) for level, meaning in enumerate(meanings))


def make_description(scene: Scene, draws: RandomDraws) -> Caption:
    """Describe the whole scene in several sentences of more than 64 words in all, for long contexts.

    Args:
        scene: The scene that the caption is true of.
        draws: Random numbers that choose what is stated, and the wording.

    Returns:
        A caption of level 3.
    """
    patterns = _make_full_patterns(scene)
    relations = frozenset(
        SpatialRelation(i, kind, j)
        for i, j in permutations(range(len(patterns)), 2)
        for kind in ("above", "left of")
        if _is_related(kind, scene.objects[i], scene.objects[j])
    )
    meaning = CaptionMeaning(patterns, relations, len(patterns), scene.background, scene.style)
    return Caption(verbalize_description(meaning, draws), meaning, NUM_LEVELS - 1)


def make_complete_caption(scene: Scene, draws: RandomDraws, world: World) -> Caption:
    """State each object's size, color, shape and position, and the background and style if they vary.

    It doesn't state that there are no other objects.

    Args:
        scene: The scene that the caption is true of.
        draws: Random numbers that choose the wording.
        world: The world of the scene; attributes that don't vary in it are not stated.

    Returns:
        A caption of level 3.
    """
    meaning = CaptionMeaning(
        _make_full_patterns(scene),
        background=scene.background if "background" in world.varying_attributes else None,
        style=scene.style if "style" in world.varying_attributes else None,
    )
    return Caption(verbalize(meaning, draws), meaning, NUM_LEVELS - 1)


def make_position_caption(scene: Scene, draws: RandomDraws) -> Caption:
    """State the position of one object, half of the time its size too, and nothing else.

    Args:
        scene: The scene that the caption is true of.
        draws: Random numbers that choose what is stated, and the wording.

    Returns:
        A caption of level 2.
    """
    obj = draws.choice(scene.objects)
    size = obj.size if draws.bernoulli(0.5) else None
    meaning = CaptionMeaning((ObjectPattern(size=size, position=get_position(obj, scene.grid)),))
    return Caption(verbalize(meaning, draws), meaning, 2)


def iter_true_meanings(scene: Scene) -> Iterator[CaptionMeaning]:
    """Iterate over the meanings that are true of a scene, each once.

    Args:
        scene: The scene.

    Yields:
        Every meaning of one object, every one of two objects without positions (with one relation or none), and
        every property of the whole scene.
    """
    yield CaptionMeaning()
    yield CaptionMeaning(count=len(scene.objects))
    yield CaptionMeaning(background=scene.background)
    yield CaptionMeaning(style=scene.style)
    yield from dict.fromkeys(
        CaptionMeaning((pattern,))
        for obj in scene.objects
        for pattern in _iter_matching_patterns(obj, scene.grid)
    )
    yield from dict.fromkeys(_iter_pair_meanings(scene))


def get_position(obj: SceneObject, grid: int) -> str:
    """Get the most specific name of an object's position.

    Args:
        obj: The object.
        grid: Cells per side of the scene's grid.

    Returns:
        A key of POSITIONS.
    """
    return _find_position_names(obj.row, obj.column, grid)[-1]


@lru_cache(maxsize=32)
def _find_position_names(row: int, column: int, grid: int) -> tuple[str, ...]:
    """Every name of a cell, the most specific last. (The middle of a side of a 3 x 3 grid is "top", "left", ...)"""
    names = [
        position for position in POSITIONS if ObjectPattern(position=position).matches_cell(row, column, grid)
    ]
    return tuple(sorted(names, key=lambda position: len(POSITIONS[position])))


def _make_full_patterns(scene: Scene) -> tuple[ObjectPattern, ...]:
    """For each object a pattern that states its shape, color, size and position."""
    return tuple(
        ObjectPattern(obj.shape, obj.color, obj.size, get_position(obj, scene.grid)) for obj in scene.objects
    )


def _draw_tautology(scene: Scene, draws: RandomDraws, world: World) -> CaptionMeaning:
    """State what is always true: it is an image, or there is an object in it.

    Takes `scene` and `world`, which it doesn't need, as all MEANING_SAMPLERS do.
    """
    return CaptionMeaning() if draws.bernoulli(0.2) else CaptionMeaning((ObjectPattern(),))


EXACT_ATTRIBUTES = {
    ("shape", "color"): 0.4, ("shape",): 0.1, ("color",): 0.1, ("shape", "size"): 0.08, ("color", "size"): 0.08,
    ("family", "color"): 0.06, ("shape", "position"): 0.06, ("color", "position"): 0.06, ("size", "position"): 0.06,
}  # fmt: skip
"""Sets of attributes that an exact caption states -> probability."""


def _draw_exact_pattern(obj: SceneObject, grid: int, draws: RandomDraws) -> ObjectPattern:
    """A pattern that states one or two attributes of an object, chosen by EXACT_ATTRIBUTES. grid: cells per side."""
    stated = tuple(EXACT_ATTRIBUTES)[draws.categorical(tuple(EXACT_ATTRIBUTES.values()))]
    # the exact shape, or its family, or neither
    shape = obj.shape if "shape" in stated else FAMILY_BY_SHAPE[obj.shape] if "family" in stated else None
    return ObjectPattern(
        shape,
        obj.color if "color" in stated else None,
        obj.size if "size" in stated else None,
        get_position(obj, grid) if "position" in stated else None,
    )


def _draw_broad_pattern(exact: ObjectPattern, draws: RandomDraws) -> ObjectPattern:
    """A pattern that states one attribute of `exact`, by a broader word where there is one: "circle" -> "round"."""
    choices = []
    if exact.shape is not None:
        choices.append(ObjectPattern(shape=FAMILY_BY_SHAPE.get(exact.shape, exact.shape)))
    if exact.color is not None:
        choices.append(ObjectPattern(color=TONE_BY_COLOR[exact.color]))
    if exact.size is not None:
        choices.append(ObjectPattern(size=exact.size))
    if exact.position is not None:
        choices.append(ObjectPattern(position=draws.choice(POSITIONS[exact.position])))
    return draws.choice(choices)


def _draw_full_meaning(
    scene: Scene, objects: list[SceneObject], draws: RandomDraws, world: World, needs_position: bool = False
) -> CaptionMeaning:
    """State shape, color and size of the first object, and at least one of: its position, a second object, style, ...

    objects: those of the scene, in random order. needs_position: the position of the first object is always stated.
    """
    first, *others = objects
    states_second = bool(others) and draws.bernoulli(0.6)
    style = scene.style if draws.bernoulli(0.3) and "style" in world.varying_attributes else None
    background = (
        scene.background if draws.bernoulli(0.2) and "background" in world.varying_attributes else None
    )
    count = len(objects) if draws.bernoulli(0.15) and "count" in world.varying_attributes else None
    says_nothing_more = not states_second and style is None and background is None and count is None
    states_position = draws.bernoulli(0.3) or says_nothing_more or needs_position
    position = get_position(first, scene.grid) if states_position else None
    patterns: tuple[ObjectPattern, ...] = (ObjectPattern(first.shape, first.color, first.size, position),)
    relations: frozenset[SpatialRelation] = frozenset()
    if states_second:
        second, relations = _draw_second_object(first, others[0], draws)
        patterns += (second,)
    return CaptionMeaning(patterns, relations, count, background, style)


def _draw_second_object(
    first: SceneObject, second: SceneObject, draws: RandomDraws
) -> tuple[ObjectPattern, frozenset[SpatialRelation]]:
    """A pattern of a second object and, with probability 0.8, one relation between it (index 1) and the first (0)."""
    pattern = ObjectPattern(second.shape, second.color, second.size if draws.bernoulli(0.5) else None)
    candidates = [
        SpatialRelation(i, kind, 1 - i)
        for i, (a, b) in enumerate(((first, second), (second, first)))
        for kind in ("above", "left of")
        if _is_related(kind, a, b)
    ]
    return pattern, frozenset([draws.choice(candidates)]) if draws.bernoulli(0.8) else frozenset()


def _draw_broad_meaning(scene: Scene, draws: RandomDraws, world: World) -> CaptionMeaning:
    """State one broad attribute, mostly of an object, sometimes of the whole scene."""
    obj = draws.choice(scene.objects)
    statement = ("attribute", "count", "style", "position")[draws.categorical((0.7, 0.1, 0.1, 0.1))]
    # a count or style that doesn't vary in the world is not stated: then it is an attribute too
    if statement == "count" and "count" in world.varying_attributes:
        return CaptionMeaning(count=len(scene.objects))
    if statement == "style" and "style" in world.varying_attributes:
        return CaptionMeaning(style=scene.style)
    if statement == "position":
        return CaptionMeaning(
            (ObjectPattern(position=draws.choice(POSITIONS[get_position(obj, scene.grid)])),)
        )
    return CaptionMeaning((_draw_broad_pattern(_draw_exact_pattern(obj, scene.grid, draws), draws),))


def _shuffle_objects(scene: Scene, draws: RandomDraws) -> list[SceneObject]:
    """The objects of a scene in random order."""
    return [scene.objects[i] for i in draws.sample(len(scene.objects), len(scene.objects))]


def _is_related(kind: str, first: SceneObject, second: SceneObject) -> bool:
    """Whether `first` is above (kind "above") or left of (kind "left of") `second`."""
    return satisfies_relation(kind, (first.row, first.column), (second.row, second.column))


def _iter_matching_patterns(
    obj: SceneObject, grid: int, with_positions: bool = True
) -> Iterator[ObjectPattern]:
    """Yield every pattern that matches an object, or every one that states no position. grid: cells per side."""
    positions = _find_position_names(obj.row, obj.column, grid) if with_positions else ()
    for words in product(
        (None, FAMILY_BY_SHAPE[obj.shape], obj.shape),
        (None, TONE_BY_COLOR[obj.color], obj.color),
        (None, obj.size),
        (None, *positions),
    ):
        yield ObjectPattern(*words)


def _iter_pair_meanings(scene: Scene) -> Iterator[CaptionMeaning]:
    """Yield every true meaning of two objects without positions, with one relation or none; some more than once."""
    for first, second in permutations(scene.objects, 2):
        candidates = [
            frozenset({SpatialRelation(0, kind, 1)})
            for kind in ("above", "left of")
            if _is_related(kind, first, second)
        ]
        for patterns in product(
            _iter_matching_patterns(first, scene.grid, with_positions=False),
            _iter_matching_patterns(second, scene.grid, with_positions=False),
        ):
            for relations in (frozenset[SpatialRelation](), *candidates):
                yield CaptionMeaning(patterns, relations)


MEANING_SAMPLERS: tuple[Callable[[Scene, RandomDraws, World], CaptionMeaning], ...] = (
    _draw_tautology,
    _draw_broad_meaning,
    lambda scene, draws, world: CaptionMeaning(
        (_draw_exact_pattern(draws.choice(scene.objects), scene.grid, draws),)
    ),
    lambda scene, draws, world: _draw_full_meaning(scene, _shuffle_objects(scene, draws), draws, world),
)
"""By level: a function that draws a meaning that is true of a scene."""
