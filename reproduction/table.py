"""The table of claims: as JSON, as terminal tables, and as Markdown, also inside a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from rich.table import Table
from rich.text import Text

from prolip.console import format_number, make_table
from prolip.files import atomic_write
from prolip.reports.page.components import VERDICT_SIGNS
from reproduction import claims_likelihood, claims_training, claims_uncertainty, claims_use
from reproduction.cell import Cell
from reproduction.evidence import Evidence
from reproduction.formatting import format_count
from reproduction.rows import Row, make_row
from reproduction.targets import evaluate_targets
from reproduction.variants import get_variant
from reproduction.verdict import RULE, Verdict

CLAIMS = (
    *claims_training.CLAIMS,
    *claims_uncertainty.CLAIMS,
    *claims_likelihood.CLAIMS,
    *claims_use.CLAIMS,
)
"""All claims, in the order of the table."""
BEGIN = "<!-- python -m reproduction --docs: generated from here -->"
END = "<!-- to here -->"
"""Markers of the generated part of a hand-written page."""
COLORS: dict[Verdict, str] = {"shown": "green", "not shown": "yellow", "reversed": "red", "not run": "dim"}


@dataclass(frozen=True)
class ClaimsTable:
    """Claims with their verdicts, and targets.

    Attributes:
        rows: One per claim.
        targets: The result of `evaluate_targets`.
        cells: Number of cells, by scale and variant.
    """

    rows: tuple[Row, ...]
    targets: tuple[dict[str, Any], ...]
    cells: dict[str, dict[str, int]]

    @classmethod
    def from_cells(cls, cells: Sequence[Cell]) -> ClaimsTable:
        """Judge all of CLAIMS and targets by cells."""
        evidence = Evidence(cells)
        counts: dict[str, dict[str, int]] = {}
        for cell in cells:
            by_variant = counts.setdefault(cell.scale, {})
            by_variant[cell.variant] = by_variant.get(cell.variant, 0) + 1
        rows = tuple(make_row(claim, evidence) for claim in CLAIMS)
        return cls(rows, tuple(evaluate_targets(evidence)), counts)

    def to_json(self) -> dict[str, Any]:
        """The content of table.json: {rule, verdicts (number by verdict), claims (`to_dicts`), targets, cells}."""
        return {
            "rule": RULE,
            "verdicts": dict(Counter(row.verdict for row in self.rows)),
            "claims": self.to_dicts(),
            "targets": list(self.targets),
            "cells": self.cells,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """The fields of each row by name; `prolip report --claims` prints most of them."""
        return [row.to_dict() for row in self.rows]

    def make_tables(self) -> list[Table]:
        """Tables of claims and of targets for a terminal."""
        return [_make_claims_table(self.rows), _make_targets_table(self.targets)]

    def to_markdown(self) -> str:
        """Markdown of claims, targets, definitions, the rule and the variants, without a heading."""
        paragraphs = [
            _format_summary(self.rows),
            _format_claims(self.rows),
            "Targets, of every seed, or of the mean over seeds where there is one:",
            _format_targets(self.targets),
            "Definitions:",
            _format_definitions(self.rows),
            f"The rule: {RULE}",
        ]
        if self.cells:
            paragraphs.append(_format_variants(self.cells))
        return "\n\n".join(paragraphs) + "\n"


def _make_claims_table(rows: Sequence[Row]) -> Table:
    """Terminal table of the claims, with colored verdicts and the counts of verdicts below."""
    headings = ("claim", "ours", "paper", "controls", "verdict")
    table = make_table("The paper's claims, on scenes", headings, caption=_format_summary(rows))
    table.show_lines = True
    for row in rows:
        verdict = Text(f"{VERDICT_SIGNS[row.verdict]} {row.verdict}", style=COLORS[row.verdict])
        if row.why:
            verdict = Text.assemble(verdict, f"\n{row.why}")
        ours = "\n".join(line for line in (row.ours, row.scope and f"({row.scope})") if line)
        table.add_row(row.claim, ours, row.paper, row.controls, verdict)
    return table


TARGET_HEADINGS = ("target", "variant", "above", "mean", "by seed", "untrained", "reached")


def _make_targets_table(targets: Sequence[dict[str, Any]]) -> Table:
    """Terminal table of the targets."""
    return make_table("Targets", TARGET_HEADINGS, rows=map(_format_target_row, targets))


def _format_target_row(target: dict[str, Any]) -> tuple[str, ...]:
    """Texts of the row of a target, in the order of TARGET_HEADINGS."""
    reached = {True: "yes", False: "no", None: "not run"}[target["reached"]]
    by_seed, untrained = (_join_values(target[key]) for key in ("by_seed", "untrained"))
    values = [value for value in target["by_seed"] if value is not None]
    mean = f"{fmean(values):.3f}" if values and target["of"] == "mean" else ""
    return target["target"], target["variant"], f"{target['above']:g}", mean, by_seed, untrained, reached


def _join_values(values: Sequence[float | None]) -> str:
    """Values with three decimals, separated by commas."""
    return ", ".join(format_number(value, ".3f") for value in values)


def _format_summary(rows: Sequence[Row]) -> str:
    """Number of claims by verdict: "2 claims: 1 shown, 1 not run."."""
    counts = Counter(row.verdict for row in rows)
    by_verdict = ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
    return f"{format_count(len(rows), 'claim')}: {by_verdict}."


def _format_claims(rows: Sequence[Row]) -> str:
    """Markdown table of the claims."""
    lines = ["| claim | ours | paper | controls | verdict | cells |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = f"{VERDICT_SIGNS[row.verdict]} **{row.verdict}**" + (f": {row.why}" if row.why else "")
        lines.append(_format_line(row.claim, row.ours, row.paper, row.controls, verdict, row.scope))
    return "\n".join(lines)


def _format_targets(targets: Sequence[dict[str, Any]]) -> str:
    """Markdown table of the targets."""
    lines = [_format_line(*TARGET_HEADINGS), _format_line(*["---"] * len(TARGET_HEADINGS))]
    return "\n".join([*lines, *(_format_line(*_format_target_row(target)) for target in targets)])


def _format_definitions(rows: Sequence[Row]) -> str:
    """Markdown list of the claims, each with its place in the paper and its definition."""
    return "\n".join(f"- *{row.claim}* ({row.where}): {row.definition}" for row in rows)


def _format_variants(cells: dict[str, dict[str, int]]) -> str:
    """Markdown list of the variants that have cells, with their descriptions."""
    names = dict.fromkeys(name for by_variant in cells.values() for name in by_variant)
    return "Variants:\n\n" + "\n".join(f"- `{name}`: {get_variant(name).description}" for name in names)


def _format_line(*cells: str) -> str:
    """A row of a Markdown table; a | in a cell is escaped."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_generated(page: Path, content: str) -> Path:
    """Replace the text between the markers of a page, atomically; returns the path.

    Raises:
        ValueError: The page has no markers; it is not changed.
    """
    before, _, after = _split_page(page)
    text = f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"
    return atomic_write(page, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_generated(page: Path) -> str:
    """Read the text between the markers of a page.

    Raises:
        ValueError: The page has no markers.
    """
    return _split_page(page)[1].strip() + "\n"


def _split_page(page: Path) -> tuple[str, str, str]:
    """The text before, between and after the markers of a page; raises ValueError if it has no markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    content, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{page} has no markers for the table. Add these two lines where the table belongs: {BEGIN} and {END}"
        )
    return before, content, after
