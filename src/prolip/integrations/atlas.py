"""A Parquet file for embedding-atlas: positions in the plane, uncertainty, captions and paths.

The projection is linear: principal components of the means. Images and texts lie in two separate regions of the space;
each modality is moved to a mean of zero first, so that a caption is shown near its image.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.choices import Modality
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.schema import read_mean_traces
from prolip.extras import import_extra
from prolip.integrations.table_file import write_tables

COLUMNS = ("id", "index", "modality", "caption", "path", "url", "uncertainty")
"""Columns of the embeddings that are copied."""

MODALITIES: tuple[Modality, Modality] = ("image", "text")


def write_atlas(embeddings: str | Path, out: str | Path) -> Path:
    """Write the file that embedding-atlas opens.

    embedding-atlas FILE --x projection_x --y projection_y --text caption

    Args:
        embeddings: What `prolip embed` wrote.
        out: The file: id, index, modality, caption, path, url, uncertainty, projection_x, projection_y.

    Returns:
        The path of the file.

    Raises:
        ValueError, OSError: The embeddings can't be read, or the file can't be written.
    """
    dataset = EmbeddingDataset.open(embeddings)
    centers, directions = fit_projection(dataset)
    return write_tables(_iter_tables(dataset, centers, directions), out)


def fit_projection(dataset: EmbeddingDataset) -> tuple[dict[Modality, Tensor], Tensor]:
    """Fit the plane to the means of a data set, in one pass over its parts.

    Args:
        dataset: The embeddings.

    Returns:
        The mean of each modality that has rows, float64 (D,), and the two directions (2, D) along which the means
        vary most around it, orthonormal. Of each, the largest component is positive.

    Raises:
        ValueError: There are fewer than two dimensions, so that there is no plane.
    """
    dim = dataset.header.dim
    if dim < 2:
        raise ValueError(
            f"{dataset.storage} has embeddings of {dim} dimension: there is no plane to project on"
        )
    sums = {modality: torch.zeros(dim, dtype=torch.float64) for modality in MODALITIES}
    counts = dict.fromkeys(MODALITIES, 0)
    products = torch.zeros(dim, dim, dtype=torch.float64)
    for modality in MODALITIES:
        for _, rows in dataset.iter_parts(modality, ["mean", "uncertainty"]):
            mean = read_mean_traces(rows).mean.double()
            sums[modality] += mean.sum(0)
            counts[modality] += len(mean)
            products += mean.mT @ mean
    centers = {modality: sums[modality] / counts[modality] for modality in MODALITIES if counts[modality]}
    for modality, center in centers.items():
        products -= counts[modality] * center[:, None] * center
    directions = torch.linalg.eigh(products)[1][:, [-1, -2]].mT
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return centers, directions * largest.sign()


def _iter_tables(
    dataset: EmbeddingDataset, centers: dict[Modality, Tensor], directions: Tensor
) -> Iterator[Any]:
    """Yield the rows of a modality of a part, with their positions in the plane."""
    arrow = import_extra("pyarrow", "data")
    for modality, center in centers.items():
        for _, rows in dataset.iter_parts(modality, [*COLUMNS, "mean"]):
            points = ((read_mean_traces(rows).mean.double() - center) @ directions.mT).float()
            table = rows.select(list(COLUMNS)).replace_schema_metadata(None)
            for name, values in zip(("projection_x", "projection_y"), points.mT, strict=True):
                table = table.append_column(name, arrow.array(values.contiguous().numpy()))
            yield table
