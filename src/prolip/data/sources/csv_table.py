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

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import Columns, choose_columns, resolve_image_path, require_file
from prolip.data.sources.folder import IMAGE_EXTENSIONS

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
MAX_LINE_BYTES = 2**24
"""Bytes; a file with a longer line is no table, and reading on would fill the memory."""

# The csv module's own limit is 131,072 characters a cell, for the whole process. Raised once, here: a limit that came
# and went with each row would not be safe where threads read.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


class CsvTable(SingleChunkSource):
    """Rows of a CSV or TSV file (UTF-8) whose first row names the columns; images are files.

    image, captions: names of columns; by default the first that is there of IMAGE_COLUMNS and of CAPTION_COLUMNS.
                     captions=() reads the images alone.
    folder:          what the image paths are relative to; by default the folder of the table.

    The quotes follow RFC 4180, strictly: a row with a stray or open quote is "unreadable", not guessed at. Rows are
    numbered from 1, the header not counted. In memory: 8 bytes a row.

    A quoted cell may hold line ends. But a later quote may also close one that was left open, and what lies between
    would be lost. So a quote counts as open, and its row ends with its line, if a following line of the row is a row
    by itself: it has a cell for each of several columns, and its image ends like an image file, or as the row's own.
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
        indexed = _indexed(self.path, image, captions)
        self._delimiter, self._header, self.columns, self._offsets, self._digest = indexed

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        where = f"{self.path}: row {index + 1}"
        cells = dict(zip(self._header, self._row(index, where), strict=False))
        path = resolve_image_path(os.fsdecode(cells.pop(self.columns.image)), self.folder, where)
        values = [cells.pop(name) for name in self.columns.captions]
        captions = parse_captions(values, where) if values else ()
        extra = {name: cell.decode("utf-8", errors="backslashreplace") for name, cell in cells.items()}
        return Sample(str(index), where, path, captions, extra)

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("table", self._digest, self.columns)

    def _row(self, index: int, where: str) -> list[bytes]:
        """The cells of a row, as many as the header has."""
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        with open(self.path, "rb") as file:
            file.seek(start)
            lines = io.BytesIO(file.read(end - start))
        try:
            row = next(_reader((line.decode("latin-1") for line in lines), self._delimiter))
        except csv.Error as error:
            detail = "an open quote" if "end of data" in str(error) else str(error)
            raise BadSampleError("unreadable row", where, detail) from None
        except StopIteration:
            raise BadSampleError(
                "unreadable row", where, "the table has changed since it was opened"
            ) from None
        # More cells than columns: an unquoted delimiter in a caption, which would be cut there without a word.
        if len(row) < len(self._header) or any(row[len(self._header) :]):
            detail = f"{len(row)} cells for {len(self._header)} columns"
            raise BadSampleError("unreadable row", where, detail)
        return [cell.encode("latin-1") for cell in row[: len(self._header)]]


def _reader(lines: Iterator[str], delimiter: str, strict: bool = True) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=delimiter, strict=strict)


class _Lines:
    """The lines of a table, for the csv module, which takes as many as a record has. `end`: of the last one taken.

    Latin-1 gives a character for every byte, so that text that isn't UTF-8 spoils one cell, not the table.
    """

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self.end = file.tell()
        self.columns, self.image = 0, 0  # how many, and which is the image: known after the header
        self.delimiter = _delimiter(file, path)
        self.digest = hashlib.blake2b(digest_size=16)
        self._file, self._path = file, path
        self._start, self._first = self.end, ""

    def records(self) -> Iterator[list[str]]:
        """Records, from here on. One whose quote stays open is a record of one line, [""], and costs no other."""
        reader = _reader(self, self.delimiter)
        while True:
            self._start, self._first = self.end, ""
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error:  # found again, and told, when the row is read
                if not self.columns:
                    raise
                self._file.seek(self._start)
                self.end = self._start + len(self._file.readline(MAX_LINE_BYTES))
                reader = _reader(self, self.delimiter)
                yield [""]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_BYTES:
            raise ValueError(
                f"{self._path}: a line at byte {self.end} is longer than 16 MB; is this a table?"
            )
        self.end += len(line)
        self.digest.update(line)
        text = line.decode("latin-1")
        if self._first and self.columns > 1 and self._is_row(text):
            raise csv.Error("an open quote")
        self._first = self._first or text
        return text

    def _is_row(self, line: str) -> bool:
        """Whether a line, by all looks a part of a quoted cell, is rather the next row. See `CsvTable` for the rule."""
        cells = self._cells(line)
        if len(cells) != self.columns:
            return False
        own = self._cells(self._first)[self.image : self.image + 1]  # none, if the open cell comes before it
        return _ending(cells[self.image]) in {*IMAGE_EXTENSIONS, *map(_ending, own)}

    def _cells(self, line: str) -> list[str]:
        return next(_reader(iter([line]), self.delimiter, strict=False), [])


def _ending(path: str) -> str:
    return os.path.splitext(path.strip())[1].lower()


def _indexed(
    path: Path, image: str | None, captions: Sequence[str] | None
) -> tuple[str, list[str], Columns, np.ndarray, str]:
    """One pass over a table: its delimiter, header and columns, where rows begin and the last ends, and a digest.

    Where: int64 (N + 1,). The csv module itself tells where a record ends.
    """
    with open(path, "rb") as file:
        _to_text(file, path)
        lines = _Lines(file, path)
        records = lines.records()
        header = _header(records, path)
        columns = choose_columns(header, image, captions, str(path))
        lines.columns, lines.image = len(header), header.index(columns.image)
        starts, start = array("q"), lines.end
        for row in records:
            if row:  # blank lines are not rows
                starts.append(start)
            start = lines.end
    starts.append(lines.end)
    return lines.delimiter, header, columns, np.array(starts, dtype=np.int64), lines.digest.hexdigest()


def _to_text(file: io.BufferedReader, path: Path) -> None:
    """To where the text begins: after the byte order mark, if there is one."""
    block = file.read(2**16)
    if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8")
    if b"\n" not in block and b"\r" in block.rstrip(b"\r"):
        raise ValueError(f"{path}: its lines end in CR alone; save it with LF")
    file.seek(3 if block[:3] == b"\xef\xbb\xbf" else 0)


def _delimiter(file: io.BufferedReader, path: Path) -> str:
    """That of the file's ending; if the header has none of it, or the ending says nothing, the one it has most of."""
    start = file.tell()
    line = next((line for line in iter(lambda: file.readline(MAX_LINE_BYTES), b"") if line.strip()), b"")
    file.seek(start)
    header = line.decode("latin-1")
    usual = DELIMITERS.get(path.suffix.lower())
    if usual and usual in header:
        return usual
    return max((usual or "\t", "\t", ",", ";", "|"), key=header.count)


def _header(rows: Iterator[list[Any]], path: Path) -> list[str]:
    try:
        row = next((row for row in rows if row), None)
    except csv.Error as error:
        raise ValueError(f"{path}: its first row, which names the columns, can't be read: {error}") from None
    if row is None:
        raise ValueError(f"{path} is empty; its first row must name its columns")
    return [cell.encode("latin-1").decode("utf-8", errors="backslashreplace").strip() for cell in row]
