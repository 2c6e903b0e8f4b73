"""Definition of a claim: statement, measured quantity, the paper's value, controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reproduction.observations import Observe
from reproduction.variants import HEADLINE

Form = Literal["percent", "points", "correlation", "ratio"]
"""Format of a value, in this order: 0.5 is printed as 50.0 %, +50.0 points, +0.50 or 0.500."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """A quantity that is shown beside a claim.

    Attributes:
        name: As the table prints it.
        variant: Variant of its cells; None: those of the claim itself.
        observe: Observation of a cell; None: that of the claim.
        against: Whether the claim counts as not shown if this control shows it as well. False: the control is only
            printed for comparison.
    """

    name: str
    variant: str | None = None
    observe: Observe | None = None
    against: bool = True


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper.

    Attributes:
        id: Unique name.
        statement: The claim in words.
        definition: What is measured, and what counts as an effect.
        where: Table, figure or section of the paper that makes the claim.
        paper: The paper's value, formatted.
        observe: Observation of a cell of `variant`.
        form: Format of the value.
        variant: Variant of the recipe.
        rival: Another variant at the same scale; the effect is then that of `variant` minus that of the rival.
        rival_observe: Observation of a cell of the rival; None: as `observe`.
        controls: Quantities that are printed next to it.
    """

    id: str
    statement: str
    definition: str
    where: str
    paper: str
    observe: Observe
    form: Form = "percent"
    variant: str = HEADLINE
    rival: str | None = None
    rival_observe: Observe | None = None
    controls: tuple[Control, ...] = ()
