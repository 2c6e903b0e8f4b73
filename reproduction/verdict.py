"""When a claim counts as shown. The rule in words is RULE; the code below is the same rule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Word = Literal["shown", "not shown", "reversed", "not run"]
RULE = (
    "An effect is positive if it has the paper's sign; of a claim with several parts it is that of the weakest. "
    "Its noise is the standard deviation over seeds or two standard errors of the sample, whichever is larger; "
    "a variant with one seed borrows the headline's deviation. "
    "Shown: the mean effect is above its noise, and every seed of every control that stands against it has at most "
    "half of it, and is below it by more than the noise. Reversed: the mean effect, of the strongest part, is below "
    "minus its noise. Otherwise not shown. Not run: a cell is missing."
)
MOST = 0.5
"""Share of the effect that a seed of a control may have."""


@dataclass(frozen=True)
class Reading:
    """What one cell says. value: as it is told. effect: positive with the paper's sign. error: its standard error.
    strongest: of a claim with several parts, whose weakest is the effect; None: it has one."""

    value: float
    effect: float
    error: float
    strongest: float | None = None


@dataclass(frozen=True)
class Effect:
    """The mean over seeds, and how much of it may be chance. strongest: the mean of the strongest parts.
    seeds: at least so many are behind the noise; with one, nobody knows the spread."""

    mean: float
    noise: float
    strongest: float
    seeds: int


def effect_of(readings: Sequence[Reading], borrowed: Sequence[float] = ()) -> Effect:
    """Of one variant. borrowed: effects of other seeds, whose deviation stands in if there is one seed only."""
    values = [reading.effect for reading in readings]
    spread_of = max(values, borrowed, key=len) if len(values) < 2 else values
    strongest = [reading.effect if reading.strongest is None else reading.strongest for reading in readings]
    return Effect(
        statistics.fmean(values),
        max(_deviation(spread_of), 2 * _error(readings)),
        statistics.fmean(strongest),
        len(spread_of),
    )


def effect_between(
    ours: Sequence[Reading], theirs: Sequence[Reading], borrowed: Sequence[float] = ()
) -> Effect:
    """Of one variant above another; both noises together. A deviation that one lacks, it borrows from the other."""
    a, b = ([reading.effect for reading in side] for side in (ours, theirs))
    longest = max(a, b, borrowed, key=len)
    spread_a, spread_b = (_deviation(side if len(side) > 1 else longest) for side in (a, b))
    mean = statistics.fmean(a) - statistics.fmean(b)
    noise = max(math.hypot(spread_a, spread_b), 2 * math.hypot(_error(ours), _error(theirs)))
    return Effect(mean, noise, mean, len(longest))


def judge(effect: Effect, controls: Mapping[str, Sequence[float]]) -> tuple[Word, str]:
    """The verdict, and why. controls: the effects, by seed, of what must not show the claim as well."""
    if effect.strongest < -effect.noise:
        return "reversed", "the effect has the opposite sign"
    if effect.mean < -effect.noise:
        return "not shown", "a part of it has the opposite sign"
    if effect.mean <= effect.noise:
        return "not shown", "the effect is within its noise"
    for name, effects in controls.items():
        if effects and max(effects) >= min(MOST * effect.mean, effect.mean - effect.noise):
            return "not shown", f"{name} shows it as well"
    return "shown", "one seed: its spread is not known" if effect.seeds < 2 else ""


def _deviation(values: Sequence[float]) -> float:
    """Over seeds; of a single one nothing is known."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _error(readings: Sequence[Reading]) -> float:
    return statistics.fmean(reading.error for reading in readings)
