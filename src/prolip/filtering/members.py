"""The files of samples that are kept, read again from the data: those of a tar as they were, byte for byte."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip.data.open import is_stream
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import Source
from prolip.data.sources.tar import Shards
from prolip.data.sources.tar_format import DamageError, StreamTape, groups
from prolip.data.sources.tar_stream import Stream, UnreachableError, opened, without_secrets
from prolip.data.sources.tar_writer import Members
from prolip.embeddings.dataset import Embeddings
from prolip.filtering.selection import Selection
from prolip.preprocessing.images import read_image

ENDINGS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""Of the formats that shards are read from; a picture of another one is written as PNG."""

Rows = Iterator[tuple[int, Any]]
"""(part, kept rows of it), part after part."""


def require_readable(data: str) -> None:
    """An address whose password was left out when it was kept leads nowhere."""
    if is_stream(data) and "***" in data:
        raise ValueError(
            f"{data} was embedded with a password or token, which is not kept, so that it can't be read again for new "
            "shards: filter the data itself (--model), not its embeddings"
        )


def kept_members(
    selection: Selection, embeddings: Embeddings, data: str, skip: int = 0
) -> Iterator[tuple[str, Members]]:
    """(key, files) of every sample that is kept, in the order of the data, without the first `skip`.

    data: what was embedded, with its passwords, if it is a stream.
    """
    if is_stream(data):
        return _of_tars(Stream(data).shards, _kept(selection, ["id"], skip))
    source = embeddings.source()
    if isinstance(source, Shards):
        return _of_tars(source.paths, _by_shard(source, _kept(selection, ["id"], skip)))
    return _of_source(source, _kept(selection, selection.scores.columns, skip))


def _kept(selection: Selection, columns: Any, skip: int) -> Rows:
    for judged in selection.parts(columns):
        rows = judged.kept
        yield judged.part, rows.slice(skip)
        skip = max(0, skip - len(rows))


def _by_shard(source: Shards, rows: Rows) -> Rows:
    """(shard, its rows), with numbers from the shard's start."""
    ends = np.cumsum(source.chunks)
    for _, table in rows:
        numbers = table["number"].to_numpy()
        shards = np.searchsorted(ends, numbers, side="right")
        for shard in np.unique(shards).tolist():
            own = table.take(np.flatnonzero(shards == shard))
            start = int(ends[shard] - source.chunks[shard])
            column = own.schema.get_field_index("number")
            yield shard, own.set_column(column, "number", [own["number"].to_numpy() - start])


def _of_tars(paths: tuple[str, ...], rows: Rows) -> Iterator[tuple[str, Members]]:
    """Each tar is read once, from front to back; one without kept samples is not opened."""
    for shard, tables in groupby(rows, key=itemgetter(0)):
        wanted = {number: key for _, table in tables for number, key in _named(table)}
        if wanted:
            yield from _of_tar(paths[shard], wanted)


def _named(table: Any) -> Iterator[tuple[int, str]]:
    return zip(table["number"].to_pylist(), table["id"].to_pylist(), strict=True)


def _of_tar(path: str, wanted: dict[int, str]) -> Iterator[tuple[str, Members]]:
    """wanted: numbers in the tar, increasing, and the keys that they had when they were embedded."""
    last = max(wanted)
    try:
        with opened(path) as file:
            for number, group in enumerate(groups(StreamTape(file))):
                if number in wanted:
                    if group.key.encode("utf-8", "backslashreplace").decode() != wanted[number]:
                        raise _changed(path, wanted[number])
                    yield group.key, group.files
                if number == last:
                    return
    except (DamageError, UnreachableError) as error:
        raise ValueError(f"{without_secrets(path)} can't be read again: {error}") from None
    raise _changed(path, wanted[last])


def _of_source(source: Source, rows: Rows) -> Iterator[tuple[str, Members]]:
    """The picture's bytes, the caption that fits best, and all that is known as JSON."""
    for _, table in rows:
        for row in table.to_pylist():
            try:
                sample = source.read(row["number"])
            except BadSampleError as error:
                raise ValueError(f"a sample that was kept can't be read again: {error}") from None
            yield f"{row['number']:012d}", _members(sample, row)


def _members(sample: Sample, row: dict[str, Any]) -> Members:
    told = {name: value for name, value in row.items() if value is not None}
    told |= {"captions": list(sample.captions)}
    ending, content = _picture(sample.image)
    texts = {} if row["caption"] is None else {"txt": row["caption"].encode()}
    return {ending: content, **texts, "json": json.dumps(told, ensure_ascii=False).encode()}


def _picture(image: bytes | Path | Image.Image) -> tuple[str, bytes]:
    """Its ending and its bytes, as they are if they are of a file."""
    if image == b"":
        raise ValueError("captions without pictures make no shards: ask for parquet or ids")
    if not isinstance(image, Image.Image):
        content = image if isinstance(image, bytes) else image.read_bytes()
        with Image.open(io.BytesIO(content)) as opened_image:
            if opened_image.format in ENDINGS:
                return ENDINGS[opened_image.format], content
        image = read_image(content)
    file = io.BytesIO()
    image.save(file, format="png")
    return "png", file.getvalue()


def _changed(path: str, key: str) -> ValueError:
    return ValueError(
        f"{without_secrets(path)} has changed since it was embedded: {key} is not where it was; embed it again"
    )
