"""Captions that begin at known bytes of a file: lines of a text, rows of a CSV or TSV."""

from __future__ import annotations

import csv
import hashlib
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.caption_columns import caption_columns, sample_of
from prolip.data.sources.csv_table import DELIMITERS, MAX_LINE_BYTES
from prolip.data.sources.folder import MAX_TEXT_BYTES

BLOCK = 2**24
"""Bytes of a text that are looked at together for the ends of its lines."""
LINE_END, RETURN = b"\n\r"


class _Offsets(SingleChunkSource):
    """Samples that begin at known bytes of a file, in memory 8 bytes each. They are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            _require_lines(file, path)
            self._digest = hashlib.file_digest(file, "blake2b").hexdigest()
        self._starts = self._index()

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        where = f"{self.path}: caption {index + 1}"
        with open(self.path, "rb") as file:
            file.seek(self._starts[index])
            values, extra = self._values(file, where)
        return sample_of(index, where, values, extra)

    def files(self) -> list[Path]:
        return [self.path]

    @abstractmethod
    def _index(self) -> np.ndarray:
        """int64 (N,): where samples begin."""

    @abstractmethod
    def _values(self, file: BinaryIO, where: str) -> tuple[list[bytes], dict[str, Any]]:
        """The captions that begin here, as UTF-8, and whatever else came along."""


class LineCaptions(_Offsets):
    """A line a caption (UTF-8). Lines with nothing in them are not counted."""

    def fingerprint(self) -> str:
        return compute_fingerprint("lines", self._digest)

    def _index(self) -> np.ndarray:
        if not self.path.stat().st_size:
            return np.zeros(0, dtype=np.int64)
        content: np.ndarray = np.memmap(self.path, mode="r")
        ends = [
            np.flatnonzero(content[first : first + BLOCK] == LINE_END) + first
            for first in range(0, len(content), BLOCK)
        ]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), *(end + 1 for end in ends)])
        starts = starts[starts < len(content)]
        following = content[np.minimum(starts + 1, len(content) - 1)]
        empty = content[starts] == LINE_END
        empty |= (content[starts] == RETURN) & (following == LINE_END)
        return np.asarray(starts[~empty])

    def _values(self, file: BinaryIO, where: str) -> tuple[list[bytes], dict[str, Any]]:
        line = file.readline(MAX_TEXT_BYTES + 1)
        if len(line) > MAX_TEXT_BYTES:
            raise BadSampleError("unreadable caption", where, "its line is longer than 1 MB")
        return [line], {}


class TableCaptions(_Offsets):
    """Rows of a CSV or TSV file (UTF-8) whose first row names the columns; no image is sought.

    The quotes follow RFC 4180: a table with a stray or open quote is refused, and the row told.
    """

    def __init__(self, path: Path, captions: Sequence[str] | None = None) -> None:
        self._asked = captions
        self._delimiter = _delimiter(path)
        super().__init__(path)

    def fingerprint(self) -> str:
        return compute_fingerprint("table of captions", self._digest, self.columns)

    def _index(self) -> np.ndarray:
        starts = array("q")
        with open(self.path, "rb") as file:
            _skip_mark(file)
            rows = self._rows(file)
            try:
                self._header = [_text(cell).strip() for cell in next(filter(None, rows), [])]
                self.columns = caption_columns(self._header, self._asked, self.path)
                start = file.tell()
                for row in rows:
                    if row:  # blank lines are not rows
                        starts.append(start)
                    start = file.tell()
            except csv.Error as error:
                raise ValueError(f"{self.path}: row {len(starts) + 1} can't be read: {error}") from None
        return np.array(starts, dtype=np.int64)

    def _values(self, file: BinaryIO, where: str) -> tuple[list[bytes], dict[str, Any]]:
        try:
            row, count = next(self._rows(file), []), len(self._header)
        except csv.Error:
            raise BadSampleError(
                "unreadable row", where, "the table has changed since it was opened"
            ) from None
        if len(row) < count or any(row[count:]):  # more: an unquoted delimiter would cut a caption
            raise BadSampleError("unreadable row", where, f"{len(row)} cells for {count} columns")
        cells = dict(zip(self._header, row, strict=False))
        values = [cells.pop(name).encode("latin-1") for name in self.columns]
        return values, {name: _text(cell) for name, cell in cells.items()}

    def _rows(self, file: BinaryIO) -> Iterator[list[str]]:
        return csv.reader(self._lines(file), delimiter=self._delimiter, strict=True)

    def _lines(self, file: BinaryIO) -> Iterator[str]:
        """Latin-1 gives a character for every byte, so that text that isn't UTF-8 spoils one cell, not the table."""
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise csv.Error("a line is longer than 16 MB; is this a table?")
            yield line.decode("latin-1")


def _require_lines(file: BinaryIO, path: Path) -> None:
    block = file.read(2**16)
    if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8")
    if b"\n" not in block and b"\r" in block.rstrip(b"\r"):
        raise ValueError(f"{path}: its lines end in CR alone; save it with LF")
    file.seek(0)


def _delimiter(path: Path) -> str:
    """That of the file's ending, or, if the first line has none of it, the one it has most of."""
    with open(path, "rb") as file:
        first = file.readline(MAX_LINE_BYTES).decode("latin-1")
    usual = DELIMITERS[path.suffix.lower()]
    return usual if usual in first else max((usual, "\t", ",", ";", "|"), key=first.count)


def _skip_mark(file: BinaryIO) -> None:
    """To where the text begins: after the byte order mark, if there is one."""
    file.seek(3 if file.read(3) == b"\xef\xbb\xbf" else 0)


def _text(cell: str) -> str:
    return cell.encode("latin-1").decode("utf-8", errors="backslashreplace")
