"""Exact probability that a random scene satisfies a meaning, by enumeration."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import permutations

import numpy as np

from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation, satisfies_relation
from prolip.scenes.world import MAX_OBJECTS, World


@lru_cache(maxsize=2**16)
def probability(meaning: CaptionMeaning, world: World) -> float:
    """Compute the probability that a meaning is true of a random scene.

    Args:
        meaning: The meaning of a caption.
        world: The distribution of scenes.

    Returns:
        The probability, exact up to float64 rounding.
    """
    return (
        _get_probability(meaning.background, {name: 1 / len(world.backgrounds) for name in world.backgrounds})
        * _get_probability(meaning.style, dict(world.styles))
        * math.fsum(
            fraction * _compute_object_probability(meaning.objects, meaning.relations, count, world)
            for count, fraction in enumerate(world.counts, start=1)
            if fraction and meaning.count in (None, count)
        )
    )


def log_ambiguity(meaning: CaptionMeaning, world: World) -> float:
    """Compute the natural logarithm of the probability that a meaning is true of a random scene.

    Args:
        meaning: The meaning of a caption.
        world: The distribution of scenes.

    Returns:
        Nats: 0 for what is always true ("a thing"), -inf for what never is.
    """
    p = probability(meaning, world)
    return math.log(p) if p > 0 else -math.inf


@lru_cache(maxsize=2**12)
def kind_probability(pattern: ObjectPattern, world: World) -> float:
    """Compute the probability that a random kind of object (shape, color, size) matches a pattern.

    Args:
        pattern: What is known of the object; its position is ignored.
        world: The distribution of scenes.

    Returns:
        The probability.
    """
    return float(_compute_signature_probabilities((pattern,), world)[1])


def _get_probability(name: str | None, probabilities: dict[str, float]) -> float:
    """Probability of the stated name; 1 if nothing is stated (None), 0 for a name that doesn't occur."""
    return 1.0 if name is None else probabilities.get(name, 0.0)


@lru_cache(maxsize=2**16)
def _compute_object_probability(
    patterns: tuple[ObjectPattern, ...], relations: frozenset[SpatialRelation], count: int, world: World
) -> float:
    """P(`count` random objects include distinct ones that match the patterns and relations).

    Of an object's kind, only this matters: which of the patterns it matches (a signature, one bit per pattern). So all
    scenes are placements x signatures of each object, at most 504 x 8^3, and can be enumerated.
    """
    if len(patterns) > count:
        return 0.0
    signature_probabilities = _compute_signature_probabilities(patterns, world)
    signatures = np.indices((len(signature_probabilities),) * count).reshape(count, -1)  # (objects, S)
    weights = signature_probabilities[signatures].prod(axis=0)  # (S,)
    placements = list(permutations([divmod(cell, world.grid) for cell in range(world.grid**2)], count))
    satisfied = np.zeros((len(placements), len(weights)), dtype=bool)
    for chosen in permutations(range(count), len(patterns)):  # chosen[i]: the object that pattern i refers to
        well_placed = [
            _is_well_placed(cells, chosen, patterns, relations, world.grid) for cells in placements
        ]
        matching = np.ones(len(weights), dtype=bool)
        for bit, obj in enumerate(chosen):
            matching &= ((signatures[obj] >> bit) & 1) == 1
        satisfied |= np.array(well_placed)[:, None] & matching
    return float((satisfied @ weights).mean())


def _compute_signature_probabilities(patterns: tuple[ObjectPattern, ...], world: World) -> np.ndarray:
    """float64 (2^patterns,): P(a random kind of object matches exactly the patterns whose bits are set)."""
    weights: np.ndarray = np.zeros(2 ** len(patterns))
    for kind, weight in zip(world.object_kinds, world.kind_weights, strict=True):
        signature = sum(pattern.matches_kind(*kind) << bit for bit, pattern in enumerate(patterns))
        weights[signature] += weight
    weights /= weights.sum()  # equal weights are powers of 2: then both sums are exact
    return weights


def _is_well_placed(
    cells: tuple[tuple[int, int], ...],
    chosen: tuple[int, ...],
    patterns: tuple[ObjectPattern, ...],
    relations: frozenset[SpatialRelation],
    grid: int,
) -> bool:
    """Whether a placement satisfies all positions and relations.

    cells: (row, column) of each object. chosen: the object that each pattern refers to. grid: cells per side.
    """
    return all(
        pattern.matches_cell(*cells[i], grid) for i, pattern in zip(chosen, patterns, strict=True)
    ) and all(satisfies_relation(kind, cells[chosen[i]], cells[chosen[j]]) for i, kind, j in relations)


assert MAX_OBJECTS == 3  # more objects would make the table of `_compute_object_probability` too large
