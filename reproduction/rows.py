"""Rows of the table: what the cells show of a claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from reproduction.cell import Cell
from reproduction.claim import Claim, Control, Form
from reproduction.evidence import Evidence
from reproduction.formatting import format_count, format_range, format_values
from reproduction.observations import Observe
from reproduction.variants import HEADLINE, UNTRAINED_VARIANTS
from reproduction.verdict import Effect, Observation, Verdict, compute_difference, compute_effect, judge


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim of the table.

    Attributes:
        id, claim, definition, where, paper: Of the claim.
        ours, controls: Formatted values.
        verdict, why: By the rule of `verdict`.
        scope: The scale and the seeds behind each number.
        effect, noise: What the verdict is based on; None if not run.
    """

    id: str
    claim: str
    definition: str
    where: str
    ours: str
    paper: str
    controls: str
    verdict: Verdict
    why: str
    scope: str
    effect: float | None = None
    noise: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _ObservedCells:
    """Cells of one variant and their observations; a model without the number is left out."""

    cells: Sequence[Cell] = ()
    observations: Sequence[Observation] = ()

    @classmethod
    def from_cells(cls, cells: Sequence[Cell], observe: Observe) -> _ObservedCells:
        pairs = [(cell, observe(cell.numbers)) for cell in cells]
        known = [(cell, observation) for cell, observation in pairs if observation is not None]
        return cls([cell for cell, _ in known], [observation for _, observation in known])

    @property
    def values(self) -> list[float]:
        return [observation.value for observation in self.observations]

    @property
    def effects(self) -> list[float]:
        return [observation.effect for observation in self.observations]


def make_row(claim: Claim, evidence: Evidence) -> Row:
    """Make the row of a claim. Compared variants are taken at the largest scale that both have."""
    compared = [claim.variant] if claim.rival is None else [claim.variant, claim.rival]
    scale = evidence.largest_scale(*compared)
    observers = (claim.observe, claim.rival_observe or claim.observe)
    sides = [
        _ObservedCells.from_cells(evidence.at_scale(name, scale), observe)
        for name, observe in zip(compared, observers, strict=False)
    ]
    if not all(side.observations for side in sides):
        return _not_run(claim, evidence, compared)
    controls = {one: _control(one, claim, evidence, sides[0], scale) for one in claim.controls}
    effect = _effect(claim, evidence, sides)
    word, why = _verdict(effect, controls, sides[1:])
    return _row(
        claim,
        ours=" against ".join(format_values(side.values, claim.form) for side in sides),
        controls=_format_controls(controls, claim.form),
        verdict=word,
        why=why,
        scope=_scope(cell for side in (*sides, *controls.values()) for cell in side.cells),
        effect=effect,
    )


def _effect(claim: Claim, evidence: Evidence, sides: Sequence[_ObservedCells]) -> Effect:
    borrowed: Sequence[float] = ()
    if claim.variant not in UNTRAINED_VARIANTS:
        borrowed = _ObservedCells.from_cells(evidence.largest(HEADLINE), claim.observe).effects
    if len(sides) == 1:
        return compute_effect(sides[0].observations, borrowed)
    return compute_difference(sides[0].observations, sides[1].observations, borrowed)


def _control(
    one: Control, claim: Claim, evidence: Evidence, ours: _ObservedCells, scale: str | None
) -> _ObservedCells:
    cells = ours.cells if one.variant is None else evidence.at_scale(one.variant, scale)
    return _ObservedCells.from_cells(cells, one.observe or claim.observe)


def _verdict(
    effect: Effect, controls: Mapping[Control, _ObservedCells], rival: Sequence[_ObservedCells]
) -> tuple[Verdict, str]:
    """Controls of a comparison are compared with the rival, too."""
    start = fmean(rival[0].effects) if rival else 0.0
    against = {one.name: side for one, side in controls.items() if one.against}
    word, why = judge(
        effect, {name: [value - start for value in side.effects] for name, side in against.items()}
    )
    missing = [name for name, side in against.items() if not side.observations]
    if word == "shown" and missing:
        return "not run", f"the control {', '.join(missing)} is missing"
    return word, why


def _format_controls(controls: Mapping[Control, _ObservedCells], form: Form) -> str:
    return "; ".join(
        f"{one.name} {format_range(side.values, form)}" for one, side in controls.items() if side.observations
    )


def _not_run(claim: Claim, evidence: Evidence, compared: Sequence[str]) -> Row:
    missing = [name for name in compared if not evidence.largest(name)]
    why = (
        f"no cell of {', '.join(missing)}" if missing else f"no scale with cells of {' and '.join(compared)}"
    )
    return _row(claim, ours="", controls="", verdict="not run", why=why, scope="")


def _row(
    claim: Claim, *, ours: str, controls: str, verdict: Verdict, why: str, scope: str, effect: Effect | None = None
) -> Row:  # fmt: skip
    return Row(
        id=claim.id, claim=claim.statement, definition=claim.definition, where=claim.where, paper=claim.paper,
        ours=ours, controls=controls, verdict=verdict, why=why, scope=scope,
        effect=None if effect is None else effect.mean, noise=None if effect is None else effect.noise,
    )  # fmt: skip


def _scope(cells: Iterable[Cell]) -> str:
    """ "hour: prolip 3 seeds, clip 1 seed"."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for cell in cells:
        seeds.setdefault(cell.scale, {}).setdefault(cell.variant, set()).add(cell.seed)
    return "; ".join(
        f"{scale}: "
        + ", ".join(f"{name} {format_count(len(found), 'seed')}" for name, found in by_variant.items())
        for scale, by_variant in seeds.items()
    )
