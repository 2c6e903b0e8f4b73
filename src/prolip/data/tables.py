"""CSV and TSV: a row a sample, with the path of its image."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.cells import choose_columns, image_file, require_file
from prolip.data.sample import BadSampleError, Sample, captions_of
from prolip.data.source import fingerprint_of, require_index

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
LONGEST_LINE = 2**24
"""Bytes; a file with a longer line is no table, and reading on would fill the memory."""


class Table:
    """Rows of a CSV or TSV file (UTF-8) whose first row names the columns; images are files.

    image, captions: names of columns; by default the first that is there of IMAGE_COLUMNS and of CAPTION_COLUMNS.
                     captions=() reads the images alone.
    folder:          what the image paths are relative to; by default the folder of the table.

    The quotes follow RFC 4180, strictly: a row with a stray or open quote is "unreadable", not guessed at. Rows are
    numbered from 1, the header not counted. In memory: 8 bytes a row.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        image: str | None = None,
        captions: Sequence[str] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.path = Path(path)
        self.folder = Path(folder) if folder is not None else self.path.parent
        require_file(self.path)
        self._delimiter, self._header, self._offsets, self._digest = _indexed(self.path)
        self.columns = choose_columns(self._header, image, captions, self.name)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(self)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        where = f"{self.path}: row {index + 1}"
        cells = dict(zip(self._header, self._row(index, where), strict=False))
        path = image_file(os.fsdecode(cells.pop(self.columns.image)), self.folder, where)
        values = [cells.pop(name) for name in self.columns.captions]
        captions = captions_of(values, where) if values else ()
        extra = {name: cell.decode("utf-8", errors="backslashreplace") for name, cell in cells.items()}
        return Sample(str(index), where, path, captions, extra)

    def fingerprint(self) -> str:
        return fingerprint_of("table", self._digest, self.columns)

    def _row(self, index: int, where: str) -> list[bytes]:
        """The cells of a row, as many as the header has."""
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        with open(self.path, "rb") as file:
            file.seek(start)
            lines = io.BytesIO(file.read(end - start))
        try:
            row = next(_reader((line.decode("latin-1") for line in lines), self._delimiter))
        except csv.Error as error:
            raise BadSampleError("unreadable row", where, str(error)) from None
        except StopIteration:
            raise BadSampleError(
                "unreadable row", where, "the table has changed since it was opened"
            ) from None
        # More cells than columns: an unquoted delimiter in a caption, which would be cut there without a word.
        if len(row) < len(self._header) or any(row[len(self._header) :]):
            detail = f"{len(row)} cells for {len(self._header)} columns"
            raise BadSampleError("unreadable row", where, detail)
        return [cell.encode("latin-1") for cell in row[: len(self._header)]]


def _reader(lines: Iterator[str], delimiter: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _indexed(path: Path) -> tuple[str, list[str], np.ndarray, str]:
    """One pass over a table: its delimiter, its header, int64 (N + 1,) where rows begin and the last ends, a digest.

    The csv module itself tells where a record ends: it takes line after line until it has a whole one. Latin-1 gives
    a character for every byte, so that text that isn't UTF-8 spoils one cell, not the table.
    """
    digest = hashlib.blake2b(digest_size=16)
    end = 0

    with open(path, "rb") as file:
        end = _after_mark(file, path)

        def lines() -> Iterator[str]:
            nonlocal end
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"{path}: a line at byte {end} is longer than 16 MB; is this a table?")
                end += len(line)
                digest.update(line)
                yield line.decode("latin-1")

        delimiter = DELIMITERS.get(path.suffix.lower()) or _sniffed(file)
        rows = _reader(lines(), delimiter)
        header = _header(rows, path)
        starts = array("q")
        while True:
            start = end
            try:
                row = next(rows)
            except StopIteration:
                break
            except csv.Error:  # found again, and told, when the row is read
                row = [""]
                file.seek(start)  # an open quote has taken in all that follows: go on with the next line
                end = start + len(file.readline(LONGEST_LINE))
                rows = _reader(lines(), delimiter)
            if row:  # blank lines are not rows
                starts.append(start)
    starts.append(end)
    return delimiter, header, np.array(starts, dtype=np.int64), digest.hexdigest()


def _after_mark(file: io.BufferedReader, path: Path) -> int:
    """Where the text begins: after the byte order mark, if there is one."""
    mark = file.read(3)
    if mark[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8")
    return file.seek(3 if mark == b"\xef\xbb\xbf" else 0)


def _sniffed(file: io.BufferedReader) -> str:
    """The delimiter that the first line holds most of."""
    start = file.tell()
    line = file.readline(LONGEST_LINE).decode("latin-1")
    file.seek(start)
    return max(("\t", ",", ";", "|"), key=line.count)


def _header(rows: Iterator[list[Any]], path: Path) -> list[str]:
    try:
        row = next((row for row in rows if row), None)
    except csv.Error as error:
        raise ValueError(f"{path}: its first row, which names the columns, can't be read: {error}") from None
    if row is None:
        raise ValueError(f"{path} is empty; its first row must name its columns")
    return [cell.encode("latin-1").decode("utf-8", errors="backslashreplace").strip() for cell in row]
