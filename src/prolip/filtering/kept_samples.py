"""Read kept samples again from the data; the files of a tar are copied byte for byte."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip.data.open import is_stream
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import Source
from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_format import SampleFiles, StreamReader, TarDamageError, iter_samples
from prolip.data.sources.tar_stream import TarStream
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.filtering.selection import Selection
from prolip.preprocessing.images import read_image
from prolip.storage.addresses import redact_secrets
from prolip.storage.streams import UnreachableError, open_stream

EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""Image formats that are copied; an image of another format is written as PNG."""

PartRows = Iterator[tuple[int, Any]]
"""(index of a part or shard, its kept rows as a pyarrow table), one at a time."""


def require_readable(data: str) -> None:
    """Raise ValueError if the location of the data lacks its password, which is never stored.

    Args:
        data: Location of the data, as the header of its embeddings has it.
    """
    if is_stream(data) and "***" in data:
        raise ValueError(
            f"{data} was embedded with a password or token, which is not stored, so the data can't be read again to "
            "write shards: filter the data itself (--model), not its embeddings"
        )


def iter_kept_samples(
    selection: Selection, embeddings: EmbeddingDataset, data: str, skip: int = 0
) -> Iterator[tuple[str, SampleFiles]]:
    """Read every kept sample again, in data order.

    Args:
        selection: The outcome of every sample.
        embeddings: Embeddings of these samples.
        data: The data that was embedded, with its passwords if it is a stream.
        skip: The number of first kept samples to skip.

    Returns:
        An iterator over (key, content of each file by extension).

    Raises:
        ValueError: The data has changed since it was embedded, or can't be read; also during the iteration.
    """
    if is_stream(data):
        return _read_tars(TarStream(data).shards, _iter_kept_rows(selection, ["id"], skip))
    source = embeddings.open_source()
    if isinstance(source, TarShards):
        return _read_tars(source.paths, _group_by_shard(source, _iter_kept_rows(selection, ["id"], skip)))
    return _read_source(source, _iter_kept_rows(selection, selection.scores.columns, skip))


def _iter_kept_rows(selection: Selection, columns: Any, skip: int) -> PartRows:
    """Yield the kept rows of each part, with `index` and these columns, except the first `skip` rows of all parts."""
    for outcomes in selection.iter_parts(columns):
        rows = outcomes.kept_rows
        yield outcomes.part, rows.slice(skip)
        skip = max(0, skip - len(rows))


def _group_by_shard(source: TarShards, rows: PartRows) -> PartRows:
    """Regroup rows of parts by shard: (shard, its rows), with sample indices counted from the start of the shard.

    A shard whose samples are in several parts comes several times in a row.
    """
    ends = np.cumsum(source.chunks)
    for _, table in rows:
        indices = table["index"].to_numpy()
        shards = np.searchsorted(ends, indices, side="right")
        for shard in np.unique(shards).tolist():
            shard_rows = table.take(np.flatnonzero(shards == shard))
            start = int(ends[shard] - source.chunks[shard])
            column = shard_rows.schema.get_field_index("index")
            yield shard, shard_rows.set_column(column, "index", [shard_rows["index"].to_numpy() - start])


def _read_tars(paths: tuple[str, ...], rows: PartRows) -> Iterator[tuple[str, SampleFiles]]:
    """Yield (key, files) of the kept samples of tars.

    Each tar is read once, from front to back; a tar without kept samples is not opened.

    Args:
        paths: Paths or addresses of the shards.
        rows: Kept rows by shard, with `index` and `id`.
    """
    for shard, tables in groupby(rows, key=itemgetter(0)):
        keys = {index: key for _, table in tables for index, key in _iter_keys(table)}
        if keys:
            yield from _read_tar(paths[shard], keys)


def _iter_keys(table: Any) -> Iterator[tuple[int, str]]:
    """Yield (sample index, key) of each row."""
    return zip(table["index"].to_pylist(), table["id"].to_pylist(), strict=True)


def _read_tar(path: str, keys: dict[int, str]) -> Iterator[tuple[str, SampleFiles]]:
    """Yield (key, files) of some samples of a tar.

    Args:
        path: Path or address of the tar.
        keys: Of the samples to read: the key that each had when it was embedded, by sample index, increasing.

    Raises:
        ValueError: The tar can't be read, or has other samples at these indices.
    """
    last_index = max(keys)
    try:
        with open_stream(path) as file:
            for index, sample in enumerate(iter_samples(StreamReader(file))):
                if index in keys:
                    if sample.key.encode("utf-8", "backslashreplace").decode() != keys[index]:
                        raise _make_changed_error(path, keys[index])
                    yield sample.key, sample.files
                if index == last_index:
                    return
    except (TarDamageError, UnreachableError) as error:
        raise ValueError(f"{redact_secrets(path)} can't be read again: {error}") from None
    raise _make_changed_error(path, keys[last_index])


def _read_source(source: Source, rows: PartRows) -> Iterator[tuple[str, SampleFiles]]:
    """Yield (key, files) of the kept samples of other data than tars: image, best caption, and all columns as JSON.

    The key is the sample's index, in 12 digits.

    Raises:
        ValueError: A sample can't be read again.
    """
    for _, table in rows:
        for row in table.to_pylist():
            try:
                sample = source.read(row["index"])
            except BadSampleError as error:
                raise ValueError(
                    f"sample {row['index']} of {source.name} is kept, but can't be read again to write it to a shard: "
                    f"{error}. Restore it, or embed the data again; without shards in --outputs it isn't read again"
                ) from None
            yield f"{row['index']:012d}", _make_files(sample, row)


def _make_files(sample: Sample, row: Mapping[str, object]) -> SampleFiles:
    """Make the files of a sample, by extension: the image, txt if it has a caption, and json.

    `row` is its row of the scores; values that are not None go into the json.
    """
    metadata = {name: value for name, value in row.items() if value is not None}
    metadata |= {"captions": list(sample.captions)}
    extension, content = _read_image_file(sample.image)
    caption = row["caption"]
    texts = {"txt": caption.encode()} if isinstance(caption, str) else {}
    return {extension: content, **texts, "json": json.dumps(metadata, ensure_ascii=False).encode()}


def _read_image_file(image: bytes | Path | Image.Image) -> tuple[str, bytes]:
    """The extension and the bytes of an image: a copy of its file if the format is one of EXTENSIONS, else a PNG.

    Raises:
        ValueError: There is no image (b"").
    """
    if image == b"":
        raise ValueError("captions without images can't be written as shards: pass outputs parquet or ids")
    if not isinstance(image, Image.Image):
        content = image if isinstance(image, bytes) else image.read_bytes()
        with Image.open(io.BytesIO(content)) as opened_image:
            if opened_image.format in EXTENSIONS:
                return EXTENSIONS[opened_image.format], content
        image = read_image(content)
    file = io.BytesIO()
    image.save(file, format="png")
    return "png", file.getvalue()


def _make_changed_error(path: str, key: str) -> ValueError:
    """Make the error for a tar in which the sample with this key is no longer at the position where it was embedded."""
    return ValueError(
        f"{redact_secrets(path)} has changed since it was embedded: the sample {key} is not at its position; "
        "embed the data again with `prolip embed`"
    )
