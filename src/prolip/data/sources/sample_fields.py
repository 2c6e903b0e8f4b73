"""SampleFields: which files of a sample in a tar are its image and its captions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, parse_captions, read_json_field


class CaptionField(NamedTuple):
    """Where captions are: in which file of a sample, and in which part of it.

    extension: extension of the file, in lower case, without its dot.
    part:      "whole", "lines", or a dot and the path of a JSON field (".meta.en").
    """

    extension: str
    part: str

    @classmethod
    def parse(cls, key: str) -> CaptionField:
        """Parse "txt", "txt:lines" or "json:meta.captions"; ValueError if it is none of these."""
        extension, colon, part = key.partition(":")
        extension = extension.lower()  # but not the JSON field
        is_json = extension.split(".")[-1] == "json"
        if extension and is_json and part:
            return cls(extension, "." + part)
        if extension and not is_json and (not colon or part == "lines"):
            return cls(extension, part or "whole")
        raise ValueError(
            f"caption field {key!r} must be an extension ('txt'), an extension and lines ('txt:lines'), "
            "or json and a field ('json:caption', 'json:meta.captions')"
        )

    def extract_values(self, content: bytes, location: str) -> Sequence[object]:
        """Extract the captions from a file, not yet checked: `parse_captions` takes them.

        Args:
            content: content of the file.
            location: location of the sample, for the error.

        Returns:
            The captions: bytes, or the value of the JSON field; empty if there is no such field.

        Raises:
            BadSampleError: If the file should be JSON and is not.
        """
        if self.part.startswith("."):
            return read_json_field(content, self.part[1:], location)
        return content.splitlines() if self.part == "lines" else [content]


class SampleFields:
    """Makes samples from files by extension. ".txt" and ".jpg" mean the same as "txt" and "jpg".

    Args:
        captions: "txt" (the file is a caption), "txt:lines" (each line is one), "json:caption" or "json:meta.captions"
            (a field that is a text or a list of texts). All that are found count. (): no captions, as in data for
            classification.
        images: extensions; the first of them that a sample has is its image.

    Raises:
        ValueError: If a caption field is malformed, or if no extension of images is given.
    """

    def __init__(self, captions: Sequence[str], images: Sequence[str]) -> None:
        self.captions = _strip_dots(captions)
        self.images = _strip_dots(images)
        self._fields = [CaptionField.parse(key) for key in self.captions]
        self._image_extensions = [extension.lower() for extension in self.images]
        if not self._image_extensions:
            raise ValueError("images must name at least one extension, such as 'jpg'")

    def describe(self) -> tuple[str, str]:
        """Return the settings of captions and of images as texts, for a fingerprint."""
        return f"captions {self.captions}", f"images {self.images}"

    def make_sample(self, key: str, location: str, files: Mapping[str, bytes]) -> Sample:
        """Make a sample.

        Args:
            key: key of the sample.
            location: location of the sample, for messages.
            files: contents by extension; all but the image become `extra`.

        Returns:
            The sample, its image not decoded.

        Raises:
            BadSampleError: If there is no image or it is empty, or if captions are wanted and there is none.
        """
        image_extension = next((name for name in self._image_extensions if name in files), None)
        if image_extension is None:
            raise BadSampleError(
                "no image", location, f"expected {join_names(self.images)}; {_describe_files(files)}"
            )
        if not files[image_extension]:
            raise BadSampleError("empty image", location, f"the file {key}.{image_extension} has 0 bytes")
        captions = self._read_captions(files, location) if self._fields else ()
        extra = {extension: content for extension, content in files.items() if extension != image_extension}
        return Sample(
            key,
            location,
            files[image_extension],
            captions,
            extra,
            _read_general_captions(files, len(captions)),
        )

    def _read_captions(self, files: Mapping[str, bytes], location: str) -> tuple[str, ...]:
        """The captions in all fields that a sample has, at least one; BadSampleError if there is none.

        A field that can't be read is skipped if another one has captions.
        """
        values: list[object] = []
        first_error: BadSampleError | None = None
        for field in self._fields:
            try:
                values += (
                    field.extract_values(files[field.extension], location) if field.extension in files else ()
                )
            except BadSampleError as error:
                first_error = first_error or error
        if values:
            return parse_captions(values, location)
        detail = f"expected {join_names(self.captions)}; {_describe_files(files)}"
        raise first_error or BadSampleError("no caption", location, detail)


def _read_general_captions(files: Mapping[str, bytes], num_captions: int) -> tuple[str, ...]:
    """Read the list "general" in a sample's json: for each caption a more general one, "" where there is none.

    () if there is no such list, or if it is malformed or its length is not `num_captions`.
    """
    content = files.get("json", b"")
    if b'"general"' not in content:  # most data has none: don't parse its JSON
        return ()
    try:
        general = json.loads(content).get("general")
    except (ValueError, AttributeError, RecursionError):
        return ()
    if not isinstance(general, list) or len(general) != num_captions:
        return ()
    return tuple(general) if all(isinstance(caption, str) for caption in general) else ()


def require_unique_extensions(extensions: Iterable[str], location: str) -> None:
    """Raise BadSampleError if a sample has two files of one extension.

    Args:
        extensions: extensions of all files of the sample.
        location: location of the sample, for the error.
    """
    seen: set[str] = set()
    for extension in extensions:
        if extension in seen:
            raise BadSampleError(
                "two files of one kind", location, f"two files with the extension {extension}"
            )
        seen.add(extension)


def _strip_dots(keys: str | Sequence[str]) -> tuple[str, ...]:
    """Extensions or caption fields without a dot at their beginning; one str is a list of one."""
    return tuple(key.removeprefix(".") for key in ([keys] if isinstance(keys, str) else keys))


def _describe_files(files: Mapping[str, bytes]) -> str:
    """Format the extensions of a sample's files, and the fields of JSON ones, for messages: "found txt, json (...)".

    One of them may be what the user meant.
    """
    descriptions = []
    for extension, content in files.items():
        fields: object = None
        if extension.split(".")[-1] == "json":
            try:
                fields = json.loads(content)
            except (ValueError, RecursionError):
                fields = None
        descriptions.append(
            f"{extension} (fields {join_names(list(fields), 12)})" if isinstance(fields, dict) else extension
        )
    return f"found {join_names(descriptions, 8)}"
