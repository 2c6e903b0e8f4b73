"""Tasks stored as Hugging Face data sets: Parquet, save_to_disk, the datasets cache."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import compute_fingerprint, require_index
from prolip.data.sources.arrow import list_data_files, open_arrow_file, read_split_names, resolve_split_folder
from prolip.data.sources.columns import ArrowRows, arrow_errors, parse_image
from prolip.extras import import_extra
from prolip.files import read_json


class TableFiles(NamedTuple):
    """The table files of a data set.

    kind:   "parquet": Parquet files. "saved": a folder written by `datasets.save_to_disk`. "cached": Arrow files that
            `datasets.load_dataset` left in its cache, as DataComp's downloader does.
    folder: Where the files are.
    files:  Their paths, in order.
    """

    kind: Literal["parquet", "saved", "cached"]
    folder: Path
    files: tuple[Path, ...]


def find_table_files(folder: Path) -> TableFiles:
    """Find the tables of a data set; the test split if there are several.

    Args:
        folder: The data set. Files are looked for in it, in `data` and `test` below it, and, for a cache of `datasets`,
            anywhere below it.

    Returns:
        The files and their kind.

    Raises:
        FileNotFoundError: There are none.
        ValueError: The cache holds several versions of the data.
    """
    for candidate in (folder, folder / "data", folder / "test"):
        if files := sorted(candidate.glob("*.parquet")):
            test_files = tuple(file for file in files if file.name.startswith("test"))
            return TableFiles("parquet", candidate, test_files or tuple(files))
        if (candidate / "dataset_dict.json").is_file():
            # among several splits the test split is required; a single split may have any name
            split = "test" if len(read_split_names(candidate)) > 1 else None
            return _find_saved_files(resolve_split_folder(candidate, split))
        if (candidate / "state.json").is_file():
            return _find_saved_files(candidate)
    if files := sorted(folder.rglob("*-test*.arrow")):
        if len(versions := {file.parent for file in files}) > 1:
            found = join_names(sorted(map(str, versions)), 2)
            raise ValueError(
                f"{folder} holds several versions of the data: {found}. Remove all but one of them"
            )
        return TableFiles("cached", files[0].parent, tuple(files))
    raise FileNotFoundError(
        f"{folder} holds no shards (test/nshards.txt, test/0.tar), no .parquet files and no data set of `datasets`"
    )


def _find_saved_files(folder: Path) -> TableFiles:
    """The Arrow files that the state.json of a folder by `datasets.save_to_disk` lists."""
    return TableFiles(
        "saved", folder, tuple(list_data_files(folder, read_json(folder / "state.json"), "_data_files"))
    )


class TableRowGroup(NamedTuple):
    """The unit of loading: one row group of a Parquet file, or a whole Arrow file.

    path:    The file.
    group:   Index of the row group; None: a whole Arrow file.
    columns: The only columns that are read.
    """

    path: Path
    group: int | None
    columns: tuple[str, ...]

    def load(self) -> ArrowRows:
        """Read the columns of this part into memory; ValueError if one is missing."""
        if self.group is None:
            table = open_arrow_file(self.path)
            return ArrowRows(table.select(_require_columns(self.columns, table.schema.names, self.path)))
        with arrow_errors(self.path), import_extra("pyarrow.parquet", "data").ParquetFile(self.path) as file:
            columns = _require_columns(self.columns, file.schema_arrow.names, self.path)
            return ArrowRows(file.read_row_group(self.group, columns=columns, use_threads=False))


def list_parts(tables: TableFiles, columns: Sequence[str]) -> list[TableRowGroup]:
    """List the parts of a data set.

    Args:
        tables: Tables of `find_table_files`.
        columns: The only columns that `TableRowGroup.load` reads.

    Returns:
        The parts, in the order of their rows.

    Raises:
        ValueError: The folder was saved as a selection of rows, which Arrow files alone don't describe.
    """
    if tables.kind == "saved" and read_json(tables.folder / "state.json").get("_indices_data_files"):
        raise ValueError(
            f"{tables.folder} is a selection of rows. Call flatten_indices() on it and save it again"
        )
    parts: list[TableRowGroup] = []
    for file in tables.files:
        groups: Sequence[int | None] = [None]
        if tables.kind == "parquet":
            with arrow_errors(file), import_extra("pyarrow.parquet", "data").ParquetFile(file) as opened:
                groups = range(opened.metadata.num_row_groups)
        parts += [TableRowGroup(file, group, tuple(columns)) for group in groups]
    return parts


def _require_columns(wanted: Sequence[str], names: Sequence[str], path: Path) -> list[str]:
    """The wanted columns as a list; ValueError if the table at `path` lacks one. names: the columns that it has."""
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]!r}; its columns are {join_names(names, 12)}")
    return list(wanted)


class ImageCell(NamedTuple):
    """The position of an image in a table.

    part: Index of the part.
    row:  Row in the part.
    item: Index in the list that the cell holds; None: the cell holds one image.
    """

    part: int
    row: int
    item: int | None = None


class TableImages:
    """A Source of images in table cells. One part stays in memory, so cells should be sorted by part.

    Args:
        folder: The data set; names the source in messages.
        parts: Parts of `list_parts`.
        cells: Position of each sample's image.
        image_column: The column that holds images.
        caption_column: The column that holds a caption or a list of captions; None: samples have no captions.
    """

    def __init__(
        self,
        folder: Path,
        parts: Sequence[TableRowGroup],
        cells: Sequence[ImageCell],
        image_column: str,
        caption_column: str | None,
    ) -> None:
        self.name = str(folder)
        self._parts, self._cells = tuple(parts), tuple(cells)
        self._image_column, self._caption_column = image_column, caption_column
        self._lock = threading.Lock()
        self._last: tuple[int, ArrowRows] | None = None

    @property
    def chunks(self) -> np.ndarray:
        """int64 (1,): all samples as one chunk."""
        return np.array([len(self)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._cells)

    def read(self, index: int) -> Sample:
        """Read a sample; loads the part of its table unless it is the one that was read last.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The sample, its image not decoded.

        Raises:
            BadSampleError: The image or the captions can't be used.
        """
        require_index(index, len(self))
        part, row, item = self._cells[index]
        path = self._parts[part].path
        location = f"{path}: row {row + 1} of part {part}" + ("" if item is None else f", image {item}")
        values = self._load(part).row(row, location)
        image = values[self._image_column] if item is None else values[self._image_column][item]
        captions = (
            () if self._caption_column is None else parse_captions([values[self._caption_column]], location)
        )
        return Sample(str(index), location, _read_image(image, path.parent, location), captions)

    def _load(self, part: int) -> ArrowRows:
        """The rows of a part; read from disk unless it is the part that was read last."""
        with self._lock:  # samples are read by threads
            if self._last is None or self._last[0] != part:
                self._last = (part, self._parts[part].load())
            return self._last[1]

    def fingerprint(self) -> str:
        """Digest of the names and sizes of the files, and of which images and captions are read (see `Source`)."""
        sizes = [(file.name, file.stat().st_size) for file in self.files()]
        return compute_fingerprint(
            "rows", ascii(sizes), self._cells, self._image_column, self._caption_column
        )

    def files(self) -> list[Path]:
        """The table files, each once."""
        return list(dict.fromkeys(part.path for part in self._parts))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the lock, which can't be pickled, and without the loaded part."""
        return {**self.__dict__, "_lock": None, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _read_image(value: Any, folder: Path, location: str) -> bytes | Path:
    """The image as bytes, or as the path of a file next to the table or in `images` there; else BadSampleError."""
    try:
        return parse_image(value, folder, location)
    except BadSampleError as error:
        if error.record.reason != "missing file" or not (folder / "images").is_dir():
            raise
    return parse_image(value, folder / "images", location)
