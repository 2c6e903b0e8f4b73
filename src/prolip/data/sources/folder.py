"""Image files as sources: a folder of images with captions in .txt files, or a list of images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import require_image_file, require_sample_file

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")
MAX_TEXT_BYTES = 2**20
"""A longer .txt is not a caption."""


class ImageFolder(SingleChunkSource):
    """All images in a folder and below it, by name; hidden files and folders are skipped.

    The caption of an image is in the .txt file of the same name. Links to folders are followed, but none twice.

    Args:
        path: the folder.
        captions: whether to read captions; then an image without .txt, and a .txt without image, are bad samples.
        lines: whether each line of a .txt is a caption; otherwise all of it is one.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it has no images.
    """

    def __init__(self, path: str | Path, *, captions: bool = True, lines: bool = False) -> None:
        self.path = Path(path)
        self.captions = captions
        self.lines = lines
        self._requires_captions = captions
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path}: no such folder")
        self._pairs = _pair_files(sorted(iter_files(self.path)), captions)
        if not any(image for image, _ in self._pairs):
            raise ValueError(
                f"{self.path}: there are no images in this folder or below it. Images are files with the extensions "
                f"{', '.join(IMAGE_EXTENSIONS)}."
            )

    def __len__(self) -> int:
        return len(self._pairs)

    def with_optional_captions(self) -> ImageFolder:
        """Make a copy in which an image without a .txt file is a sample without captions, not a bad sample."""
        folder = copy(self)
        folder._requires_captions = False
        return folder

    def sample_keys(self) -> list[str]:
        """Return the keys of all samples: the path of the image (or of the text), relative to the folder."""
        return [image or text_file for image, text_file in self._pairs]

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`; its key is the path of the image relative to the folder."""
        require_index(index, len(self))
        image, text_file = self._pairs[index]
        key = image or text_file
        location = str(self.path / key)
        if not image:
            raise BadSampleError("no image", location, "there is a .txt file but no image of the same name")
        path = require_image_file(self.path / image, location)
        return Sample(key, location, path, self._read_captions(text_file, location) if self.captions else ())

    def fingerprint(self) -> str:
        return compute_fingerprint(
            "folder", self.captions, self.lines, *(ascii(pair) for pair in self._pairs)
        )

    def stamps(self) -> Iterator[tuple[int, int]]:
        """Iterate over size (bytes) and modification time (ns) of all files; (0, 0) for one that was deleted."""
        for name in (name for pair in self._pairs for name in pair if name):
            try:
                status = os.stat(self.path / name)
            except FileNotFoundError:
                yield 0, 0
            else:
                yield status.st_size, status.st_mtime_ns

    def _read_captions(self, text_file: str, location: str) -> tuple[str, ...]:
        """Read the captions of a .txt file, whose path is relative to the folder; "" if the image has no such file.

        BadSampleError if there is no such file but captions are required, or if it has no captions or is longer than
        1 MB.
        """
        if not text_file and not self._requires_captions:
            return ()
        if not text_file:
            raise BadSampleError("no caption", location, "there is no .txt file of the same name")
        require_sample_file(self.path / text_file, location)
        try:
            with open(self.path / text_file, "rb") as file:
                content = file.read(MAX_TEXT_BYTES + 1)
        except FileNotFoundError:  # deleted just now
            raise BadSampleError("missing file", location, text_file) from None
        if len(content) > MAX_TEXT_BYTES:
            raise BadSampleError("unreadable caption", location, f"{text_file} is longer than 1 MB")
        return parse_captions(content.splitlines() if self.lines else [content], location)


class ImageList(SingleChunkSource):
    """Image files in the order given, without captions, for data sets that list them in a table or index of their own.

    Args:
        path: path of the table or index, for messages.
        images: paths of the images; they are the keys of the samples.
    """

    def __init__(self, path: Path, images: Sequence[Path]) -> None:
        self.path = path
        self.images = tuple(images)

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        image = self.images[index]  # key and location too
        return Sample(str(image), str(image), require_image_file(image, str(image)), ())

    def fingerprint(self) -> str:
        return compute_fingerprint("pictures", *(ascii(str(image)) for image in self.images))


def iter_files(folder: Path) -> Iterator[str]:
    """Iterate over all files below a folder, without hidden ones, following links.

    Args:
        folder: the folder.

    Yields:
        Paths relative to it, in no particular order. A folder that several links lead to is visited once.

    Raises:
        OSError: If a folder can't be read.
    """

    def raise_error(error: OSError) -> None:  # os.walk would skip a folder that can't be read
        raise error

    visited = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=raise_error):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in visited:  # through a link: a link to a parent would never end
            folders.clear()  # os.walk goes on with what is left in this list
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(root, name), folder)


def _pair_files(names: list[str], captions: bool) -> list[tuple[str, str]]:
    """Pair images with the .txt files of the same name: (image, .txt file), "" for one that is missing.

    Sorted by the name of the image, or of the .txt file if there is no image. Without `captions` no .txt file counts.
    """
    texts = {_strip_extension(name): name for name in names if captions and name.lower().endswith(".txt")}
    images = [name for name in names if name.lower().endswith(IMAGE_EXTENSIONS)]
    pairs = [(image, texts.get(_strip_extension(image), "")) for image in images]
    unpaired = texts.keys() - {_strip_extension(image) for image in images}
    return sorted([*pairs, *(("", texts[stem]) for stem in unpaired)], key=lambda pair: pair[0] or pair[1])


def _strip_extension(name: str) -> str:
    """A path without its last extension."""
    return os.path.splitext(name)[0]
