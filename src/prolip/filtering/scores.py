"""The scores of pairs: a part of embeddings becomes a table, a row for each caption of each sample.

    id, number                        of the sample
    image_row, text_row    int32      where the two lie in the part of the embeddings; null if there is none
    caption                           of this row
    path, url, pixels                 of the image
    csd, cosine            float32    of image and caption
    image_uncertainty, text_uncertainty  float32  tr Sigma
    log_inclusion          float32    of the image in the caption; null without full variances
    ...                               extra columns, carried through

Rows are sorted by number. A sample without captions, or without an image, has one row, with nulls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from prolip.embeddings.extra_columns import free_name
from prolip.embeddings.header import Header
from prolip.embeddings.schema import matrix, schema
from prolip.extras import require
from prolip.gaussian import Gaussian
from prolip.measures.public import log_inclusion

VALUES = ("csd", "cosine", "image_uncertainty", "text_uncertainty", "log_inclusion")
OWN = ("part", "image_row", "text_row", *VALUES)
OF_EMBEDDINGS = ("modality", "mean", "log_var", "uncertainty")
"""Columns that scores take the place of."""
BLOCK = 8192
"""Pairs that are compared at one time: 64 MiB for 512 dimensions."""


def scored(part: Any) -> Any:
    """The table of scores of a part of embeddings; both pyarrow's."""
    arrow = require("pyarrow", "data")
    images, texts = pair_up(part)
    values = {
        name: arrow.array(column, mask=np.isnan(column))
        for name, column in _values(part, images, texts).items()
    }
    owner = np.where(images >= 0, images, texts)
    captions = part["caption"].take(arrow.array(np.where(texts >= 0, texts, images)))
    columns = {
        "id": part["id"].take(arrow.array(owner)),
        "number": part["number"].take(arrow.array(owner)),
        **{name: _places(rows) for name, rows in (("image_row", images), ("text_row", texts))},
        "caption": captions,
        **{name: part[name].take(arrow.array(owner)) for name in ("path", "url", "pixels")},
        **values,
        **{
            own: part[name].take(arrow.array(owner)) for name, own in extra_columns(part.schema.names).items()
        },
    }
    return arrow.table(columns)


def columns_of(header: Header) -> list[str]:
    """The columns of the scores of such embeddings."""
    extra = extra_columns(schema(header).names).values()
    return ["id", "number", "image_row", "text_row", "caption", "path", "url", "pixels", *VALUES, *extra]


def extra_columns(names: list[str]) -> dict[str, str]:
    """What came along, and its name here: with lines behind it, if it is that of a score or of another column."""
    usual = ("id", "number", "caption", "path", "url", "pixels", *OF_EMBEDDINGS)
    found: dict[str, str] = {}
    for name in names:
        if name not in usual:
            others = {*OWN, *usual, *found.values(), *(set(names) - {name})}
            found[name] = free_name(name, others)
    return found


def pair_up(part: Any) -> tuple[np.ndarray, np.ndarray]:
    """int64 (P,) each: the row of the image and of the text of each pair, -1 where there is none, sorted by number."""
    is_image = part["modality"].to_numpy(zero_copy_only=False) == "image"
    numbers = part["number"].to_numpy()
    images, texts = np.flatnonzero(is_image), np.flatnonzero(~is_image)
    place = np.searchsorted(numbers[images], numbers[texts])
    found = np.zeros(len(texts), bool)
    inside = place < len(images)
    found[inside] = numbers[images[place[inside]]] == numbers[texts[inside]]
    owners = np.full(len(texts), -1)
    owners[found] = images[place[found]]
    alone = np.setdiff1d(images, owners)
    both = np.concatenate([owners, alone]), np.concatenate([texts, np.full(len(alone), -1)])
    order = np.argsort(np.concatenate([numbers[texts], numbers[alone]]), kind="stable")
    return both[0][order], both[1][order]


def _values(part: Any, images: np.ndarray, texts: np.ndarray) -> dict[str, np.ndarray]:
    """float32 (P,) each; NaN where there is no value."""
    values = {name: np.full(len(images), np.nan, np.float32) for name in VALUES}
    traces = part["uncertainty"].to_numpy()
    for name, rows in (("image_uncertainty", images), ("text_uncertainty", texts)):
        values[name][rows >= 0] = traces[rows[rows >= 0]]
    paired = np.flatnonzero((images >= 0) & (texts >= 0))
    means = matrix(part["mean"])
    log_vars = matrix(part["log_var"]) if "log_var" in part.schema.names else None
    spread = log_vars is not None and bool(torch.isfinite(log_vars).all())  # not a deterministic model's
    for rows in _blocks(paired):
        left, right = means[images[rows]], means[texts[rows]]
        distance = (left - right).square().sum(-1).numpy()
        values["csd"][rows] = distance + traces[images[rows]] + traces[texts[rows]]
        values["cosine"][rows] = torch.nn.functional.cosine_similarity(left, right, dim=-1).numpy()
        if log_vars is not None and spread:
            a, b = Gaussian(left, log_vars[images[rows]]), Gaussian(right, log_vars[texts[rows]])
            values["log_inclusion"][rows] = log_inclusion(a, b).numpy()
    return values


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    return (rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK))


def _places(rows: np.ndarray) -> Any:
    return require("pyarrow", "data").array(rows.astype(np.int32), mask=rows < 0)
