"""Numbers over seeds as the table prints them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from reproduction.claim import Form

SIGNS = {"percent": "", "points": "+", "correlation": "+", "ratio": ""}
DIGITS = {"percent": 1, "points": 1, "correlation": 2, "ratio": 3}
UNITS = {"percent": " %", "points": " points", "correlation": "", "ratio": ""}


def values_of(values: Sequence[float], form: Form) -> str:
    """ "98.1 ± 0.4 %": mean and standard deviation over seeds; of one seed the value alone."""
    if not values:
        return ""
    scale = 100.0 if form in ("percent", "points") else 1.0
    mean = f"{scale * statistics.fmean(values):{SIGNS[form]}.{DIGITS[form]}f}"
    spread = f" ± {scale * statistics.stdev(values):.{DIGITS[form]}f}" if len(values) > 1 else ""
    return mean + spread + UNITS[form]


def range_of(values: Sequence[float], form: Form) -> str:
    """ "4.1 to 72.3 %": the least and the largest, for controls, which may lie far apart; of one seed its value."""
    if len(values) < 2:
        return values_of(values, form)
    low, high = (values_of([value], form) for value in (min(values), max(values)))
    return f"{low.removesuffix(UNITS[form])} to {high}"


def several(count: int, what: str) -> str:
    """ "1 seed", "3 seeds"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
