"""StreamLoader: resumable batches from shards that can only be read from their beginning.

A rank has several `ShardReader`s and takes batches from them in turn: batch i comes from reader i mod L. A reader has
its own shards, whichever worker runs it. So the stream is the same for any number of workers.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import index as as_index
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from prolip.checks import require_fraction, require_positive_int
from prolip.data.base_loader import (
    BaseLoader,
    WorkerFailure,
    WorkerSettings,
    check_worker_settings,
    iter_results,
    make_worker_pool,
    read_count,
    require_same_stream,
    resolve_rank,
    shut_down_workers,
    unwrap,
)
from prolip.data.batch import Batch, Preprocessor, TrainingSample
from prolip.data.order import derive_seed
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_error
from prolip.data.shard_reader import ReaderState, ShardReader, ShardSample, ShardStream

STATE_VERSION = 2
"""Version of `StreamLoader.state_dict`; a state of another version is refused."""
MAX_BAD = 1000
"""Bad samples after which a batch is given up, or twenty times the good ones in it if that is more."""
MAX_BROKEN_SHARDS = 20
"""Broken shards after which a batch without a good sample is given up."""
log = logging.getLogger("prolip.data")


class StreamLoader(BaseLoader):
    """Batches of one rank from a stream; to iterate like a `Loader`.

    The position is a rank's own: save the state of each rank. `Batch.sample_indices` are
    shard * 2**32 + index in the shard.

    Args:
        stream: the shards; at least one for each rank.
        preprocessor: makes batches of samples.
        batch_size: samples of a batch on this rank.
        samples_per_epoch: samples of all ranks. A number, for training: an epoch is as many full batches as fit into
            it, and the next one continues where it ended, through pass after pass. None: an epoch is one pass, each
            sample exactly once on one of the ranks; readers end with what they have, so batches may be smaller, and
            ranks may have different numbers of batches.
        num_readers: readers of a rank; as many as it has shards, if that is less.
        buffer_size: samples that a reader shuffles together. The bytes of their files are held in memory:
            num_readers * buffer_size samples.
        seed: Seed of the order, the augmentation and the choice of captions.
        shuffle: False: shards and samples in their order, though readers still take turns.
        num_workers: processes; a number that doesn't divide the number of readers is lowered to one that does.
        rank, world_size: None: those of the process group.
        max_bad_fraction: as for `Loader`. Bad samples are skipped, and the reader's next ones fill the batch.
        prefetch_factor: batches that each worker prepares ahead.
    """

    def __init__(
        self,
        stream: ShardStream,
        preprocessor: Preprocessor,
        *,
        batch_size: int,
        samples_per_epoch: int | None = None,
        num_readers: int = 12,
        buffer_size: int = 1000,
        seed: int = 0,
        shuffle: bool = True,
        num_workers: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        max_bad_fraction: float = 0.1,
        prefetch_factor: int = 2,
    ) -> None:
        """Check the arguments and fingerprint the stream; shards are opened and workers started by iteration."""
        super().__init__()
        for value, name in (
            (batch_size, "batch_size"), (num_readers, "num_readers"), (buffer_size, "buffer_size"),
        ):  # fmt: skip
            require_positive_int(value, name)
        require_fraction(max_bad_fraction, "max_bad_fraction")
        seed = as_index(seed)  # JSON can't hold NumPy's integers
        rank, world_size = resolve_rank(rank, world_size)
        if len(stream.shards) < world_size:
            raise ValueError(
                f"{stream.name}: {len(stream.shards)} shards can't be divided among {world_size} ranks. "
                "There must be at least one for each."
            )
        num_readers = min(num_readers, len(stream.shards) // world_size)
        self._batches_per_epoch = _count_batches(samples_per_epoch, batch_size * world_size)
        self._reader = _StreamBatchReader(
            stream=stream, preprocessor=preprocessor, batch_size=batch_size, buffer_size=buffer_size, seed=seed,
            shuffle=shuffle, rank=rank, world_size=world_size, num_readers=num_readers,
            one_pass=samples_per_epoch is None,
        )  # fmt: skip
        self._settings = {
            "version": STATE_VERSION, "seed": seed, "rank": rank, "world_size": world_size, "batch_size": batch_size,
            "samples_per_epoch": samples_per_epoch, "num_readers": num_readers, "buffer_size": buffer_size,
            "shuffle": shuffle, "preprocessor": preprocessor.fingerprint(), "fingerprint": stream.fingerprint(),
        }  # fmt: skip
        settings = check_worker_settings(num_workers, prefetch_factor)
        self._worker_settings: WorkerSettings = {
            **settings, "num_workers": _lower_to_divisor(num_workers, num_readers),
        }  # fmt: skip
        self._results: Iterator[_StreamResult | WorkerFailure] | None = None
        self._max_bad_fraction, self._shards = max_bad_fraction, len(stream.shards) / world_size
        self._next_reader = 0
        self._reader_states = [ReaderState()] * num_readers

    def __len__(self) -> int:
        """Batches of an epoch on this rank; TypeError if an epoch is one pass."""
        if self._batches_per_epoch is None:
            raise TypeError(
                f"{self._reader.stream.name}: the number of batches of a pass is unknown before it is read. "
                "Give samples_per_epoch."
            )
        return self._batches_per_epoch

    def _iter_rest_of_epoch(self) -> Iterator[Batch]:
        """Take results from the readers in turn until the epoch is over, count bad samples, and yield the batches.

        TooManyBadSamplesError by `max_bad_fraction`; ValueError if a reader can't fill a batch. If an epoch is one
        pass, the workers end with it.
        """
        while not self._is_epoch_over():
            result = self._next_result()
            # The states of the readers are those of the results that were delivered, not of the workers, which have
            # read ahead: so a state that is saved now continues with exactly the next batch.
            self._next_reader = (self._next_reader + 1) % len(self._reader_states)
            self._reader_states[result.reader] = result.reader_state
            self.position += result.batch is not None
            self.error_counts.add(result.tried, result.errors)
            self.error_counts.check(self._max_bad_fraction, self._shards)
            if result.batch is not None:
                yield result.batch
            elif self._batches_per_epoch is not None:
                raise self._make_empty_error(result)
        if self._batches_per_epoch is None:
            self.close()  # else workers would read ahead into the next pass
        self.error_counts.end_epoch(self.epoch, self._max_bad_fraction)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings of the stream, the position of this rank and its error counts, as values for JSON."""
        return {
            **self._make_state(self._settings),
            "next_reader": self._next_reader,
            "readers": [list(state) for state in self._reader_states],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state, with the same data, ranks and settings, and any number of workers.

        Args:
            state: what `state_dict` returned, on the same rank.

        Raises:
            ValueError: If it is the state of another stream.
        """
        require_same_stream(self._settings, state)
        epoch, position, next_reader = (read_count(state, name) for name in ("epoch", "batch", "next_reader"))
        reader_states = _parse_reader_states(state.get("readers"), len(self._reader_states))
        if next_reader >= len(reader_states):
            raise ValueError(
                f"The saved state continues with reader {next_reader}, but there are {len(reader_states)}"
            )
        error_counts = ErrorCounts()
        error_counts.load_state_dict(state.get("error_counts", {}))
        self.close()
        self.epoch, self.position, self.error_counts = epoch, position, error_counts
        self._next_reader, self._reader_states = next_reader, reader_states

    def close(self) -> None:
        """End the workers (they also end with the loader). Iterating again starts new ones at the same position."""
        shut_down_workers(self._results)
        self._results = None

    def _is_epoch_over(self) -> bool:
        """Whether the epoch has all its batches; if it is one pass, whether all readers have begun the next pass."""
        if self._batches_per_epoch is None:
            return all(state.pass_number > self.epoch for state in self._reader_states)
        return self.position >= self._batches_per_epoch

    def _next_result(self) -> _StreamResult:
        """The next result of the pool, which is started first if there is none. An exception closes the pool."""
        if self._results is None:
            reader = self._reader.starting_at(self.epoch, self._next_reader, self._reader_states)
            requests = itertools.count(self._next_reader)
            self._results = iter(make_worker_pool(reader, requests, **self._worker_settings))
        try:
            result: _StreamResult = unwrap(next(iter_results(self._results)))
            return result
        except BaseException:
            # The pool would continue with the result after the one that failed. Start again from the last delivered.
            self.close()
            raise

    def _make_empty_error(self, result: _StreamResult) -> ValueError:
        """The error for a result without a batch: too many bad samples, or a reader whose shards are all empty."""
        if result.errors:
            return make_unfillable_error(result.tried, result.errors)
        return ValueError(
            f"{self._reader.stream.name}: all shards of reader {result.reader} are empty. "
            "Leave out empty shards, or use fewer readers (num_readers)."
        )


class _StreamResult(NamedTuple):
    """What a worker sends.

    batch:        None if there were not enough good samples for one, or if the reader's pass was over.
    tried:        good and bad samples that were read for it.
    errors:       the bad ones among them.
    reader:       index of the reader, from 0.
    reader_state: position of the reader after the batch.
    """

    batch: Batch | None
    tried: int
    errors: tuple[SampleError, ...]
    reader: int
    reader_state: ReaderState


@dataclass(kw_only=True)
class _StreamBatchReader(Dataset[_StreamResult]):
    """Reads batches by their index: batch i comes from reader i mod num_readers.

    Copied into each worker, which has the shard readers of its batches.

    one_pass:           whether an epoch is one pass: then the last batches may be smaller.
    epoch:              number of the current epoch, from 0.
    start:              index of the first batch that is requested.
    states:             positions of all readers before that batch.
    _readers:           readers of this worker that were started, by their index.
    _expected_requests: the batch that each of these must be asked for next.
    The other fields are the arguments of `StreamLoader`.
    """

    stream: ShardStream
    preprocessor: Preprocessor
    batch_size: int
    buffer_size: int
    seed: int
    shuffle: bool
    rank: int
    world_size: int
    num_readers: int
    one_pass: bool
    epoch: int = 0
    start: int = 0
    states: tuple[ReaderState, ...] = ()
    _readers: dict[int, ShardReader] = field(default_factory=dict)
    _expected_requests: dict[int, int] = field(default_factory=dict)

    def starting_at(self, epoch: int, start: int, states: list[ReaderState]) -> _StreamBatchReader:
        """Return a copy for the batches of an epoch from index `start` on, when the readers are in these states."""
        return replace(
            self, epoch=epoch, start=start, states=tuple(states), _readers={}, _expected_requests={}
        )

    def __getitem__(self, request: int) -> _StreamResult:
        """Read the batch of index `request`, and advance its reader."""
        number, reader = request % self.num_readers, self._get_reader(request)
        if self.one_pass and reader.state.pass_number > self.epoch:
            return _StreamResult(None, 0, (), number, reader.state)
        processed, samples, errors = self._read_samples(reader)
        tried = len(processed) + len(errors)
        is_enough = len(processed) == self.batch_size or (self.one_pass and processed)
        batch = self.preprocessor.collate(processed, samples) if is_enough else None
        return _StreamResult(batch, tried, tuple(errors), number, reader.state)

    def _get_reader(self, request: int) -> ShardReader:
        """The reader of a batch, started at its state if this is its first batch here.

        RuntimeError unless the batches of a reader are requested in order, by this worker alone.
        """
        number = request % self.num_readers
        expected = self._expected_requests.get(number, self.start + (number - self.start) % self.num_readers)
        if request != expected:  # if two workers had the same reader, its samples would come twice
            raise RuntimeError(
                f"Batch {request} was requested from a worker whose reader {number} is before batch {expected}"
            )
        self._expected_requests[number] = request + self.num_readers
        if number not in self._readers:
            self._readers[number] = ShardReader(
                self.stream, self.states[number], number=number, num_readers=self.num_readers, rank=self.rank,
                world_size=self.world_size, buffer_size=self.buffer_size, seed=self.seed, shuffle=self.shuffle,
            )  # fmt: skip
        return self._readers[number]

    def _read_samples(self, reader: ShardReader) -> tuple[list[TrainingSample], list[int], list[SampleError]]:
        """Read `batch_size` good samples: (samples, their indices shard * 2**32 + index in the shard, bad samples).

        Fewer at the end of the one pass, or if too many are bad, or if the reader has no samples.
        """
        processed: list[TrainingSample] = []
        samples: list[int] = []
        errors: list[SampleError] = []
        pass_ends = broken = 0
        while len(processed) < self.batch_size and len(errors) < max(MAX_BAD, 20 * len(processed)):
            pass_number = reader.state.pass_number
            sample = reader.take()
            if sample is None:
                pass_ends += 1  # two in a row: a whole pass without a sample
                if self.one_pass or pass_ends > 1:
                    break
                continue
            pass_ends = 0
            try:
                processed.append(self._process(sample, pass_number))
                samples.append(sample.shard << 32 | sample.sample_index)
            except BadSampleError as error:
                errors.append(error.record)
                broken += error.record.reason == "broken shard"
                if broken > MAX_BROKEN_SHARDS and not processed:
                    break
        return processed, samples, errors

    def _process(self, sample: ShardSample, pass_number: int) -> TrainingSample:
        """Preprocess a sample, with a seed of its own in each pass; BadSampleError if it is bad."""
        if isinstance(sample.content, SampleError):
            raise BadSampleError(*sample.content)
        seed = derive_seed(self.seed, "sample", pass_number, sample.shard, sample.sample_index)
        return self.preprocessor.process(sample.content, seed)


def _count_batches(samples_per_epoch: int | None, global_batch_size: int) -> int | None:
    """Full batches of an epoch; None if an epoch is one pass. ValueError if there is not even one."""
    if samples_per_epoch is None:
        return None
    require_positive_int(samples_per_epoch, "samples_per_epoch", maximum=2**48)
    if samples_per_epoch < global_batch_size:
        raise ValueError(
            f"samples_per_epoch {samples_per_epoch} is less than one batch of all ranks, {global_batch_size}"
        )
    return samples_per_epoch // global_batch_size


def _lower_to_divisor(num_workers: int, num_readers: int) -> int:
    """The largest number of workers up to `num_workers` that divides the number of readers; logs if that is fewer.

    So each reader belongs to one worker: torch gives the requests to its workers in turn.
    """
    divisors = (count for count in range(1, min(num_workers, num_readers) + 1) if num_readers % count == 0)
    lowered = max(divisors, default=num_workers)
    if lowered != num_workers:
        log.warning(
            "%d workers can't share %d readers evenly; using %d workers", num_workers, num_readers, lowered
        )
    return lowered


def _parse_reader_states(rows: object, num_readers: int) -> list[ReaderState]:
    """Read the states of all readers from the lists of four integers in a saved state; ValueError if malformed."""
    if not isinstance(rows, list) or len(rows) != num_readers:
        raise ValueError(f"The saved state must have {num_readers} reader states, not {rows!r:.80}")
    for row in rows:
        if not isinstance(row, list) or len(row) != 4 or not all(type(n) is int and n >= 0 for n in row):
            raise ValueError(f"A reader state must be four integers of at least 0, not {row!r:.80}")
    return [ReaderState(*row) for row in rows]
