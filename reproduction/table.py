"""The table of claims: as JSON, as terminal tables, and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rich.markup import escape
from rich.table import Table

from prolip.console import format_number
from prolip.reports.page.components import VERDICT_SIGNS
from reproduction.cell import Cell
from reproduction.claims import CLAIMS
from reproduction.evidence import Evidence
from reproduction.formatting import format_count
from reproduction.rows import Row, make_row
from reproduction.targets import evaluate_targets
from reproduction.variants import get_variant
from reproduction.verdict import RULE, Verdict

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
        return [_claims(self.rows), _targets(self.targets)]

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


def _claims(rows: Sequence[Row]) -> Table:
    table = Table(title="The paper's claims, on scenes", caption=_summary(rows), show_lines=True)
    for heading in ("claim", "ours", "paper", "controls", "verdict"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        verdict = f"[{COLORS[row.verdict]}]{VERDICT_SIGNS[row.verdict]} {row.verdict}[/]"
        why = f"\n{escape(row.why)}" if row.why else ""
        ours = "\n".join(part for part in (row.ours, row.scope and f"({row.scope})") if part)
        table.add_row(escape(row.claim), escape(ours), escape(row.paper), escape(row.controls), verdict + why)
    return table


def _targets(targets: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Targets of the headline recipe")
    for heading in ("target", "above", "by seed", "untrained", "reached"):
        table.add_column(heading, overflow="fold")
    for target in targets:
        table.add_row(*map(escape, _target_cells(target)))
    return table


def _target_cells(target: dict[str, Any]) -> tuple[str, str, str, str, str]:
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
    return "\n".join([*lines, *(_line(*_target_cells(target)) for target in targets)])


def _definitions(rows: Sequence[Row]) -> str:
    return "\n".join(f"- *{row.claim}* ({row.where}): {row.definition}" for row in rows)


def _variants(cells: dict[str, dict[str, int]]) -> str:
    names = dict.fromkeys(name for by_variant in cells.values() for name in by_variant)
    return "Variants:\n\n" + "\n".join(f"- `{name}`: {get_variant(name).description}" for name in names)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
