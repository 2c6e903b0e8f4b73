"""Numbers as sentences tell them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prolip.evaluation.formatting import UNKNOWN

TREND = 0.1
"""A rank correlation below it, either way, is called no trend."""
CLOSE = 0.1
"""A share that is less than this above that of a model without training was hardly learned."""
NO_BREAK = "\u00a0"
WRONG_WAY = "the wrong way round"
NOTHING_LEARNED = "That alone shows nothing learned."


def percent(share: float | None) -> str:
    """0.618 is "61.8 %", in one piece."""
    return UNKNOWN if share is None else f"{100 * share:.1f}{NO_BREAK}%"


def change(share: float) -> str:
    """-0.029 is "−2.9 %"."""
    return f"{100 * share:+.1f}{NO_BREAK}%".replace("-", "−")


def correlation(value: float | None) -> str:
    """+0.59, with a true minus."""
    return UNKNOWN if value is None else f"{value:+.2f}".replace("-", "−")


def times(seconds: float | None) -> str:
    """90 s, 12 min, 3.4 h."""
    if seconds is None:
        return UNKNOWN
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def large(count: float) -> str:
    """950, 280 k, 1.5 M, 12.8 B."""
    for size, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:.0f}"


def trend(value: float | None, hoped: int) -> str:
    """What a correlation says. hoped: its sign if all is well, 1 or -1."""
    if value is None:
        return "nothing can be said, because the numbers don't vary"
    if abs(value) < TREND:
        return f"there is no trend (ρ {correlation(value)})"
    verb = "rises" if value > 0 else "falls"
    wrong = "" if value * hoped > 0 else f", which is {WRONG_WAY}"
    return f"it {verb} (ρ {correlation(value)}){wrong}"


def span(values: Sequence[float], written: Callable[[float], str]) -> str:
    """The least and the largest: "4.1 % to 72.3 %"; in one piece if they are written alike."""
    if not values:
        return UNKNOWN
    least, largest = written(min(values)), written(max(values))
    return least if least == largest else f"{least} to {largest}"


def beside(untrained: Sequence[float], written: Callable[[float], str]) -> str:
    """What models without training give, to be put behind a finding; nothing if none was asked."""
    return f"; without training {span(untrained, written)}" if untrained else ""


def known(values: Iterable[float | None]) -> list[float]:
    """Without those that nobody knows."""
    return [value for value in values if value is not None]
