"""The paper's claims, each with its verdict. `reproduction` measures them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from prolip.files import read_json
from prolip.reports.page.components import VERDICT_SIGNS, Claim, Claims, Section

NAMES = tuple(field.name for field in fields(Claim))
READING = (
    "They are judged by models that make reproduce trained, several variants and seeds, not by the one above. "
    "Shown: the effect has the paper's sign and is beyond its noise, and no control has more than half of it."
)


def section(claims: Sequence[Mapping[str, Any]]) -> Section:
    """claims: of each what `Claim` has; what is missing is blank, other keys are left out."""
    rows = tuple(
        Claim(**{name: "" if row.get(name) is None else str(row[name]) for name in NAMES}) for row in claims
    )
    return Section(
        id="claims",
        title="The paper's claims",
        intro=f"{says_verdicts(rows)} {READING}",
        blocks=[Claims(rows=rows)],
    )


def says_verdicts(rows: Sequence[Claim]) -> str:
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICT_SIGNS if counts[verdict])
    return f"Of {len(rows)} claims: {told}." if told else f"{len(rows)} claims."


def read_claims(path: Path) -> list[dict[str, Any]]:
    """The rows of a table of claims, as reproduction writes them to table.json."""
    rows = read_json(path.expanduser()).get("claims")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f'{path} must hold a list "claims"; make reproduce writes such a file')
    return rows
