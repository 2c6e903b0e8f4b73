"""What is remembered of a sample beside its embedding: small, and of kinds that JSON knows."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from prolip.data.sample import BadSampleError, Sample

MOST_TEXT, MOST_JSON, MOST_NUMBERS = 4096, 65_536, 1024
"""Bytes of a text and of a JSON file, numbers of an array, beyond which a member is not remembered."""


class Facts(NamedTuple):
    """key and captions: of the sample. pixels: a digest of what the model sees of it, by which copies are found.
    extra: other members of a tar by ending (cls: a whole number; npy: a list of
    numbers; json: what it holds; short texts), other columns of a table where JSON knows their kind."""

    key: str
    captions: tuple[str, ...]
    extra: dict[str, Any]
    pixels: str = ""


def digest_of(pixels: Tensor) -> str:
    """16 hexadecimal digits of pixels, uint8 (3, S, S)."""
    return hashlib.blake2b(pixels.contiguous().numpy().data, digest_size=8).hexdigest()


def facts_of(sample: Sample) -> Facts:
    found = {name: _plain(name, value, sample.where) for name, value in sample.extra.items()}
    return Facts(
        sample.key, sample.captions, {name: value for name, value in found.items() if value is not None}
    )


def _plain(name: str, value: object, where: str) -> Any:
    """The value as JSON has it; None if it is too large or of another kind."""
    if isinstance(value, bytes):
        return _member(name.rpartition(".")[2], value, where)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | bool | list | dict):
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return None
        return json.loads(text) if len(text) <= MOST_JSON else None
    return None


def _member(ending: str, content: bytes, where: str) -> Any:
    if ending == "cls":
        return _label(content, where)
    if ending == "npy":
        return _numbers(content)
    if len(content) > (MOST_JSON if ending == "json" else MOST_TEXT):
        return None
    try:
        text = content.decode("utf-8")
        return json.loads(text) if ending == "json" else text
    except (ValueError, RecursionError):
        return None


def _label(content: bytes, where: str) -> int:
    try:
        return int(content)
    except ValueError:
        raise BadSampleError(
            "unreadable row", where, f"its .cls holds {content[:40]!r}, not a whole number"
        ) from None


def _numbers(content: bytes) -> list[Any] | None:
    try:
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    return (
        values.reshape(-1).tolist() if values.dtype.kind in "biuf" and values.size <= MOST_NUMBERS else None
    )
