"""A folder of pictures, each with its caption in the .txt of the same name beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import require_sample_file, require_image_file

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")
MAX_TEXT_BYTES = 2**20
"""Bytes; a longer .txt holds no caption."""


class ImageFolder(SingleChunkSource):
    """All pictures in a folder and below it, by name; hidden files and folders are left out.

    captions: False: the pictures alone. Else a picture without a .txt, and a .txt without a picture, are bad samples.
    lines:    each line of a .txt is a caption; else all of it is one.

    A linked folder is followed, but none is entered twice.
    """

    def __init__(self, path: str | Path, *, captions: bool = True, lines: bool = False) -> None:
        self.path = Path(path)
        self.captions = captions
        self.lines = lines
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path}: there is no such folder")
        self._pairs = _pairs(sorted(iter_files(self.path)), captions)
        if not any(image for image, _ in self._pairs):
            raise ValueError(
                f"{self.path}: no picture in it or below it; looked for {', '.join(IMAGE_EXTENSIONS)}"
            )

    def __len__(self) -> int:
        return len(self._pairs)

    def sample_keys(self) -> list[str]:
        """Of all samples: the path of the picture (or, without one, of the text), from the folder on."""
        return [image or text for image, text in self._pairs]

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        image, text = self._pairs[index]
        key = image or text
        where = str(self.path / key)
        if not image:
            raise BadSampleError("no image", where, "a .txt without a picture")
        path = require_image_file(self.path / image, where)
        return Sample(key, where, path, self._captions(text, where) if self.captions else ())

    def fingerprint(self) -> str:
        return compute_fingerprint(
            "folder", self.captions, self.lines, *(ascii(pair) for pair in self._pairs)
        )

    def stamps(self) -> Iterator[tuple[int, int]]:
        """Size and time of change of all files, (0, 0) for one that is gone."""
        for name in (name for pair in self._pairs for name in pair if name):
            try:
                status = os.stat(self.path / name)
            except FileNotFoundError:
                yield 0, 0
            else:
                yield status.st_size, status.st_mtime_ns

    def _captions(self, text: str, where: str) -> tuple[str, ...]:
        if not text:
            raise BadSampleError("no caption", where, "there is no .txt beside it")
        require_sample_file(self.path / text, where)
        try:
            with open(self.path / text, "rb") as file:
                content = file.read(MAX_TEXT_BYTES + 1)
        except FileNotFoundError:  # just now
            raise BadSampleError("missing file", where, text) from None
        if len(content) > MAX_TEXT_BYTES:
            raise BadSampleError("unreadable caption", where, f"{text} is longer than 1 MB")
        return parse_captions(content.splitlines() if self.lines else [content], where)


def iter_files(folder: Path) -> Iterator[str]:
    """Paths of all files below a folder, relative to it; hidden ones left out, links followed."""

    def fail(error: OSError) -> None:
        raise error

    entered = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=fail):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in entered:  # by a link, which may lead back here without end
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(root, name), folder)


def _pairs(names: list[str], captions: bool) -> list[tuple[str, str]]:
    """(picture, text), "" for one that is not there, by the name of the first that is."""
    texts = {_stem(name): name for name in names if captions and name.lower().endswith(".txt")}
    images = [name for name in names if name.lower().endswith(IMAGE_EXTENSIONS)]
    pairs = [(image, texts.get(_stem(image), "")) for image in images]
    lonely = texts.keys() - {_stem(image) for image in images}
    return sorted([*pairs, *(("", texts[stem]) for stem in lonely)], key=lambda pair: pair[0] or pair[1])


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]
