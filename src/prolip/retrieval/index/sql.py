"""Conditions in SQL: texts in them, several as one, and whether one stays within its brackets."""

from __future__ import annotations

import re


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def all_of(*conditions: str | None) -> str | None:
    """SQL that holds if all do; None: no condition."""
    there = [f"({condition})" for condition in conditions if condition is not None]
    return " AND ".join(there) or None


def is_closed(where: str) -> bool:
    """Whether a condition stays within the brackets that are put around it: a parser of SQL stops at one too many."""
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`", "", where)
    depth = 0
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0 and not re.search(r"--|/\*|['\"`;]", bare)
