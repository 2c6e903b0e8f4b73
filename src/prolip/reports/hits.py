"""Sheet of the images that a search has found, with their scores."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import DatasetHeader
from prolip.reports.originals import PLACEHOLDER, READ_ERRORS, OriginalImages
from prolip.reports.sheets import SheetGroup, SheetItem, save_image_sheet, wrap_text
from prolip.retrieval.index.database import Database
from prolip.retrieval.response import SearchResponse
from prolip.storage.folders import open_storage

NOTE_WIDTH, NOTE_LINES = 26, 4
"""Characters per line and number of lines of a location or an error below an image."""
MAX_LOCATION = 60
"""Characters of a location: of a longer one the end is shown, which has the file name."""


def save_hits_sheet(out: Path, database: Database, response: SearchResponse) -> list[Path]:
    """Draw the images of a search response, the best first, with their scores.

    A text is drawn with the image of its sample. Images are read from their own files or from the embedded data; an
    image that can't be read is a gray square with the reason.

    Args:
        out: Path of the sheet; .png and .svg are written.
        database: The index that was searched.
        response: The hits to draw.

    Returns:
        The paths that were written.

    Raises:
        ValueError: There are no hits.
    """
    images = HitImages(database)
    found = zip(response.hits.to_dicts(), response.hits.locations, strict=True)
    items = [_make_sheet_item(images, row, location, response) for row, location in found]
    if not items:
        raise ValueError(
            f"{out}: the search found nothing, so a sheet would be empty. Relax the search, or search without a sheet"
        )
    return save_image_sheet(
        out, [SheetGroup(title="; ".join([response.query, *response.confidence.describe()[:1]]), items=items)]
    )


class HitImages:
    """Reads the images of hits, which may come from several embedded data sets.

    Args:
        database: The database that was searched.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.open_originals = cache(self._open_originals)  # each data set is opened once

    def _open_originals(self, origin: str) -> OriginalImages:
        """Open the embedded data set from which a hit came; `origin` is its key in the index."""
        entry = self.database.origins[origin]
        header = DatasetHeader.from_json(entry["header"], self.database.uri)
        return OriginalImages(EmbeddingDataset(open_storage(entry["location"]), header))

    def read(self, row: dict[str, Any]) -> Image.Image:
        """Read the image of a hit.

        Args:
            row: A row of the response, with `origin`, `path` and `index`.

        Returns:
            The image.

        Raises:
            ValueError, OSError, IndexError: It can't be read (`READ_ERRORS`).
        """
        return self.open_originals(row["origin"]).read(row)


def _make_sheet_item(
    images: HitImages, row: dict[str, Any], location: str | None, response: SearchResponse
) -> SheetItem:
    """Make the item of one hit: its image (a gray square if it can't be read), caption or id, scores, and location."""
    notes = [f"CSD {row['csd']:.3f}, cosine {row['cosine']:.3f}"]
    if response.is_cross_modal and "match" in row:  # the probability of a match is one of an image and a text
        notes.append(f"match {row['match']:.1%}")
    notes.append(f"uncertainty {row['uncertainty']:.4g}")
    try:
        image = images.read(row)
    except READ_ERRORS as error:
        image = PLACEHOLDER
        notes += wrap_text(f"no image: {error}", NOTE_WIDTH, NOTE_LINES)
    else:  # an error has the location already
        notes += [] if location is None else _wrap_location(location)
    return SheetItem(image=image, caption=row["caption"] or row["id"], notes=tuple(notes))


def _wrap_location(location: str) -> list[str]:
    """Break a location into lines; of a long one only the end."""
    end = location if len(location) <= MAX_LOCATION else f"…{location[1 - MAX_LOCATION :]}"
    return wrap_text(end, NOTE_WIDTH, NOTE_LINES)
