"""Observations of a cell's numbers: fractions, correlations, differences, each with its standard error.

A path leads through a cell's numbers: "hierarcaps/order/pairs/0". An observation is None where the cell has None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from reproduction.verdict import Observation

Numbers = Mapping[str, Any]
Observe = Callable[[Numbers], Observation | None]


def get_value(numbers: Numbers, path: str) -> Any:
    """Get the number at a path.

    Returns:
        The number; None if it, or a parent, is None.

    Raises:
        ValueError: The path does not exist.
    """
    found: Any = numbers
    for name in path.split("/"):
        if found is None:
            return None
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError):
            raise ValueError(
                f"a cell has no {path} ({name} is missing); remove the cell to measure it again"
            ) from None
    return found


def observe_fraction(path: str, count: str, above: float = 0.5) -> Observe:
    """A fraction of `count` samples; the effect is its excess over `above`."""

    def observe(numbers: Numbers) -> Observation | None:
        value, n = get_value(numbers, path), get_value(numbers, count)
        return None if value is None else Observation(value, value - above, compute_fraction_error(value, n))

    return observe


def observe_fraction_below(path: str, count: str, limit: float) -> Observe:
    """A fraction that should be small; the effect is `limit` minus the fraction."""
    fraction = observe_fraction(path, count, limit)

    def observe(numbers: Numbers) -> Observation | None:
        found = fraction(numbers)
        return None if found is None else Observation(found.value, -found.effect, found.error)

    return observe


def observe_min_fraction(path: str, key: str | None, count: str) -> Observe:
    """The minimum of the fractions in a list, each at `key`, or the entry itself if that is None."""

    def observe(numbers: Numbers) -> Observation | None:
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
    """A rank correlation over `count` samples; its error is that of independent samples without any: 1/sqrt(n - 1)."""

    def observe(numbers: Numbers) -> Observation | None:
        value = get_value(numbers, path)
        if value is None:
            return None
        return Observation(value, sign * value, 1 / math.sqrt(max(get_value(numbers, count) - 1, 1)))

    return observe


def observe_gain(path: str, over: str, count: str) -> Observe:
    """The difference of two fractions of the same samples; its error assumes independence, which is conservative."""

    def observe(numbers: Numbers) -> Observation | None:
        ours, theirs, n = (get_value(numbers, one) for one in (path, over, count))
        if ours is None or theirs is None:
            return None
        error = math.hypot(compute_fraction_error(ours, n), compute_fraction_error(theirs, n))
        return Observation(ours - theirs, ours - theirs, error)

    return observe


def observe_weakest(first: Observe, *others: Observe) -> Observe:
    """Several conditions at once: the value of the first, the effect of the weakest."""

    def observe(numbers: Numbers) -> Observation | None:
        found = [one(numbers) for one in (first, *others)]
        known = [observation for observation in found if observation is not None]
        if len(known) < len(found):
            return None
        weakest = min(known, key=lambda observation: observation.effect)
        strongest = max(observation.effect for observation in known)
        return Observation(known[0].value, weakest.effect, weakest.error, strongest)

    return observe


def observe_log_ratio(path: str, over: str) -> Observe:
    """ln of the ratio of two means; at each path {mean, error}."""

    def observe(numbers: Numbers) -> Observation | None:
        ours, theirs = get_value(numbers, path), get_value(numbers, over)
        if ours is None or theirs is None:
            return None
        value = math.log(ours["mean"] / theirs["mean"])
        return Observation(value, value, math.hypot(*(z["error"] / z["mean"] for z in (ours, theirs))))

    return observe


def observe_mean(path: str) -> Observe:
    """A mean shown for comparison; at the path {mean, error}."""

    def observe(numbers: Numbers) -> Observation | None:
        found = get_value(numbers, path)
        return None if found is None else Observation(found["mean"], found["mean"], found["error"])

    return observe


def observe_saving(path: str, over: str) -> Observe:
    """The difference of two ratios, second minus first; at each path {median, error}. The value is the first."""

    def observe(numbers: Numbers) -> Observation | None:
        ours, theirs = get_value(numbers, path), get_value(numbers, over)
        effect = theirs["median"] - ours["median"]
        return Observation(ours["median"], effect, math.hypot(ours["error"], theirs["error"]))

    return observe


def compute_fraction_error(value: float, n: int) -> float:
    """Standard error of a fraction of n samples; at 0 and 1 as if one sample were different."""
    return math.sqrt(max(value * (1 - value), 1 / n) / n)
