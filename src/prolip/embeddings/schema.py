"""The Arrow schema of embeddings: a row is an image or a text; and the way back to Gaussians.

    id           string       the sample's key in its source
    number       int64        its number in the source (in its shard, for a stream)
    modality     string       "image" or "text"
    mean         float32[D]   or float16[D]
    log_var      float32[D]   with full variances only
    uncertainty  float32      tr Sigma
    caption      string       of a text: itself; of an image: the first of its sample, if any
    path, url    string       the picture's own file, and where it came from, if known
    pixels       string       16 hexadecimal digits of what the model saw; none for a text
    ...                       whatever else came along (embed/extra.py)

Images come first, then texts, both by number; a sample with several captions has several texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.data.sample import Bad
from prolip.embeddings import extra_columns
from prolip.embeddings.cache import Part
from prolip.embeddings.header import Header
from prolip.extras import require
from prolip.gaussian import Gaussian, MeanTrace

HEADER, NUMBER, DIGEST, TRIED, BAD, MISFITS = b"prolip", b"part", b"digest", b"tried", b"bad", b"misfits"
"""In the metadata of a schema: the header; of this part its number, 16 hexadecimal digits of its ids and Gaussians, how
many samples were tried, which of them were left out, by number, and how many values of each extra column were."""


def schema(header: Header) -> Any:
    """The pyarrow schema of a part."""
    arrow = require("pyarrow", "data")
    mean = arrow.float16() if header.precision == "float16" else arrow.float32()
    fields = [
        arrow.field("id", arrow.string(), nullable=False),
        arrow.field("number", arrow.int64(), nullable=False),
        arrow.field("modality", arrow.string(), nullable=False),
        arrow.field("mean", arrow.list_(mean, header.dim)),
        *(
            [arrow.field("log_var", arrow.list_(arrow.float32(), header.dim))]
            if header.variances == "full"
            else []
        ),
        arrow.field("uncertainty", arrow.float32(), nullable=False),
        *(arrow.field(name, arrow.string()) for name in ("caption", "path", "url", "pixels")),
        *(arrow.field(name, arrow.type_for_alias(kind)) for name, kind in header.columns.items()),
    ]
    return arrow.schema(fields, {HEADER: header.to_json().encode()})


def table_of(header: Header, number: int, part: Part, texts: Gaussian | None) -> Any:
    """A part as a pyarrow table.

    number: of the part. part: its images (n, D), if they were wanted. texts: of all captions of its samples, one sample
    after another, if they were wanted.
    """
    arrow = require("pyarrow", "data")
    images = range(len(part.facts)) if header.what != "texts" else range(0)
    captions = [
        (row, text) for row, facts in enumerate(part.facts) for text in facts.captions if texts is not None
    ]
    rows = [*images, *(row for row, _ in captions)]
    z = [*part.blocks, *([texts] if texts is not None and len(texts) else [])]
    both = Gaussian.cat(z) if z else Gaussian(torch.empty(0, header.dim), torch.empty(0, header.dim))
    first = [part.facts[row].captions[:1] for row in images]
    misfits: Counter[str] = Counter()
    columns = {
        "id": [extra_columns.utf8(part.facts[row].key) for row in rows],
        "number": [part.numbers[row] for row in rows],
        "modality": ["image"] * len(images) + ["text"] * len(captions),
        **_numbers(header, both),
        "caption": [*(texts[0] if texts else None for texts in first), *(text for _, text in captions)],
        "path": [_path(part.stamps[row]) for row in rows],
        "url": [extra_columns.address_of(part.facts[row]) for row in rows],
        "pixels": [*(part.facts[row].pixels for row in images), *([None] * len(captions))],
        **_extra(header, part, rows, misfits),
    }
    told = {
        HEADER: header.to_json(),
        NUMBER: str(number),
        DIGEST: _digest(both, columns["id"]),
        TRIED: str(len(part.numbers) + len(part.bads)),
        BAD: _told(part.bads),
        MISFITS: json.dumps(misfits),
    }
    made = schema(header).with_metadata(told)
    return arrow.table([arrow.array(columns[f.name], type=f.type) for f in made], schema=made)


def gaussian_of(table: Any) -> Gaussian:
    """mean and log_var of its rows: (n, D), float32."""
    if "log_var" not in table.schema.names:
        raise ValueError(
            "these embeddings hold the trace of each covariance alone, and inclusion needs every variance: embed with "
            "variances full"
        )
    return Gaussian(matrix(table["mean"]), matrix(table["log_var"]))


def mean_trace_of(table: Any) -> MeanTrace:
    """mean (n, D) and uncertainty (n,) of its rows, float32: what CSD needs."""
    return MeanTrace(matrix(table["mean"]), torch.from_numpy(table["uncertainty"].to_numpy().copy()))


def matrix(column: Any) -> Tensor:
    """A column of fixed-size lists as float32 (n, D)."""
    dim = column.type.list_size
    pieces = [np.asarray(chunk.flatten()).reshape(-1, dim) for chunk in column.chunks]
    whole = np.concatenate(pieces) if pieces else np.empty((0, dim))
    return torch.from_numpy(np.array(whole, dtype=np.float32))


def require_part(metadata: Mapping[bytes, bytes] | None, header: Header, number: int, name: str) -> None:
    """A part of these embeddings, and at its own place."""
    found = metadata or {}
    if not {HEADER, NUMBER, DIGEST, TRIED, BAD, MISFITS} <= found.keys():
        raise ValueError(f"{name} is a Parquet file, but no part of embeddings: remove it")
    if found[HEADER] != header.to_json().encode():
        raise ValueError(f"{name} is not of these embeddings: its header is another one; remove it")
    if found[NUMBER] != str(number).encode():
        raise ValueError(f"{name} is part {found[NUMBER].decode()}, not {number}: remove it")


def digest_of(metadata: Mapping[bytes, bytes]) -> str:
    """Of the ids and Gaussians of a part: what is made of them is made anew if it differs."""
    return metadata[DIGEST].decode()


def bads_of(metadata: Mapping[bytes, bytes]) -> dict[int, Bad]:
    """Samples that a part has left out, by number."""
    return {int(number): Bad(*bad) for number, bad in json.loads(metadata[BAD]).items()}


def tried_of(metadata: Mapping[bytes, bytes]) -> int:
    """Samples of a part, good and bad."""
    return int(metadata[TRIED])


def misfits_of(metadata: Mapping[bytes, bytes]) -> Counter[str]:
    """How many values of each extra column are null because they were not of its type."""
    return Counter(json.loads(metadata[MISFITS]))


def _numbers(header: Header, z: Gaussian) -> dict[str, Any]:
    mean = z.mean.to(getattr(torch, header.precision))
    columns = {"mean": _lists(mean), "uncertainty": z.uncertainty.float().numpy()}
    return columns | ({"log_var": _lists(z.log_var.float())} if header.variances == "full" else {})


def _lists(values: Tensor) -> Any:
    arrow = require("pyarrow", "data")
    return arrow.FixedSizeListArray.from_arrays(
        arrow.array(values.contiguous().numpy().ravel()), values.shape[1]
    )


def _extra(header: Header, part: Part, rows: Sequence[int], misfits: Counter[str]) -> dict[str, list[Any]]:
    for facts in part.facts:
        extra_columns.count_unknown(header.columns, facts, misfits)
    values = [extra_columns.values_of(facts) for facts in part.facts]
    found = {name: extra_columns.cells(name, kind, values, misfits) for name, kind in header.columns.items()}
    return {name: [cells[row] for row in rows] for name, cells in found.items()}


def _digest(z: Gaussian, ids: Sequence[str]) -> str:
    digest = hashlib.blake2b("\n".join(ids).encode(), digest_size=8)
    for values in (z.mean, z.log_var):
        digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()


def _path(stamp: tuple[str, int, int] | None) -> str | None:
    return None if stamp is None else extra_columns.utf8(stamp[0])


def _told(bads: Mapping[int, Bad]) -> str:
    return json.dumps({str(number): bad for number, bad in bads.items()})
