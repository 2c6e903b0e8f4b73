"""Parquet files, and Hugging Face data sets that `save_to_disk` wrote: a row a sample, its image in it or beside it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import compute_fingerprint, require_index
from prolip.data.sources.columns import (
    Columns,
    ArrowRows,
    check_image_column,
    choose_columns,
    image_of,
    reading,
    require_file,
    drop_map_keys,
)
from prolip.extras import import_extra
from prolip.files import read_json


class Part(NamedTuple):
    """What is loaded at a time: a row group of a Parquet file (`first`: its first row there), or a whole Arrow file.

    size: of an Arrow file, in bytes.
    """

    path: Path
    rows: int
    group: int = 0
    first: int = 0
    size: int | None = None

    def has_changed(self) -> bool:
        """Whether a mapped file has another size than when it was opened. One that was deleted stays as it was."""
        try:
            return self.size is not None and self.path.stat().st_size != self.size
        except FileNotFoundError:
            return False


class _Rows(ABC):
    """Rows in parts, of which the last few stay loaded.

    An image is bytes, a path, or Hugging Face's struct of both, of which the bytes count first. Captions are a text,
    a list of texts, the values of a map, or several columns of them. Rows are numbered from 1 in each file.
    """

    keep: ClassVar[int] = 64  # parts that stay loaded, in each process
    keep_bytes: ClassVar[float]

    def __init__(self, name: str, parts: Sequence[Part], columns: Columns, folder: Path | None) -> None:
        self.name = name
        self.columns = columns
        self._parts = [part for part in parts if part.rows]
        self._ends = np.cumsum([part.rows for part in self._parts], dtype=np.int64)
        self._folder = folder
        self._order: np.ndarray | None = None  # the rows that count, if not all as they lie
        self._loaded: dict[int, ArrowRows | str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}

    def __len__(self) -> int:
        if self._order is not None:
            return len(self._order)
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    @abstractmethod
    def chunks(self) -> np.ndarray: ...

    def files(self) -> list[Path]:
        return list(dict.fromkeys(part.path for part in self._parts))

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        row = index if self._order is None else int(self._order[index])
        number = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[number]
        row -= int(self._ends[number]) - part.rows
        where = f"{part.path}: row {part.first + row + 1}"
        cells = self._rows(number, where).row(row, where)
        image = image_of(cells.pop(self.columns.image), self._folder or part.path.parent, where)
        values = [drop_map_keys(cells.pop(name)) for name in self.columns.captions]
        return Sample(str(index), where, image, parse_captions(values, where) if values else (), cells)

    def _rows(self, number: int, where: str) -> ArrowRows:
        """The rows of a part. One that can't be read is remembered too: each of its rows is told so."""
        part = self._parts[number]
        changed = f"{part.path} has changed since it was opened"
        if part.has_changed():
            raise BadSampleError("unreadable row", where, changed)
        rows = self._loaded.pop(number, None)
        if rows is None:
            try:
                with reading(part.path):
                    rows = ArrowRows(self._load(part))
                if len(rows) != part.rows:
                    raise ValueError(changed)
            except ValueError as error:
                rows = str(error)
            self._make_room(rows)
        self._loaded[number] = rows  # the last one used comes last
        if isinstance(rows, str):
            raise BadSampleError("unreadable row", where, rows)
        return rows

    def _make_room(self, rows: ArrowRows | str) -> None:
        held = sum(getattr(other, "nbytes", 0) for other in (rows, *self._loaded.values()))
        while self._loaded and (len(self._loaded) >= self.keep or held > self.keep_bytes):
            held -= getattr(self._loaded.pop(next(iter(self._loaded))), "nbytes", 0)

    @abstractmethod
    def _load(self, part: Part) -> Any:
        """The pyarrow table of a part."""


class ParquetTable(_Rows):
    """Rows of a Parquet file, of all in a folder (not below it), or of all that a glob finds, by name.

    image, captions: names of columns, as for `CsvTable`. folder: what image paths are relative to; by default the
    folder of each file.

    A row group is read whole, and the last ones stay in memory, up to 1 GB a process. The loader shuffles a window of
    row groups at a time: if they are more than that, it reads them over and over; then make its window smaller.
    """

    keep_bytes = 2.0**30

    def __init__(
        self,
        path: str | Path,
        *,
        image: str | None = None,
        captions: Sequence[str] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        parquet = import_extra("pyarrow.parquet", "data")
        parts, columns, facts = [], None, hashlib.blake2b(digest_size=16)
        for file in _parquet_files(path):
            require_file(file)
            with reading(file), parquet.ParquetFile(file) as opened:
                schema, groups = opened.schema_arrow, opened.metadata
                rows = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
            if sum(rows) != groups.num_rows or min(rows, default=0) < 0:
                raise ValueError(f"{file} is damaged: its row groups don't have the rows that it claims")
            if columns is None:
                columns = choose_columns(schema.names, image, captions, str(file))
            check_image_column(schema, columns, file)
            facts.update(f"{file.name} {file.stat().st_size}".encode() + _footer(file))
            firsts = np.cumsum([0, *rows])
            parts += [Part(file, count, group, int(firsts[group])) for group, count in enumerate(rows)]
        assert columns is not None  # there is a file
        super().__init__(str(path), parts, columns, None if folder is None else Path(folder))
        self._facts = facts.hexdigest()

    @property
    def chunks(self) -> np.ndarray:
        return np.array([part.rows for part in self._parts], dtype=np.int64)

    def fingerprint(self) -> str:
        return compute_fingerprint("parquet", self._facts, self.columns)

    def _load(self, part: Part) -> Any:
        parquet = import_extra("pyarrow.parquet", "data")
        with parquet.ParquetFile(part.path, page_checksum_verification=True) as opened:
            return opened.read_row_group(part.group, use_threads=False)  # the loader has workers of its own


class ArrowDataset(_Rows):
    """A data set of Hugging Face, as `save_to_disk` wrote it; memory-mapped.

    split: of a DatasetDict; by default its only one. image, captions: names of columns, as for `CsvTable`.
    Image paths are relative to the folder. Rows that were selected or shuffled come in the order of the data set.

    To read where a mapped file has been cut off ends the process. So its size is looked at before each row: a file cut
    between that look and the reading still does.
    """

    keep_bytes = float("inf")  # the system sees to it

    def __init__(
        self,
        path: str | Path,
        *,
        split: str | None = None,
        image: str | None = None,
        captions: Sequence[str] | None = None,
    ) -> None:
        import_extra("pyarrow", "data")
        folder = resolve_split_folder(Path(path), split)
        state = read_json(folder / "state.json")
        files = list_data_files(folder, state, "_data_files")
        if not files:
            raise ValueError(f"{folder / 'state.json'} names no data files")
        parts, batches, columns = [], [], None
        for file in files:
            require_file(file)
            size = file.stat().st_size  # before it is mapped
            table = stream(file)
            columns = columns or choose_columns(table.schema.names, image, captions, str(folder))
            check_image_column(table.schema, columns, file)
            batches += [batch.num_rows for batch in table.to_batches() if batch.num_rows]
            parts.append(Part(file, table.num_rows, size=size))
        assert columns is not None
        super().__init__(str(path), parts, columns, folder)
        self._order = self._read_order(list_data_files(folder, state, "_indices_data_files"))
        self._batches = np.array(batches, dtype=np.int64)
        sizes = [(part.path.name, part.size) for part in parts]
        self._facts = compute_fingerprint("arrow", state.get("_fingerprint"), sizes, batches, self.columns)

    @property
    def chunks(self) -> np.ndarray:
        return self._batches if self._order is None else np.array([len(self)], dtype=np.int64)

    def fingerprint(self) -> str:
        order = None if self._order is None else hashlib.blake2b(self._order.tobytes()).hexdigest()
        return compute_fingerprint(self._facts, order)

    def _read_order(self, files: Sequence[Path]) -> np.ndarray | None:
        """uint64 (N,): the rows of the data set, if it is a selection of the rows in its files."""
        if not files:
            return None
        tables = [stream(file) for file in files]
        if any(table.schema.names != ["indices"] for table in tables):
            raise ValueError(f"{files[0]} must have one column, 'indices'")
        order = np.concatenate([table.column("indices").to_numpy() for table in tables])
        total = len(self)  # so far: there is no order yet
        if order.dtype.kind not in "ui" or (len(order) and not 0 <= order.min() <= order.max() < total):
            raise ValueError(f"{files[0]}: its indices are not row numbers below {total}, the rows there are")
        return order

    def _load(self, part: Part) -> Any:
        return stream(part.path)


def _parquet_files(spec: str | Path) -> list[Path]:
    path = Path(spec)
    if path.is_dir():
        files = sorted(file for file in path.glob("[!.]*") if file.suffix.lower() == ".parquet")
        if not files:
            raise ValueError(f"{path} holds no .parquet file")
        return files
    if path.exists():
        return [path]
    files = sorted(Path(name) for name in glob(str(spec), recursive=True))
    if not files:
        raise FileNotFoundError(f"{spec}: there is no such file")
    return files


def _footer(path: Path) -> bytes:
    """The metadata of a Parquet file that was opened before: sizes and statistics of all that is in it."""
    with open(path, "rb") as file:
        end = file.seek(-8, 2)
        file.seek(end - int.from_bytes(file.read(4), "little"))
        return file.read(end - file.tell())


def read_split_names(path: Path) -> list[str]:
    """The splits of a DatasetDict's folder, at least one."""
    splits = read_json(path / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits or not all(isinstance(name, str) for name in splits):
        raise ValueError(f"{path / 'dataset_dict.json'} must name its splits")
    return splits


def resolve_split_folder(path: Path, split: str | None) -> Path:
    """The folder of one split. None: the only one; of a data set without splits the folder itself."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no such folder")
    if not (path / "dataset_dict.json").is_file():
        if split is not None:
            raise ValueError(f"{path} has no splits, so there is no split {split!r}; leave split out")
        if not (path / "state.json").is_file():
            raise ValueError(f"{path} has no state.json: it was not written by save_to_disk of `datasets`")
        return path
    splits = read_split_names(path)
    if split is None and len(splits) > 1:
        raise ValueError(
            f"{path} has several splits: {join_names(splits, 12)}; open one of them: {path / splits[0]}"
        )
    if split is not None and split not in splits:
        raise ValueError(f"{path} has no split {split!r}; its splits are {join_names(splits, 12)}")
    return path / (splits[0] if split is None else split)


def list_data_files(folder: Path, state: dict[str, Any], key: str) -> list[Path]:
    """The files that a folder's state.json names under `key`; none if it has no such key."""
    entries = state.get(key) or []
    entries = entries if isinstance(entries, list) else [entries]
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{folder / 'state.json'}: {key} must be a list of file names")
    return [folder / str(name) for name in names]


def stream(path: Path) -> Any:
    """The table in a file of the Arrow stream format: pages of the file, not a copy."""
    arrow = import_extra("pyarrow", "data")
    require_file(path)
    with reading(path):
        return arrow.ipc.open_stream(arrow.memory_map(str(path))).read_all()
