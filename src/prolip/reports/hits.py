"""What a search has found, as a sheet of pictures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.header import Header
from prolip.embeddings.storage import place_of
from prolip.reports.originals import MISSING, REASONS, Originals
from prolip.reports.sheets import Cell, Strip, wrapped
from prolip.reports.sheets import save as save_sheet
from prolip.retrieval.index.database import Database
from prolip.retrieval.response import Answer

WIDE, MOST_LINES = 26, 4
"""Of the reason why: letters that fit under a picture, and lines."""


def save(out: Path, database: Database, answer: Answer) -> list[Path]:
    """Draw the pictures that were found, the best first, with their scores; write PNG and SVG.

    A text is drawn with the picture of its sample. Pictures are read from their own files, or from the data that was
    embedded; one that can't be read is a grey square with the reason.
    """
    pictures = _Pictures(database)
    cells = [_cell(pictures, row, answer) for row in answer.hits.rows()]
    if not cells:
        raise ValueError(f"{out}: nothing was found, so there is no picture to draw")
    return save_sheet(
        out, [Strip(title="; ".join([answer.query, *answer.sureness.lines()[:1]]), cells=cells)]
    )


class _Pictures:
    """Pictures of rows, whichever data they are of."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.originals = cache(self._originals)

    def _originals(self, origin: str) -> Originals:
        told = self.database.origins[origin]
        header = Header.from_json(told["header"], self.database.uri)
        return Originals(Embeddings(place_of(told["place"]), header))

    def read(self, row: dict[str, Any]) -> Image.Image:
        return self.originals(row["origin"]).read(row)


def _cell(pictures: _Pictures, row: dict[str, Any], answer: Answer) -> Cell:
    crossed = answer.asked != answer.sought
    notes = [f"CSD {row['csd']:.3f}, cosine {row['cosine']:.3f}"]
    if crossed and "match" in row:
        notes.append(f"match {row['match']:.1%}")
    notes.append(f"uncertainty {row['uncertainty']:.4g}")
    try:
        picture = pictures.read(row)
    except REASONS as error:
        picture = MISSING
        notes += wrapped(f"no picture: {error}", WIDE, MOST_LINES)
    return Cell(picture=picture, caption=row["caption"] or row["id"], notes=tuple(notes))
