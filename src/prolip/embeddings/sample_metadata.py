"""Metadata of a sample that is stored with its embedding: small values that JSON can hold."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from prolip.data.sample import BadSampleError, Sample

MAX_TEXT_BYTES, MAX_JSON_BYTES, MAX_ARRAY_SIZE, MAX_ARRAY_BYTES = 4096, 65_536, 1024, 65_536
"""Larger texts, JSON documents and arrays are dropped."""


class SampleMetadata(NamedTuple):
    """Metadata of a sample.

    Attributes:
        key: Key of the sample in its source.
        captions: Its captions.
        extra: Other members of a tar by extension (cls: an integer; npy: a list of numbers; json: its content; short
            texts), or other columns of a table that JSON can hold.
        pixel_digest: Hash of the pixels that the model sees, by which copies are found; "" without an image.
    """

    key: str
    captions: tuple[str, ...]
    extra: Mapping[str, object]
    pixel_digest: str = ""


def hash_pixels(pixels: Tensor) -> str:
    """Hash the pixels that the model sees.

    Args:
        pixels: uint8 (3, S, S).

    Returns:
        16 hexadecimal digits.
    """
    return hashlib.blake2b(pixels.contiguous().numpy().data, digest_size=8).hexdigest()


def collect_metadata(sample: Sample) -> SampleMetadata:
    """Collect the metadata of a sample, without its pixel digest.

    Args:
        sample: From a source.

    Returns:
        The metadata.

    Raises:
        BadSampleError: Its class label (.cls) is not an integer.
    """
    values = {name: _to_json_value(name, value, sample.location) for name, value in sample.extra.items()}
    return SampleMetadata(
        sample.key, sample.captions, {name: value for name, value in values.items() if value is not None}
    )


def _to_json_value(name: str, value: object, location: str) -> Any:
    """A value of `Sample.extra` as JSON holds it; None if it is too large or of another type.

    Args:
        name: Its name: a column, or a member's extension.
        value: Bytes of a tar's member, or a value of a table.
        location: Where the sample is, for errors.

    Raises:
        BadSampleError: It is a class label (.cls), but not an integer.
    """
    if isinstance(value, bytes):
        return _parse_member(name.rpartition(".")[2], value, location)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | bool | list | dict):
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return None
        return json.loads(text) if len(text) <= MAX_JSON_BYTES else None
    return None


def _parse_member(extension: str, content: bytes, location: str) -> Any:
    """Content of a tar's member by its extension: an integer (cls), a list (npy), JSON (json), or a text.

    None if it is too large, or not what its extension says. Raises BadSampleError for a bad class label.
    """
    if extension == "cls":
        return _parse_label(content, location)
    if extension == "npy":
        return _parse_array(content)
    if len(content) > (MAX_JSON_BYTES if extension == "json" else MAX_TEXT_BYTES):
        return None
    try:
        text = content.decode("utf-8")
        return json.loads(text) if extension == "json" else text
    except (ValueError, RecursionError):
        return None


def _parse_label(content: bytes, location: str) -> int:
    """The integer in a .cls member; raises BadSampleError, with the sample's location, if it is none."""
    try:
        return int(content)
    except ValueError:
        raise BadSampleError(
            "unreadable row", location, f"its .cls holds {content[:40]!r}, not an integer"
        ) from None


def _parse_array(content: bytes) -> list[Any] | None:
    """The numbers of a .npy member as a flat list; None if it is damaged, too large or holds no numbers."""
    if not content.startswith(np.lib.format.MAGIC_PREFIX) or len(content) > MAX_ARRAY_BYTES:
        return None  # np.load would also open zip archives
    try:
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError, MemoryError, SyntaxError, TokenError, TypeError):
        return None  # a damaged header is Python source that may fail in any of these ways
    return (
        values.reshape(-1).tolist() if values.dtype.kind in "biuf" and values.size <= MAX_ARRAY_SIZE else None
    )
