"""Captions without pictures: lines of a text, a column of a table, a list; of any length, read one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import SingleChunkSource, Source, compute_fingerprint, require_captions, require_index
from prolip.data.sources.caption_columns import caption_columns, sample_of
from prolip.data.sources.caption_lines import LineCaptions, TableCaptions
from prolip.data.sources.columns import ArrowRows, reading, drop_map_keys
from prolip.data.sources.csv_table import DELIMITERS
from prolip.extras import import_extra


def open_captions(path: str | Path, captions: Sequence[str] | None = None) -> Source:
    """The captions of a file, as samples without pictures: image is b"".

    .parquet, .csv, .tsv: a row a sample; captions: names of columns, by default the first that is there of
    CAPTION_COLUMNS. .json: a list of texts, or of lists of them. Any other: a line a sample.
    A text with => holds several captions, as HierarCaps has them.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of captions")
    source = _opened(path, path.suffix.lower(), captions)
    if not len(source):
        raise ValueError(f"{path} has no caption")
    require_captions(source)
    return source


def iter_captions(source: Source) -> Iterator[str]:
    """Every caption of a source, in its order. Blank samples are left out; any other bad one is an error."""
    for number in range(len(source)):
        try:
            yield from source.read(number).captions
        except BadSampleError as error:
            if error.record.reason not in ("empty caption", "no caption"):
                raise ValueError(f"{source.name} can't be read: {error}") from None


def _opened(path: Path, ending: str, captions: Sequence[str] | None) -> Source:
    if ending == ".parquet":
        return ParquetCaptions(path, captions)
    if ending in DELIMITERS:
        return TableCaptions(path, captions)
    if captions is not None:
        raise ValueError(f"{path} has no columns to choose captions from; leave captions out")
    return ListedCaptions(path) if ending == ".json" else LineCaptions(path)


class ListedCaptions(SingleChunkSource):
    """A JSON list of texts, or of lists of texts; in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes()
        try:
            self._values = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} can't be read: {error}") from None
        if not isinstance(self._values, list):
            raise ValueError(f"{path} must hold a list of texts")
        self._digest = hashlib.blake2b(content).hexdigest()

    def __len__(self) -> int:
        return len(self._values)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        return sample_of(index, f"{self.path}: caption {index + 1}", [self._values[index]], {})

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("list of captions", self._digest)


class ParquetCaptions:
    """Rows of a Parquet file; columns that may hold images are not read. The last two row groups stay in memory."""

    def __init__(self, path: Path, captions: Sequence[str] | None = None) -> None:
        parquet = import_extra("pyarrow.parquet", "data")
        self.path = path
        with reading(path), parquet.ParquetFile(path) as opened:
            schema, facts = opened.schema_arrow, opened.metadata
            self.columns = caption_columns(schema.names, captions, path)
            self._read = [f.name for f in schema if f.name in self.columns or not _may_hold_image(f.type)]
            rows = [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]
        with open(path, "rb") as file:
            self._digest = hashlib.file_digest(file, "blake2b").hexdigest()
        self._groups = np.array(rows, dtype=np.int64)
        self._ends = np.cumsum(self._groups)
        self._loaded: dict[int, ArrowRows] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def chunks(self) -> np.ndarray:
        return self._groups[self._groups > 0]

    def __len__(self) -> int:
        return int(self._groups.sum())

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        where = f"{self.path}: row {index + 1}"
        number = int(np.searchsorted(self._ends, index, side="right"))
        cells = self._group(number, where).row(index - int(self._ends[number] - self._groups[number]), where)
        values = [drop_map_keys(cells.pop(name)) for name in self.columns]
        return sample_of(index, where, values, cells)

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("parquet of captions", self._digest, self.columns)

    def _group(self, number: int, where: str) -> ArrowRows:
        loaded = self._loaded.get(number)
        if loaded is None:
            loaded = self._load(number, where)
            before = dict(list(self._loaded.items())[-1:])  # threads may be at two groups
            self._loaded = {**before, number: loaded}
        return loaded

    def _load(self, number: int, where: str) -> ArrowRows:
        parquet = import_extra("pyarrow.parquet", "data")
        try:
            with (
                reading(self.path),
                parquet.ParquetFile(self.path, page_checksum_verification=True) as opened,
            ):
                loaded = ArrowRows(opened.read_row_group(number, self._read, use_threads=False))
            if len(loaded) != self._groups[number]:
                raise ValueError(f"{self.path} has changed since it was opened")
        except (ValueError, IndexError) as error:
            raise BadSampleError("unreadable row", where, str(error)) from None
        return loaded


def _may_hold_image(kind: Any) -> bool:
    """Of a pyarrow type: bytes, or Hugging Face's struct of bytes and a path."""
    types = import_extra("pyarrow", "data").types
    tests = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
        types.is_struct,
    )
    return any(is_kind(kind) for is_kind in tests)
