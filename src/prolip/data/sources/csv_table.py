"""CSV and TSV tables: one row per sample, with the path of its image."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import TableColumns, choose_columns, require_file, resolve_image_path
from prolip.data.sources.folder import IMAGE_EXTENSIONS

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
MAX_LINE_BYTES = 2**24
"""A file with a longer line is not a table, and reading on would fill the memory."""
TABLE_CHANGED = "the table has changed since it was opened"

# The csv module's own limit is 131,072 characters per cell, for the whole process. Raised once, here: changing it for
# each row would not be thread-safe.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


class CsvTable(SingleChunkSource):
    """Rows of a CSV or TSV file (UTF-8) whose first row names the columns; images are files.

    Quotes follow RFC 4180 strictly: a row with a stray or unclosed quote is "unreadable", not guessed at. Rows are
    numbered from 1, without the header. Memory: 8 bytes per row.

    A quoted cell may contain line breaks. But a quote that was left open would be closed by the next quote anywhere
    below, and all rows in between would be lost in one cell. So a quote counts as unclosed, and its row ends with its
    line, if a following line of the cell is a complete row by itself: it has a cell for each of several columns, and
    its image has the extension of an image file or of the row's own image.

    Args:
        path: .csv, .tsv or .tab.
        image: name of the column of image paths; None: the first of IMAGE_COLUMNS that is present.
        captions: names of the columns of captions; None: the first of CAPTION_COLUMNS that is present; (): the images
            alone.
        folder: folder that image paths are relative to; None: the folder of the table.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If it can't be read as a table, or if a column is missing.
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
        indexed = _index_rows(self.path, image, captions)
        self._delimiter, self._header, self.columns, self._offsets, self._digest = indexed

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`; `extra` has the other columns as texts. The file is opened each time."""
        require_index(index, len(self))
        location = f"{self.path}: row {index + 1}"
        by_column = dict(zip(self._header, self._read_row(index, location), strict=True))
        path = resolve_image_path(os.fsdecode(by_column.pop(self.columns.image)), self.folder, location)
        values = [by_column.pop(name) for name in self.columns.captions]
        captions = parse_captions(values, location) if values else ()
        extra = {name: value.decode("utf-8", errors="backslashreplace") for name, value in by_column.items()}
        return Sample(str(index), location, path, captions, extra)

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("table", self._digest, self.columns)

    def _read_row(self, index: int, location: str) -> list[bytes]:
        """The cells of a row as bytes, one for each column of the header; BadSampleError if it can't be parsed."""
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        with open(self.path, "rb") as file:
            file.seek(start)
            lines = io.BytesIO(file.read(end - start))
        try:
            row = next(parse_rows((line.decode("latin-1") for line in lines), self._delimiter))
        except csv.Error as error:
            detail = "an unclosed quote" if "end of data" in str(error) else str(error)
            raise BadSampleError("unreadable row", location, detail) from None
        except StopIteration:
            raise BadSampleError("unreadable row", location, TABLE_CHANGED) from None
        return encode_cells(row, len(self._header), location)


def encode_cells(row: Sequence[str], num_columns: int, location: str) -> list[bytes]:
    """Check the number of cells of a row, and encode them as the bytes that the table has.

    Args:
        row: a row of the csv module, decoded as Latin-1.
        num_columns: number of cells that it must have.
        location: location of the sample, for the error.

    Returns:
        The cells, one per column.

    Raises:
        BadSampleError: If there are fewer cells; or more that are not empty: then an unquoted delimiter has cut a
            caption in two.
    """
    if len(row) < num_columns or any(row[num_columns:]):
        raise BadSampleError("unreadable row", location, f"{len(row)} cells for {num_columns} columns")
    return [cell.encode("latin-1") for cell in row[:num_columns]]


def parse_rows(lines: Iterator[str], delimiter: str, strict: bool = True) -> Iterator[list[str]]:
    """Parse lines with the csv module.

    Args:
        lines: lines of the table, decoded as Latin-1. That gives a character for every byte, so that text that isn't
            UTF-8 spoils one cell, not the table.
        delimiter: one character.
        strict: whether to raise csv.Error at malformed quotes.

    Returns:
        An iterator over rows, each a list of cells.
    """
    return csv.reader(lines, delimiter=delimiter, strict=strict)


class _TableLines:
    """Iterator over the lines of a table, for the csv module, which takes as many lines as a record has.

    end:          byte where the last line that was taken ends. So it is known where each record begins.
    num_columns:  number of columns; 0 until the caller has read the header and set it.
    image_column: index of the column of images; set with `num_columns`.
    delimiter:    one character.
    digest:       hash of all lines that were taken.

    Args:
        file: the open table, at the beginning of its text.
        path: path of the table, for errors and for the delimiter.
    """

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self.end = file.tell()
        self.num_columns, self.image_column = 0, 0
        self.delimiter = detect_delimiter(file, path)
        self.digest = hashlib.blake2b(digest_size=16)
        self._file, self._path = file, path
        self._start, self._first_line = self.end, ""  # first byte and first line of the current record

    def iter_records(self) -> Iterator[list[str]]:
        """Iterate over records, each a list of cells; [] for a blank line.

        A record with malformed quotes becomes [""] and ends with its first line; in the header it is a csv.Error.
        """
        reader = parse_rows(self, self.delimiter)
        while True:
            self._start, self._first_line = self.end, ""
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error:  # in a row it is reported later, when the row is read
                if not self.num_columns:
                    raise
                # Go on after the first line of the record, with a new parser: the old one is inside the quote.
                self._file.seek(self._start)
                self.end = self._start + len(self._file.readline(MAX_LINE_BYTES))
                reader = parse_rows(self, self.delimiter)
                yield [""]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Take a line, as Latin-1; csv.Error if the record should have ended before, ValueError if it is too long."""
        line = self._file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_BYTES:
            raise ValueError(
                f"{self._path}: the line at byte {self.end} is longer than 16 MB, so this is not a table"
            )
        self.end += len(line)
        self.digest.update(line)
        text = line.decode("latin-1")
        if self._first_line and self.num_columns > 1 and self._is_next_row(text):
            raise csv.Error("an unclosed quote")
        self._first_line = self._first_line or text
        return text

    def _is_next_row(self, line: str) -> bool:
        """Whether a line inside a quoted cell is rather the next row. See `CsvTable` for the rule."""
        cells = self._split_line(line)
        if len(cells) != self.num_columns:
            return False
        extensions = {*IMAGE_EXTENSIONS}
        cells_of_record = self._split_line(self._first_line)
        if self.image_column < len(
            cells_of_record
        ):  # unless the unclosed cell comes before the record's image
            extensions.add(_get_extension(cells_of_record[self.image_column]))
        return _get_extension(cells[self.image_column]) in extensions

    def _split_line(self, line: str) -> list[str]:
        """The cells of one line, as if it were a whole row; malformed quotes are accepted."""
        return next(parse_rows(iter([line]), self.delimiter, strict=False), [])


def _get_extension(path: str) -> str:
    """The extension of a path in lower case, with its dot; "" if it has none."""
    return os.path.splitext(path.strip())[1].lower()


def _index_rows(
    path: Path, image: str | None, captions: Sequence[str] | None
) -> tuple[str, list[str], TableColumns, np.ndarray, str]:
    """Read a table once: (delimiter, names in the header, chosen columns, offsets of rows, digest of the content).

    The offsets, int64 (N + 1,), are the bytes where the N rows begin and where the last one ends. ValueError if the
    table can't be read or lacks a column; a malformed row is not an error here.
    """
    with open(path, "rb") as file:
        skip_byte_order_mark(file, path)
        lines = _TableLines(file, path)
        records = lines.iter_records()
        header = read_header(records, path)
        columns = choose_columns(header, image, captions, str(path))
        lines.num_columns, lines.image_column = len(header), header.index(columns.image)
        starts, start = array("q"), lines.end
        for row in records:
            if row:  # blank lines are not rows
                starts.append(start)
            start = lines.end
    starts.append(lines.end)
    return lines.delimiter, header, columns, np.array(starts, dtype=np.int64), lines.digest.hexdigest()


def skip_byte_order_mark(file: BinaryIO, path: Path) -> None:
    """Seek to the beginning of the text, after the byte order mark if there is one.

    Args:
        file: an open file, at its beginning.
        path: path of the file, for the error.

    Raises:
        ValueError: If the text is UTF-16 or its lines end in CR.
    """
    block = file.read(2**16)
    if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} is encoded as UTF-16. Save the file as UTF-8.")
    if b"\n" not in block and b"\r" in block.rstrip(b"\r"):
        raise ValueError(f"{path}: the lines end in CR. Save the file with LF or CR LF at the end of lines.")
    file.seek(3 if block[:3] == b"\xef\xbb\xbf" else 0)


def detect_delimiter(file: BinaryIO, path: Path) -> str:
    """Return the delimiter of the file's extension; if the header doesn't contain it, the most frequent one there.

    Args:
        file: an open file, at the beginning of the text; its position is restored.
        path: path of the file, whose extension is read.

    Returns:
        One character.
    """
    start = file.tell()
    lines = iter(lambda: file.readline(MAX_LINE_BYTES), b"")
    line = next((line for line in lines if line.strip()), b"")  # the first that is not blank
    file.seek(start)
    header = line.decode("latin-1")
    usual = DELIMITERS.get(path.suffix.lower())
    if usual and usual in header:
        return usual
    return max((usual or "\t", "\t", ",", ";", "|"), key=header.count)


def read_header(rows: Iterator[list[str]], path: Path) -> list[str]:
    """Read the names of the columns from the first row that is not blank.

    Args:
        rows: rows of `parse_rows`; the header is taken from it.
        path: path of the table, for the error.

    Returns:
        The names, stripped.

    Raises:
        ValueError: If there is no such row, or if its quotes are malformed.
    """
    try:
        row = next((row for row in rows if row), None)
    except csv.Error as error:
        raise ValueError(f"{path}: the first row, which names the columns, can't be read: {error}") from None
    if row is None:
        raise ValueError(f"{path} is empty. The first row must name the columns.")
    return [cell.encode("latin-1").decode("utf-8", errors="backslashreplace").strip() for cell in row]
