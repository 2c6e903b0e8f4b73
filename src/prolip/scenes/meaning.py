"""What a caption says of a scene: a formula that can be checked, compared and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from prolip.checks import require_choice
from prolip.scenes.world import (
    BACKGROUNDS,
    COLOURS,
    FAMILIES,
    MOST_THINGS,
    SHAPES,
    SIZES,
    STYLES,
    TONES,
    Scene,
    Thing,
)

PLACES: Mapping[str, tuple[str, ...]] = {
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
"""A place, and the simple places that it is the meeting of. `centre` is a cell of a grid of three only."""


WORDS: Mapping[str, tuple[str, ...]] = {
    "shape": (*SHAPES, *FAMILIES),
    "colour": (*COLOURS, *TONES),
    "size": SIZES,
    "place": tuple(PLACES),
}
"""What can be said of each side of a thing."""


class Relation(NamedTuple):
    """Thing number `first` is in a higher row (above) or in a column further left (left of) than number `second`."""

    first: int
    kind: str  # "above" or "left of": the other two are these, read backwards
    second: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is said of one thing; None: nothing.

    shape: a shape or a family ("round"); colour: a colour or a tone ("warm"); place: a name of PLACES.
    """

    shape: str | None = None
    colour: str | None = None
    size: str | None = None
    place: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in WORDS.items():
            value = getattr(self, name)
            if value is not None:
                require_choice(value, allowed, f"Pattern: {name}")

    def fits_kind(self, shape: str, colour: str, size: str) -> bool:
        return (
            _covers(self.shape, shape, FAMILIES)
            and _covers(self.colour, colour, TONES)
            and self.size in (None, size)
        )

    def fits_cell(self, row: int, column: int, grid: int) -> bool:
        return self.place is None or all(_in_place(part, row, column, grid) for part in PLACES[self.place])

    def fits(self, thing: Thing, grid: int) -> bool:
        return self.fits_kind(thing.shape, thing.colour, thing.size) and self.fits_cell(
            thing.row, thing.column, grid
        )

    def implies(self, other: Pattern) -> bool:
        """Whatever fits this fits the other too."""
        return (
            _covers(other.shape, self.shape, FAMILIES)
            and _covers(other.colour, self.colour, TONES)
            and other.size in (None, self.size)
            and (other.place is None or (self.place is not None and _within(self.place, other.place)))
        )


@dataclass(frozen=True, slots=True)
class Meaning:
    """There are different things that fit the patterns and stand in the relations; and what is said of the whole.

    count: exactly so many things are in the scene.
    The things are put into one fixed order, so that two meanings are equal if they differ only in that.
    """

    things: tuple[Pattern, ...] = ()
    relations: frozenset[Relation] = frozenset()
    count: int | None = None
    background: str | None = None
    style: str | None = None

    def __post_init__(self) -> None:
        if self.background is not None:
            require_choice(self.background, BACKGROUNDS, "Meaning: background")
        if self.style is not None:
            require_choice(self.style, STYLES, "Meaning: style")
        if len(self.things) > MOST_THINGS:
            raise ValueError(f"a scene has at most {MOST_THINGS} things; these are {len(self.things)}")
        for first, kind, second in self.relations:
            if not 0 <= min(first, second) <= max(first, second) < len(self.things) or first == second:
                raise ValueError(
                    f"Meaning: things {first} and {second} of a relation are not two of its things"
                )
            require_choice(kind, ("above", "left of"), "Meaning: relation")
        if len(self.things) > 1:
            things, relations = min(_orders(self.things, self.relations), key=_sorting_key)
            object.__setattr__(self, "things", things)
            object.__setattr__(self, "relations", relations)


def holds(meaning: Meaning, scene: Scene) -> bool:
    """The meaning is true of the scene."""
    if meaning.background not in (None, scene.background) or meaning.style not in (None, scene.style):
        return False
    if meaning.count not in (None, len(scene.things)):
        return False
    return any(
        all(pattern.fits(thing, scene.grid) for pattern, thing in zip(meaning.things, chosen, strict=True))
        and all(related(kind, _cell(chosen[i]), _cell(chosen[j])) for i, kind, j in meaning.relations)
        for chosen in permutations(scene.things, len(meaning.things))
    )


def related(kind: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """The relation of two cells (row, column)."""
    axis = 0 if kind == "above" else 1
    return first[axis] < second[axis]


def implies(specific: Meaning, general: Meaning) -> bool:
    """Every scene of which `specific` holds is one of which `general` holds.

    Decided on the formulas: each thing of the general one is a thing of the specific one, of which at least as much is
    said. (What only the geometry of the grid would tell is not found: a thing at the top left and another at the bottom
    right are one above the other.)
    """
    for name in ("background", "style", "count"):
        if getattr(general, name) not in (None, getattr(specific, name)):
            return False
    known = list(specific.things)
    known += [Pattern()] * (
        max(specific.count or 1, len(known)) - len(known)
    )  # there are so many, whatever they are
    return any(
        all(known[i].implies(pattern) for i, pattern in zip(chosen, general.things, strict=True))
        and all(
            Relation(chosen[i], kind, chosen[j]) in specific.relations for i, kind, j in general.relations
        )
        for chosen in permutations(range(len(known)), len(general.things))
    )


Order = tuple[tuple[Pattern, ...], frozenset[Relation]]


def _orders(things: tuple[Pattern, ...], relations: frozenset[Relation]) -> Iterator[Order]:
    """The same things in every order, with their relations."""
    for order in permutations(range(len(things))):
        new = {old: number for number, old in enumerate(order)}
        renamed = frozenset(Relation(new[i], kind, new[j]) for i, kind, j in relations)
        yield tuple(things[old] for old in order), renamed


def _sorting_key(order: Order) -> tuple[object, ...]:
    things, relations = order
    words = [(t.shape or "", t.colour or "", t.size or "", t.place or "") for t in things]
    return words, sorted(relations)


def _covers(word: str | None, value: str | None, groups: Mapping[str, Sequence[str]]) -> bool:
    """A word is true of a value: there is no word, they are the same, or the word names a group that it is in."""
    return word is None or word == value or value in groups.get(word, ())


def _within(place: str, wider: str) -> bool:
    return set(PLACES[wider]) <= set(PLACES[place])


def _in_place(part: str, row: int, column: int, grid: int) -> bool:
    return {
        "top": row == 0,
        "bottom": row == grid - 1,
        "left": column == 0,
        "right": column == grid - 1,
        "centre": grid == 3 and row == column == 1,
    }[part]


def _cell(thing: Thing) -> tuple[int, int]:
    return thing.row, thing.column
