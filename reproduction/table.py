"""The table of claims: as JSON, as terminal tables, and as Markdown, also inside a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rich.table import Table
from rich.text import Text

from prolip.console import format_number, make_table
from prolip.files import atomic_write
from prolip.reports.page.components import VERDICT_SIGNS
from reproduction import claims_training, claims_uncertainty, claims_use
from reproduction.cell import Cell
from reproduction.evidence import Evidence
from reproduction.formatting import format_count
from reproduction.rows import Row, make_row
from reproduction.targets import evaluate_targets
from reproduction.variants import get_variant
from reproduction.verdict import RULE, Verdict

CLAIMS = (*claims_training.CLAIMS, *claims_uncertainty.CLAIMS, *claims_use.CLAIMS)
"""All claims, in the order of the table."""
BEGIN = "<!-- python -m reproduction --docs: generated from here -->"
END = "<!-- to here -->"
"""Markers of the generated part of a hand-written page."""
COLORS: dict[Verdict, str] = {"shown": "green", "not shown": "yellow", "reversed": "red", "not run": "dim"}


@dataclass(frozen=True)
class ClaimsTable:
    """Attributes:
    rows: One per claim.
    targets: The result of `evaluate_targets`.
    cells: Number of cells, by scale and variant.
    """

    rows: tuple[Row, ...]
    targets: tuple[dict[str, Any], ...]
    cells: dict[str, dict[str, int]]

    @classmethod
    def from_cells(cls, cells: Sequence[Cell]) -> ClaimsTable:
        evidence = Evidence(cells)
        counts: dict[str, dict[str, int]] = {}
        for cell in cells:
            by_variant = counts.setdefault(cell.scale, {})
            by_variant[cell.variant] = by_variant.get(cell.variant, 0) + 1
        rows = tuple(make_row(claim, evidence) for claim in CLAIMS)
        return cls(rows, tuple(evaluate_targets(evidence)), counts)

    def to_json(self) -> dict[str, Any]:
        """{rule, verdicts (counts), claims (`to_dicts`), targets, cells}."""
        return {
            "rule": RULE,
            "verdicts": dict(Counter(row.verdict for row in self.rows)),
            "claims": self.to_dicts(),
            "targets": list(self.targets),
            "cells": self.cells,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """For the report: claim, definition, ours, paper, controls, verdict, scope, and more, of each row."""
        return [row.to_dict() for row in self.rows]

    def make_tables(self) -> list[Table]:
        """Tables of claims and of targets for a terminal."""
        return [_make_claims_table(self.rows), _make_targets_table(self.targets)]

    def to_markdown(self) -> str:
        """Claims, targets, definitions and the rule, without a heading."""
        parts = [_summary(self.rows), _markdown_claims(self.rows), "Targets of the headline recipe:"]
        parts += [
            _markdown_targets(self.targets),
            "Definitions:",
            _definitions(self.rows),
            f"The rule: {RULE}",
        ]
        if self.cells:
            parts.append(_variants(self.cells))
        return "\n\n".join(parts) + "\n"


def _make_claims_table(rows: Sequence[Row]) -> Table:
    headings = ("claim", "ours", "paper", "controls", "verdict")
    table = make_table("The paper's claims, on scenes", headings, caption=_summary(rows))
    table.show_lines = True
    for row in rows:
        verdict = Text(f"{VERDICT_SIGNS[row.verdict]} {row.verdict}", style=COLORS[row.verdict])
        if row.why:
            verdict = Text.assemble(verdict, f"\n{row.why}")
        ours = "\n".join(part for part in (row.ours, row.scope and f"({row.scope})") if part)
        table.add_row(row.claim, ours, row.paper, row.controls, verdict)
    return table


def _make_targets_table(targets: Sequence[dict[str, Any]]) -> Table:
    headings = ("target", "above", "by seed", "untrained", "reached")
    return make_table("Targets of the headline recipe", headings, rows=map(_format_target, targets))


def _format_target(target: dict[str, Any]) -> tuple[str, str, str, str, str]:
    reached = {True: "yes", False: "no", None: "not run"}[target["reached"]]
    by_seed, fresh = (_values(target[key]) for key in ("by_seed", "untrained"))
    return target["target"], f"{target['above']:.2f}", by_seed, fresh, reached


def _values(values: Sequence[float | None]) -> str:
    return ", ".join(format_number(value, ".3f") for value in values)


def _summary(rows: Sequence[Row]) -> str:
    counts = Counter(row.verdict for row in rows)
    counted = ", ".join(f"{counts[word]} {word}" for word in get_args(Verdict) if counts[word])
    return f"{format_count(len(rows), 'claim')}: {counted}."


def _markdown_claims(rows: Sequence[Row]) -> str:
    lines = ["| claim | ours | paper | controls | verdict | cells |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = f"{VERDICT_SIGNS[row.verdict]} **{row.verdict}**" + (f": {row.why}" if row.why else "")
        lines.append(_line(row.claim, row.ours, row.paper, row.controls, verdict, row.scope))
    return "\n".join(lines)


def _markdown_targets(targets: Sequence[dict[str, Any]]) -> str:
    lines = ["| target | above | by seed | untrained | reached |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(_line(*_format_target(target)) for target in targets)])


def _definitions(rows: Sequence[Row]) -> str:
    return "\n".join(f"- *{row.claim}* ({row.where}): {row.definition}" for row in rows)


def _variants(cells: dict[str, dict[str, int]]) -> str:
    names = dict.fromkeys(name for by_variant in cells.values() for name in by_variant)
    return "Variants:\n\n" + "\n".join(f"- `{name}`: {get_variant(name).description}" for name in names)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_generated(page: Path, content: str) -> Path:
    """Replace the text between the markers of a page; returns the page."""
    before, _, after = _split_page(page)
    new = f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"
    return atomic_write(page, lambda temporary: temporary.write_text(new, encoding="utf-8"))


def read_generated(page: Path) -> str:
    """Read the text between the markers of a page.

    Raises:
        ValueError: The page has no markers.
    """
    return _split_page(page)[1].strip() + "\n"


def _split_page(page: Path) -> tuple[str, str, str]:
    """The text before, between and after the markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    content, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no markers for the table: add the lines {BEGIN} and {END}")
    return before, content, after
