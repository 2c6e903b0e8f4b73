"""SQL conditions: quoting, conjunction, and a check that a condition can stand in parentheses."""

from __future__ import annotations

import re


def quote_text(text: str) -> str:
    """Quote a text as an SQL literal.

    Args:
        text: Any text.

    Returns:
        The text in single quotes.
    """
    return "'" + text.replace("'", "''") + "'"


def join_conditions(*conditions: str | None) -> str | None:
    """Join SQL conditions with AND.

    Args:
        conditions: SQL, or None for no condition.

    Returns:
        The conjunction, each condition in parentheses; None if there is none.
    """
    parenthesized = [f"({condition})" for condition in conditions if condition is not None]
    return " AND ".join(parenthesized) or None


def is_self_contained(where: str) -> bool:
    """Whether a condition stays within parentheses around it. An SQL parser silently stops at an unmatched one.

    Args:
        where: An SQL condition.

    Returns:
        Whether its parentheses and quotes are closed, and it has neither a comment nor a placeholder (?, $1, :name).
    """
    # without what is quoted: texts, and names in double quotes or backticks
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`", "", where)
    depth = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0 and not re.search(r"--|/\*|['\"`;?$]|:(?!:)(?<!::)", bare)
