"""What of a sample's files is its picture, and what its captions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, parse_captions, read_json_field


class CaptionField(NamedTuple):
    """The ending of a file, and where captions are in it: "whole", "lines", or the path of a field, as ".meta.en"."""

    ending: str
    part: str

    @classmethod
    def parse(cls, key: str) -> CaptionField:
        ending, colon, part = key.lower().partition(":")[0], *key.partition(":")[1:]
        if ending and ending.split(".")[-1] == "json" and part:
            return cls(ending, "." + part)
        if ending and ending.split(".")[-1] != "json" and (not colon or part == "lines"):
            return cls(ending, part or "whole")
        raise ValueError(
            f"caption key {key!r} is none of: an ending ('txt'), an ending and lines ('txt:lines'), "
            "json and a field ('json:caption', 'json:meta.captions')"
        )

    def values(self, content: bytes, where: str) -> Sequence[object]:
        """What captions there are in a file; `parse_captions` tells which of them are good."""
        if self.part.startswith("."):
            return read_json_field(content, self.part[1:], where)
        return content.splitlines() if self.part == "lines" else [content]


class SampleFields:
    """
    captions: where they are, by ending: "txt" (the file is one), "txt:lines" (each line is), "json:caption" or
              "json:meta.captions" (a field that is a text or a list of texts). All that are found count.
              (): none are wanted, as with data for classification.
    images:   endings; the first of them that a sample has is its picture.

    ".txt" and ".jpg" mean the same as "txt" and "jpg".
    """

    def __init__(self, captions: Sequence[str], images: Sequence[str]) -> None:
        self.captions = _without_dots(captions)
        self.images = _without_dots(images)
        self._keys = [CaptionField.parse(key) for key in self.captions]
        self._pictures = [ending.lower() for ending in self.images]
        if not self._pictures:
            raise ValueError("images must name at least one ending, such as 'jpg'")

    def facts(self) -> tuple[str, str]:
        """For a fingerprint."""
        return f"captions {self.captions}", f"images {self.images}"

    def sample(self, key: str, where: str, files: Mapping[str, bytes]) -> Sample:
        """files: their contents, by ending. All but the picture are `extra`."""
        picture = next((ending for ending in self._pictures if ending in files), None)
        if picture is None:
            raise BadSampleError(
                "no image", where, f"wanted {join_names(self.images)}; {_what_is_there(files)}"
            )
        if not files[picture]:
            raise BadSampleError("empty image", where)
        captions = self._captions(files, where) if self._keys else ()
        extra = {ending: content for ending, content in files.items() if ending != picture}
        return Sample(key, where, files[picture], captions, extra, _general(files, len(captions)))

    def _captions(self, files: Mapping[str, bytes], where: str) -> tuple[str, ...]:
        values: list[object] = []
        first: BadSampleError | None = None
        for key in self._keys:
            try:
                values += key.values(files[key.ending], where) if key.ending in files else ()
            except BadSampleError as error:
                first = first or error
        if values:
            return parse_captions(values, where)
        wanted = f"wanted {join_names(self.captions)}; {_what_is_there(files)}"
        raise first or BadSampleError("no caption", where, wanted)


def _general(files: Mapping[str, bytes], count: int) -> tuple[str, ...]:
    """What a list `general` in the json says: a more general caption for each, or "" where there is none."""
    content = files.get("json", b"")
    if b'"general"' not in content:
        return ()
    try:
        found = json.loads(content).get("general")
    except (ValueError, AttributeError, RecursionError):
        return ()
    good = isinstance(found, list) and len(found) == count and all(isinstance(text, str) for text in found)
    return tuple(found) if good else ()


def require_unique_extensions(endings: Iterable[str], where: str) -> None:
    """A sample has at most one file of an ending."""
    seen: set[str] = set()
    for ending in endings:
        if ending in seen:
            raise BadSampleError("two files of one kind", where, f"two {ending}")
        seen.add(ending)


def _without_dots(keys: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(key.removeprefix(".") for key in ([keys] if isinstance(keys, str) else keys))


def _what_is_there(files: Mapping[str, bytes]) -> str:
    """Endings, and the fields of JSON: one of them may be what was meant."""
    told = []
    for ending, content in files.items():
        fields: object = None
        if ending.split(".")[-1] == "json":
            try:
                fields = json.loads(content)
            except (ValueError, RecursionError):
                fields = None
        told.append(
            f"{ending} (fields {join_names(list(fields), 12)})" if isinstance(fields, dict) else ending
        )
    return f"there is {join_names(told, 8)}"
