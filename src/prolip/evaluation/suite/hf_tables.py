"""Where the tables of a task lie that comes as a data set of Hugging Face's, and how they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from prolip.checks import join_names
from prolip.data.sources.arrow import list_data_files, resolve_split_folder, read_split_names, stream
from prolip.data.sources.columns import ArrowRows, reading
from prolip.extras import import_extra
from prolip.files import read_json


class TableFiles(NamedTuple):
    """parquet: files of this kind. saved: a folder that save_to_disk of `datasets` wrote. cached: files that
    load_dataset left in its cache, as DataComp's downloader does."""

    kind: Literal["parquet", "saved", "cached"]
    folder: Path
    files: tuple[Path, ...]


def find_table_files(folder: Path) -> TableFiles:
    """In the folder, or in `data` or `test` below it; of a cache, anywhere below. Of several splits, test."""
    for place in (folder, folder / "data", folder / "test"):
        if files := sorted(place.glob("*.parquet")):
            named = tuple(file for file in files if file.name.startswith("test"))
            return TableFiles("parquet", place, named or tuple(files))
        if (place / "dataset_dict.json").is_file():
            # of several splits it must have this one; a single one may have any name
            return _saved(resolve_split_folder(place, "test" if len(read_split_names(place)) > 1 else None))
        if (place / "state.json").is_file():
            return _saved(place)
    if files := sorted(folder.rglob("*-test*.arrow")):
        if len(places := {file.parent for file in files}) > 1:
            found = join_names(sorted(map(str, places)), 2)
            raise ValueError(f"{folder} holds several versions of the data: {found}; keep one")
        return TableFiles("cached", files[0].parent, tuple(files))
    raise FileNotFoundError(
        f"{folder}: no shards (test/nshards.txt, test/0.tar), no .parquet, and nothing that `datasets` wrote"
    )


def _saved(place: Path) -> TableFiles:
    return TableFiles("saved", place, tuple(list_data_files(place, read_json(place / "state.json"), "_data_files")))


class TablePart(NamedTuple):
    """What is loaded at a time: a row group of a Parquet file, or (None) a whole Arrow file."""

    path: Path
    group: int | None
    columns: tuple[str, ...]

    def load(self) -> ArrowRows:
        if self.group is None:
            table = stream(self.path)
            return ArrowRows(table.select(_present(self.columns, table.schema.names, self.path)))
        with reading(self.path), import_extra("pyarrow.parquet", "data").ParquetFile(self.path) as file:
            columns = _present(self.columns, file.schema_arrow.names, self.path)
            return ArrowRows(file.read_row_group(self.group, columns=columns, use_threads=False))


def list_parts(tables: TableFiles, columns: Sequence[str]) -> list[TablePart]:
    """All parts, in order; only these columns are loaded."""
    if tables.kind == "saved" and read_json(tables.folder / "state.json").get("_indices_data_files"):
        raise ValueError(f"{tables.folder} is a selection of rows; save it anew after flatten_indices()")
    parts: list[TablePart] = []
    for file in tables.files:
        groups: Sequence[int | None] = [None]
        if tables.kind == "parquet":
            with reading(file), import_extra("pyarrow.parquet", "data").ParquetFile(file) as opened:
                groups = range(opened.metadata.num_row_groups)
        parts += [TablePart(file, group, tuple(columns)) for group in groups]
    return parts


def _present(wanted: Sequence[str], names: Sequence[str], path: Path) -> list[str]:
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]!r}, only {join_names(names, 12)}")
    return list(wanted)
