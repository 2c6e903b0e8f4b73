"""Scores of image-text pairs: a table with one row per caption of each sample.

    id, index                         of the sample
    image_row, text_row    int32      their rows in the part of the embeddings; null if there is none
    caption                           of this row
    path, url, pixel_digest           of the image
    csd, cosine            float32    of image and caption
    image_uncertainty, text_uncertainty  float32  tr Sigma
    log_inclusion          float32    of the image in the caption; null without full variances
    image_perplexity, text_perplexity  float32  items of the other modality that fit; null until a filter ranks by it
    ...                               extra columns, carried through

Rows are sorted by index. A sample without captions, or without an image, has one row, with nulls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from prolip.embeddings.extra_columns import make_unique_column_name
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.schema import column_to_tensor, make_schema
from prolip.extras import import_extra
from prolip.filtering.pool_scores import POOLS
from prolip.gaussian import Gaussian
from prolip.measures.public import log_inclusion

SCORE_COLUMNS = ("csd", "cosine", "image_uncertainty", "text_uncertainty", "log_inclusion", *POOLS)
RESERVED_COLUMNS = ("part", "outcome", "image_row", "text_row", *SCORE_COLUMNS)
"""Names that an extra column can't have; it gets an underscore appended."""
REPLACED_COLUMNS = ("modality", "mean", "log_var", "uncertainty", "metadata")
"""Columns of embeddings that scores replace, or (metadata) that repeat others."""
BLOCK = 8192
"""Pairs that are compared together: 64 MiB for 512 dimensions."""


def compute_scores(part: Any) -> Any:
    """Compute the scores of a part of embeddings; those that need other parts are null.

    Args:
        part: A pyarrow table, of `EmbeddingDataset.read_part`.

    Returns:
        A pyarrow table; its columns are described at the top of this file.
    """
    arrow = import_extra("pyarrow", "data")
    images, texts = pair_images_with_texts(part)
    scores = {
        name: arrow.array(column, mask=np.isnan(column))
        for name, column in _compute_score_arrays(part, images, texts).items()
    }
    # the row of the embeddings that describes the sample: its image's, if it has one
    sample_rows = np.where(images >= 0, images, texts)
    captions = part["caption"].take(arrow.array(np.where(texts >= 0, texts, images)))
    columns = {
        "id": part["id"].take(arrow.array(sample_rows)),
        "index": part["index"].take(arrow.array(sample_rows)),
        **{name: _to_nullable(rows) for name, rows in (("image_row", images), ("text_row", texts))},
        "caption": captions,
        **{name: part[name].take(arrow.array(sample_rows)) for name in ("path", "url", "pixel_digest")},
        **scores,
        **{
            new_name: part[name].take(arrow.array(sample_rows))
            for name, new_name in find_extra_columns(part.schema.names).items()
        },
    }
    return arrow.table(columns)


def get_score_columns(header: DatasetHeader) -> list[str]:
    """List the columns of the scores of an embedding data set.

    Args:
        header: Header of the embedding data set.

    Returns:
        The names, in the order of the table.
    """
    extra = find_extra_columns(make_schema(header).names).values()
    return [
        "id",
        "index",
        "image_row",
        "text_row",
        "caption",
        "path",
        "url",
        "pixel_digest",
        *SCORE_COLUMNS,
        *extra,
    ]


def find_extra_columns(names: list[str]) -> dict[str, str]:
    """Find the extra columns of an embedding part and their names in the table of scores.

    Args:
        names: All columns of the part.

    Returns:
        The new name of each extra column: underscores are appended to a name that is taken.
    """
    builtin = ("id", "index", "caption", "path", "url", "pixel_digest", *REPLACED_COLUMNS)
    renamed: dict[str, str] = {}
    for name in names:
        if name not in builtin:
            taken = {*RESERVED_COLUMNS, *builtin, *renamed.values(), *(set(names) - {name})}
            renamed[name] = make_unique_column_name(name, taken)
    return renamed


def pair_images_with_texts(part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pair each text of a part with its sample's image.

    Args:
        part: A pyarrow table of embeddings, with `modality` and `index`.

    Returns:
        int64 (P,) each: the row of the image and of the text of each pair, -1 where there is none, sorted by index.
    """
    is_image = part["modality"].to_numpy(zero_copy_only=False) == "image"
    indices = part["index"].to_numpy()
    images, texts = np.flatnonzero(is_image), np.flatnonzero(~is_image)
    # images are sorted by index: position of the image of each text's sample among them, or where it would be
    position = np.searchsorted(indices[images], indices[texts])
    has_image = np.zeros(len(texts), bool)
    # a position after the last image belongs to a text without an image
    is_valid = position < len(images)
    has_image[is_valid] = indices[images[position[is_valid]]] == indices[texts[is_valid]]
    image_of_text = np.full(len(texts), -1)
    image_of_text[has_image] = images[position[has_image]]
    without_text = np.setdiff1d(images, image_of_text)
    pair_images = np.concatenate([image_of_text, without_text])
    pair_texts = np.concatenate([texts, np.full(len(without_text), -1)])
    order = np.argsort(np.concatenate([indices[texts], indices[without_text]]), kind="stable")
    return pair_images[order], pair_texts[order]


def _compute_score_arrays(part: Any, images: np.ndarray, texts: np.ndarray) -> dict[str, np.ndarray]:
    """Compute each score of P pairs, by column of SCORE_COLUMNS: float32 (P,), NaN where there is no value.

    Args:
        part: A pyarrow table of embeddings.
        images: int64 (P,): row of each pair's image; -1: none.
        texts: int64 (P,): row of each pair's text; -1: none.
    """
    values = {name: np.full(len(images), np.nan, np.float32) for name in SCORE_COLUMNS}
    traces = part["uncertainty"].to_numpy()
    for name, rows in (("image_uncertainty", images), ("text_uncertainty", texts)):
        values[name][rows >= 0] = traces[rows[rows >= 0]]
    paired = np.flatnonzero((images >= 0) & (texts >= 0))
    means = column_to_tensor(part["mean"])
    log_vars = column_to_tensor(part["log_var"]) if "log_var" in part.schema.names else None
    # a deterministic model's log-variances are -inf
    is_probabilistic = log_vars is not None and bool(torch.isfinite(log_vars).all())
    for rows in _iter_blocks(paired):
        image_means, text_means = means[images[rows]], means[texts[rows]]
        distance = (image_means - text_means).square().sum(-1).numpy()
        values["csd"][rows] = distance + traces[images[rows]] + traces[texts[rows]]
        values["cosine"][rows] = torch.nn.functional.cosine_similarity(
            image_means, text_means, dim=-1
        ).numpy()
        if log_vars is not None and is_probabilistic:
            image_z = Gaussian(image_means, log_vars[images[rows]])
            text_z = Gaussian(text_means, log_vars[texts[rows]])
            values["log_inclusion"][rows] = log_inclusion(image_z, text_z).numpy()
    return values


def _iter_blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Split row numbers into consecutive blocks of at most `BLOCK`."""
    return (rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK))


def _to_nullable(rows: np.ndarray) -> Any:
    """Convert row numbers to a pyarrow array of int32, with null in place of negative numbers."""
    return import_extra("pyarrow", "data").array(rows.astype(np.int32), mask=rows < 0)
