"""Tasks stored as Hugging Face data sets: Parquet, save_to_disk, the datasets cache."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

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
            folders = join_names(sorted(map(str, versions)), 2)
            raise ValueError(
                f"{folder} holds several versions of the data: {folders}. Remove all but one of these folders"
            )
        return TableFiles("cached", files[0].parent, tuple(files))
    raise FileNotFoundError(
        f"{folder} holds no shards (test/nshards.txt, test/0.tar), no .parquet files and no data set of `datasets`. "
        "Download the task's data again (docs/evaluation.md describes the layout)"
    )


def _find_saved_files(folder: Path) -> TableFiles:
    """The Arrow files of a folder written by `datasets.save_to_disk`, as its state.json lists them."""
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

    def describe_row(self, row: int) -> str:
        """The location of a row, counted from 0, for messages; there it is counted from 1."""
        group = "" if self.group is None else f" of row group {self.group}"
        return f"{self.path}: row {row + 1}{group}"

    def load(self) -> ArrowRows:
        """Read the columns of these rows into memory; ValueError if the file has no such column."""
        if self.group is None:
            table = open_arrow_file(self.path)
            return ArrowRows(table.select(_require_columns(self.columns, table.schema.names, self.path)))
        with arrow_errors(self.path), import_extra("pyarrow.parquet", "data").ParquetFile(self.path) as file:
            columns = _require_columns(self.columns, file.schema_arrow.names, self.path)
            return ArrowRows(file.read_row_group(self.group, columns=columns, use_threads=False))


def list_row_groups(tables: TableFiles, columns: Sequence[str]) -> list[TableRowGroup]:
    """List the row groups of a data set, without reading their rows.

    Args:
        tables: Tables of `find_table_files`.
        columns: The only columns that `TableRowGroup.load` reads.

    Returns:
        The row groups, in the order of their rows.

    Raises:
        ValueError: The folder was saved as a selection of rows, which Arrow files alone don't describe.
    """
    if tables.kind == "saved" and read_json(tables.folder / "state.json").get("_indices_data_files"):
        raise ValueError(
            f"{tables.folder} was saved as a selection of rows. Open it with datasets.load_from_disk, call "
            "flatten_indices() on it, and save the result with save_to_disk"
        )
    row_groups: list[TableRowGroup] = []
    for file in tables.files:
        group_indices: Sequence[int | None] = [None]  # a whole Arrow file
        if tables.kind == "parquet":
            with arrow_errors(file), import_extra("pyarrow.parquet", "data").ParquetFile(file) as opened:
                group_indices = range(opened.metadata.num_row_groups)
        row_groups += [TableRowGroup(file, group, tuple(columns)) for group in group_indices]
    return row_groups


def _require_columns(columns: Sequence[str], names: Sequence[str], path: Path) -> list[str]:
    """`columns` as a list; ValueError if one isn't among `names`, the columns of the table at `path`."""
    if missing := [name for name in columns if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]!r}; its columns are {join_names(names, 12)}")
    return list(columns)


class ImageCell(NamedTuple):
    """The position of an image in a table.

    part: Index of the row group in `list_row_groups`.
    row:  Row in the row group.
    item: Index in the list that the cell holds; None: the cell holds one image.
    The names of the class and of its fields are hashed by `TableImages.fingerprint`: they can't change.
    """

    part: int
    row: int
    item: int | None = None


class TableImages:
    """A Source of images in table cells. One row group stays in memory, so cells should be sorted by row group.

    Args:
        folder: The data set; names the source in messages.
        row_groups: Row groups of `list_row_groups`.
        cells: Position of each sample's image.
        image_column: The column that holds images.
        caption_column: The column that holds a caption or a list of captions; None: samples have no captions.
    """

    def __init__(
        self,
        folder: Path,
        row_groups: Sequence[TableRowGroup],
        cells: Sequence[ImageCell],
        image_column: str,
        caption_column: str | None,
    ) -> None:
        self.name = str(folder)
        self._row_groups, self._cells = tuple(row_groups), tuple(cells)
        self._image_column, self._caption_column = image_column, caption_column
        self._lock = threading.Lock()
        # index and rows of the row group that was read last
        self._loaded: tuple[int, ArrowRows] | None = None

    @property
    def chunks(self) -> np.ndarray:
        """int64 (1,): all samples as one chunk."""
        return np.array([len(self)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._cells)

    def read(self, index: int) -> Sample:
        """Read a sample; loads its row group unless that is the one that was read last.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The sample, its image not decoded.

        Raises:
            BadSampleError: The image or the captions can't be used.
        """
        require_index(index, len(self))
        group, row, item = self._cells[index]
        row_group = self._row_groups[group]
        location = row_group.describe_row(row) + ("" if item is None else f", image {item}")
        values = self._load(group).row(row, location)
        image = values[self._image_column]
        if item is not None:  # the cell holds several images
            image = cast(list[object], image)[item]
        captions = (
            () if self._caption_column is None else parse_captions([values[self._caption_column]], location)
        )
        return Sample(
            str(index), location, _parse_image_or_path(image, row_group.path.parent, location), captions
        )

    def _load(self, group: int) -> ArrowRows:
        """The rows of a row group; reads them from disk and keeps them, unless they were read last."""
        with self._lock:  # samples are read by threads
            if self._loaded is None or self._loaded[0] != group:
                self._loaded = (group, self._row_groups[group].load())
            return self._loaded[1]

    def fingerprint(self) -> str:
        """Digest of the names and sizes of the files, and of which images and captions are read (see `Source`)."""
        sizes = [(file.name, file.stat().st_size) for file in self.files()]
        return compute_fingerprint(
            "rows", ascii(sizes), self._cells, self._image_column, self._caption_column
        )

    def files(self) -> list[Path]:
        """The table files, each once."""
        return list(dict.fromkeys(row_group.path for row_group in self._row_groups))

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the lock, which can't be pickled, and without the loaded rows."""
        return {**self.__dict__, "_lock": None, "_loaded": None}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _parse_image_or_path(value: Any, folder: Path, location: str) -> bytes | Path:
    """The image of a cell: its bytes, or the path of its file in `folder` (that of the table) or in `folder`/images.

    Raises BadSampleError if the value is neither, or if there is no such file.
    """
    try:
        return parse_image(value, folder, location)
    except BadSampleError as error:
        if error.record.reason != "missing file" or not (folder / "images").is_dir():
            raise
    return parse_image(value, folder / "images", location)
