"""Exact probability that a random scene looks like a given image, through the same veil."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import permutations

from prolip.scenes.ambiguity import kind_probability
from prolip.scenes.meaning import ObjectPattern
from prolip.scenes.veils import Cell, ImageMeaning
from prolip.scenes.world import World

Place = tuple[int | None, int | None]
"""Row and column of an object; None: not visible."""


@lru_cache(maxsize=2**16)
def image_probability(meaning: ImageMeaning, world: World) -> float:
    """Compute the probability that a random scene shows the same through the same veil.

    The objects of a scene are independent of their cells and of each other. So this is the product of the
    probabilities of what is visible of each object's kind, times the expected number of ways in which the visible
    objects of a random placement are those of the formula.

    Args:
        meaning: What the image shows.
        world: The distribution of scenes.

    Returns:
        The probability, exact up to float64 rounding. Over all formulas of one veil they add up to 1.
    """
    if meaning.grid != world.grid:
        return 0.0
    kinds = [ObjectPattern(obj.shape, obj.color, obj.size) for obj in meaning.objects]
    labels = tuple(kinds.index(kind) for kind in kinds)
    places = tuple((obj.row, obj.column) for obj in meaning.objects)
    styles = meaning.styles
    return (
        (
            1.0
            if meaning.background is None
            else (meaning.background in world.backgrounds) / len(world.backgrounds)
        )
        * (1.0 if styles is None else math.fsum(p for style, p in world.styles if style in styles))
        * math.prod(kind_probability(kind, world) for kind in kinds)
        * math.fsum(
            fraction * _count_matches(labels, places, meaning.veil.curtains, count, world.grid)
            for count, fraction in enumerate(world.counts, start=1)
            if fraction
        )
    )


def image_log_ambiguity(meaning: ImageMeaning, world: World) -> float:
    """Compute the natural logarithm of the probability that a random scene shows the same through the same veil.

    Args:
        meaning: What the image shows.
        world: The distribution of scenes.

    Returns:
        Nats: 0 if nothing is visible, -inf for what never is.
    """
    p = image_probability(meaning, world)
    return math.log(p) if p > 0 else -math.inf


@lru_cache(maxsize=2**16)
def _count_matches(
    labels: tuple[int, ...], places: tuple[Place, ...], curtains: frozenset[Cell], count: int, grid: int
) -> float:
    """Expected number of different orders of the formula's objects that fit a random placement of `count` objects.

    labels: equal for objects of equal visible kind: exchanging them at equal places makes no other order. places:
    where the formula's objects are.
    """
    if len(places) > count:
        return 0.0
    orders = set(permutations(zip(labels, places, strict=True)))
    placements = list(permutations([divmod(cell, grid) for cell in range(grid**2)], count))
    total = 0
    for cells in placements:
        visible = [cell for cell in cells if cell not in curtains]
        if len(visible) == len(places):
            total += sum(
                all(_is_at(place, cell) for (_, place), cell in zip(order, visible, strict=True))
                for order in orders
            )
    return total / len(placements)


def _is_at(place: Place, cell: Cell) -> bool:
    """Whether a cell is at a place; a row or column of None fits any."""
    return place[0] in (None, cell[0]) and place[1] in (None, cell[1])
