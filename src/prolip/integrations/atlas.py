"""A Parquet file for embedding-atlas: positions in the plane, uncertainty, captions and paths.

The projection is linear: principal components of the means. Images and texts lie in two separate regions of the space,
and the means of texts vary more. So each modality is moved to a mean of zero and scaled to a total variance of one
first: a caption is shown near its image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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

MIN_VARIANCE = 1e-12
"""Total variance that a modality counts as having at least: that of a single item is zero."""

MODALITIES: tuple[Modality, Modality] = ("image", "text")


@dataclass(frozen=True, eq=False)
class AtlasPlane:
    """A plane onto which the means of images and texts are projected.

    Attributes:
        centers: The mean (D,) of each modality that has rows, float64.
        scales: The square root of its total variance around the mean.
        directions: (2, D), orthonormal.
    """

    centers: dict[Modality, Tensor]
    scales: dict[Modality, float]
    directions: Tensor

    def project(self, mean: Tensor, modality: Modality) -> Tensor:
        """Positions (n, 2), float32, of the means (n, D) of a modality."""
        centered = (mean.double() - self.centers[modality]) / self.scales[modality]
        return (centered @ self.directions.mT).float()


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
    return write_tables(_iter_tables(dataset, fit_atlas_plane(dataset)), out)


def fit_atlas_plane(dataset: EmbeddingDataset) -> AtlasPlane:
    """Fit the plane to the means of a data set, in one pass over its parts.

    Args:
        dataset: The embeddings.

    Returns:
        The plane. Its directions are those along which the scaled means vary most, with either modality of the same
        weight; of each direction, the largest component is positive.

    Raises:
        ValueError: There is one dimension, so that there is no plane.
    """
    dim = dataset.header.dim
    if dim < 2:
        raise ValueError(
            f"{dataset.storage} has embeddings of {dim} dimension: there is no plane to project on"
        )
    covariance = torch.zeros(dim, dim, dtype=torch.float64)
    centers: dict[Modality, Tensor] = {}
    scales: dict[Modality, float] = {}
    for modality in MODALITIES:
        count, total = 0, torch.zeros(dim, dtype=torch.float64)
        products = torch.zeros(dim, dim, dtype=torch.float64)
        for _, rows in dataset.iter_parts(modality, ["mean", "uncertainty"]):
            mean = read_mean_traces(rows).mean.double()
            count, total, products = count + len(mean), total + mean.sum(0), products + mean.mT @ mean
        if count:
            center = total / count
            spread = products / count - center[:, None] * center
            variance = max(float(spread.trace()), MIN_VARIANCE)
            centers[modality], scales[modality] = center, variance**0.5
            covariance += spread / variance
    directions = torch.linalg.eigh(covariance)[1][:, [-1, -2]].mT
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return AtlasPlane(centers, scales, directions * largest.sign())


def _iter_tables(dataset: EmbeddingDataset, plane: AtlasPlane) -> Iterator[Any]:
    """Yield the rows of a modality of a part, with their positions in the plane."""
    arrow = import_extra("pyarrow", "data")
    for modality in plane.centers:
        for _, rows in dataset.iter_parts(modality, [*COLUMNS, "mean"]):
            points = plane.project(read_mean_traces(rows).mean, modality)
            table = rows.select(list(COLUMNS)).replace_schema_metadata(None)
            for name, values in zip(("projection_x", "projection_y"), points.mT, strict=True):
                table = table.append_column(name, arrow.array(values.contiguous().numpy()))
            yield table
