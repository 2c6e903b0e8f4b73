"""Definition of a claim: statement, measured quantity, the paper's value, controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reproduction.observations import Observe
from reproduction.variants import HEADLINE

Form = Literal["percent", "points", "correlation", "ratio"]
"""Format of a value: 0.5 as 50.0 %, as +50.0 points, as +0.50, as 0.500."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """A quantity that is shown beside a claim.

    Attributes:
        name: For people.
        variant: Variant of its cells; None: those of the claim itself.
        observe: What is observed; None: as in the claim.
        against: If it shows the claim as well, the claim is not shown. False: it is only shown for comparison.
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
        statement: In words.
        definition: What is measured, and what counts as an effect.
        where: In the paper.
        paper: The paper's value.
        observe: Observation of a cell of `variant`.
        form: Format of the value.
        variant: Variant of the recipe.
        rival: Another variant at the same scale; the effect is then that of `variant` minus that of the rival.
        rival_observe: Observation of a cell of the rival; None: as `observe`.
        controls: What is shown beside it.
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
