"""Captions without images: lines of a text, columns of a table, or a JSON list; read one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import (
    SingleChunkSource,
    Source,
    compute_fingerprint,
    require_index,
    require_usable_sample,
)
from prolip.data.sources.arrow import ArrowPart, ArrowSource, read_parquet_parts, read_row_group
from prolip.data.sources.caption_lines import (
    LineCaptions,
    TableCaptions,
    make_caption_sample,
    require_caption_columns,
)
from prolip.data.sources.columns import drop_map_keys
from prolip.data.sources.csv_table import DELIMITERS
from prolip.extras import import_extra


def open_captions(path: str | Path, captions: Sequence[str] | None = None) -> Source:
    """Open a file of captions, as samples without images (image is b"").

    Args:
        path: .parquet, .csv, .tsv: one row per sample. .json: a list of texts, or of lists of them. Any other: one line
            per sample. A text with => holds several captions, as in HierarCaps.
        captions: names of columns of a table; None: the first of CAPTION_COLUMNS that is present.

    Returns:
        The captions as a source of at least one sample.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no captions, or can't be read.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of captions")
    source = _open_by_extension(path, path.suffix.lower(), captions)
    if not len(source):
        raise ValueError(f"{path} has no captions")
    require_usable_sample(source)
    return source


def iter_captions(source: Source) -> Iterator[str]:
    """Iterate over all captions of a source, in order.

    Args:
        source: the data. Samples without captions are skipped.

    Yields:
        The captions.

    Raises:
        ValueError: At any other bad sample.
    """
    for index in range(len(source)):
        try:
            yield from source.read(index).captions
        except BadSampleError as error:
            if error.record.reason not in ("empty caption", "no caption"):
                raise ValueError(f"{source.name} can't be read: {error}") from None


def _open_by_extension(path: Path, extension: str, captions: Sequence[str] | None) -> Source:
    """Open a file by its extension, which is in lower case; ValueError if columns are named but the format has none."""
    if extension == ".parquet":
        return ParquetCaptions(path, captions)
    if extension in DELIMITERS:
        return TableCaptions(path, captions)
    if captions is not None:
        raise ValueError(f"{path} has no columns to choose captions from. Leave out captions (--captions).")
    return JsonCaptions(path) if extension == ".json" else LineCaptions(path)


class JsonCaptions(SingleChunkSource):
    """A JSON list of texts, or of lists of texts; in memory."""

    def __init__(self, path: Path) -> None:
        """Read the whole file; ValueError if it is not a JSON list."""
        self.path = path
        content = path.read_bytes()
        try:
            self._values = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} can't be read as JSON: {error}") from None
        if not isinstance(self._values, list):
            raise ValueError(
                f"{path} must contain a JSON list of texts, or of lists of texts, not a {type(self._values).__name__}"
            )
        self._digest = hashlib.blake2b(content).hexdigest()

    def __len__(self) -> int:
        return len(self._values)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        return make_caption_sample(index, f"{self.path}: caption {index + 1}", [self._values[index]], {})

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("list of captions", self._digest)


class ParquetCaptions(ArrowSource):
    """Rows of a Parquet file; columns that may hold images are not read. The last two row groups stay in memory.

    Args:
        path: path of the file.
        captions: names of columns; None: the first of CAPTION_COLUMNS that is present.
    """

    max_parts = 2
    max_bytes = float("inf")

    def __init__(self, path: Path, captions: Sequence[str] | None = None) -> None:
        """Read the footer, choose the columns, and read the whole file once for its digest."""
        schema, parts = read_parquet_parts(path)
        super().__init__(str(path), parts)
        self.path = path
        self.columns = require_caption_columns(schema.names, captions, path)
        self._columns_to_read = [
            field.name for field in schema if field.name in self.columns or not _may_hold_image(field.type)
        ]
        with open(path, "rb") as file:
            self._digest = hashlib.file_digest(file, "blake2b").hexdigest()

    def fingerprint(self) -> str:
        return compute_fingerprint("parquet of captions", self._digest, self.columns)

    def files(self) -> list[Path]:
        return [self.path]

    def _load(self, part: ArrowPart) -> Any:
        return read_row_group(part, self._columns_to_read)

    def _make_sample(self, index: int, location: str, part: ArrowPart, row: dict[str, object]) -> Sample:
        values = [drop_map_keys(row.pop(name)) for name in self.columns]
        return make_caption_sample(index, location, values, extra=row)


def _may_hold_image(arrow_type: Any) -> bool:
    """Whether values of a pyarrow type may be images: bytes, or a struct, such as Hugging Face's of bytes and path."""
    types = import_extra("pyarrow", "data").types
    predicates = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
        types.is_struct,
    )
    return any(is_type(arrow_type) for is_type in predicates)
