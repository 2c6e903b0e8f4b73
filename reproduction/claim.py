"""What a claim is: a sentence, its definition, the paper's value, how cells are read, what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reproduction.readings import Read
from reproduction.variants import HEADLINE

Form = Literal["percent", "points", "correlation", "ratio"]
"""How a value is told: 0.5 as 50.0 %, as +50.0 points, as +0.50, as 0.500."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """read: of it; None: the claim's own. variant: whose cells; None: those of the claim itself.
    against: if it shows the claim as well, the claim is not shown; False: it only stands beside."""

    name: str
    variant: str | None = None
    read: Read | None = None
    against: bool = True


@dataclass(frozen=True, kw_only=True)
class Claim:
    """definition: what is measured, and what counts as an effect. where: in the paper. paper: its value.

    read: off a cell of `variant`. rival: another variant at the same scale; the effect is then that of `variant` less
    that of the rival, by `rival_read` (None: the same).
    """

    id: str
    sentence: str
    definition: str
    where: str
    paper: str
    read: Read
    form: Form = "percent"
    variant: str = HEADLINE
    rival: str | None = None
    rival_read: Read | None = None
    controls: tuple[Control, ...] = ()
