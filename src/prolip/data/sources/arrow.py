"""Parquet files and Hugging Face data sets on disk (`save_to_disk`): one row per sample."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import compute_fingerprint, require_index
from prolip.data.sources.columns import (
    ArrowRows,
    TableColumns,
    arrow_errors,
    check_image_column,
    choose_columns,
    drop_map_keys,
    parse_image,
    require_file,
)
from prolip.extras import import_extra
from prolip.files import read_json


class ArrowPart(NamedTuple):
    """The rows that are loaded together: a row group of a Parquet file, or a whole Arrow file.

    path:      the file.
    num_rows:  number of rows of the part.
    row_group: index of the row group; 0 for an Arrow file.
    first_row: index of the part's first row in the file.
    file_size: size of an Arrow file when it was opened, in bytes; None for Parquet.
    """

    path: Path
    num_rows: int
    row_group: int = 0
    first_row: int = 0
    file_size: int | None = None

    def has_changed(self) -> bool:
        """Return whether a memory-mapped (Arrow) file has another size than when it was opened.

        False for a deleted file: it stays readable as it was, while it is mapped. Always False for Parquet.
        """
        try:
            return self.file_size is not None and self.path.stat().st_size != self.file_size
        except FileNotFoundError:
            return False


class ArrowSource(ABC):
    """Rows of Arrow tables as a source, in parts, of which the last used stay in memory.

    In messages, rows are numbered from 1 in each file.

    Args:
        name: path or pattern that a user gave, for messages.
        parts: the parts in order; empty ones are dropped.
    """

    max_parts: ClassVar[int] = 64  # that stay loaded, in each process
    max_bytes: ClassVar[float]  # of the tables that stay loaded, in each process

    def __init__(self, name: str, parts: Sequence[ArrowPart]) -> None:
        self.name = name
        self._parts = [part for part in parts if part.num_rows]
        # Index, counted through all parts, of the row after each part.
        self._ends = np.cumsum([part.num_rows for part in self._parts], dtype=np.int64)
        # Indices of rows, counted through the files; None: all rows in the order of the files.
        self._order: np.ndarray | None = None
        # By index of the part, the last used one at the end: its rows, or the message of why it can't be read.
        self._loaded: dict[int, ArrowRows | str] = {}

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the loaded parts: a worker process loads its own."""
        return {**self.__dict__, "_loaded": {}}

    def __len__(self) -> int:
        if self._order is not None:
            return len(self._order)
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def chunks(self) -> np.ndarray:
        return np.array([part.num_rows for part in self._parts], dtype=np.int64)

    def files(self) -> list[Path]:
        return list(dict.fromkeys(part.path for part in self._parts))

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`. Loads the part of its row, unless it is among those in memory."""
        require_index(index, len(self))
        row = index if self._order is None else int(self._order[index])
        part_index = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[part_index]
        row_in_part = row - (int(self._ends[part_index]) - part.num_rows)
        location = f"{part.path}: row {part.first_row + row_in_part + 1}"
        values = self._get_rows(part_index, location).row(row_in_part, location)
        return self._make_sample(index, location, part, values)

    def _get_rows(self, part_index: int, location: str) -> ArrowRows:
        """The rows of a part, from memory or loaded now; BadSampleError if the part can't be read.

        Caches the rows, or the error: all rows of the part have it.
        """
        part = self._parts[part_index]
        changed_message = f"{part.path} has changed since it was opened"
        if part.has_changed():
            raise BadSampleError("unreadable row", location, changed_message)
        rows = self._loaded.get(part_index)
        if rows is None:
            try:
                with arrow_errors(part.path):
                    rows = ArrowRows(self._load(part))
                if len(rows) != part.num_rows:
                    raise ValueError(changed_message)
            except (ValueError, IndexError) as error:
                rows = str(error)
        self._cache_rows(part_index, rows)
        if isinstance(rows, str):
            raise BadSampleError("unreadable row", location, rows)
        return rows

    def _cache_rows(self, part_index: int, rows: ArrowRows | str) -> None:
        """Cache a part (its rows or its error message) as the last used one.

        Drops those that were not used for longest, until `max_parts` and `max_bytes` are kept.
        """
        if next(reversed(self._loaded), None) == part_index:
            return
        # Several threads may read. So the dict is replaced, never changed: each of them sees a complete one.
        loaded = {key: value for key, value in self._loaded.items() if key != part_index}
        used_bytes = sum(getattr(other, "nbytes", 0) for other in (rows, *loaded.values()))
        while loaded and (len(loaded) >= self.max_parts or used_bytes > self.max_bytes):
            used_bytes -= getattr(loaded.pop(next(iter(loaded))), "nbytes", 0)
        self._loaded = {**loaded, part_index: rows}

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a digest that changes with the data, as `Source.fingerprint`."""

    @abstractmethod
    def _load(self, part: ArrowPart) -> Any:
        """Load the pyarrow table of a part."""

    @abstractmethod
    def _make_sample(self, index: int, location: str, part: ArrowPart, row: dict[str, object]) -> Sample:
        """Make the sample of a row, {column: value}; may remove values from `row`. BadSampleError if it is bad."""


class _ImageRows(ArrowSource):
    """Rows with an image and captions. A path is relative to `folder`; None: to the folder of the row's file.

    An image is bytes, a path, or Hugging Face's struct of both, of which the bytes count first. Captions are a text,
    a list of texts, the values of a map, or several columns of them.
    """

    def __init__(
        self, name: str, parts: Sequence[ArrowPart], columns: TableColumns, folder: Path | None
    ) -> None:
        """Set the columns of image and captions, and the folder that image paths are relative to."""
        super().__init__(name, parts)
        self.columns, self._folder = columns, folder

    def _make_sample(self, index: int, location: str, part: ArrowPart, row: dict[str, object]) -> Sample:
        """The sample of a row: image and captions from their columns, all other columns in `extra`."""
        image = parse_image(row.pop(self.columns.image), self._folder or part.path.parent, location)
        values = [drop_map_keys(row.pop(name)) for name in self.columns.captions]
        captions = parse_captions(values, location) if values else ()
        return Sample(str(index), location, image, captions, extra=row)


class ParquetTable(_ImageRows):
    """Rows of a Parquet file, of all in a folder (not below it), or of all that a glob matches, by name.

    A row group is read whole, and the last ones stay in memory, up to 1 GB per process. The loader shuffles a window of
    row groups at a time: if they need more memory than that, it reads them again and again; then make its window
    smaller.

    Args:
        path: a file, a folder or a glob.
        image, captions: names of columns, as for `CsvTable`.
        folder: folder that image paths are relative to; None: the folder of each file.
    """

    max_bytes = 2.0**30

    def __init__(
        self,
        path: str | Path,
        *,
        image: str | None = None,
        captions: Sequence[str] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Read the footers of all files, check that they have the columns, and hash them for the fingerprint."""
        parts, columns, digest = [], None, hashlib.blake2b(digest_size=16)
        for file in _list_parquet_files(path):
            schema, file_parts = read_parquet_parts(file)
            if columns is None:
                columns = choose_columns(schema.names, image, captions, str(file))
            check_image_column(schema, columns, file)
            digest.update(f"{file.name} {file.stat().st_size}".encode() + _read_footer(file))
            parts += file_parts
        assert columns is not None  # there is a file
        super().__init__(str(path), parts, columns, None if folder is None else Path(folder))
        self._digest = digest.hexdigest()

    def fingerprint(self) -> str:
        return compute_fingerprint("parquet", self._digest, self.columns)

    def _load(self, part: ArrowPart) -> Any:
        return read_row_group(part)


class ArrowDataset(_ImageRows):
    """A data set of Hugging Face, as `save_to_disk` wrote it; memory-mapped.

    Image paths are relative to the folder. Rows that were selected or shuffled come in the order of the data set.

    Reading a mapped file behind the byte where it was cut off kills the process (SIGBUS). So its size is checked
    before each row; a file that is cut between the check and the read still kills it.

    Args:
        path: the folder.
        split: name of a split of a DatasetDict; None: its only one.
        image, captions: names of columns, as for `CsvTable`.
    """

    max_bytes = float("inf")  # mapped: the operating system decides what stays in memory

    def __init__(
        self,
        path: str | Path,
        *,
        split: str | None = None,
        image: str | None = None,
        captions: Sequence[str] | None = None,
    ) -> None:
        """Map all files, check that they have the columns, and read which rows were selected."""
        import_extra("pyarrow", "data")
        folder = resolve_split_folder(Path(path), split)
        state = read_json(folder / "state.json")
        files = list_data_files(folder, state, "_data_files")
        if not files:
            raise ValueError(f"{folder / 'state.json'} names no files under '_data_files'")
        parts, batch_sizes, columns = [], [], None
        for file in files:
            require_file(file)
            file_size = file.stat().st_size  # before it is mapped
            table = open_arrow_file(file)
            columns = columns or choose_columns(table.schema.names, image, captions, str(folder))
            check_image_column(table.schema, columns, file)
            batch_sizes += [batch.num_rows for batch in table.to_batches() if batch.num_rows]
            parts.append(ArrowPart(file, table.num_rows, file_size=file_size))
        assert columns is not None
        super().__init__(str(path), parts, columns, folder)
        self._order = self._read_row_order(list_data_files(folder, state, "_indices_data_files"))
        self._batch_sizes = np.array(batch_sizes, dtype=np.int64)
        sizes = [(part.path.name, part.file_size) for part in parts]
        self._digest = compute_fingerprint(
            "arrow", state.get("_fingerprint"), sizes, batch_sizes, self.columns
        )

    @property
    def chunks(self) -> np.ndarray:
        return self._batch_sizes if self._order is None else np.array([len(self)], dtype=np.int64)

    def fingerprint(self) -> str:
        order = None if self._order is None else hashlib.blake2b(self._order.tobytes()).hexdigest()
        return compute_fingerprint(self._digest, order)

    def _read_row_order(self, files: Sequence[Path]) -> np.ndarray | None:
        """Read the row of each sample, integers (N,), if the data set is a selection of the rows in its data files.

        `files` hold the selection; None if there are no such files. ValueError if it names rows that don't exist.
        """
        if not files:
            return None
        tables = [open_arrow_file(file) for file in files]
        if any(table.schema.names != ["indices"] for table in tables):
            raise ValueError(f"{files[0]} must have one column, 'indices'")
        order = np.concatenate([table.column("indices").to_numpy() for table in tables])
        total = len(self)  # of the files: there is no order yet
        if order.dtype.kind not in "ui" or (len(order) and not 0 <= order.min() <= order.max() < total):
            raise ValueError(f"{files[0]}: the indices must be row indices below {total}, the number of rows")
        return order

    def _load(self, part: ArrowPart) -> Any:
        return open_arrow_file(part.path)


def read_parquet_parts(path: Path) -> tuple[Any, list[ArrowPart]]:
    """Read the footer of a Parquet file.

    Args:
        path: path of the file.

    Returns:
        (schema, parts): a pyarrow schema, and one part per row group.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged or no Parquet file.
    """
    parquet = import_extra("pyarrow.parquet", "data")
    require_file(path)
    with arrow_errors(path), parquet.ParquetFile(path) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0:
        raise ValueError(f"{path} is damaged: its row groups don't add up to {metadata.num_rows} rows")
    first_rows = np.cumsum([0, *rows])
    return schema, [ArrowPart(path, count, group, int(first_rows[group])) for group, count in enumerate(rows)]


def read_row_group(part: ArrowPart, columns: Sequence[str] | None = None) -> Any:
    """Read a row group of a Parquet file, and verify its checksums; pyarrow's errors are not translated.

    Args:
        part: the row group.
        columns: names of columns; None: all.

    Returns:
        A pyarrow table.
    """
    parquet = import_extra("pyarrow.parquet", "data")
    with parquet.ParquetFile(part.path, page_checksum_verification=True) as opened:
        # Without threads: the loader has workers of its own.
        return opened.read_row_group(part.row_group, columns, use_threads=False)


def _list_parquet_files(spec: str | Path) -> list[Path]:
    """The files of a path, folder or glob, sorted; FileNotFoundError or (for a folder) ValueError if it has none."""
    path = Path(spec)
    if path.is_dir():
        files = sorted(file for file in path.glob("[!.]*") if file.suffix.lower() == ".parquet")
        if not files:
            raise ValueError(f"{path} has no .parquet files")
        return files
    if path.exists():
        return [path]
    files = sorted(Path(name) for name in glob(str(spec), recursive=True))
    if not files:
        raise FileNotFoundError(f"{spec}: no such file, and as a glob it matches none")
    return files


def _read_footer(path: Path) -> bytes:
    """The metadata of a valid Parquet file, as bytes: sizes and statistics of all its columns.

    The file ends with the metadata, their length as 4 bytes, and the 4 bytes "PAR1".
    """
    with open(path, "rb") as file:
        end = file.seek(-8, 2)
        file.seek(end - int.from_bytes(file.read(4), "little"))
        return file.read(end - file.tell())


def read_split_names(path: Path) -> list[str]:
    """Read the names of the splits of a DatasetDict.

    Args:
        path: folder of the DatasetDict, with dataset_dict.json.

    Returns:
        The names; at least one.

    Raises:
        ValueError: If dataset_dict.json names none.
    """
    splits = read_json(path / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits or not all(isinstance(name, str) for name in splits):
        raise ValueError(f"{path / 'dataset_dict.json'} must have a list of names of splits, 'splits'")
    return splits


def resolve_split_folder(path: Path, split: str | None) -> Path:
    """Find the folder of a split.

    Args:
        path: folder of a Dataset or DatasetDict.
        split: name of the split; None: the only one.

    Returns:
        The folder of the split; of a data set without splits the folder itself.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If there is no such split, or if there are several and none was named.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such folder")
    if not (path / "dataset_dict.json").is_file():
        if split is not None:
            raise ValueError(f"{path} has no splits, so there is no split {split!r}. Leave out split.")
        if not (path / "state.json").is_file():
            raise ValueError(f"{path} has no state.json: it was not written by save_to_disk of `datasets`")
        return path
    splits = read_split_names(path)
    if split is None and len(splits) > 1:
        raise ValueError(
            f"{path} has several splits: {join_names(splits, 12)}. Open one of them: {path / splits[0]}"
        )
    if split is not None and split not in splits:
        raise ValueError(f"{path} has no split {split!r}. Its splits are {join_names(splits, 12)}")
    return path / (splits[0] if split is None else split)


def list_data_files(folder: Path, state: Mapping[str, object], key: str) -> list[Path]:
    """List the files that a state.json names.

    Args:
        folder: folder of the state.json.
        state: content of the state.json.
        key: key of its list of entries {"filename": ...}, such as "_data_files".

    Returns:
        Paths of the files; [] if there is no such key. They need not exist.

    Raises:
        ValueError: If there is something else than such entries under the key.
    """
    entries = state.get(key) or []
    entries = entries if isinstance(entries, list) else [entries]
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{folder / 'state.json'}: {key} must be a list of objects with a 'filename'")
    return [folder / str(name) for name in names]


def open_arrow_file(path: Path) -> Any:
    """Memory-map a file of the Arrow stream format; no copy is made.

    Args:
        path: path of the file.

    Returns:
        A pyarrow table.

    Raises:
        DamagedFileError: If it is damaged or of another format.
    """
    arrow = import_extra("pyarrow", "data")
    require_file(path)
    with arrow_errors(path):
        return arrow.ipc.open_stream(arrow.memory_map(str(path))).read_all()
