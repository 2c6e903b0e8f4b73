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
        id, claim, definition, where, paper: Fields of the `Claim`; `claim` is its statement.
        ours, controls: Formatted values of the variant (and its rival), and of the controls.
        verdict, why: The verdict by the rule of `reproduction.verdict`, and its reason if it needs one.
        scope: The scale, variants and numbers of seeds behind the values.
        effect, noise: The numbers that the verdict is based on; None if not run.
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
        """The fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _ObservedCells:
    """Cells of one variant and the observation of each; cells without the observed number are skipped."""

    cells: Sequence[Cell] = ()
    observations: Sequence[Observation] = ()

    @classmethod
    def from_cells(cls, cells: Sequence[Cell], observe: Observe) -> _ObservedCells:
        """Observe each cell; raises ValueError with the name of a cell that lacks the path of the number."""
        observed, observations = [], []
        for cell in cells:
            observation = cell.observe(observe)
            if observation is not None:
                observed.append(cell)
                observations.append(observation)
        return cls(observed, observations)

    @property
    def values(self) -> list[float]:
        """The value of each observation."""
        return [observation.value for observation in self.observations]

    @property
    def effects(self) -> list[float]:
        """The effect of each observation."""
        return [observation.effect for observation in self.observations]


def make_row(claim: Claim, evidence: Evidence) -> Row:
    """Make the row of a claim.

    A variant and its rival are compared at the largest scale that both have; one that the controls which could refute
    the claim have, too, is preferred.
    """
    compared = [claim.variant] if claim.rival is None else [claim.variant, claim.rival]
    against = {
        control.variant for control in claim.controls if control.against and control.variant is not None
    }
    scale = evidence.largest_scale(*compared, *sorted(against - {*UNTRAINED_VARIANTS}))
    scale = scale or evidence.largest_scale(*compared)
    observers = (claim.observe, claim.rival_observe or claim.observe)
    # the variant, then its rival if there is one
    sides = [
        _ObservedCells.from_cells(evidence.at_scale(name, scale), observe)
        for name, observe in zip(compared, observers, strict=False)
    ]
    if not all(side.observations for side in sides):
        return _make_not_run_row(claim, evidence, compared)
    controls = {
        control: _observe_control(control, claim, evidence, sides[0], scale) for control in claim.controls
    }
    effect = _compute_effect(claim, evidence, sides)
    verdict, why = _judge(effect, controls, sides[1:])
    return _fill_row(
        claim,
        ours=" against ".join(format_values(side.values, claim.form) for side in sides),
        controls=_format_controls(controls, claim.form),
        verdict=verdict,
        why=why,
        scope=_format_scope(cell for side in (*sides, *controls.values()) for cell in side.cells),
        effect=effect,
    )


def _compute_effect(claim: Claim, evidence: Evidence, sides: Sequence[_ObservedCells]) -> Effect:
    """The effect of the variant, or its difference to the rival; one seed borrows the headline's deviation."""
    borrowed: Sequence[float] = ()
    if claim.variant not in UNTRAINED_VARIANTS:
        borrowed = _ObservedCells.from_cells(evidence.at_largest_scale(HEADLINE), claim.observe).effects
    if len(sides) == 1:
        return compute_effect(sides[0].observations, borrowed)
    return compute_difference(sides[0].observations, sides[1].observations, borrowed)


def _observe_control(
    control: Control, claim: Claim, evidence: Evidence, ours: _ObservedCells, scale: str | None
) -> _ObservedCells:
    """The cells of a control and their observations; what the control doesn't name is that of the claim."""
    cells = ours.cells if control.variant is None else evidence.at_scale(control.variant, scale)
    return _ObservedCells.from_cells(cells, control.observe or claim.observe)


def _judge(
    effect: Effect, controls: Mapping[Control, _ObservedCells], rival: Sequence[_ObservedCells]
) -> tuple[Verdict, str]:
    """Verdict on a claim and its reason; "not run" if it would be shown, but a control against it is missing.

    rival: that of the claim, or empty. With a rival, the effects of controls are differences to it, too.
    """
    rival_effect = fmean(rival[0].effects) if rival else 0.0
    against = {control.name: side for control, side in controls.items() if control.against}
    verdict, why = judge(
        effect, {name: [value - rival_effect for value in side.effects] for name, side in against.items()}
    )
    missing = [name for name, side in against.items() if not side.observations]
    if verdict == "shown" and missing:
        return "not run", f"the control {', '.join(missing)} is missing"
    return verdict, why


def _format_controls(controls: Mapping[Control, _ObservedCells], form: Form) -> str:
    """Names and ranges of the controls that were run: "untrained 50.0 to 60.0 %; no inclusion 70.0 %"."""
    return "; ".join(
        f"{control.name} {format_range(side.values, form)}"
        for control, side in controls.items()
        if side.observations
    )


def _make_not_run_row(claim: Claim, evidence: Evidence, compared: Sequence[str]) -> Row:
    """The row of a claim for which cells of the compared variants are missing; it says which."""
    missing = [name for name in compared if not evidence.at_largest_scale(name)]
    why = (
        f"no cell of {', '.join(missing)}" if missing else f"no scale with cells of {' and '.join(compared)}"
    )
    return _fill_row(claim, ours="", controls="", verdict="not run", why=why, scope="")


def _fill_row(
    claim: Claim, *, ours: str, controls: str, verdict: Verdict, why: str, scope: str, effect: Effect | None = None
) -> Row:  # fmt: skip
    """A row with the fields of a claim and those that were computed."""
    return Row(
        id=claim.id, claim=claim.statement, definition=claim.definition, where=claim.where, paper=claim.paper,
        ours=ours, controls=controls, verdict=verdict, why=why, scope=scope,
        effect=None if effect is None else effect.mean, noise=None if effect is None else effect.noise,
    )  # fmt: skip


def _format_scope(cells: Iterable[Cell]) -> str:
    """Scales, variants and numbers of seeds of cells: "hour: prolip 3 seeds, clip 1 seed"."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for cell in cells:
        seeds.setdefault(cell.scale, {}).setdefault(cell.variant, set()).add(cell.seed)
    return "; ".join(
        f"{scale}: "
        + ", ".join(
            f"{variant} {format_count(len(numbers), 'seed')}" for variant, numbers in by_variant.items()
        )
        for scale, by_variant in seeds.items()
    )
