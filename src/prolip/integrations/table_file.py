"""One Parquet file from tables that are made one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from prolip.extras import import_extra
from prolip.files import atomic_write
from prolip.storage import require_local_folder


def write_tables(tables: Iterable[Any], out: str | Path) -> Path:
    """Write tables of one schema to a Parquet file, atomically; one of them is in memory at a time.

    Args:
        tables: pyarrow tables.
        out: The file; its folder is created if need be.

    Returns:
        The path of the file.

    Raises:
        ValueError: There is no table, or `out` is a folder or an address.
        OSError: The file can't be written.
    """
    require_local_folder(str(out), "--out")
    path = Path(out).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the file, such as {path / 'table.parquet'}")
    iterator = iter(tables)
    first = next(iterator, None)
    if first is None:
        raise ValueError("there are no rows to write: the embeddings have no parts")
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(temporary: Path) -> None:
        parquet = import_extra("pyarrow.parquet", "data")
        with parquet.ParquetWriter(temporary, first.schema, compression="zstd") as writer:
            for table in chain([first], iterator):
                writer.write_table(table)

    return atomic_write(path, write)
