"""One sample of a source: an image, its captions and where they came from; or why it can't be used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from PIL import Image

from prolip.checks import escape_controls

Reason = Literal[
    "no image",
    "empty image",
    "unreadable image",
    "image too large",
    "no caption",
    "empty caption",
    "unreadable caption",
    "caption too long",
    "missing file",
    "two files of one kind",
    "broken shard",
    "unreadable row",
]
"""Why a sample can't be used. `unreadable caption`: not UTF-8, not JSON, or not a text."""
MAX_CAPTION_LENGTH = 100_000
"""Characters of the longest caption that is used: cleaning and encoding take some 200 bytes for each."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with all its captions, not yet decoded.

    key:      name of the sample, unique in its source.
    location: for messages: the file, and the key or row in it.
    image:    the bytes of an image file, its path, or an image in memory (a generated scene).
    captions: none is blank; empty only if the source was opened without captions.
    extra:    everything else of the sample: other members of a tar as bytes, by extension; other columns of a table.
    general_captions: for each caption one that follows from it and says less, "" where none is known; empty if the
              source has none at all.
    """

    key: str
    location: str
    image: bytes | Path | Image.Image
    captions: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    general_captions: tuple[str, ...] = ()


class SampleError(NamedTuple):
    """Record of a sample that can't be used. Plain values, so that a worker can send it to its parent process.

    reason:   what is wrong.
    location: the file, and the key or row in it.
    detail:   more about the reason, such as another library's message; may be "".
    """

    reason: Reason
    location: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class BadSampleError(ValueError):
    """A sample that can't be used. Loaders count it and go on; `record` is what was wrong."""

    def __init__(self, reason: Reason, location: str, detail: str = "") -> None:
        self.record = SampleError(reason, _escape(location), _escape(detail))
        super().__init__(str(self.record))


def parse_captions(values: Iterable[object], location: str) -> tuple[str, ...]:
    """Read captions from the values of a sample; blank and unreadable ones are skipped.

    Args:
        values: texts, UTF-8 bytes, or (nested) lists of them.
        location: location of the sample, for the error.

    Returns:
        The captions, stripped; at least one.

    Raises:
        BadSampleError: If no caption is left; the reason is that of the first skipped value, if there is any.
    """
    captions: list[str] = []
    first_error: BadSampleError | None = None
    for value in _flatten(values):
        try:
            captions.append(_parse_caption(value, location))
        except BadSampleError as error:
            first_error = first_error or error
    if captions:
        return tuple(captions)
    raise first_error or BadSampleError("no caption", location)


def read_json_field(content: bytes, path: str, location: str) -> list[object]:
    """Read one field of a JSON object.

    Args:
        content: the JSON object, UTF-8.
        path: name of the field; dots lead into nested objects ("meta.captions").
        location: location of the sample, for the error.

    Returns:
        [value], or [] if the field is absent or null.

    Raises:
        BadSampleError: If the content is not JSON.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadSampleError("unreadable caption", location, f"not JSON: {error}") from None
    for step in path.split("."):
        if not isinstance(value, dict) or value.get(step) is None:
            return []
        value = value[step]
    return [value]


def _flatten(values: Iterable[object]) -> Iterator[object]:
    """The elements of nested lists and tuples, in order, without None."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flatten(value)
        elif value is not None:
            yield value


def _parse_caption(value: object, location: str) -> str:
    """One caption from a text or UTF-8 bytes, stripped; BadSampleError if it is blank or can't be read as a text."""
    if isinstance(value, bytes | str) and len(value) > MAX_CAPTION_LENGTH * (
        4 if isinstance(value, bytes) else 1
    ):
        raise _make_length_error(location)
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadSampleError("unreadable caption", location, f"not UTF-8: {error}") from None
    if not isinstance(value, str):
        raise BadSampleError("unreadable caption", location, f"it is a {type(value).__name__}, not a text")
    text = value.strip()
    if not text:
        raise BadSampleError("empty caption", location)
    if len(text) > MAX_CAPTION_LENGTH:
        raise _make_length_error(location)
    if "\0" in text or not _is_encodable(text):
        raise BadSampleError(
            "unreadable caption", location, "it contains a NUL character or half of a surrogate pair"
        )
    return text


def _make_length_error(location: str) -> BadSampleError:
    """The error of a caption that is too long."""
    return BadSampleError("caption too long", location, f"it has more than {MAX_CAPTION_LENGTH:,} characters")


def _escape(text: str) -> str:
    """Escape what UTF-8 can't hold, and control characters: file names may be any bytes.

    Messages go to logs, terminals and JSON.
    """
    return escape_controls(text.encode("utf-8", "backslashreplace").decode())


def _is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and no tokenizer takes
        return False
    return True
