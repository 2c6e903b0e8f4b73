"""Inference over tasks of samples: samples are read and decoded by threads and encoded in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from prolip.choices import Decoding
from prolip.data.batch import decode_image
from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.embeddings.sample_metadata import SampleMetadata, collect_metadata, hash_pixels
from prolip.gaussian import Gaussian
from prolip.model.inference import encode_image_batches
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing, resize_and_crop

Task = TypeVar("Task")
Item = TypeVar("Item")
PREFETCH_BATCHES = 8
"""Batches decoded in advance: they keep the model busy while texts are encoded between two tasks."""
FAST_DECODING_FACTOR = 2
"""Least short side of a fast decoding, as a multiple of what the model sees. With 1, decoding is 1.8 times faster again
at 1280 x 960, but cosines fall short of 1 by five to ten times as much."""
MAX_THREADS = 32
"""Reading threads, unless more are requested."""
FileStamp = tuple[str, int, int] | None
"""Path, size in bytes and modification time in ns of an image's own file. None: it is in a shard or a table."""


class InferenceSample(NamedTuple):
    """A sample, ready for the model.

    Attributes:
        pixels: uint8 (3, S, S); None if images are not encoded.
        metadata: What is stored with its embedding.
        file_stamp: State of its image file.
    """

    pixels: Tensor | None
    metadata: SampleMetadata
    file_stamp: FileStamp


@dataclass(eq=False)
class EncodedPart:
    """The encoded samples of one task.

    Attributes:
        gaussians: Image Gaussians (n_i, D), one per batch, with as many rows in all as there are `indices`; empty if
            images were not encoded.
        indices: Index of each good sample in its source.
        metadata: Metadata of each good sample.
        file_stamps: File stamp of each good sample.
        errors: Bad samples, by index.
    """

    gaussians: list[Gaussian]
    indices: list[int]
    metadata: list[SampleMetadata]
    file_stamps: list[FileStamp]
    errors: dict[int, SampleError]

    @classmethod
    def empty(cls) -> EncodedPart:
        """A part without samples."""
        return cls([], [], [], [], {})

    @property
    def num_samples(self) -> int:
        """Samples that were read, good and bad."""
        return len(self.indices) + len(self.errors)

    def add(self, z: Gaussian | None, samples: Sequence[tuple[int, InferenceSample | SampleError]]) -> None:
        """Append a batch to the part, in place.

        Args:
            z: Gaussians of the images of its good samples; None if images were not encoded, or no sample is good.
            samples: Sample index, and the sample or its error.
        """
        if z is not None:
            self.gaussians.append(z)
        for index, sample in samples:
            if isinstance(sample, SampleError):
                self.errors[index] = sample
            else:
                self.indices.append(index)
                self.metadata.append(sample.metadata)
                self.file_stamps.append(sample.file_stamp)


def get_file_stamp(image: object) -> FileStamp:
    """Get the state of an image file, by which changes are noticed.

    Args:
        image: `Sample.image`.

    Returns:
        Path, size and modification time; None if the image has no file of its own, or the file can't be read.
    """
    if not isinstance(image, Path):
        return None
    try:
        status = image.stat()
    except OSError:  # reading the image reports the reason
        return None
    return str(image.resolve()), status.st_size, status.st_mtime_ns


def prepare_sample(
    sample: Sample, preprocessing: ImagePreprocessing | None, decode: Decoding = "exact"
) -> InferenceSample:
    """Collect the metadata of a sample, and decode and preprocess its image.

    Args:
        sample: From a source.
        preprocessing: Preprocessing of the model's images; None: the image is not read.
        decode: How the image is decoded.

    Returns:
        Its pixels (None without `preprocessing`), metadata and file stamp.

    Raises:
        BadSampleError: The sample can't be used.
    """
    # The stamp comes first: a change while the image is read then counts as a change.
    stamp = get_file_stamp(sample.image)
    metadata = collect_metadata(sample)
    if preprocessing is None:
        return InferenceSample(None, metadata, stamp)
    min_short_side = None if decode == "exact" else FAST_DECODING_FACTOR * preprocessing.size
    pixels = resize_and_crop(decode_image(sample, min_short_side=min_short_side), preprocessing)
    return InferenceSample(pixels, metadata._replace(pixel_digest=hash_pixels(pixels)), stamp)


def prepare_or_error(prepare: Callable[[], InferenceSample]) -> InferenceSample | SampleError:
    """Call `prepare`, and return the error of a bad sample instead of raising it.

    Args:
        prepare: Returns the sample, or raises BadSampleError.

    Returns:
        The sample, or the record of its error.
    """
    try:
        return prepare()
    except BadSampleError as error:
        return error.record


def encode_tasks(
    model: ProLIP,
    tasks: Iterable[tuple[Task, Iterable[Item]]],
    read: Callable[[Item], tuple[int, InferenceSample | SampleError]],
    batch_size: int,
    advance: Callable[[int], None],
    threads: int | None = None,
) -> Iterator[tuple[Task, EncodedPart]]:
    """Encode the images of tasks, one task after the other.

    A batch never spans two tasks: the composition of batches changes the last bits of the result, and so a resumed run,
    or another machine, computes exactly the same.

    Args:
        model: The model.
        tasks: (task, its items).
        read: Item -> sample index, and the sample or its error. Called by `threads` threads.
        batch_size: Images per batch.
        advance: Called with the number of items of each finished batch.
        threads: Reading threads; None: one per core, at most `MAX_THREADS`.

    Yields:
        (task, its encoded samples).
    """
    batches = encode_image_batches(
        model,
        _make_batches(tasks, batch_size),
        read,
        get_pixels=lambda result: None if isinstance(result[1], SampleError) else result[1].pixels,
        threads=threads or min(MAX_THREADS, os.cpu_count() or 1),
        prefetch_batches=PREFETCH_BATCHES,
    )
    part = EncodedPart.empty()
    for batch, samples, z in batches:
        part.add(None if z is None else z.to("cpu"), samples)
        advance(len(batch))
        if batch.is_last:
            yield batch.task, part
            part = EncodedPart.empty()


class _Batch(list[Item], Generic[Task, Item]):
    """Items of one task, a list.

    Args:
        items: The items.
        task: Their task.
        is_last: Whether it is the task's last batch.
    """

    def __init__(self, items: Iterable[Item], task: Task, is_last: bool) -> None:
        super().__init__(items)
        self.task, self.is_last = task, is_last


def _make_batches(
    tasks: Iterable[tuple[Task, Iterable[Item]]], batch_size: int
) -> Iterator[_Batch[Task, Item]]:
    """Split tasks into batches of at most `batch_size` items of one task.

    A task without items gives one empty batch, its last.
    """
    for task, items in tasks:
        batch: list[Item] = []
        for item in items:
            if len(batch) == batch_size:  # only now is it known that the batch is not the last
                yield _Batch(batch, task, is_last=False)
                batch = []
            batch.append(item)
        yield _Batch(batch, task, is_last=True)
