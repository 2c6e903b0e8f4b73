"""Components of an HTML page: plain values, ready to be read, that the template lays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.table import Table

VERDICT_SIGNS: dict[str, str] = {"shown": "✓", "not shown": "–", "reversed": "✗", "not run": "·"}
"""A sign in addition to the color of a verdict: not everyone sees colors."""


@dataclass(frozen=True, kw_only=True)
class PageImage:
    """An image inside the page.

    uri:          the image itself, as a data URI.
    alt:          the alternative text.
    is_pixelated: few pixels, enlarged with sharp edges.
    """

    uri: str
    alt: str
    is_pixelated: bool = False


@dataclass(frozen=True, kw_only=True)
class PageFigure:
    """A plot.

    description: what to look for, and what was measured here.
    svg:         inline SVG in the colors of the page.
    """

    kind: ClassVar[str] = "figure"
    title: str
    description: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class GalleryItem:
    """An image with captions and short notes below it.

    location: path or URL of the image.
    number:   number of the image in a figure.
    """

    image: PageImage
    captions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    location: str = ""
    number: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Images in a grid."""

    kind: ClassVar[str] = "gallery"
    title: str
    description: str = ""
    items: tuple[GalleryItem, ...]


@dataclass(frozen=True, kw_only=True)
class CardLine:
    """A line of a card.

    value:        the number at its end.
    bar_fraction: length of its bar relative to the longest, 0 to 1; None: no bar.
    is_true:      whether the text is true of the card's image; None: unknown.
    """

    text: str
    value: str = ""
    bar_fraction: float | None = None
    is_true: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Card:
    """Lines with bars, next to an image if there is one."""

    title: str
    lines: tuple[CardLine, ...]
    image: PageImage | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CardGrid:
    """Cards side by side. is_compact: narrow cards with small images."""

    kind: ClassVar[str] = "cards"
    title: str
    description: str = ""
    cards: tuple[Card, ...]
    is_compact: bool = False


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table. The first cell of each row is the row's heading."""

    kind: ClassVar[str] = "table"
    title: str
    description: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def convert_table(table: Table) -> TableBlock:
    """Make the block of a table for the terminal.

    Args:
        table: Table of a result.

    Returns:
        The same table for the page.
    """
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return TableBlock(
        title=str(table.title or ""),
        description=str(table.caption or ""),
        headings=tuple(str(column.header) for column in table.columns),
        rows=tuple(zip(*columns, strict=True)),
    )


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """A claim of the paper with the measured value.

    where:   table or section of the paper that holds its value.
    verdict: shown, not shown, reversed or not run.
    why:     the reason of a verdict that isn't obvious.
    """

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
        """The sign of the verdict; empty for an unknown one."""
        return VERDICT_SIGNS.get(self.verdict, "")


@dataclass(frozen=True, kw_only=True)
class ClaimsBlock:
    """A table of claims with verdicts."""

    kind: ClassVar[str] = "claims"
    rows: tuple[ClaimRow, ...]


@dataclass(frozen=True, kw_only=True)
class DefinitionList:
    """Names and values."""

    kind: ClassVar[str] = "definitions"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class HeadlineTile:
    """A headline number. comparisons: (name, value) of the same number for other models."""

    label: str
    value: str
    description: str
    comparisons: tuple[tuple[str, str], ...] = ()


PageBlock = PageFigure | Gallery | CardGrid | TableBlock | ClaimsBlock | DefinitionList


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A section of the page. id: its anchor."""

    id: str
    title: str
    intro: str = ""
    blocks: Sequence[PageBlock]


@dataclass(frozen=True, kw_only=True)
class PageHeader:
    """The top of the page.

    title:    name of the model or of the task.
    subtitle: what it is, in one line, without a full stop.
    metadata: (name, value) pairs.
    notes:    what is missing on the page, and why.
    """

    title: str
    subtitle: str
    metadata: tuple[tuple[str, str], ...]
    tiles: tuple[HeadlineTile, ...]
    notes: tuple[str, ...] = ()
