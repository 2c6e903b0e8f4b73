"""Source: the protocol of data that can be read at any index; concatenation and subsets of sources."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from prolip.checks import require_positive_int
from prolip.data.sample import BadSampleError, Reason, Sample, SampleError


@runtime_checkable
class Source(Protocol):
    """Samples by index, in a fixed order. Copied into loader workers: open files lazily, once per process."""

    @property
    def name(self) -> str:
        """For messages: the path or pattern that a user gave."""

    @property
    def chunks(self) -> np.ndarray:
        """int64 (C,): sizes of the groups of samples that lie together on disk (a shard, a row group), in order.

        Their sum is the length. Shuffling visits few chunks at a time. One chunk if random access costs nothing.
        """

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Read a sample.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The sample, its image not decoded.

        Raises:
            BadSampleError: If the sample can't be used.
        """

    def fingerprint(self) -> str:
        """Return a digest that changes when the samples or their order may have changed (files, sizes, lengths).

        A saved position is only valid in data with the same fingerprint.
        """


class CaptionAnnotation(NamedTuple):
    """What is known of one caption of a sample.

    text:          the caption.
    level:         its level of generality, 0 for the most general; None if unknown.
    log_ambiguity: the log of the number (or probability) of images that it is true of, in nats; None if unknown.
    """

    text: str
    level: int | None
    log_ambiguity: float | None


class ImageAnnotation(NamedTuple):
    """What is known of the image of a sample.

    veil:            name of what hides a part of the scene; "nothing" if all of it is visible.
    log_ambiguity:   the log-probability that another scene looks like it, in nats.
    kind:            kind of veil, broader than its name; None: unknown.
    visible_objects: number of objects that are visible, at least in part; None: unknown.
    scene:           name of the scene; images of one scene are compared with each other. None: of no other image.
    sequence:        name of a sequence of images of one scene, of which each hides all that the one before hides;
                     None: none.
    step:            number of the image in its sequence, from 1; 0: the whole image, with which every sequence of its
                     scene begins; None: in no sequence.
    """

    veil: str
    log_ambiguity: float
    kind: str | None = None
    visible_objects: int | None = None
    scene: str | None = None
    sequence: str | None = None
    step: int | None = None


@runtime_checkable
class AnnotatedImages(Source, Protocol):
    """A source that knows how ambiguous its images are."""

    def image_annotation(self, index: int) -> ImageAnnotation:
        """Return what is known of the image of a sample.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The annotation.
        """


@runtime_checkable
class AnnotatedSource(Source, Protocol):
    """A source that knows the level and the ambiguity of its captions, and of which samples a caption is true.

    General code (evaluation, reports) asks for this protocol, not for the class of a generator.
    """

    def caption_annotations(self, index: int) -> tuple[CaptionAnnotation, ...]:
        """Return what is known of each caption of a sample.

        Args:
            index: Index of the sample, from 0.

        Returns:
            One annotation per caption, in the order of `Sample.captions`.
        """

    def log_ambiguity(self, text: str) -> float:
        """Return the log of the number (or probability) of images that a caption is true of, in nats.

        Args:
            text: any caption in the vocabulary of the source.

        Returns:
            The log; 0 for a probability of 1.
        """

    def is_true_caption(self, index: int, text: str) -> bool:
        """Return whether a caption is true of a sample.

        Args:
            index: Index of the sample, from 0.
            text: any caption in the vocabulary of the source.

        Returns:
            Whether it is true.
        """

    def entails(self, specific: str, general: str) -> bool:
        """Return whether a caption entails another: the second is true of every image of which the first is.

        Args:
            specific, general: any captions in the vocabulary of the source.

        Returns:
            Whether it is entailed.
        """


@runtime_checkable
class FileBacked(Protocol):
    """A source whose samples lie in a few files: caches made from them are valid while the files are unchanged."""

    def files(self) -> Sequence[Path]:
        """Return the paths of the files."""


class SingleChunkSource(ABC):
    """Base of sources that are equally fast in any order: `path` is their name, and all samples are one chunk."""

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
    """Several sources one after another, as one (like torch's ConcatDataset).

    Args:
        sources: at least one.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        if not sources:
            raise ValueError("ConcatSource needs at least one source")
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
        """Read the sample of this index, counted through all sources, as `Source.read`."""
        require_index(index, len(self))
        source_number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[source_number - 1]) if source_number else 0
        return self.sources[source_number].read(index - start)

    def fingerprint(self) -> str:
        return compute_fingerprint(*(source.fingerprint() for source in self.sources))

    def files(self) -> list[Path]:
        return [file for source in self.sources if isinstance(source, FileBacked) for file in source.files()]


class Subset:
    """At most `count` samples of a source, evenly spaced over it, as a source of their own.

    source:  the whole source.
    indices: int64 (n,): indices of the chosen samples in it, increasing.

    Args:
        source: the source to choose from.
        count: largest number of samples.
    """

    def __init__(self, source: Source, count: int) -> None:
        require_positive_int(count, "limit", maximum=2**40)  # users give it as the option `limit`
        self.source, self.name = source, source.name
        self.indices = evenly_spaced(len(source), count)

    @classmethod
    def from_indices(cls, source: Source, indices: np.ndarray) -> Subset:
        """The samples with given indices.

        Args:
            source: the source to choose from.
            indices: int64 (n,), n at least 1: indices of the samples, in any order.

        Returns:
            The samples, in this order.
        """
        subset = cls(source, 1)
        subset.indices = np.asarray(indices, dtype=np.int64)
        return subset

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(self.indices)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        return self.source.read(int(self.indices[index]))

    def fingerprint(self) -> str:
        # "spread" must stay: fingerprints name caches that exist.
        if np.array_equal(self.indices, evenly_spaced(len(self.source), len(self))):
            return compute_fingerprint("spread", self.source.fingerprint(), len(self))
        return compute_fingerprint("chosen", self.source.fingerprint(), self.indices.tolist())

    def files(self) -> Sequence[Path]:
        return self.source.files() if isinstance(self.source, FileBacked) else ()


def evenly_spaced(total: int, max_count: int) -> np.ndarray:
    """Choose indices that are evenly spaced over a range.

    Args:
        total: length of the range.
        max_count: largest number of indices.

    Returns:
        int64 (n,), increasing, from 0 to total - 1.
    """
    return np.unique(np.linspace(0, total - 1, min(max_count, total)).round().astype(np.int64))


def compute_fingerprint(*values: object) -> str:
    """Hash values, by their texts `str(value)`.

    Args:
        values: anything whose text says what it is; the order counts.

    Returns:
        16 hexadecimal digits, the same in every process.
    """
    return hashlib.blake2b("\n".join(map(str, values)).encode(), digest_size=8).hexdigest()


def require_index(index: int, length: int) -> None:
    """Raise IndexError unless 0 <= index < length.

    Args:
        index: index of a sample, from 0.
        length: number of samples.
    """
    if not 0 <= index < length:
        raise IndexError(f"sample index {index} is out of range: there are {length} samples")


CONFIGURATION_REASONS: tuple[Reason, ...] = (
    "no image", "missing file", "no caption", "empty caption", "unreadable caption",
)  # fmt: skip
"""Reasons that all samples have if images or captions are looked for in the wrong file or column."""


def require_usable_sample(source: Source, max_tries: int = 100) -> None:
    """Require that a sample has an image and captions: else they may be looked for in the wrong file or column.

    That should fail now, not after hours of bad samples. Reads samples from all over the source until one is good.
    Damage of the data is no error here.

    Args:
        source: the data.
        max_tries: largest number of samples that are read.

    Raises:
        ValueError: If no sample is good, and one is bad for one of CONFIGURATION_REASONS.
    """
    first_error: SampleError | None = None
    indices = np.unique(np.linspace(0, len(source) - 1, min(max_tries, len(source))).astype(int))
    for index in indices:
        try:
            source.read(int(index))
            return
        except BadSampleError as error:
            if error.record.reason in CONFIGURATION_REASONS:
                first_error = first_error or error.record
    if first_error:
        raise ValueError(
            f"{source.name}: none of the {len(indices)} samples that were tried can be used. The first: {first_error}. "
            "Check which file or column has the image and the captions (the options image and captions)."
        )
