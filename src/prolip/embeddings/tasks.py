"""Tasks of `prolip embed`: some samples of a source, or a shard of a stream; each becomes one part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Protocol

from prolip.choices import Modality
from prolip.data.open import is_stream, open_data
from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.source import FileBacked, Source, compute_fingerprint, evenly_spaced
from prolip.data.sources.captions import open_captions
from prolip.data.sources.folder import ImageFolder
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES
from prolip.data.sources.tar_stream import TarStream

PREFETCH_SAMPLES = 256
"""Samples of a stream that are downloaded while others are encoded."""
NUM_EXAMPLES, EXAMPLE_SHARDS = 64, 4
"""Samples from which extra columns are inferred, and the number of shards of a stream that they come from."""
JOIN_SECONDS = 1.0
"""How long the end waits for the downloading thread. It may hang on a network, and ends with the process."""
CAPTION_FILES = (".txt", ".csv", ".tsv", ".tab", ".parquet")
"""Extensions of files whose captions can be read without images."""


class EmbeddingTasks(Protocol):
    """Data split into tasks, each of which becomes one part of the embedding data set.

    The main thread iterates over the items of a task, in order; reading threads turn items into samples.
    """

    @property
    def name(self) -> str:
        """Name of the data."""

    @property
    def num_samples(self) -> int | None:
        """Number of samples of all tasks; None: unknown."""

    def __len__(self) -> int:
        """Number of tasks."""

    def size(self, task: int) -> int | None:
        """Number of samples of a task; None: unknown."""

    def items(self, task: int) -> Iterator[Any]:
        """Items of a task, in order: whatever `get_index` and `read` take."""

    def get_index(self, item: Any) -> int:
        """Index of an item's sample in its source, or in its shard."""

    def read(self, item: Any) -> Sample:
        """The sample of an item.

        Raises:
            BadSampleError: It can't be used.
        """

    def iter_examples(self) -> Iterator[Sample]:
        """Iterate over a few good samples from all over the data."""

    def fingerprint(self) -> str:
        """Hash by which a resumed run notices that the data has changed."""


class SourceTasks:
    """Tasks of `part_size` consecutive samples of a source each. An item is a sample index."""

    def __init__(self, source: Source, part_size: int) -> None:
        self.source, self.part_size, self.name = source, part_size, source.name

    @property
    def num_samples(self) -> int:
        return len(self.source)

    def __len__(self) -> int:
        return math.ceil(len(self.source) / self.part_size)

    def size(self, task: int) -> int:
        return len(self._sample_range(task))

    def items(self, task: int) -> Iterator[int]:
        return iter(self._sample_range(task))

    def get_index(self, item: int) -> int:
        return item

    def read(self, item: int) -> Sample:
        return self.source.read(item)

    def iter_examples(self) -> Iterator[Sample]:
        """Samples that are evenly spaced over the source, `NUM_EXAMPLES` at most; bad ones are skipped."""
        for index in evenly_spaced(len(self.source), NUM_EXAMPLES) if len(self.source) else ():
            try:
                yield self.source.read(int(index))
            except BadSampleError:
                continue

    def fingerprint(self) -> str:
        return compute_fingerprint("source", self.source.fingerprint(), *_iter_file_stamps(self.source))

    def _sample_range(self, task: int) -> range:
        """Indices of the samples of a task."""
        return range(task * self.part_size, min((task + 1) * self.part_size, len(self.source)))


class StreamTasks:
    """Tasks of a shard of a stream each. An item is (index in the shard, sample or error)."""

    def __init__(self, stream: TarStream) -> None:
        self.stream, self.name = stream, stream.name

    num_samples = None

    def __len__(self) -> int:
        return len(self.stream.shards)

    def size(self, task: int) -> None:
        return None

    def items(self, task: int) -> Iterator[tuple[int, Sample | SampleError]]:
        return enumerate(_prefetch(self.stream.read(task)))

    def get_index(self, item: tuple[int, Sample | SampleError]) -> int:
        return item[0]

    def read(self, item: tuple[int, Sample | SampleError]) -> Sample:
        if isinstance(item[1], SampleError):
            raise BadSampleError(*item[1])
        return item[1]

    def iter_examples(self) -> Iterator[Sample]:
        """Iterate over the first samples of a few shards, evenly spaced.

        If those shards have no good sample, the other shards are read until one has.
        """
        example_shards = evenly_spaced(len(self), EXAMPLE_SHARDS).tolist()
        other_shards = [shard for shard in range(len(self)) if shard not in example_shards]
        num_examples = 0
        for shard in [*example_shards, *other_shards]:
            if num_examples and shard in other_shards:
                return
            good_samples = (sample for sample in self.stream.read(shard) if isinstance(sample, Sample))
            for sample in islice(good_samples, NUM_EXAMPLES // EXAMPLE_SHARDS):
                num_examples += 1
                yield sample

    def fingerprint(self) -> str:
        return self.stream.fingerprint()


def open_tasks(
    data: str | Source,
    captions: Sequence[str] | None,
    image: str | None,
    modality: Modality | None,
    part_size: int,
) -> EmbeddingTasks:
    """Open data and split it into tasks.

    Args:
        data: A source, what `open_source` takes, or a stream (pipe:..., https://..., s3://...).
        captions, image: As for `open_data`.
        modality: What is to be embedded; None: images and texts.
        part_size: Samples per task of a source.

    Returns:
        The tasks.
    """
    if not isinstance(data, str):
        return SourceTasks(data, part_size)
    if is_stream(data):
        stream = TarStream(
            data,
            captions=DEFAULT_CAPTIONS if captions is None else captions,
            images=DEFAULT_IMAGES if image is None else (image,),
        )
        return StreamTasks(stream)
    return SourceTasks(open_source(data, captions, image, modality), part_size)


def open_source(
    data: str, captions: Sequence[str] | None, image: str | None, modality: Modality | None
) -> Source:
    """Open data for random access.

    Args:
        data: What `open_data` takes; with modality "text" also a file of captions without images.
        captions, image: As for `open_data`.
        modality: What is to be embedded; None: images and texts.

    Returns:
        The source; with modality "image" and without `captions`, images need no captions.

    Raises:
        ValueError: The data is a stream, or of an unknown format, or has no captions, or no images, but needs them.
    """
    if is_stream(data):
        raise ValueError(
            f"{data} is a stream, which has no random access, so its samples can't be read again"
        )
    if modality == "text" and _is_caption_file(Path(data).expanduser()):
        return open_captions(data, captions)
    try:
        source = open_data(data, captions=captions, image=image)
    except ValueError as error:
        if captions is not None or modality == "text":
            raise
        if modality is None:
            raise ValueError(f"{error}{_suggest_modality(data, image)}") from None
        return open_data(data, captions=(), image=image)  # the images may have no captions, and need none
    if modality == "image" and captions is None and isinstance(source, ImageFolder):
        return source.with_optional_captions()
    return source


def _suggest_modality(data: str, image: str | None) -> str:
    """The end of a message on data that can't be embedded as images with captions; "" if it can't be at all.

    Args:
        data: What `open_data` takes, or a file of captions.
        image: As for `open_data`.
    """
    path = Path(data).expanduser()
    if path.is_file() and _is_caption_file(path):
        return " To embed captions without images, pass modality text (--modality text)."
    try:
        open_data(data, captions=(), image=image)
    except (ValueError, OSError):
        return ""
    return " To embed the images without captions, pass modality image (--modality image)."


def _iter_file_stamps(source: Source) -> Iterator[tuple[int, int]]:
    """Iterate over (size in bytes, modification time in ns) of the source's files.

    They enter the fingerprint, because two data sets may have the same file names. Folders don't enter it, so that data
    may be moved. Images that a table refers to are not checked.
    """
    if isinstance(source, ImageFolder):
        yield from source.stamps()
    for file in source.files() if isinstance(source, FileBacked) else ():
        status = file.stat()
        yield status.st_size, status.st_mtime_ns


def _is_caption_file(path: Path) -> bool:
    """Whether captions can be read from this file without images; of .json files, those that hold a list."""
    if path.suffix.lower() == ".json" and path.is_file():
        with open(path, "rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    return path.suffix.lower() in CAPTION_FILES


def _prefetch(samples: Iterator[Sample | SampleError]) -> Iterator[Sample | SampleError]:
    """Iterate over samples that a thread downloads in advance, so that download and inference overlap.

    At most `PREFETCH_SAMPLES` wait in memory. An error of the download is raised here, in the reading thread's place.
    """
    queue: Queue[Any] = Queue(PREFETCH_SAMPLES)
    stopped = Event()

    def fetch() -> None:
        """Put (sample, None) for each sample, then (None, None), or (None, error). Runs in the thread."""
        try:
            for sample in samples:
                if not _put_unless_stopped(queue, (sample, None), stopped):
                    return
            _put_unless_stopped(queue, (None, None), stopped)
        except BaseException as error:  # raised again by the consumer
            _put_unless_stopped(queue, (None, error), stopped)

    thread = Thread(target=fetch, daemon=True)
    thread.start()
    try:
        while True:
            sample, error = queue.get()
            if error is not None:
                raise error
            if sample is None:
                return
            yield sample
    finally:
        stopped.set()
        thread.join(JOIN_SECONDS)


def _put_unless_stopped(queue: Queue[Any], value: object, stopped: Event) -> bool:
    """Put a value into a queue, and wait while it is full; False, without the value, once `stopped` is set."""
    while not stopped.is_set():
        try:
            queue.put(value, timeout=0.1)
            return True
        except Full:
            continue
    return False
