"""The paper's values as the table prints them; all numbers come from `prolip.evaluation.paper_numbers`."""

from __future__ import annotations

from prolip.evaluation.paper_numbers import PaperTable

NOT_THERE = "not in the paper"


def against(table: PaperTable, row: str, other: str, column: str) -> str:
    """Two shares of a table: "67.8 % against 67.2 %"."""
    return f"{share(table, row, column)} against {share(table, other, column)}"


def share(table: PaperTable, row: str, column: str) -> str:
    return f"{100 * known(table, row, column):.1f} %"


def known(table: PaperTable, row: str, column: str) -> float:
    """A number that the table has."""
    value = table.value(row, column)
    if value is None:
        raise ValueError(f"{table.label} has a dash for {row!r}, {column!r}")
    return value
