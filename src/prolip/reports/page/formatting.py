"""Numbers and comparisons as the sentences of the page write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prolip.console import MISSING

MIN_TREND = 0.1
"""A rank correlation below it, in absolute value, is called no trend."""
MIN_MARGIN = 0.1
"""A fraction that exceeds the untrained models by less is not counted as learned."""
NO_BREAK = "\u00a0"
REVERSED = "opposite to the expectation"
NOT_LEARNED = "Untrained models reach about the same: this does not show that anything was learned."


def format_percent(fraction: float | None) -> str:
    """0.618 as "61.8 %", with a no-break space."""
    return MISSING if fraction is None else f"{100 * fraction:.1f}{NO_BREAK}%"


def format_change(fraction: float) -> str:
    """-0.029 as "−2.9 %"."""
    return f"{100 * fraction:+.1f}{NO_BREAK}%".replace("-", "−")


def format_correlation(value: float | None) -> str:
    """0.59 as "+0.59", with a true minus."""
    return MISSING if value is None else f"{value:+.2f}".replace("-", "−")


def format_duration(seconds: float | None) -> str:
    """Seconds as "90 s", "12 min" or "3.4 h"."""
    if seconds is None:
        return MISSING
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_count(count: float) -> str:
    """A count as "950", "280 k", "1.5 M" or "12.8 B"."""
    for size, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:.0f}"


def format_range(values: Sequence[float], formatted: Callable[[float], str]) -> str:
    """The smallest and the largest value: "4.1 % to 72.3 %".

    Args:
        values: May be empty.
        formatted: Format of one value.

    Returns:
        One number if both look alike.
    """
    if not values:
        return MISSING
    smallest, largest = formatted(min(values)), formatted(max(values))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def describe_trend(value: float | None, expected_sign: int) -> str:
    """Say in words what a rank correlation shows.

    Args:
        value: Spearman correlation; None: undefined.
        expected_sign: 1 or -1.

    Returns:
        The predicate of a sentence whose subject is "it".
    """
    if value is None:
        return "the correlation is undefined, because the values don't vary"
    if abs(value) < MIN_TREND:
        return f"there is no trend (ρ {format_correlation(value)})"
    verb = "rises" if value > 0 else "falls"
    comment = "" if value * expected_sign > 0 else f", {REVERSED}"
    return f"it {verb} (ρ {format_correlation(value)}){comment}"


def describe_untrained(untrained: Sequence[float], formatted: Callable[[float], str]) -> str:
    """The range of untrained models, to append to a sentence; empty if there are none.

    Args:
        untrained: The same number for each untrained model.
        formatted: Format of one value.

    Returns:
        "; untrained models: 4.1 % to 72.3 %".
    """
    return f"; untrained models: {format_range(untrained, formatted)}" if untrained else ""


def drop_none(values: Iterable[float | None]) -> list[float]:
    """The values that are not None."""
    return [value for value in values if value is not None]
