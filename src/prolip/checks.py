"""Checks of plain arguments and config values, each with one clear error message. Imports no torch."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence


def escape_controls(text: str) -> str:
    """Escape control characters, which could command a terminal: names of files and keys may be anything.

    Args:
        text: One line of a message.

    Returns:
        The text, with ESC as \\x1b and a line break as \\n.
    """
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) == "Cc" else char
        for char in text
    )


def require_positive_int(value: object, name: str, maximum: int = 2**24) -> None:
    """Raise ValueError unless this is an int from 1 to `maximum`.

    JSON may hold true, 1.0, "1", or a number that no memory can hold.

    Args:
        value: Checked.
        name: Name of the value, for the message.
        maximum: Largest valid value.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, not {value}")


def require_positive(value: object, name: str) -> None:
    """Raise ValueError unless this is a positive, finite number.

    Args:
        value: Checked.
        name: Name of the value, for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value!r}")


def require_fraction(value: object, name: str, *, exclude_zero: bool = False) -> None:
    """Raise ValueError unless this is a number in [0, 1], or in (0, 1] with `exclude_zero`.

    Args:
        value: Checked.
        name: Name of the value, for the message.
        exclude_zero: Whether 0 is invalid.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1 or (exclude_zero and value == 0):  # type: ignore[operator]
        limits = "above 0 and at most 1" if exclude_zero else "from 0 to 1"
        raise ValueError(f"{name} must be a fraction {limits}, not {value!r}")


def require_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Raise ValueError unless the value is one of the choices.

    Args:
        value: Checked.
        choices: Valid values; the arguments of a Literal type.
        name: Name of the value, for the message.
    """
    if value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {tuple(choices)}")


def join_names(names: Sequence[str], count: int = 4) -> str:
    """The first few names of a list, for a message: "a, b, c, d, and 3 more".

    Args:
        names: All names.
        count: How many are listed.

    Returns:
        The names, separated by commas, and how many more there are.
    """
    return ", ".join(names[:count]) + (f", and {len(names) - count} more" if len(names) > count else "")
