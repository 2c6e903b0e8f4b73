"""The exact probability that a random scene satisfies a meaning, by counting."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import permutations

import numpy as np

from prolip.scenes.meaning import Meaning, Pattern, Relation, related
from prolip.scenes.world import MOST_THINGS, World


@lru_cache(maxsize=2**16)
def probability(meaning: Meaning, world: World) -> float:
    """P(the meaning holds of a scene of this world), exact but for the rounding of float64."""
    return (
        _share(meaning.background, {name: 1 / len(world.backgrounds) for name in world.backgrounds})
        * _share(meaning.style, dict(world.styles))
        * math.fsum(
            share * _probability_of_things(meaning.things, meaning.relations, count, world)
            for count, share in enumerate(world.counts, start=1)
            if share and meaning.count in (None, count)
        )
    )


def log_ambiguity(meaning: Meaning, world: World) -> float:
    """ln P: 0 for what is always true ("a thing"), -inf for what never is."""
    p = probability(meaning, world)
    return math.log(p) if p > 0 else -math.inf


def _share(name: str | None, shares: dict[str, float]) -> float:
    return 1.0 if name is None else shares.get(name, 0.0)


@lru_cache(maxsize=2**16)
def _probability_of_things(
    patterns: tuple[Pattern, ...], relations: frozenset[Relation], count: int, world: World
) -> float:
    """P(`count` random things include different ones that fit the patterns and relations).

    Of a kind of thing, only this counts: which of the patterns it fits (a signature, one bit a pattern). So all scenes
    are placements x signatures of each thing, at most 504 x 8^3, and they can be gone through.
    """
    if len(patterns) > count:
        return 0.0
    of_signature = _signature_shares(patterns, world)
    signatures = np.indices((len(of_signature),) * count).reshape(count, -1)  # (things, S)
    weights = of_signature[signatures].prod(axis=0)  # (S,)
    placements = list(permutations([divmod(cell, world.grid) for cell in range(world.grid**2)], count))
    good = np.zeros((len(placements), len(weights)), dtype=bool)
    for chosen in permutations(range(count), len(patterns)):
        placed = [_well_placed(cells, chosen, patterns, relations, world.grid) for cells in placements]
        fitting = np.ones(len(weights), dtype=bool)
        for bit, thing in enumerate(chosen):
            fitting &= signatures[thing] >> bit & 1 == 1
        good |= np.array(placed)[:, None] & fitting
    return float((good @ weights).mean())


def _signature_shares(patterns: tuple[Pattern, ...], world: World) -> np.ndarray:
    """(2^patterns,): how likely a random kind of thing fits just the patterns whose bits are set."""
    shares = np.zeros(2 ** len(patterns))
    for kind in world.kinds:
        shares[sum(pattern.fits_kind(*kind) << bit for bit, pattern in enumerate(patterns))] += 1
    return shares / len(world.kinds)


def _well_placed(
    cells: tuple[tuple[int, int], ...],
    chosen: tuple[int, ...],
    patterns: tuple[Pattern, ...],
    relations: frozenset[Relation],
    grid: int,
) -> bool:
    return all(
        pattern.fits_cell(*cells[i], grid) for i, pattern in zip(chosen, patterns, strict=True)
    ) and all(related(kind, cells[chosen[i]], cells[chosen[j]]) for i, kind, j in relations)


assert MOST_THINGS == 3  # more things would make the table of `_probability_of_things` too large
