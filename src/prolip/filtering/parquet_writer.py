"""Write kept or dropped samples as one Parquet file: their rows of the scores, one row group per part."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from prolip.extras import import_extra
from prolip.files import atomic_write
from prolip.filtering.selection import OUTCOME_NAMES, SampleOutcome, Selection

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
    return atomic_write(path, partial(_write_rows, selection=selection, is_kept=True))


def write_dropped(path: Path, selection: Selection) -> Path:
    """Write the rows of all other samples, with the reason in a column `outcome` (a value of `OUTCOME_NAMES`).

    Args:
        path: Path of the file.
        selection: The outcome of every sample.

    Returns:
        The path.
    """
    return atomic_write(path, partial(_write_rows, selection=selection, is_kept=False))


def _write_rows(path: Path, selection: Selection, is_kept: bool) -> None:
    """Write the kept rows of each part, or all others, to a file at `path`.

    The index of the part is in a column `part`; of rows that are not kept, the outcome is in `outcome`.
    """
    arrow, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    columns = [name for name in selection.scores.columns if name not in EMBEDDING_ROWS]
    writer = None
    try:
        for outcomes in selection.iter_parts(columns):
            chosen = np.flatnonzero((outcomes.outcome == SampleOutcome.KEPT) == is_kept)
            rows = outcomes.rows.take(chosen).select(columns)
            if not is_kept:
                names = [OUTCOME_NAMES[SampleOutcome(value)] for value in outcomes.outcome[chosen]]
                rows = rows.add_column(0, "outcome", arrow.array(names, arrow.string()))
            rows = rows.add_column(0, "part", arrow.array(np.full(len(rows), outcomes.part, np.int32)))
            if writer is None:
                writer = parquet.ParquetWriter(path, rows.schema)
            writer.write_table(rows)
    finally:
        if writer is not None:
            writer.close()
