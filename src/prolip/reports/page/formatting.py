"""Formats of the numbers and comparisons in the texts of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prolip.console import MISSING, format_percent

MIN_TREND = 0.1
"""A rank correlation below it, in absolute value, is called no trend."""
MIN_MARGIN = 0.1
"""A fraction or correlation that exceeds that of untrained models by less is not counted as learned."""
NO_BREAK = "\u00a0"
REVERSED = "opposite to the expectation"
NOT_LEARNED = "Untrained models reach about the same: this does not show that anything was learned."


def format_percentage(fraction: float | None) -> str:
    """Format a fraction in percent: 0.618 is "61.8 %", with a no-break space.

    Args:
        fraction: From 0 to 1; None: unknown.

    Returns:
        The text; `MISSING` for None.
    """
    return MISSING if fraction is None else f"{format_percent(fraction)}{NO_BREAK}%"


def format_change(fraction: float) -> str:
    """Format a relative change in percent: -0.029 is "−2.9 %".

    Args:
        fraction: Relative change.

    Returns:
        The text, with a sign and a no-break space.
    """
    return f"{100 * fraction:+.1f}{NO_BREAK}%".replace("-", "−")


def format_correlation(value: float | None) -> str:
    """Format a correlation: 0.59 is "+0.59".

    Args:
        value: From -1 to 1; None: undefined.

    Returns:
        The text, with a typographic minus sign; `MISSING` for None.
    """
    return MISSING if value is None else f"{value:+.2f}".replace("-", "−")


def format_count(count: float) -> str:
    """Format a count in at most three digits: "950", "280 k", "1.5 M" or "12.8 B".

    Args:
        count: Zero or more.

    Returns:
        The text.
    """
    for factor, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {suffix}"
    return f"{count:.0f}"


def format_range(values: Sequence[float], format_value: Callable[[float], str]) -> str:
    """Format the smallest and the largest value: "4.1 % to 72.3 %".

    Args:
        values: May be empty.
        format_value: Formats one value.

    Returns:
        The text; one number if both look alike, `MISSING` if there are no values.
    """
    if not values:
        return MISSING
    smallest, largest = format_value(min(values)), format_value(max(values))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def describe_trend(value: float | None, expected_sign: int) -> str:
    """Say in words what a rank correlation shows.

    Args:
        value: Spearman correlation; None: undefined.
        expected_sign: 1 if it should be positive, -1 if negative.

    Returns:
        The end of a sentence, such as "it rises (ρ +0.59)".
    """
    if value is None:
        return "the correlation is undefined, because the values don't vary"
    if abs(value) < MIN_TREND:
        return f"there is no trend (ρ {format_correlation(value)})"
    verb = "rises" if value > 0 else "falls"
    comment = "" if value * expected_sign > 0 else f", {REVERSED}"
    return f"it {verb} (ρ {format_correlation(value)}){comment}"


def describe_untrained(untrained: Sequence[float], format_value: Callable[[float], str]) -> str:
    """Describe the range of a number over untrained models, to append to a sentence that gives the model's own.

    Args:
        untrained: The number of each untrained model.
        format_value: Formats one value.

    Returns:
        "; untrained models: 4.1 % to 72.3 %"; empty if there are no untrained models.
    """
    return f"; untrained models: {format_range(untrained, format_value)}" if untrained else ""


def drop_none(values: Iterable[float | None]) -> list[float]:
    """Drop the values that are None.

    Args:
        values: Numbers or None.

    Returns:
        The numbers, in order.
    """
    return [value for value in values if value is not None]


def format_ratio(ratio: float) -> str:
    """Format how many times as large one value is as another: "1.8", or "1.001" where "1.0" would hide a difference.

    Args:
        ratio: The ratio.

    Returns:
        The text.
    """
    return f"{ratio:.1f}" if abs(ratio - 1) >= 0.05 else f"{ratio:.3f}"
