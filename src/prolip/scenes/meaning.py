"""The meaning of a caption: a formula over scenes that can be checked, compared and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from prolip.checks import require_choice
from prolip.scenes.world import (
    BACKGROUNDS,
    COLORS,
    FAMILIES,
    MAX_OBJECTS,
    SHAPES,
    SIZES,
    STYLES,
    TONES,
    Scene,
    SceneObject,
)

POSITIONS: Mapping[str, tuple[str, ...]] = {
    "top": ("top",),
    "bottom": ("bottom",),
    "left": ("left",),
    "right": ("right",),
    "centre": ("centre",),
    "top left": ("top", "left"),
    "top right": ("top", "right"),
    "bottom left": ("bottom", "left"),
    "bottom right": ("bottom", "right"),
}
"""A position, and the elementary positions that it combines. `centre` exists in a 3 x 3 grid only.

The names are words of captions, which are fixed (`lexicon`)."""


WORDS: Mapping[str, tuple[str, ...]] = {
    "shape": (*SHAPES, *FAMILIES),
    "color": (*COLORS, *TONES),
    "size": SIZES,
    "position": tuple(POSITIONS),
}
"""Words for each attribute of an object."""


class SpatialRelation(NamedTuple):
    """Object `first` is in a higher row ("above") or a column further left ("left of") than object `second`."""

    first: int
    kind: str  # "above" or "left of"; "below" and "right of" are these with the objects swapped
    second: int


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    """What is stated of one object; None: nothing.

    Attributes:
        shape: A shape or a family of shapes ("round").
        color: A color or a tone ("warm").
        size: "small" or "large".
        position: A key of POSITIONS.
    """

    shape: str | None = None
    color: str | None = None
    size: str | None = None
    position: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless every word is one of WORDS."""
        for name, allowed in WORDS.items():
            value = getattr(self, name)
            if value is not None:
                require_choice(value, allowed, f"ObjectPattern: {name}")

    def matches_kind(self, shape: str, color: str, size: str) -> bool:
        """Whether an object of this kind matches, wherever it is.

        Args:
            shape, color, size: Attributes of the object.

        Returns:
            True if shape, color and size match.
        """
        return (
            _covers(self.shape, shape, FAMILIES)
            and _covers(self.color, color, TONES)
            and self.size in (None, size)
        )

    def matches_cell(self, row: int, column: int, grid: int) -> bool:
        """Whether an object in this cell matches, whatever it is.

        Args:
            row, column: The cell, from the top left.
            grid: Cells per side.

        Returns:
            True if the position matches.
        """
        return self.position is None or all(
            _is_at(elementary, row, column, grid) for elementary in POSITIONS[self.position]
        )

    def matches(self, obj: SceneObject, grid: int) -> bool:
        """Whether an object matches the pattern.

        Args:
            obj: The object.
            grid: Cells per side of its scene.

        Returns:
            True if kind and position match.
        """
        return self.matches_kind(obj.shape, obj.color, obj.size) and self.matches_cell(
            obj.row, obj.column, grid
        )

    def entails(self, other: ObjectPattern) -> bool:
        """Whether every object that matches this pattern matches another one too.

        Args:
            other: The other pattern.

        Returns:
            True if `other` states nothing that this pattern doesn't.
        """
        return (
            _covers(other.shape, self.shape, FAMILIES)
            and _covers(other.color, self.color, TONES)
            and other.size in (None, self.size)
            and (
                other.position is None
                or (self.position is not None and _is_within(self.position, other.position))
            )
        )


@dataclass(frozen=True, slots=True)
class CaptionMeaning:
    """A formula: distinct objects match the patterns and satisfy the relations; and statements of the whole scene.

    The patterns are put into a canonical order, so that meanings that differ only in order are equal.

    Attributes:
        objects: One pattern per object that is mentioned.
        relations: Between objects, by their indices.
        count: The exact number of objects in the scene; None: not stated.
        background: One of BACKGROUNDS; None: not stated.
        style: One of STYLES; None: not stated.
    """

    objects: tuple[ObjectPattern, ...] = ()
    relations: frozenset[SpatialRelation] = frozenset()
    count: int | None = None
    background: str | None = None
    style: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless the statements are valid; put the patterns into their canonical order."""
        if self.background is not None:
            require_choice(self.background, BACKGROUNDS, "CaptionMeaning: background")
        if self.style is not None:
            require_choice(self.style, STYLES, "CaptionMeaning: style")
        if len(self.objects) > MAX_OBJECTS:
            raise ValueError(
                f"CaptionMeaning: a scene has at most {MAX_OBJECTS} objects, not {len(self.objects)}"
            )
        for first, kind, second in self.relations:
            if not 0 <= min(first, second) <= max(first, second) < len(self.objects) or first == second:
                raise ValueError(
                    "CaptionMeaning: a relation must be between two of its objects, by their indices from 0 to "
                    f"{len(self.objects) - 1}, not {first} and {second}"
                )
            require_choice(kind, ("above", "left of"), "CaptionMeaning: relation")
        if len(self.objects) > 1:
            objects, relations = min(_iter_orders(self.objects, self.relations), key=_make_sorting_key)
            object.__setattr__(self, "objects", objects)
            object.__setattr__(self, "relations", relations)


def is_true(meaning: CaptionMeaning, scene: Scene) -> bool:
    """Whether a meaning is true of a scene.

    Args:
        meaning: The meaning of a caption.
        scene: The scene.

    Returns:
        True if distinct objects match all patterns and relations, and all statements of the scene hold.
    """
    if meaning.background not in (None, scene.background) or meaning.style not in (None, scene.style):
        return False
    if meaning.count not in (None, len(scene.objects)):
        return False
    # try every assignment of distinct objects of the scene to the patterns
    return any(
        all(pattern.matches(obj, scene.grid) for pattern, obj in zip(meaning.objects, chosen, strict=True))
        and all(
            satisfies_relation(kind, _get_cell(chosen[i]), _get_cell(chosen[j]))
            for i, kind, j in meaning.relations
        )
        for chosen in permutations(scene.objects, len(meaning.objects))
    )


def satisfies_relation(kind: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether one cell is in a spatial relation to another.

    Args:
        kind: "above" or "left of".
        first, second: Cells (row, column).

    Returns:
        True if `first` is above or left of `second`.
    """
    axis = 0 if kind == "above" else 1
    return first[axis] < second[axis]


def entails(specific: CaptionMeaning, general: CaptionMeaning) -> bool:
    """Whether `specific` entails `general`: every scene of which the first is true satisfies the second.

    Decided on the formulas: each object of the general one is an object of the specific one, of which at least as much
    is stated. What only the geometry of the grid implies is not found: an object at the top left is above one at the
    bottom right.

    Args:
        specific, general: The meanings.

    Returns:
        True only if it is entailed; False also where only the geometry implies it.
    """
    for name in ("background", "style", "count"):
        if getattr(general, name) not in (None, getattr(specific, name)):
            return False
    objects = list(specific.objects)
    # objects of which nothing but their number is stated; a scene has at least one
    objects += [ObjectPattern()] * (max(specific.count or 1, len(objects)) - len(objects))
    return any(
        all(objects[i].entails(pattern) for i, pattern in zip(chosen, general.objects, strict=True))
        and all(
            SpatialRelation(chosen[i], kind, chosen[j]) in specific.relations
            for i, kind, j in general.relations
        )
        for chosen in permutations(range(len(objects)), len(general.objects))
    )


Order = tuple[tuple[ObjectPattern, ...], frozenset[SpatialRelation]]
"""The objects of a meaning in some order, and the relations between them by their indices in it."""


def _iter_orders(
    objects: tuple[ObjectPattern, ...], relations: frozenset[SpatialRelation]
) -> Iterator[Order]:
    """Yield the same objects in every order, with the indices of their relations adapted."""
    for order in permutations(range(len(objects))):
        new_index = {old: new for new, old in enumerate(order)}
        renumbered = frozenset(SpatialRelation(new_index[i], kind, new_index[j]) for i, kind, j in relations)
        yield tuple(objects[old] for old in order), renumbered


def _make_sorting_key(order: Order) -> tuple[object, ...]:
    """The key by which orders are compared; the smallest is the canonical one."""
    objects, relations = order
    words = [
        (pattern.shape or "", pattern.color or "", pattern.size or "", pattern.position or "")
        for pattern in objects
    ]
    return words, sorted(relations)


def _covers(word: str | None, value: str | None, groups: Mapping[str, Sequence[str]]) -> bool:
    """Whether a word is true of a value: there is no word, they are equal, or the word names a group of values."""
    return word is None or word == value or value in groups.get(word, ())


def _is_within(position: str, wider: str) -> bool:
    """Whether a position lies in another, as "top left" in "top"; a position lies in itself."""
    return set(POSITIONS[wider]) <= set(POSITIONS[position])


def _is_at(elementary: str, row: int, column: int, grid: int) -> bool:
    """Whether a cell is at an elementary position, such as "top" (see POSITIONS). grid: cells per side."""
    return {
        "top": row == 0,
        "bottom": row == grid - 1,
        "left": column == 0,
        "right": column == grid - 1,
        "centre": grid == 3 and row == column == 1,
    }[elementary]


def _get_cell(obj: SceneObject) -> tuple[int, int]:
    """(row, column) of an object."""
    return obj.row, obj.column
