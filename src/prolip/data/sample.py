"""What every source gives: a picture, its captions, and where they came from; or the reason why not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from PIL import Image

Reason = Literal[
    "no image",
    "empty image",
    "unreadable image",
    "image too large",
    "no caption",
    "empty caption",
    "unreadable caption",
    "missing file",
    "two files of one kind",
    "broken shard",
    "unreadable row",
]
"""Why a sample is left out. `unreadable caption`: not UTF-8, not JSON, not a text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture with all its captions, not yet decoded.

    key:      names the sample within its source.
    where:    for people: the file, and the key or the row in it.
    image:    the bytes of an image file, its path, or a picture made in memory (a procedural scene).
    captions: none is blank; empty only if the source was opened without captions.
    general:  of each caption one that follows from it and says less, "" where none is known; empty: none of any.
    extra:    whatever else came along: other members of a tar as bytes, by ending; other columns of a table.
    """

    key: str
    location: str
    image: bytes | Path | Image.Image
    captions: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    general_captions: tuple[str, ...] = ()


class SampleError(NamedTuple):
    """A sample that was left out. Plain values, so that it crosses from a worker to its parent."""

    reason: Reason
    location: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class BadSampleError(ValueError):
    """A sample that can't be used; the loader counts it and goes on."""

    def __init__(self, reason: Reason, where: str, detail: str = "") -> None:
        self.record = SampleError(reason, _printable(where), _printable(detail))
        super().__init__(str(self.record))


def parse_captions(values: Iterable[object], where: str) -> tuple[str, ...]:
    """The captions among values: texts, UTF-8 bytes, or lists of them, blank ones left out.

    A sample is bad if no caption is left: for the reason why its first value is none, or because there was no value.
    """
    captions: list[str] = []
    first: BadSampleError | None = None
    for value in _flat(values):
        try:
            captions.append(_caption(value, where))
        except BadSampleError as error:
            first = first or error
    if captions:
        return tuple(captions)
    raise first or BadSampleError("no caption", where)


def read_json_field(content: bytes, path: str, where: str) -> list[object]:
    """What `path` leads to in a JSON object: "caption", or "meta.captions" with a dot a step; [] if it isn't there."""
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadSampleError("unreadable caption", where, f"not JSON: {error}") from None
    for step in path.split("."):
        if not isinstance(value, dict) or value.get(step) is None:
            return []
        value = value[step]
    return [value]


def _flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        elif value is not None:
            yield value


def _caption(value: object, where: str) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadSampleError("unreadable caption", where, f"not UTF-8: {error}") from None
    if not isinstance(value, str):
        raise BadSampleError("unreadable caption", where, f"a {type(value).__name__}, not a text")
    text = value.strip()
    if not text:
        raise BadSampleError("empty caption", where)
    if "\0" in text or not _encodable(text):
        raise BadSampleError("unreadable caption", where, "it holds a NUL or half a character")
    return text


def _printable(text: str) -> str:
    """File names may be bytes of any kind; messages go to logs, terminals and JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and no tokenizer takes
        return False
    return True
