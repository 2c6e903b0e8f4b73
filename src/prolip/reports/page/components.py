"""What a page is made of: plain values that the template lays out. Words and numbers are ready to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

VERDICT_SIGNS: dict[str, str] = {"shown": "✓", "not shown": "–", "reversed": "✗", "not run": "·"}
"""A sign beside the color of a verdict: not everyone sees colors."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """uri: the picture itself, as a data URI. small: few pixels, to be shown with sharp edges."""

    uri: str
    alt: str
    small: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing. says: what to look for, and what was found here. svg: inline, already themed."""

    kind: ClassVar[str] = "figure"
    title: str
    says: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A picture with a caption and short notes under it. number: of the picture in a figure beside it."""

    picture: Picture
    captions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    number: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Pictures in a grid."""

    kind: ClassVar[str] = "gallery"
    title: str
    says: str = ""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A line of a card. share: of the longest bar, 0 to 1; None: no bar. value: its number. mark: true, false, or None
    where nobody knows."""

    text: str
    value: str = ""
    share: float | None = None
    mark: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Card:
    """Lines with bars, beside a picture if there is one."""

    title: str
    bars: tuple[Bar, ...]
    picture: Picture | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Cards:
    kind: ClassVar[str] = "cards"
    title: str
    says: str = ""
    cards: tuple[Card, ...]
    narrow: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows of a table: the first cell of each is its heading."""

    kind: ClassVar[str] = "grid"
    title: str
    says: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper beside what was measured. where: the paper's value stands. verdict: shown, not shown,
    reversed, not run; why: where it is not plain."""

    claim: str
    definition: str
    ours: str
    paper: str
    where: str
    controls: str
    verdict: str
    why: str
    scope: str

    @property
    def sign(self) -> str:
        """Verdicts are told by a sign too: not everyone sees colours."""
        return next((sign for word, sign in VERDICT_SIGNS.items() if word == self.verdict), "")


@dataclass(frozen=True, kw_only=True)
class Claims:
    kind: ClassVar[str] = "claims"
    rows: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A headline number. beside: the same of other models, by name."""

    name: str
    value: str
    meaning: str
    beside: tuple[tuple[str, str], ...] = ()


Block = Figure | Gallery | Cards | Grid | Claims | Facts


@dataclass(frozen=True, kw_only=True)
class Section:
    """id: the anchor."""

    id: str
    title: str
    intro: str = ""
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class Header:
    """title: what the model is called. line: what it is, in one line. notes: what was left out, and why."""

    title: str
    line: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    notes: tuple[str, ...] = ()
