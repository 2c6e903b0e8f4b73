"""Pictures in the rows of tables, as a Source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import compute_fingerprint, require_index
from prolip.data.sources.columns import ArrowRows, image_of
from prolip.evaluation.suite.hf_tables import TablePart


class ImageCell(NamedTuple):
    """Where a picture is: the part, the row in it, its number in a cell that holds several (None: it holds one)."""

    part: int
    row: int
    number: int | None = None


class TableImages:
    """Pictures by their places. One part stays loaded: places come part after part.

    image: the column of pictures. captions: that of captions, a text or a list of them; None: there are none.
    """

    def __init__(
        self, folder: Path, parts: Sequence[TablePart], places: Sequence[ImageCell], image: str, captions: str | None
    ) -> None:
        self.name = str(folder)
        self._parts, self._places = tuple(parts), tuple(places)
        self._image, self._captions = image, captions
        self._lock = threading.Lock()
        self._last: tuple[int, ArrowRows] | None = None

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(self)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        part, row, number = self._places[index]
        path = self._parts[part].path
        where = f"{path}: row {row + 1} of part {part}" + ("" if number is None else f", picture {number}")
        cells = self._loaded(part).row(row, where)
        value = cells[self._image] if number is None else cells[self._image][number]
        captions = () if self._captions is None else parse_captions([cells[self._captions]], where)
        return Sample(str(index), where, _picture(value, path.parent, where), captions)

    def _loaded(self, part: int) -> ArrowRows:
        with self._lock:
            if self._last is None or self._last[0] != part:
                self._last = (part, self._parts[part].load())
            return self._last[1]

    def fingerprint(self) -> str:
        sizes = [(file.name, file.stat().st_size) for file in self.files()]
        return compute_fingerprint("rows", ascii(sizes), self._places, self._image, self._captions)

    def files(self) -> list[Path]:
        return list(dict.fromkeys(part.path for part in self._parts))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _picture(value: Any, folder: Path, where: str) -> bytes | Path:
    """Bytes, or a file beside the table, or in `images` there."""
    try:
        return image_of(value, folder, where)
    except BadSampleError as error:
        if error.record.reason != "missing file" or not (folder / "images").is_dir():
            raise
    return image_of(value, folder / "images", where)
