"""From the numbers of a cell to readings: shares, correlations, differences, each with its standard error.

A path is the way through a cell's numbers: "chains/order/pairs/0". A reading is None where the cell has None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from reproduction.verdict import Reading

Numbers = Mapping[str, Any]
Read = Callable[[Numbers], Reading | None]


def at(numbers: Numbers, path: str) -> Any:
    """The number at a path; None as soon as something on the way is None. A name that isn't there is an error."""
    found: Any = numbers
    for name in path.split("/"):
        if found is None:
            return None
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError):
            raise ValueError(
                f"a cell has no {path} ({name} is missing); remove it, and it is made anew"
            ) from None
    return found


def share(path: str, count: str, above: float = 0.5) -> Read:
    """A share of `count` samples, against one that means nothing."""

    def read(numbers: Numbers) -> Reading | None:
        value, n = at(numbers, path), at(numbers, count)
        return None if value is None else Reading(value, value - above, share_error(value, n))

    return read


def below(path: str, count: str, limit: float) -> Read:
    """A share that should be small."""
    turned = share(path, count, limit)

    def read(numbers: Numbers) -> Reading | None:
        found = turned(numbers)
        return None if found is None else Reading(found.value, -found.effect, found.error)

    return read


def least_share(path: str, key: str | None, count: str) -> Read:
    """The least of the shares in a list, each under `key`, or the entry itself."""

    def read(numbers: Numbers) -> Reading | None:
        values = [row if key is None else row[key] for row in at(numbers, path) or ()]
        if not values or None in values:
            return None
        least, largest = min(values), max(values)
        return Reading(least, least - 0.5, share_error(least, at(numbers, count)), largest - 0.5)

    return read


def correlation(path: str, count: str, sign: int = 1) -> Read:
    """A rank correlation over `count` samples; its error is that of independent samples without any: 1/sqrt(n - 1)."""

    def read(numbers: Numbers) -> Reading | None:
        value = at(numbers, path)
        if value is None:
            return None
        return Reading(value, sign * value, 1 / math.sqrt(max(at(numbers, count) - 1, 1)))

    return read


def gain(path: str, over: str, count: str) -> Read:
    """One share above another of the same samples; the error takes them as independent, which is never too small."""

    def read(numbers: Numbers) -> Reading | None:
        ours, theirs, n = (at(numbers, one) for one in (path, over, count))
        if ours is None or theirs is None:
            return None
        error = math.hypot(share_error(ours, n), share_error(theirs, n))
        return Reading(ours - theirs, ours - theirs, error)

    return read


def all_of(first: Read, *others: Read) -> Read:
    """What needs all of them: the value of the first, the effect of the weakest."""

    def read(numbers: Numbers) -> Reading | None:
        found = [one(numbers) for one in (first, *others)]
        known = [reading for reading in found if reading is not None]
        if len(known) < len(found):
            return None
        weakest = min(known, key=lambda reading: reading.effect)
        strongest = max(reading.effect for reading in known)
        return Reading(known[0].value, weakest.effect, weakest.error, strongest)

    return read


def log_ratio(path: str, over: str) -> Read:
    """ln of the ratio of two means; at each path {mean, error}."""

    def read(numbers: Numbers) -> Reading | None:
        ours, theirs = at(numbers, path), at(numbers, over)
        if ours is None or theirs is None:
            return None
        value = math.log(ours["mean"] / theirs["mean"])
        return Reading(value, value, math.hypot(*(z["error"] / z["mean"] for z in (ours, theirs))))

    return read


def mean(path: str) -> Read:
    """A mean that only stands beside; at the path {mean, error}."""

    def read(numbers: Numbers) -> Reading | None:
        found = at(numbers, path)
        return None if found is None else Reading(found["mean"], found["mean"], found["error"])

    return read


def saving(path: str, over: str) -> Read:
    """How much less a ratio is than another; at each path {median, error}. The value is the first ratio."""

    def read(numbers: Numbers) -> Reading | None:
        ours, theirs = at(numbers, path), at(numbers, over)
        effect = theirs["median"] - ours["median"]
        return Reading(ours["median"], effect, math.hypot(ours["error"], theirs["error"]))

    return read


def share_error(value: float, n: int) -> float:
    """Standard error of a share of n; of none or all it is as if one sample were otherwise."""
    return math.sqrt(max(value * (1 - value), 1 / n) / n)
