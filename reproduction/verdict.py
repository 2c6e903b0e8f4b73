"""The rule by which a claim counts as shown: RULE in words, `judge` in code."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["shown", "not shown", "reversed", "not run"]
RULE = (
    "An effect is positive if it has the paper's sign; of a claim with several parts it is that of the weakest. "
    "Its noise is the standard deviation over seeds or two standard errors of the sample, whichever is larger; "
    "a variant with one seed borrows the headline's deviation. "
    "Shown: the mean effect is above its noise, and every seed of every control against it has at most "
    "half of it, and is below it by more than the noise. Reversed: the mean effect, of the strongest part, is below "
    "minus its noise. Otherwise not shown. Not run: a cell is missing."
)
MAX_CONTROL_FRACTION = 0.5
"""Fraction of the effect that a seed of a control may have."""


@dataclass(frozen=True)
class Observation:
    """What one cell shows of a claim.

    Attributes:
        value: As it is printed.
        effect: Positive if it has the paper's sign.
        error: Standard error of the effect.
        strongest: Effect of the strongest part of a claim with several parts; `effect` is that of the weakest.
    """

    value: float
    effect: float
    error: float
    strongest: float | None = None


@dataclass(frozen=True)
class Effect:
    """The mean effect over seeds and its noise.

    Attributes:
        mean: Over seeds.
        noise: Standard deviation over seeds, or two standard errors, whichever is larger.
        strongest: Mean of the strongest parts.
        seeds: Number of seeds behind the noise; with one, the deviation is unknown.
    """

    mean: float
    noise: float
    strongest: float
    seeds: int


def compute_effect(observations: Sequence[Observation], borrowed: Sequence[float] = ()) -> Effect:
    """Compute the effect of one variant.

    Args:
        observations: One per seed.
        borrowed: Effects of another variant's seeds, whose deviation is used if there is one seed only.
    """
    values = [observation.effect for observation in observations]
    spread_of = max(values, borrowed, key=len) if len(values) < 2 else values
    strongest = [
        observation.effect if observation.strongest is None else observation.strongest
        for observation in observations
    ]
    return Effect(
        statistics.fmean(values),
        max(_deviation(spread_of), 2 * _error(observations)),
        statistics.fmean(strongest),
        len(spread_of),
    )


def compute_difference(
    ours: Sequence[Observation], theirs: Sequence[Observation], borrowed: Sequence[float] = ()
) -> Effect:
    """Compute the effect of one variant minus that of another, and the noise of both."""
    a, b = ([observation.effect for observation in side] for side in (ours, theirs))
    longest = max(a, b, borrowed, key=len)
    spread_a, spread_b = (_deviation(side if len(side) > 1 else longest) for side in (a, b))
    mean = statistics.fmean(a) - statistics.fmean(b)
    noise = max(math.hypot(spread_a, spread_b), 2 * math.hypot(_error(ours), _error(theirs)))
    return Effect(mean, noise, mean, len(longest))


def judge(effect: Effect, controls: Mapping[str, Sequence[float]]) -> tuple[Verdict, str]:
    """Judge a claim.

    Args:
        effect: Effect of the claim.
        controls: Effects by seed, by control, that must not show the claim as well.

    Returns:
        The verdict, and why.
    """
    if effect.strongest < -effect.noise:
        return "reversed", "the effect has the opposite sign"
    if effect.mean < -effect.noise:
        return "not shown", "a part of it has the opposite sign"
    if effect.mean <= effect.noise:
        return "not shown", "the effect is within its noise"
    for name, effects in controls.items():
        if effects and max(effects) >= min(MAX_CONTROL_FRACTION * effect.mean, effect.mean - effect.noise):
            return "not shown", f"{name} shows it as well"
    return "shown", "one seed: its deviation is unknown" if effect.seeds < 2 else ""


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 of a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _error(observations: Sequence[Observation]) -> float:
    return statistics.fmean(observation.error for observation in observations)
