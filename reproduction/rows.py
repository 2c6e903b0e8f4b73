"""A claim and the cells there are -> a row of the table, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from reproduction.cell import Cell
from reproduction.claim import Claim, Control, Form
from reproduction.evidence import Evidence
from reproduction.formatting import range_of, several, values_of
from reproduction.readings import Read
from reproduction.variants import HEADLINE, PSEUDO
from reproduction.verdict import Effect, Reading, Word, effect_between, effect_of, judge


@dataclass(frozen=True, kw_only=True)
class Row:
    """claim, definition, where, paper: as the claim has them. ours, controls: in words. verdict and why.
    scope: the scale and the seeds of each number. effect, noise: what the verdict is made of; None if not run."""

    id: str
    claim: str
    definition: str
    where: str
    ours: str
    paper: str
    controls: str
    verdict: Word
    why: str
    scope: str
    effect: float | None = None
    noise: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Side:
    """Cells of one variant, and what is read off them; a model that lacks the number is left out."""

    cells: Sequence[Cell] = ()
    readings: Sequence[Reading] = ()

    @classmethod
    def of(cls, cells: Sequence[Cell], read: Read) -> _Side:
        pairs = [(cell, read(cell.numbers)) for cell in cells]
        known = [(cell, reading) for cell, reading in pairs if reading is not None]
        return cls([cell for cell, _ in known], [reading for _, reading in known])

    @property
    def values(self) -> list[float]:
        return [reading.value for reading in self.readings]

    @property
    def effects(self) -> list[float]:
        return [reading.effect for reading in self.readings]


def make_row(claim: Claim, evidence: Evidence) -> Row:
    """What the cells say of a claim. Variants that are compared are taken at the largest scale that both have."""
    compared = [claim.variant] if claim.rival is None else [claim.variant, claim.rival]
    scale = evidence.largest_scale(*compared)
    reads = (claim.read, claim.rival_read or claim.read)
    sides = [
        _Side.of(evidence.at_scale(name, scale), read) for name, read in zip(compared, reads, strict=False)
    ]
    if not all(side.readings for side in sides):
        return _not_run(claim, evidence, compared)
    controls = {one: _control(one, claim, evidence, sides[0], scale) for one in claim.controls}
    effect = _effect(claim, evidence, sides)
    word, why = _verdict(effect, controls, sides[1:])
    return _row(
        claim,
        ours=" against ".join(values_of(side.values, claim.form) for side in sides),
        controls=_told(controls, claim.form),
        verdict=word,
        why=why,
        scope=_scope(cell for side in (*sides, *controls.values()) for cell in side.cells),
        effect=effect,
    )


def _effect(claim: Claim, evidence: Evidence, sides: Sequence[_Side]) -> Effect:
    borrowed: Sequence[float] = ()
    if claim.variant not in PSEUDO:
        borrowed = _Side.of(evidence.largest(HEADLINE), claim.read).effects
    if len(sides) == 1:
        return effect_of(sides[0].readings, borrowed)
    return effect_between(sides[0].readings, sides[1].readings, borrowed)


def _control(one: Control, claim: Claim, evidence: Evidence, ours: _Side, scale: str | None) -> _Side:
    cells = ours.cells if one.variant is None else evidence.at_scale(one.variant, scale)
    return _Side.of(cells, one.read or claim.read)


def _verdict(effect: Effect, controls: Mapping[Control, _Side], rival: Sequence[_Side]) -> tuple[Word, str]:
    """Controls of a comparison are compared with the rival, too."""
    start = fmean(rival[0].effects) if rival else 0.0
    against = {one.name: side for one, side in controls.items() if one.against}
    word, why = judge(
        effect, {name: [value - start for value in side.effects] for name, side in against.items()}
    )
    missing = [name for name, side in against.items() if not side.readings]
    if word == "shown" and missing:
        return "not run", f"the control {', '.join(missing)} is missing"
    return word, why


def _told(controls: Mapping[Control, _Side], form: Form) -> str:
    return "; ".join(
        f"{one.name} {range_of(side.values, form)}" for one, side in controls.items() if side.readings
    )


def _not_run(claim: Claim, evidence: Evidence, compared: Sequence[str]) -> Row:
    missing = [name for name in compared if not evidence.largest(name)]
    why = (
        f"no cell of {', '.join(missing)}" if missing else f"no scale with cells of {' and '.join(compared)}"
    )
    return _row(claim, ours="", controls="", verdict="not run", why=why, scope="")


def _row(
    claim: Claim, *, ours: str, controls: str, verdict: Word, why: str, scope: str, effect: Effect | None = None
) -> Row:  # fmt: skip
    return Row(
        id=claim.id, claim=claim.sentence, definition=claim.definition, where=claim.where, paper=claim.paper,
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
        + ", ".join(f"{name} {several(len(found), 'seed')}" for name, found in by_variant.items())
        for scale, by_variant in seeds.items()
    )
