"""The paper's values as the table prints them, from `prolip.evaluation.paper_numbers`."""

from __future__ import annotations

from prolip.evaluation.paper_numbers import PaperTable

NOT_IN_PAPER = "not in the paper"


def format_comparison(table: PaperTable, row: str, other: str, column: str) -> str:
    """Format two fractions of a column of the paper's table: "67.8 % against 67.2 %"."""
    return f"{format_percent(table, row, column)} against {format_percent(table, other, column)}"


def format_percent(table: PaperTable, row: str, column: str) -> str:
    """Format a fraction of the paper's table: "67.8 %"."""
    return f"{100 * get_number(table, row, column):.1f} %"


def get_number(table: PaperTable, row: str, column: str) -> float:
    """Get a number of the paper's table; raises ValueError where the table has a dash."""
    value = table.value(row, column)
    if value is None:
        raise ValueError(
            f"the paper's {table.name} has a dash in row {row!r}, column {column!r}: compare with another entry"
        )
    return value
