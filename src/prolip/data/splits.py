"""Held-out splits of data: which samples are trained on and which are held out, without duplicates across the two."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from PIL import Image

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import Source, Subset, compute_fingerprint
from prolip.preprocessing.text_cleaning import clean_text

ADDRESS = re.compile(r"split:(?P<part>train|held-out)@(?P<fraction>0?\.\d{1,9}):(?P<data>.+)", re.DOTALL)
"""An address such as "split:held-out@0.1:pairs.csv", a tenth of the samples; "split:train@0.1:pairs.csv": the rest."""
Part = Literal["train", "held-out"]


class SplitIndices(NamedTuple):
    """Indices of a source's samples, int64, increasing.

    Attributes:
        train: Samples to train on, also those that can't be read: loaders count them.
        held_out: The others.
    """

    train: np.ndarray
    held_out: np.ndarray


class SplitSource(Subset):
    """One part of a split of a source.

    Args:
        source: All samples. All of them are read, once per process.
        part: Which part.
        fraction: Fraction of the samples that is held out.

    Raises:
        ValueError: The part would be empty.
    """

    def __init__(self, source: Source, part: Part, fraction: float) -> None:
        super().__init__(source, 1)
        split = split_source(source, fraction)
        self.part, self.fraction = part, fraction
        self.indices = split.train if part == "train" else split.held_out
        self.name = format_split(part, fraction, source.name)
        if not len(self.indices):
            raise ValueError(
                f"{source.name}: nothing is left for the part {part!r}, because its {len(source)} samples have images "
                "or captions in common, or are too few. Name held-out data yourself (--held-out.source)"
            )

    def fingerprint(self) -> str:
        return compute_fingerprint("split", self.source.fingerprint(), self.part, self.fraction)


def split_source(source: Source, fraction: float) -> SplitIndices:
    """Split a source so that samples with an image or a caption in common are on the same side.

    Samples are joined to groups by equal bytes of their images and by captions that are equal after cleaning. A group's
    number is the smallest hash of its images and captions: it depends neither on keys, order nor a seed. Groups are
    held out in the order of these numbers, as long as they fit into the fraction. So data that is added later moves
    few samples to the other side.

    Args:
        source: All samples. All of them are read.
        fraction: Fraction of the samples that is held out, between 0 and 1.

    Returns:
        The two sides. Bad samples are on that of training.
    """
    return _split_cached(_Reader(source), fraction)


def format_split(part: Part, fraction: float, data: str) -> str:
    """The address of a part of a split: the inverse of `parse_split`.

    Args:
        part: Which part.
        fraction: Fraction of the samples that is held out.
        data: Address of all samples.

    Returns:
        The address.
    """
    return f"split:{part}@{fraction:.9f}".rstrip("0") + f":{data}"


def parse_split(address: str) -> tuple[Part, float, str] | None:
    """Parse the address of a part of a split.

    Args:
        address: Any address of data.

    Returns:
        The part, the fraction that is held out, and the address of all samples; None if it isn't one.
    """
    match = ADDRESS.fullmatch(address)
    return None if match is None else (cast(Part, match["part"]), float(match["fraction"]), match["data"])


class _Reader:
    """A source that is equal to others with the same name and fingerprint, as a key of the cache."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._identity = (source.name, source.fingerprint())

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader) and self._identity == other._identity


@lru_cache(maxsize=8)
def _split_cached(reader: _Reader, fraction: float) -> SplitIndices:
    """`split_source`, which several parts of a program ask for: it reads all data."""
    hashes = [_hash_contents(reader.source, index) for index in range(len(reader.source))]
    groups = _join_groups(hashes)
    limit = round(fraction * len(hashes))
    held_out: list[int] = []
    for _, members in sorted((min(min(hashes[i]) for i in members), members) for members in groups):
        if len(held_out) + len(members) <= limit:
            held_out += members
    indices = np.array(sorted(held_out), dtype=np.int64)
    return SplitIndices(np.setdiff1d(np.arange(len(hashes), dtype=np.int64), indices), indices)


def _hash_contents(source: Source, index: int) -> list[bytes]:
    """Hashes of a sample's image and of each of its captions; [] for a bad sample."""
    try:
        sample = source.read(index)
        contents = [b"image" + _read_bytes(sample)]
    except (BadSampleError, OSError):
        return []
    captions = (clean_text(caption, "canonicalize") for caption in sample.captions)
    contents += [b"caption" + caption.encode("utf-8", "surrogatepass") for caption in captions if caption]
    return [hashlib.blake2b(content, digest_size=16).digest() for content in contents]


def _read_bytes(sample: Sample) -> bytes:
    """The bytes of a sample's image file, or the pixels of an image in memory."""
    if isinstance(sample.image, Path):
        return sample.image.read_bytes()
    return sample.image.tobytes() if isinstance(sample.image, Image.Image) else sample.image


def _join_groups(hashes: Sequence[Sequence[bytes]]) -> list[list[int]]:
    """Join the samples that have a hash in common, directly or by way of others.

    Args:
        hashes: Of each sample; samples without hashes are in no group.

    Returns:
        Indices of the samples of each group, increasing.
    """
    parents = list(range(len(hashes)))

    def find_root(index: int) -> int:
        """The sample that stands for the group of this one."""
        while parents[index] != index:
            parents[index] = parents[parents[index]]  # halve the path, so that it stays short
            index = parents[index]
        return index

    first_with: dict[bytes, int] = {}
    for index, values in enumerate(hashes):
        for value in values:
            parents[find_root(index)] = find_root(first_with.setdefault(value, index))
    groups: dict[int, list[int]] = {}
    for index, values in enumerate(hashes):
        if values:
            groups.setdefault(find_root(index), []).append(index)
    return list(groups.values())
