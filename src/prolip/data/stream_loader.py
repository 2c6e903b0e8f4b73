"""StreamLoader: resumable batches from shards that can only be read from their beginning.

A rank has several `ShardReader`s and takes batches from them in turn: batch i comes from reader i mod L. A reader has
its own shards, whichever worker runs it. So the stream is the same for any number of workers.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from prolip.configs import takes_config
from prolip.data.base_loader import (
    BaseLoader,
    WorkerFailure,
    WorkerSettings,
    iter_results,
    make_worker_pool,
    read_count,
    require_same_stream,
    resolve_rank,
    shut_down_workers,
    unwrap_result,
)
from prolip.data.batch import Batch, Preprocessor, TrainingSample
from prolip.data.config import StreamLoaderConfig
from prolip.data.order import derive_seed
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_batch_error
from prolip.data.shard_reader import ReaderShare, ReaderState, ShardReader, ShardSample, ShardStream

STATE_VERSION = 2
"""Version of `StreamLoader.state_dict`; a state of another version is refused."""
MAX_BAD_SAMPLES = 1000
MAX_BAD_PER_GOOD = 20
"""A batch is given up after MAX_BAD_SAMPLES bad samples, or MAX_BAD_PER_GOOD per good one in it if that is more."""
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
        config: a `StreamLoaderConfig`, or its fields as keywords.
    """

    @takes_config(StreamLoaderConfig).constructor
    def __init__(self, stream: ShardStream, preprocessor: Preprocessor, config: StreamLoaderConfig) -> None:
        """Fingerprint the stream; shards are opened and workers started by iteration."""
        super().__init__()
        rank, world_size = resolve_rank(config.rank, config.world_size)
        if len(stream.shards) < world_size:
            raise ValueError(
                f"{stream.name}: there are {len(stream.shards)} shards for {world_size} ranks. "
                "Each rank needs at least one: use more shards or fewer ranks."
            )
        num_readers = min(config.num_readers, len(stream.shards) // world_size)
        self._batches_per_epoch = _count_batches(config.samples_per_epoch, config.batch_size * world_size)
        self._reader = _StreamBatchReader(
            stream=stream, preprocessor=preprocessor, batch_size=config.batch_size, buffer_size=config.buffer_size,
            seed=config.seed, shuffle=config.shuffle, rank=rank, world_size=world_size, num_readers=num_readers,
            one_pass=config.samples_per_epoch is None,
        )  # fmt: skip
        self._settings = {
            "version": STATE_VERSION, "seed": config.seed, "rank": rank, "world_size": world_size,
            "batch_size": config.batch_size, "samples_per_epoch": config.samples_per_epoch,
            "num_readers": num_readers, "buffer_size": config.buffer_size, "shuffle": config.shuffle,
            "preprocessor": preprocessor.fingerprint(), "fingerprint": stream.fingerprint(),
        }  # fmt: skip
        self._worker_settings = WorkerSettings(
            num_workers=_lower_num_workers(config.num_workers, num_readers),
            prefetch_factor=config.prefetch_factor,
        )
        self._results: Iterator[_StreamResult | WorkerFailure] | None = None
        self._max_bad_fraction, self._num_shards = config.max_bad_fraction, len(stream.shards) / world_size
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

        Advances `position`, `error_counts` and the states of the readers. TooManyBadSamplesError if more samples are
        bad than `max_bad_fraction` allows; ValueError if a reader can't fill a batch. If an epoch is one pass, the
        workers end with it.
        """
        while not self._is_epoch_over():
            result = self._next_result()
            # The states of the readers are those of the results that were delivered, not of the workers, which have
            # read ahead: so a state that is saved now continues with exactly the next batch.
            self._next_reader = (self._next_reader + 1) % len(self._reader_states)
            self._reader_states[result.reader] = result.reader_state
            self.position += result.batch is not None
            self.error_counts.add(result.tried, result.errors)
            self.error_counts.check(self._max_bad_fraction, self._num_shards)
            if result.batch is not None:
                yield result.batch
            elif self._batches_per_epoch is not None:
                raise self._make_no_batch_error(result)
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
            ValueError: If it was saved with other data, ranks or settings, or is damaged.
        """
        require_same_stream(self._settings, state)
        epoch, position, next_reader = (read_count(state, name) for name in ("epoch", "batch", "next_reader"))
        reader_states = _parse_reader_states(state.get("readers"), len(self._reader_states))
        if next_reader >= len(reader_states):
            raise ValueError(
                f"The loader's saved state continues with reader {next_reader}, but there are {len(reader_states)} "
                "readers"
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
            reader = self._reader.copy_starting_at(self.epoch, self._next_reader, self._reader_states)
            requests = itertools.count(self._next_reader)
            self._results = iter(make_worker_pool(reader, requests, **self._worker_settings))
        try:
            result: _StreamResult = unwrap_result(next(iter_results(self._results)))
            return result
        except BaseException:
            # The pool would continue with the result after the one that failed. Start again from the last delivered.
            self.close()
            raise

    def _make_no_batch_error(self, result: _StreamResult) -> ValueError:
        """The exception for a result without a batch: too many bad samples, or a reader whose shards are all empty."""
        if result.errors:
            return make_unfillable_batch_error(result.tried, result.errors)
        return ValueError(
            f"{self._reader.stream.name}: all shards of reader {result.reader} are empty. "
            "Leave out empty shards, or use fewer readers (num_readers)."
        )


class _StreamResult(NamedTuple):
    """What a worker sends for one request.

    batch:        None if there were not enough good samples for one, or if the reader's pass was over.
    tried:        number of samples that were read for the batch, good and bad.
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

    Copied into each worker, which has the shard readers of its batches. Reading changes the state of these readers.

    one_pass:           whether an epoch is one pass: then the last batches may be smaller.
    epoch:              number of the current epoch, from 0.
    first_request:      index of the first batch that is requested.
    reader_states:      positions of all readers before that batch.
    _readers:           readers of this worker that were started, by their index.
    _expected_requests: by index of a started reader, the batch that must be requested from it next.
    The other fields are those of `StreamLoaderConfig`.
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
    first_request: int = 0
    reader_states: tuple[ReaderState, ...] = ()
    _readers: dict[int, ShardReader] = field(default_factory=dict)
    _expected_requests: dict[int, int] = field(default_factory=dict)

    def copy_starting_at(
        self, epoch: int, first_request: int, reader_states: list[ReaderState]
    ) -> _StreamBatchReader:
        """Return a copy that has started no reader, for the batches of an epoch from index `first_request` on."""
        return replace(
            self,
            epoch=epoch,
            first_request=first_request,
            reader_states=tuple(reader_states),
            _readers={},
            _expected_requests={},
        )

    def __getitem__(self, request: int) -> _StreamResult:
        """Read the batch of index `request`, and advance its reader."""
        reader_number, reader = request % self.num_readers, self._get_reader(request)
        if self.one_pass and reader.state.pass_number > self.epoch:
            return _StreamResult(None, 0, (), reader_number, reader.state)
        samples, sample_indices, errors = self._read_samples(reader)
        tried = len(samples) + len(errors)
        is_enough = len(samples) == self.batch_size or (self.one_pass and samples)
        batch = self.preprocessor.collate(samples, sample_indices) if is_enough else None
        return _StreamResult(batch, tried, tuple(errors), reader_number, reader.state)

    def _get_reader(self, request: int) -> ShardReader:
        """The reader of a batch, started at its state if this is its first batch here.

        RuntimeError unless the batches of a reader are requested in order, by this worker alone.
        """
        number = request % self.num_readers
        first_of_reader = self.first_request + (number - self.first_request) % self.num_readers
        expected = self._expected_requests.get(number, first_of_reader)
        if request != expected:  # if two workers had the same reader, its samples would come twice
            raise RuntimeError(
                f"Batch {request} was requested, but batch {expected} must come next from reader {number} of this "
                "worker"
            )
        self._expected_requests[number] = request + self.num_readers
        if number not in self._readers:
            share = ReaderShare(number, self.num_readers, self.rank, self.world_size)
            self._readers[number] = ShardReader(
                self.stream, self.reader_states[number], share, buffer_size=self.buffer_size, seed=self.seed,
                shuffle=self.shuffle,
            )  # fmt: skip
        return self._readers[number]

    def _read_samples(self, reader: ShardReader) -> tuple[list[TrainingSample], list[int], list[SampleError]]:
        """Read `batch_size` good samples, and advance the reader: (samples, their indices, records of bad samples).

        An index is shard * 2**32 + index in the shard. There are fewer samples at the end of the pass if an epoch is
        one pass, if too many are bad (see MAX_BAD_SAMPLES, MAX_BROKEN_SHARDS), or if the reader has no samples.
        """
        samples: list[TrainingSample] = []
        sample_indices: list[int] = []
        errors: list[SampleError] = []
        num_pass_ends = num_broken_shards = 0
        while len(samples) < self.batch_size and len(errors) < max(
            MAX_BAD_SAMPLES, MAX_BAD_PER_GOOD * len(samples)
        ):
            pass_number = reader.state.pass_number
            sample = reader.next_sample()
            if sample is None:
                num_pass_ends += 1  # two in a row: a whole pass without a sample
                if self.one_pass or num_pass_ends > 1:
                    break
                continue
            num_pass_ends = 0
            try:
                samples.append(self._preprocess(sample, pass_number))
                sample_indices.append(sample.shard << 32 | sample.index_in_shard)
            except BadSampleError as error:
                errors.append(error.record)
                num_broken_shards += error.record.reason == "broken shard"
                if num_broken_shards > MAX_BROKEN_SHARDS and not samples:
                    break
        return samples, sample_indices, errors

    def _preprocess(self, shard_sample: ShardSample, pass_number: int) -> TrainingSample:
        """Preprocess a sample, with a seed of its own in each pass; BadSampleError if it is bad."""
        shard, index_in_shard, sample = shard_sample
        if isinstance(sample, SampleError):
            raise BadSampleError(*sample)
        return self.preprocessor.process(
            sample, derive_seed(self.seed, "sample", pass_number, shard, index_in_shard)
        )


def _count_batches(samples_per_epoch: int | None, global_batch_size: int) -> int | None:
    """Number of full batches of an epoch; None if an epoch is one pass. ValueError if there is not even one."""
    if samples_per_epoch is None:
        return None
    if samples_per_epoch < global_batch_size:
        raise ValueError(
            f"samples_per_epoch {samples_per_epoch} is less than one batch of all ranks, {global_batch_size} samples. "
            "Raise samples_per_epoch, or lower batch_size."
        )
    return samples_per_epoch // global_batch_size


def _lower_num_workers(num_workers: int, num_readers: int) -> int:
    """The largest number of workers up to `num_workers` that divides the number of readers; warns if that is lower.

    So each reader belongs to one worker, because torch gives the requests to its workers in turn. 0 stays 0.
    """
    divisors = (count for count in range(1, min(num_workers, num_readers) + 1) if num_readers % count == 0)
    lowered = max(divisors, default=num_workers)
    if lowered != num_workers:
        log.warning(
            "%d workers can't share %d readers evenly; using %d workers",
            num_workers,
            num_readers,
            lowered,
        )
    return lowered


def _parse_reader_states(rows: object, num_readers: int) -> list[ReaderState]:
    """Read the states of all readers from the lists of four integers in a saved state; ValueError if malformed."""
    if not isinstance(rows, list) or len(rows) != num_readers:
        raise ValueError(f"The loader's saved state must have {num_readers} reader states, not {rows!r:.80}")
    for row in rows:
        if not isinstance(row, list) or len(row) != 4 or not all(type(n) is int and n >= 0 for n in row):
            raise ValueError(f"A saved reader state must be four integers of at least 0, not {row!r:.80}")
    return [ReaderState(*row) for row in rows]
