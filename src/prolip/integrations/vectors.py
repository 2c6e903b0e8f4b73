"""Vectors [mu, sqrt(tr)] for FAISS and vector databases: their Euclidean order is the order of CSD."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.schema import read_mean_traces
from prolip.extras import import_extra
from prolip.gaussian import Gaussian, MeanTrace
from prolip.integrations.table_file import write_tables
from prolip.retrieval.index import vectors

COLUMNS = ("id", "index", "modality", "caption", "path", "url", "uncertainty")
"""Columns of the embeddings that are copied."""


def make_item_vectors(items: Gaussian | MeanTrace) -> np.ndarray:
    """Make the vectors [mu, sqrt(tr)] of items that are stored.

    The squared Euclidean distance of an item and a query of `make_query_vectors` is CSD less the query's trace, which
    is the same for all items: the nearest vectors are the items of smallest CSD. Their inner product is the cosine of
    the means.

    Args:
        items: (n, D).

    Returns:
        float32 (n, D + 1).
    """
    mean, trace = items.mean.detach().cpu().float().numpy(), items.uncertainty.detach().cpu().float().numpy()
    return np.ascontiguousarray(vectors.make_item_vectors(mean, trace)[:, : mean.shape[1] + 1])


def make_query_vectors(queries: Gaussian | MeanTrace) -> np.ndarray:
    """Make the vectors [mu, 0] of queries.

    Args:
        queries: (n, D).

    Returns:
        float32 (n, D + 1).
    """
    mean = queries.mean.detach().cpu().float().numpy()
    return np.ascontiguousarray(vectors.make_query_vectors(mean)[:, : mean.shape[1] + 1])


def write_vectors(embeddings: str | Path, out: str | Path) -> Path:
    """Write the vectors of embeddings as one Parquet file, which vector databases import.

    Args:
        embeddings: What `prolip embed` wrote.
        out: The file: id, index, modality, caption, path, url, uncertainty, and `vector`, float32[D + 1].

    Returns:
        The path of the file.

    Raises:
        ValueError, OSError: The embeddings can't be read, or the file can't be written.
    """
    return write_tables(_iter_tables(EmbeddingDataset.open(embeddings)), out)


def _iter_tables(dataset: EmbeddingDataset) -> Iterator[Any]:
    """Yield a table of items with their vectors for each part."""
    arrow = import_extra("pyarrow", "data")
    for _, rows in dataset.iter_parts(columns=[*COLUMNS, "mean"]):
        values = make_item_vectors(read_mean_traces(rows))
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])
        yield rows.select(list(COLUMNS)).append_column("vector", column).replace_schema_metadata(None)
