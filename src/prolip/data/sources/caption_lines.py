"""Captions without images in text files: one per line, or in the rows of a CSV or TSV table."""

from __future__ import annotations

import csv
import hashlib
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import choose_caption_columns
from prolip.data.sources.csv_table import (
    MAX_LINE_BYTES,
    TABLE_CHANGED,
    detect_delimiter,
    encode_cells,
    parse_rows,
    read_header,
    skip_byte_order_mark,
)
from prolip.data.sources.folder import MAX_TEXT_BYTES
from prolip.data.sources.hierarcaps import CAPTION_SEPARATOR

BLOCK = 2**24
"""Bytes of a text that are searched together for the ends of lines."""
LINE_FEED, CARRIAGE_RETURN = b"\n\r"


def make_caption_sample(
    index: int, location: str, values: Iterable[object], extra: Mapping[str, object]
) -> Sample:
    """Make a sample without an image.

    Args:
        index: index of the sample, which is also its key.
        location: location of the sample, for messages.
        values: its captions, as for `parse_captions`; a text with => holds several, as in HierarCaps.
        extra: everything else of the sample.

    Returns:
        The sample; its image is b"".

    Raises:
        BadSampleError: If there is no caption.
    """
    captions = parse_captions([_split_caption(value) for value in values], location)
    return Sample(str(index), location, b"", captions, extra)


def require_caption_columns(
    present: Sequence[str], captions: Sequence[str] | None, path: Path
) -> tuple[str, ...]:
    """Choose the columns of captions as `choose_caption_columns` does; at least one.

    Args:
        present: names of the columns of the table.
        captions: names of the columns wanted; None: the first usual name that is present.
        path: path of the table, for the error.

    Returns:
        The names of the columns.

    Raises:
        ValueError: If a column is not present, or if no column is wanted.
    """
    chosen = choose_caption_columns(present, captions, str(path))
    if not chosen:
        raise ValueError(
            f"{path}: no column of captions was chosen. Name at least one with captions= (--captions)."
        )
    return chosen


def _split_caption(value: object) -> object:
    """Split a text, or each text of nested lists, at =>; other values are returned as they are.

    Bytes can be split as well: in UTF-8 no other character contains these bytes.
    """
    if isinstance(value, str):
        return value.split(CAPTION_SEPARATOR)
    if isinstance(value, bytes):
        return value.split(CAPTION_SEPARATOR.encode())
    return [_split_caption(item) for item in value] if isinstance(value, list) else value


class _OffsetSource(SingleChunkSource):
    """Captions in a text file, of which it is known at which byte each sample begins; memory: 8 bytes per sample.

    In messages, samples are numbered from 1. The constructor reads the file twice, for its digest and for the offsets.
    """

    def __init__(self, path: Path) -> None:
        """Find the offsets of the samples in a file; ValueError if it is UTF-16 or has lines that end in CR."""
        self.path = path
        with open(path, "rb") as file:
            skip_byte_order_mark(file, path)  # refuses UTF-16 and CR
            file.seek(0)
            self._digest = hashlib.file_digest(file, "blake2b").hexdigest()
        self._offsets = self._find_offsets()

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, index: int) -> Sample:
        """Read a sample without an image, as `Source.read`; the file is opened for each."""
        require_index(index, len(self))
        location = f"{self.path}: caption {index + 1}"
        with open(self.path, "rb") as file:
            file.seek(self._offsets[index])
            values, extra = self._read_values(file, location)
        return make_caption_sample(index, location, values, extra)

    def files(self) -> list[Path]:
        return [self.path]

    @abstractmethod
    def _find_offsets(self) -> np.ndarray:
        """Find the bytes of the file where samples begin: int64 (N,)."""

    @abstractmethod
    def _read_values(self, file: BinaryIO, location: str) -> tuple[list[bytes], Mapping[str, str]]:
        """Read the sample at the position of the file: (captions as UTF-8, everything else of the sample by name)."""


class LineCaptions(_OffsetSource):
    """One caption per line (UTF-8). Empty lines are not counted."""

    def fingerprint(self) -> str:
        return compute_fingerprint("lines", self._digest)

    def _find_offsets(self) -> np.ndarray:
        """Find the bytes where the lines begin that are not empty, int64 (N,).

        The memory-mapped file is searched block by block.
        """
        if not self.path.stat().st_size:
            return np.zeros(0, dtype=np.int64)
        content: np.ndarray = np.memmap(self.path, mode="r")
        line_feeds = [  # their offsets in the file, block by block
            np.flatnonzero(content[start : start + BLOCK] == LINE_FEED) + start
            for start in range(0, len(content), BLOCK)
        ]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), *(offsets + 1 for offsets in line_feeds)])
        starts = starts[starts < len(content)]  # no line begins after a final line feed
        second_bytes = content[np.minimum(starts + 1, len(content) - 1)]
        is_empty = content[starts] == LINE_FEED
        is_empty |= (content[starts] == CARRIAGE_RETURN) & (second_bytes == LINE_FEED)
        return np.asarray(starts[~is_empty])

    def _read_values(self, file: BinaryIO, location: str) -> tuple[list[bytes], Mapping[str, str]]:
        """The line as the only caption, and no other values; BadSampleError if it is longer than 1 MB."""
        line = file.readline(MAX_TEXT_BYTES + 1)
        if len(line) > MAX_TEXT_BYTES:
            raise BadSampleError("unreadable caption", location, "the line is longer than 1 MB")
        return [line], {}


class TableCaptions(_OffsetSource):
    """Rows of a CSV or TSV file (UTF-8) whose first row names the columns; no image is looked for.

    Quotes follow RFC 4180. An unclosed quote looks like a long caption, and without an image `CsvTable`'s rule can't
    find it: a table with one is refused as a whole, with the number of the row.

    Args:
        path: .csv, .tsv or .tab.
        captions: names of columns; None: the first of CAPTION_COLUMNS that is present.
    """

    def __init__(self, path: Path, captions: Sequence[str] | None = None) -> None:
        self._requested_captions = captions
        super().__init__(path)

    def fingerprint(self) -> str:
        return compute_fingerprint("table of captions", self._digest, self.columns)

    def _find_offsets(self) -> np.ndarray:
        """Find the bytes where the rows begin that are not blank, int64 (N,).

        Reads the header first, and sets `_delimiter`, `_header` and `columns`.

        ValueError if a row can't be parsed: rows after it might be misread.
        """
        offsets = array("q")
        with open(self.path, "rb") as file:
            skip_byte_order_mark(file, self.path)
            self._delimiter = detect_delimiter(file, self.path)
            rows = self._iter_rows(file)
            self._header = read_header(rows, self.path)
            self.columns = require_caption_columns(self._header, self._requested_captions, self.path)
            start = file.tell()
            try:
                for row in rows:
                    if row:  # blank lines are not rows
                        offsets.append(start)
                    start = file.tell()
            except csv.Error as error:
                raise ValueError(f"{self.path}: row {len(offsets) + 1} can't be read: {error}") from None
        return np.array(offsets, dtype=np.int64)

    def _read_values(self, file: BinaryIO, location: str) -> tuple[list[bytes], Mapping[str, str]]:
        """The caption columns of a row, and its other columns as texts; BadSampleError if the row has changed."""
        try:
            row = next(self._iter_rows(file), [])
        except csv.Error:
            raise BadSampleError("unreadable row", location, TABLE_CHANGED) from None
        by_column = dict(zip(self._header, encode_cells(row, len(self._header), location), strict=True))
        captions = [by_column.pop(name) for name in self.columns]
        return captions, {
            name: value.decode("utf-8", "backslashreplace") for name, value in by_column.items()
        }

    def _iter_rows(self, file: BinaryIO) -> Iterator[list[str]]:
        """Rows of the table from the position of the file on, decoded as Latin-1; csv.Error at malformed quotes."""
        return parse_rows(self._iter_lines(file), self._delimiter)

    def _iter_lines(self, file: BinaryIO) -> Iterator[str]:
        """Lines from the position of the file on, as Latin-1, which keeps every byte; csv.Error at one of 16 MB."""
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise csv.Error(
                    "a line is longer than 16 MB, so this is not a table, or a quote is not closed"
                )
            yield line.decode("latin-1")
