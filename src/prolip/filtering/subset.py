"""What is kept as one Parquet file: the rows of the scores, a row group for each part."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from prolip.extras import require
from prolip.files import write_whole
from prolip.filtering.selection import Selection

PLACES = ("image_row", "text_row")
"""Columns that say something of the embeddings' own files; `part` and `number` name a sample."""


def write_subset(path: Path, selection: Selection) -> Path:
    """Streams: a part at a time."""
    return write_whole(path, partial(_write, selection=selection))


def _write(path: Path, selection: Selection) -> None:
    arrow, parquet = require("pyarrow", "data"), require("pyarrow.parquet", "data")
    columns = [name for name in selection.scores.columns if name not in PLACES]
    writer = None
    try:
        for judged in selection.parts(columns):
            rows = judged.kept.select(columns)
            rows = rows.add_column(0, "part", arrow.array(np.full(len(rows), judged.part, np.int32)))
            if writer is None:
                writer = parquet.ParquetWriter(path, rows.schema)
            writer.write_table(rows)
    finally:
        if writer is not None:
            writer.close()
