"""Formatting of values over seeds for the table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from reproduction.claim import Form

SIGNS = {"percent": "", "points": "+", "correlation": "+", "ratio": ""}
DIGITS = {"percent": 1, "points": 1, "correlation": 2, "ratio": 3}
UNITS = {"percent": " %", "points": " points", "correlation": "", "ratio": ""}


def format_values(values: Sequence[float], form: Form) -> str:
    """Format mean and standard deviation over seeds ("98.1 ± 0.4 %"); of one seed the value alone, of none ""."""
    if not values:
        return ""
    scale = 100.0 if form in ("percent", "points") else 1.0
    mean = f"{scale * statistics.fmean(values):{SIGNS[form]}.{DIGITS[form]}f}"
    deviation = f" ± {scale * statistics.stdev(values):.{DIGITS[form]}f}" if len(values) > 1 else ""
    return mean + deviation + UNITS[form]


def format_range(values: Sequence[float], form: Form) -> str:
    """Format minimum and maximum over seeds ("4.1 to 72.3 %"); of one seed the value alone, of none ""."""
    if len(values) < 2:
        return format_values(values, form)
    low, high = (format_values([value], form) for value in (min(values), max(values)))
    return f"{low.removesuffix(UNITS[form])} to {high}"


def format_count(count: int, noun: str) -> str:
    """Format a count: "1 seed", "3 seeds"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
