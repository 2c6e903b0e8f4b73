"""Data cut into tasks, each of which becomes one part: so many samples of a source, or a shard of a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Protocol

from prolip.data.open import is_stream, open_data
from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.data.source import Filed, Source, fingerprint_of
from prolip.data.sources.captions import open_captions
from prolip.data.sources.folder import Folder
from prolip.data.sources.tar_stream import Stream
from prolip.data.subset import evenly
from prolip.embeddings.header import What

AHEAD = 256
"""Samples of a stream that are fetched while others are encoded."""
PEEK, PEEKED_SHARDS = 64, 4
"""Samples that are looked at to know the extra columns, and shards of a stream that they come from."""
PATIENCE = 1.0
"""Seconds that the end waits for what fetches: it may hang on a network, and ends with the process."""
TABLES = (".txt", ".csv", ".tsv", ".tab", ".parquet")
"""Files of which the captions can be read without pictures."""


class Tasks(Protocol):
    """Items are what threads turn into samples; only the main thread asks for them, in order."""

    @property
    def name(self) -> str: ...
    @property
    def samples(self) -> int | None:
        """In all; None: nobody knows."""

    def __len__(self) -> int: ...
    def size(self, task: int) -> int | None:
        """Samples of a task."""

    def items(self, task: int) -> Iterator[Any]: ...
    def number(self, item: Any) -> int:
        """Of the sample, in its source, or in its shard."""

    def read(self, item: Any) -> Sample:
        """BadSampleError if it is bad."""

    def peek(self) -> Iterator[Sample]:
        """A few good samples."""

    def fingerprint(self) -> str: ...


class SourceTasks:
    """`part_size` samples of a source make a task. An item is the number of a sample."""

    def __init__(self, source: Source, part_size: int) -> None:
        self.source, self.part_size, self.name = source, part_size, source.name

    @property
    def samples(self) -> int:
        return len(self.source)

    def __len__(self) -> int:
        return math.ceil(len(self.source) / self.part_size)

    def size(self, task: int) -> int:
        return len(self._range(task))

    def items(self, task: int) -> Iterator[int]:
        return iter(self._range(task))

    def number(self, item: int) -> int:
        return item

    def read(self, item: int) -> Sample:
        return self.source.read(item)

    def peek(self) -> Iterator[Sample]:
        for number in evenly(len(self.source), PEEK) if len(self.source) else ():
            try:
                yield self.source.read(int(number))
            except BadSampleError:
                continue

    def fingerprint(self) -> str:
        return fingerprint_of("source", self.source.fingerprint(), *_stamps(self.source))

    def _range(self, task: int) -> range:
        return range(task * self.part_size, min((task + 1) * self.part_size, len(self.source)))


class StreamTasks:
    """A shard of a stream is a task. An item is (number in the shard, what came)."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.name = stream, stream.name

    samples = None

    def __len__(self) -> int:
        return len(self.stream.shards)

    def size(self, task: int) -> None:
        return None

    def items(self, task: int) -> Iterator[tuple[int, Sample | Bad]]:
        return enumerate(_fetched(self.stream.read(task)))

    def number(self, item: tuple[int, Sample | Bad]) -> int:
        return item[0]

    def read(self, item: tuple[int, Sample | Bad]) -> Sample:
        if isinstance(item[1], Bad):
            raise BadSampleError(*item[1])
        return item[1]

    def peek(self) -> Iterator[Sample]:
        """The first ones of a few shards, spread over all; of others, if those have none."""
        first = evenly(len(self), PEEKED_SHARDS).tolist()
        others = [shard for shard in range(len(self)) if shard not in first]
        found = 0
        for shard in [*first, *others]:
            if found and shard in others:
                return
            good = (one for one in self.stream.read(shard) if isinstance(one, Sample))
            for sample in islice(good, PEEK // PEEKED_SHARDS):
                found += 1
                yield sample

    def fingerprint(self) -> str:
        return self.stream.fingerprint()


def open_tasks(
    data: str | Source, captions: Sequence[str] | None, image: str | None, what: What, part_size: int
) -> Tasks:
    """data: a source, or what `open_source` takes, or a stream (pipe:..., https://..., s3://...)."""
    if not isinstance(data, str):
        return SourceTasks(data, part_size)
    if is_stream(data):
        asked: dict[str, Any] = {} if captions is None else {"captions": captions}
        return StreamTasks(Stream(data, **asked) if image is None else Stream(data, images=(image,), **asked))
    return SourceTasks(open_source(data, captions, image, what), part_size)


def open_source(data: str, captions: Sequence[str] | None, image: str | None, what: What) -> Source:
    """What `open_data` opens; with texts alone also files of captions without pictures."""
    if is_stream(data):
        raise ValueError(
            f"{data} is a stream: it can't be read at a place, so what it held can't be looked at again"
        )
    if what == "texts" and _is_table(Path(data).expanduser()):
        return open_captions(data, captions)
    return open_data(data, captions=captions, image=image)


def _stamps(source: Source) -> Iterator[tuple[int, int]]:
    """Size and time of change of the files: two data sets may have the same names. A folder that was moved is the same;
    pictures that a table names are not looked at."""
    if isinstance(source, Folder):
        yield from source.stamps()
    for file in source.files() if isinstance(source, Filed) else ():
        status = file.stat()
        yield status.st_size, status.st_mtime_ns


def _is_table(path: Path) -> bool:
    if path.suffix.lower() == ".json" and path.is_file():
        with open(path, "rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    return path.suffix.lower() in TABLES


def _fetched(samples: Iterator[Sample | Bad]) -> Iterator[Sample | Bad]:
    """The same, fetched ahead by a thread: a network is slow in other moments than a network of neurons."""
    queue: Queue[Any] = Queue(AHEAD)
    gone = Event()

    def fetch() -> None:
        try:
            for sample in samples:
                if not _put(queue, (sample, None), gone):
                    return
            _put(queue, (None, None), gone)
        except BaseException as error:  # told to whoever waits
            _put(queue, (None, error), gone)

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
        gone.set()
        thread.join(PATIENCE)


def _put(queue: Queue[Any], value: object, gone: Event) -> bool:
    """Whether there was room before the reader went away."""
    while not gone.is_set():
        try:
            queue.put(value, timeout=0.1)
            return True
        except Full:
            continue
    return False
