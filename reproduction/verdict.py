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
"""Fraction of the effect from which on a seed of a control shows the claim as well."""


@dataclass(frozen=True)
class Observation:
    """What one cell shows of a claim.

    Attributes:
        value: The number that is printed.
        effect: The number that is judged, positive if it has the paper's sign.
        error: Standard error of the effect.
        strongest: Effect of the strongest part of a claim with several parts, of which `effect` is the weakest; None:
            there is one part.
    """

    value: float
    effect: float
    error: float
    strongest: float | None = None


@dataclass(frozen=True)
class Effect:
    """The mean effect over seeds and its noise.

    Attributes:
        mean: Mean effect over seeds.
        noise: Standard deviation over seeds, or two standard errors, whichever is larger.
        strongest: Mean over seeds of the effect of the strongest part.
        seeds: Number of seeds behind the noise; with one, the deviation is unknown.
    """

    mean: float
    noise: float
    strongest: float
    seeds: int


def compute_effect(observations: Sequence[Observation], borrowed: Sequence[float] = ()) -> Effect:
    """Compute the mean effect of one variant and its noise.

    Args:
        observations: One per seed.
        borrowed: Effects of another variant's seeds, whose deviation is used if there is one seed only.

    Returns:
        The effect.
    """
    effects = [observation.effect for observation in observations]
    varied = (
        max(effects, borrowed, key=len) if len(effects) < 2 else effects
    )  # effects whose deviation counts
    strongest = [
        observation.effect if observation.strongest is None else observation.strongest
        for observation in observations
    ]
    return Effect(
        statistics.fmean(effects),
        max(_compute_deviation(varied), 2 * _compute_mean_error(observations)),
        statistics.fmean(strongest),
        len(varied),
    )


def compute_difference(
    ours: Sequence[Observation], theirs: Sequence[Observation], borrowed: Sequence[float] = ()
) -> Effect:
    """Compute the effect of one variant minus that of another.

    Args:
        ours: One observation per seed.
        theirs: One observation per seed of the other variant.
        borrowed: Effects of a third variant's seeds. A variant with one seed has the deviation of the longest of the
            three lists.

    Returns:
        The difference; its noise combines those of both variants.
    """
    a, b = ([observation.effect for observation in side] for side in (ours, theirs))
    longest = max(a, b, borrowed, key=len)
    deviation_a, deviation_b = (_compute_deviation(side if len(side) > 1 else longest) for side in (a, b))
    mean = statistics.fmean(a) - statistics.fmean(b)
    error = math.hypot(_compute_mean_error(ours), _compute_mean_error(theirs))
    noise = max(math.hypot(deviation_a, deviation_b), 2 * error)
    return Effect(mean, noise, mean, len(longest))


def judge(effect: Effect, controls: Mapping[str, Sequence[float]]) -> tuple[Verdict, str]:
    """Judge a claim by RULE.

    Args:
        effect: Effect of the claim.
        controls: By name of a control that must not show the claim as well, its effects by seed.

    Returns:
        The verdict, and its reason; "" if the claim is shown without reservation. Never "not run".
    """
    if effect.strongest < -effect.noise:
        return "reversed", "the effect has the opposite sign"
    if effect.mean < -effect.noise:
        return "not shown", "a part of it has the opposite sign"
    if effect.mean <= effect.noise:
        return "not shown", "the effect is within its noise"
    for name, effects in controls.items():
        if effects and max(effects) >= MAX_CONTROL_FRACTION * effect.mean:
            return "not shown", f"{name} shows it as well"
        if effects and max(effects) >= effect.mean - effect.noise:
            return "not shown", f"its difference to {name} is within its noise"
    return "shown", "one seed: its deviation is unknown" if effect.seeds < 2 else ""


def _compute_deviation(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 for a single seed."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _compute_mean_error(observations: Sequence[Observation]) -> float:
    """Mean of the standard errors of observations."""
    return statistics.fmean(observation.error for observation in observations)
