"""Where the tables of a task lie that comes as a data set of Hugging Face's, and how they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from prolip.checks import some
from prolip.data.sources.arrow import named_files, split_folder, split_names, stream
from prolip.data.sources.columns import Loaded, reading
from prolip.extras import require
from prolip.files import read_json


class Tables(NamedTuple):
    """parquet: files of this kind. saved: a folder that save_to_disk of `datasets` wrote. cached: files that
    load_dataset left in its cache, as DataComp's downloader does."""

    kind: Literal["parquet", "saved", "cached"]
    folder: Path
    files: tuple[Path, ...]


def find_tables(folder: Path) -> Tables:
    """In the folder, or in `data` or `test` below it; of a cache, anywhere below. Of several splits, test."""
    for place in (folder, folder / "data", folder / "test"):
        if files := sorted(place.glob("*.parquet")):
            named = tuple(file for file in files if file.name.startswith("test"))
            return Tables("parquet", place, named or tuple(files))
        if (place / "dataset_dict.json").is_file():
            # of several splits it must have this one; a single one may have any name
            return _saved(split_folder(place, "test" if len(split_names(place)) > 1 else None))
        if (place / "state.json").is_file():
            return _saved(place)
    if files := sorted(folder.rglob("*-test*.arrow")):
        if len(places := {file.parent for file in files}) > 1:
            found = some(sorted(map(str, places)), 2)
            raise ValueError(f"{folder} holds several versions of the data: {found}; keep one")
        return Tables("cached", files[0].parent, tuple(files))
    raise FileNotFoundError(
        f"{folder}: no shards (test/nshards.txt, test/0.tar), no .parquet, and nothing that `datasets` wrote"
    )


def _saved(place: Path) -> Tables:
    return Tables("saved", place, tuple(named_files(place, read_json(place / "state.json"), "_data_files")))


class Part(NamedTuple):
    """What is loaded at a time: a row group of a Parquet file, or (None) a whole Arrow file."""

    path: Path
    group: int | None
    columns: tuple[str, ...]

    def load(self) -> Loaded:
        if self.group is None:
            table = stream(self.path)
            return Loaded(table.select(_present(self.columns, table.schema.names, self.path)))
        with reading(self.path), require("pyarrow.parquet", "data").ParquetFile(self.path) as file:
            columns = _present(self.columns, file.schema_arrow.names, self.path)
            return Loaded(file.read_row_group(self.group, columns=columns, use_threads=False))


def parts_of(tables: Tables, columns: Sequence[str]) -> list[Part]:
    """All parts, in order; only these columns are loaded."""
    if tables.kind == "saved" and read_json(tables.folder / "state.json").get("_indices_data_files"):
        raise ValueError(f"{tables.folder} is a selection of rows; save it anew after flatten_indices()")
    parts: list[Part] = []
    for file in tables.files:
        groups: Sequence[int | None] = [None]
        if tables.kind == "parquet":
            with reading(file), require("pyarrow.parquet", "data").ParquetFile(file) as opened:
                groups = range(opened.metadata.num_row_groups)
        parts += [Part(file, group, tuple(columns)) for group in groups]
    return parts


def _present(wanted: Sequence[str], names: Sequence[str], path: Path) -> list[str]:
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]!r}, only {some(names, 12)}")
    return list(wanted)
