"""What a search has found, as a sheet of pictures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.data.source import Source
from prolip.embed.header import Header
from prolip.embed.place import place_of
from prolip.embed.stored import Embeddings
from prolip.inputs.images import read_image
from prolip.report.sheets import Cell, Strip, picture_of, wrapped
from prolip.report.sheets import save as save_sheet
from prolip.search.ask import Answer
from prolip.search.index.database import Database

MISSING = Image.new("RGB", (64, 64), "#c8c8c8")
"""Drawn for a picture that can't be read."""
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
    """Pictures of rows. Each data set is opened once."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.source = cache(self._source)

    def _source(self, origin: str) -> Source:
        told = self.database.origins[origin]
        header = Header.from_json(told["header"], self.database.uri)
        return Embeddings(place_of(told["place"]), header).source()

    def read(self, row: dict[str, Any]) -> Image.Image:
        if row["path"] is not None:
            return read_image(row["path"])
        return picture_of(self.source(row["origin"]), row["number"])


def _cell(pictures: _Pictures, row: dict[str, Any], answer: Answer) -> Cell:
    crossed = answer.asked != answer.sought
    notes = [f"CSD {row['csd']:.3f}, cosine {row['cosine']:.3f}"]
    if crossed and "match" in row:
        notes.append(f"match {row['match']:.1%}")
    notes.append(f"uncertainty {row['uncertainty']:.4g}")
    try:
        picture = pictures.read(row)
    except (OSError, ValueError, IndexError) as error:
        picture = MISSING
        notes += wrapped(f"no picture: {error}", WIDE, MOST_LINES)
    return Cell(picture=picture, caption=row["caption"] or row["id"], notes=tuple(notes))
