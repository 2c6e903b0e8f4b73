"""Observations of a cell's numbers: fractions, correlations, differences, each with its standard error.

A path leads through a cell's numbers: "hierarcaps/order/pairs/0". Each `observe_*` makes a function that reads such
numbers from a cell and returns an observation, or None where the cell has None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reproduction.verdict import Observation

Numbers = Mapping[str, Any]
Observe = Callable[[Numbers], Observation | None]
"""Makes an observation from the numbers of a cell."""


class MissingNumberError(ValueError):
    """A cell has no number at a path."""


def get_value(numbers: Numbers, path: str) -> Any:
    """Get the number at a path.

    Returns:
        The number; None if it, or a parent, is None.

    Raises:
        MissingNumberError: The path does not exist.
    """
    value: Any = numbers
    for name in path.split("/"):
        if value is None:
            return None
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, ValueError):
            raise MissingNumberError(
                f"the cell has no number at {path}: {name} is missing. Remove the file of the cell, and run python -m "
                "reproduction to measure it again"
            ) from None
    return value


def observe_fraction(path: str, count: str, above: float = 0.5) -> Observe:
    """Observe a fraction of samples, whose number is at the path `count`; the effect is its excess over `above`."""

    def observe(numbers: Numbers) -> Observation | None:
        value, n = get_value(numbers, path), get_value(numbers, count)
        return None if value is None else Observation(value, value - above, compute_fraction_error(value, n))

    return observe


def observe_fraction_below(path: str, count: str, limit: float) -> Observe:
    """Observe a fraction that should be small; the effect is `limit` minus the fraction."""
    observe_excess = observe_fraction(path, count, limit)

    def observe(numbers: Numbers) -> Observation | None:
        excess = observe_excess(numbers)
        return None if excess is None else Observation(excess.value, -excess.effect, excess.error)

    return observe


def observe_min_fraction(path: str, key: str | None, count: str) -> Observe:
    """Observe the minimum of the fractions in a list; the effect is its excess over 0.5.

    An entry of the list is a dict with the fraction at `key`, or the fraction itself if `key` is None.
    """

    def observe(numbers: Numbers) -> Observation | None:
        """None if the list is None or empty, or has an entry without the fraction."""
        values = [row if key is None else row[key] for row in get_value(numbers, path) or ()]
        if not values or None in values:
            return None
        smallest, largest = min(values), max(values)
        return Observation(
            smallest,
            smallest - 0.5,
            compute_fraction_error(smallest, get_value(numbers, count)),
            largest - 0.5,
        )

    return observe


def observe_correlation(path: str, count: str, sign: int = 1) -> Observe:
    """Observe a rank correlation; the effect is `sign` times the correlation.

    The error is that of n independent, uncorrelated samples, 1/sqrt(n - 1); n is at the path `count`.
    """

    def observe(numbers: Numbers) -> Observation | None:
        """None if the correlation is None."""
        value = get_value(numbers, path)
        if value is None:
            return None
        return Observation(value, sign * value, 1 / math.sqrt(max(get_value(numbers, count) - 1, 1)))

    return observe


def observe_gain(path: str, over: str, count: str) -> Observe:
    """Observe the fraction at `path` minus the one at `over`, of the same samples; value and effect are the difference.

    The error assumes independent fractions, which is conservative.
    """

    def observe(numbers: Numbers) -> Observation | None:
        """None if one of the fractions is None."""
        ours, theirs, n = (get_value(numbers, each) for each in (path, over, count))
        if ours is None or theirs is None:
            return None
        error = math.hypot(compute_fraction_error(ours, n), compute_fraction_error(theirs, n))
        return Observation(ours - theirs, ours - theirs, error)

    return observe


def observe_correlation_gain(path: str, over: Sequence[str], count: str) -> Observe:
    """Observe the rank correlation at `path` minus the largest of those at `over`; value and effect are the difference.

    The error is that of n independent samples, 1/sqrt(n - 1) for each of both; n is at the path `count`.
    """

    def observe(numbers: Numbers) -> Observation | None:
        """None if one of the correlations is None."""
        ours, *others = (get_value(numbers, each) for each in (path, *over))
        if ours is None or None in others:
            return None
        error = math.sqrt(2 / max(get_value(numbers, count) - 1, 1))
        return Observation(ours - max(others), ours - max(others), error)

    return observe


def observe_weakest(first: Observe, *others: Observe) -> Observe:
    """Observe several conditions at once: the value is that of the first, the effect that of the weakest."""

    def observe(numbers: Numbers) -> Observation | None:
        """None if one of the conditions can't be observed."""
        observations = []
        for observe_condition in (first, *others):
            observation = observe_condition(numbers)
            if observation is None:
                return None
            observations.append(observation)
        weakest = min(observations, key=lambda observation: observation.effect)
        strongest = max(observation.effect for observation in observations)
        return Observation(observations[0].value, weakest.effect, weakest.error, strongest)

    return observe


def observe_log_ratio(path: str, over: str) -> Observe:
    """Observe ln of the ratio of two means, that at `path` over that at `over`; at each path is {mean, error}."""

    def observe(numbers: Numbers) -> Observation | None:
        """None if one of the means is None."""
        ours, theirs = get_value(numbers, path), get_value(numbers, over)
        if ours is None or theirs is None:
            return None
        value = math.log(ours["mean"] / theirs["mean"])
        return Observation(value, value, math.hypot(*(z["error"] / z["mean"] for z in (ours, theirs))))

    return observe


def observe_mean(path: str) -> Observe:
    """Observe a mean that is only printed for comparison; at the path is {mean, error}."""

    def observe(numbers: Numbers) -> Observation | None:
        entry = get_value(numbers, path)
        return None if entry is None else Observation(entry["mean"], entry["mean"], entry["error"])

    return observe


def observe_saving(path: str, over: str) -> Observe:
    """Observe how much smaller the ratio at `path` is than the one at `over`; at each path is {median, error}.

    The value is the ratio at `path`, the effect the difference.
    """

    def observe(numbers: Numbers) -> Observation | None:
        """None if one of the ratios is None."""
        ours, theirs = get_value(numbers, path), get_value(numbers, over)
        if ours is None or theirs is None:
            return None
        effect = theirs["median"] - ours["median"]
        return Observation(ours["median"], effect, math.hypot(ours["error"], theirs["error"]))

    return observe


def compute_fraction_error(value: float, n: int) -> float:
    """Standard error of a fraction of n samples; at 0 and 1 as if one sample were different."""
    return math.sqrt(max(value * (1 - value), 1 / n) / n)
