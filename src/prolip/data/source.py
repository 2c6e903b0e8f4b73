"""The one face of all data that can be read at any position; joining several."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from prolip.data.sample import BadSampleError, Reason, Sample, SampleError


@runtime_checkable
class Source(Protocol):
    """Samples by number, in a fixed order. Copied into loader workers: open files lazily, once a process."""

    @property
    def name(self) -> str:
        """For messages: the path or pattern that a user gave."""

    @property
    def chunks(self) -> np.ndarray:
        """int64 (C,): how many samples lie together on disk (a shard, a row group), in order; their sum is the length.
        Shuffling visits few chunks at a time. One chunk if any order is as quick."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """The sample of a number from 0; BadSampleError if there is something wrong with it."""

    def fingerprint(self) -> str:
        """Changes when the samples or their order may have changed (files, sizes, lengths): a position in other data
        means nothing."""


class CaptionAnnotation(NamedTuple):
    """What is known of one caption of a sample.

    text:          the caption.
    level:         its level of generality, 0 for the most general; None if unknown.
    log_ambiguity: the log of the number (or probability) of images that it is true of, in nats; None if unknown.
    """

    text: str
    level: int | None
    log_ambiguity: float | None


@runtime_checkable
class AnnotatedSource(Source, Protocol):
    """A source that knows the level and the ambiguity of its captions, and of which samples a caption is true.

    General code (evaluation, reports) asks for this protocol, not for the class of a generator.
    """

    def caption_annotations(self, index: int) -> tuple[CaptionAnnotation, ...]:
        """What is known of each caption of a sample.

        Args:
            index: of the sample, from 0.

        Returns:
            One annotation per caption, in the order of `Sample.captions`.
        """

    def log_ambiguity(self, text: str) -> float:
        """The log of the number (or probability) of images that a caption is true of, in nats."""

    def is_true_caption(self, index: int, text: str) -> bool:
        """Whether a caption is true of the sample at an index."""


@runtime_checkable
class FileBacked(Protocol):
    """A source whose samples lie in a few files: whoever keeps what was made of them must know when they change."""

    def files(self) -> Sequence[Path]: ...


class SingleChunkSource(ABC):
    """What sources share that are quick in any order: the name is their path, and all samples are one chunk."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(self)], dtype=np.int64)

    @abstractmethod
    def __len__(self) -> int: ...


class ConcatSource:
    """Sources one after another, as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        if not sources:
            raise ValueError("there is no source to join")
        self.sources = tuple(sources)
        self._ends = np.cumsum([len(source) for source in sources])

    @property
    def name(self) -> str:
        return " + ".join(source.name for source in self.sources)

    @property
    def chunks(self) -> np.ndarray:
        return np.concatenate([source.chunks for source in self.sources])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        part = int(np.searchsorted(self._ends, index, side="right"))
        return self.sources[part].read(index - (int(self._ends[part - 1]) if part else 0))

    def fingerprint(self) -> str:
        return compute_fingerprint(*(source.fingerprint() for source in self.sources))

    def files(self) -> list[Path]:
        return [file for source in self.sources if isinstance(source, FileBacked) for file in source.files()]


def compute_fingerprint(*facts: object) -> str:
    """16 hexadecimal digits of what is told; the same in every process."""
    return hashlib.blake2b("\n".join(map(str, facts)).encode(), digest_size=8).hexdigest()


def require_index(index: int, length: int) -> None:
    if not 0 <= index < length:
        raise IndexError(f"there is no sample {index} among {length}")


SOUGHT: tuple[Reason, ...] = ("no image", "missing file", "no caption", "empty caption", "unreadable caption")
"""Reasons that a whole data set has if one looks in the wrong place."""


def require_captions(source: Source, tries: int = 100) -> None:
    """Fail now if captions or pictures are looked for in the wrong place, not after a night of bad samples.

    Reads samples from all over the source, until one is good. Damaged files are not the question here.
    """
    first: SampleError | None = None
    numbers = np.unique(np.linspace(0, len(source) - 1, min(tries, len(source))).astype(int))
    for number in numbers:
        try:
            source.read(int(number))
            return
        except BadSampleError as error:
            if error.record.reason in SOUGHT:
                first = first or error.record
    if first:
        raise ValueError(
            f"{source.name}: not one of {len(numbers)} samples that were tried can be used. The first: {first}"
        )
