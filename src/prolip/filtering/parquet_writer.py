"""Write kept samples as one Parquet file: their rows of the scores, one row group per part."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from prolip.extras import import_extra
from prolip.files import atomic_write
from prolip.filtering.selection import Selection

EMBEDDING_ROWS = ("image_row", "text_row")
"""Columns that refer to rows of the embeddings; they mean nothing elsewhere. `part` and `index` identify a sample."""


def write_parquet(path: Path, selection: Selection) -> Path:
    """Write the rows of kept samples, one part at a time.

    Args:
        path: Path of the file.
        selection: The outcome of every sample.

    Returns:
        The path.
    """
    return atomic_write(path, partial(_write_kept_rows, selection=selection))


def _write_kept_rows(path: Path, selection: Selection) -> None:
    """Write the kept rows of each part, with the index of the part in a column `part`, to a file at `path`."""
    arrow, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    columns = [name for name in selection.scores.columns if name not in EMBEDDING_ROWS]
    writer = None
    try:
        for outcomes in selection.iter_parts(columns):
            rows = outcomes.kept_rows.select(columns)
            rows = rows.add_column(0, "part", arrow.array(np.full(len(rows), outcomes.part, np.int32)))
            if writer is None:
                writer = parquet.ParquetWriter(path, rows.schema)
            writer.write_table(rows)
    finally:
        if writer is not None:
            writer.close()
