"""Loader: shuffled, resumable batches from sources, the same for any number of workers and ranks.

A batch is requested by (epoch, batch index) alone; a worker computes everything else from these two numbers. So it
makes no difference which worker reads it, and resuming costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from prolip.configs import takes_config
from prolip.data.base_loader import (
    BaseLoader,
    WorkerResult,
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
from prolip.data.config import LoaderConfig, OnBad
from prolip.data.order import SampleIndices, Schedule, derive_seed, permute
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_batch_error
from prolip.data.source import Source, compute_fingerprint

MAX_SUBSTITUTES = 20
"""Samples that are tried in place of a bad one."""
STATE_VERSION = 2
"""Version of `Loader.state_dict`; a state of another version is refused."""


class Loader(BaseLoader):
    """Batches of one rank, epoch after epoch: `for batch in loader` goes on to the end of the current epoch.

    Args:
        sources: the data.
        preprocessor: makes batches of samples.
        config: a `LoaderConfig`, or its fields as keywords.
    """

    @takes_config(LoaderConfig).constructor
    def __init__(
        self, sources: Source | Sequence[Source], preprocessor: Preprocessor, config: LoaderConfig
    ) -> None:
        """Fingerprint the data; workers start with the first iteration."""
        super().__init__()
        rank, world_size = resolve_rank(config.rank, config.world_size)
        if config.global_batch_size % world_size:
            raise ValueError(
                f"global_batch_size {config.global_batch_size} can't be divided evenly among {world_size} ranks. "
                f"Choose a multiple of {world_size}."
            )
        checked = _check_sources(sources)
        schedule = _make_schedule(checked, config)
        self._reader = _BatchReader(
            sources=checked, schedule=schedule, preprocessor=preprocessor, seed=config.seed,
            global_batch_size=config.global_batch_size, rank=rank, world_size=world_size, on_bad=config.on_bad,
            weighted=config.weights is not None,
        )  # fmt: skip
        self._settings = {
            "version": STATE_VERSION,
            "seed": config.seed,
            "global_batch_size": config.global_batch_size,
            "samples_per_epoch": schedule.samples_per_epoch,
            "shuffle": config.shuffle,
            "window": config.window,
            "weights": None if config.weights is None else [float(weight) for weight in config.weights],
            "drop_last": config.drop_last,
            "on_bad": config.on_bad,
            "preprocessor": preprocessor.fingerprint(),
            "fingerprint": compute_fingerprint(*(source.fingerprint() for source in checked)),
        }
        self._length = schedule.samples_per_epoch // config.global_batch_size
        if not config.drop_last and self._reader.rank_positions(self._length):
            self._length += 1
        self._max_bad_fraction = config.max_bad_fraction
        # Of this rank, on average.
        self._num_shards = sum(len(source.chunks) for source in checked) / world_size
        self._requests = _Requests()
        self._worker_settings = WorkerSettings(
            num_workers=config.num_workers, prefetch_factor=config.prefetch_factor
        )
        self._pool = make_worker_pool(self._reader, self._requests, **self._worker_settings)
        self._iteration = 0  # changes with whatever makes older iterators invalid

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return self._length

    def _iter_rest_of_epoch(self) -> Iterator[Batch]:
        """Request the remaining batches of the epoch from the pool, count their bad samples, and skip empty batches.

        Advances `position` and `error_counts`, and logs the bad samples at the end. TooManyBadSamplesError if more
        are bad than `max_bad_fraction` allows; RuntimeError if another iteration, `close` or `load_state_dict` came in
        between.
        """
        self._iteration += 1
        iteration = self._iteration
        self._requests.epoch, self._requests.batch_indices = self.epoch, range(self.position, len(self))
        for received in iter_results(self._pool) if self._requests.batch_indices else ():
            result = unwrap_result(received)
            self.position += 1
            self.error_counts.add(result.tried, result.errors)
            self.error_counts.check(self._max_bad_fraction, self._num_shards)
            if result.batch is None:
                if self._reader.on_bad == "replace":
                    raise make_unfillable_batch_error(result.tried, result.errors)
                continue
            yield result.batch
            # All iterators share one pool and one position. An older one that went on would take the results of the
            # newer one, and the position would be wrong for both.
            if iteration != self._iteration:
                raise RuntimeError(
                    "The loader was closed, loaded a state or was iterated again during this iteration. "
                    "Start a new iteration with `for batch in loader`."
                )
        self.error_counts.end_epoch(self.epoch, self._max_bad_fraction)

    def state_dict(self) -> dict[str, Any]:
        """Return settings, position and error counts, as values that JSON can hold; only the counts differ by rank."""
        return self._make_state(self._settings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        The data and all settings that determine the batches must be the same; the numbers of workers and of ranks may
        differ.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: If it was saved with other data or settings, or is damaged.
        """
        require_same_stream(self._settings, state)
        # Rounded up, and not len(self): a state of another rank may be one batch further.
        num_batches = -(-self._reader.schedule.samples_per_epoch // self._reader.global_batch_size)
        epoch, position = (read_count(state, name) for name in ("epoch", "batch"))
        if position > num_batches:
            raise ValueError(
                f"The saved position is batch {position}, but an epoch has {num_batches} batches"
            )
        error_counts = ErrorCounts()
        error_counts.load_state_dict(state.get("error_counts", {}))
        self._iteration += 1
        self.epoch, self.position, self.error_counts = epoch, position, error_counts

    def close(self) -> None:
        """End the workers (they also end with the loader). Iterating again starts new ones."""
        self._iteration += 1
        shut_down_workers(self._pool._iterator)
        self._pool = make_worker_pool(self._reader, self._requests, **self._worker_settings)


@dataclass(frozen=True, kw_only=True)
class _BatchReader(Dataset[WorkerResult]):
    """Reads a rank's batches by (epoch, batch index). Copied into each worker.

    A sample index counts through all sources; the index in a source counts from that source's first sample. Slots are
    the places of a rank's batch, from 0; `filled_slots` maps a slot to its (sample index, sample).

    weighted: whether sources have weights: then a bad sample is replaced by one of the same source, if possible.
    The other fields are those of `LoaderConfig`.
    """

    sources: tuple[Source, ...]
    schedule: Schedule
    preprocessor: Preprocessor
    seed: int
    global_batch_size: int
    rank: int
    world_size: int
    on_bad: OnBad
    weighted: bool

    def __getitem__(self, request: tuple[int, int]) -> WorkerResult:
        """Read this rank's part of the batch (epoch, batch index), and replace bad samples if `on_bad` says so."""
        epoch, batch_index = request
        indices = self.schedule.sample_indices(epoch, np.array(self.rank_positions(batch_index)))
        filled_slots: dict[int, tuple[int, TrainingSample]] = {}
        errors: list[SampleError] = []
        rows = list(zip(*(column.tolist() for column in indices), strict=True))
        # In the order on disk, so that each chunk (a shard, a row group) is visited once.
        for slot in np.argsort(indices.samples, kind="stable").tolist():
            sample_index, source_number, index_in_source, pass_number = rows[slot]
            self._fill_slot(
                slot, sample_index, source_number, index_in_source, pass_number, filled_slots, errors
            )
        if self.on_bad == "replace" and errors:
            self._replace_bad_samples(epoch, batch_index, indices, filled_slots, errors)
        tried = len(filled_slots) + len(errors)
        if not filled_slots:
            return WorkerResult(None, tried, tuple(errors))
        sample_indices, samples = zip(*(filled_slots[slot] for slot in sorted(filled_slots)), strict=True)
        return WorkerResult(self.preprocessor.collate(samples, sample_indices), tried, tuple(errors))

    def rank_positions(self, batch_index: int) -> range:
        """This rank's positions of a global batch. The first ranks have one more where it can't be divided evenly."""
        positions = self.global_positions(batch_index)
        each, rest = divmod(len(positions), self.world_size)
        start = self.rank * each + min(self.rank, rest)
        return positions[start : start + each + (self.rank < rest)]

    def global_positions(self, batch_index: int) -> range:
        """The positions of a global batch, of all ranks together, in the epoch."""
        start = batch_index * self.global_batch_size
        return range(start, min(start + self.global_batch_size, self.schedule.samples_per_epoch))

    def _fill_slot(
        self, slot: int, sample_index: int, source_number: int, index_in_source: int, pass_number: int,
        filled_slots: dict[int, tuple[int, TrainingSample]], errors: list[SampleError],
    ) -> None:  # fmt: skip
        """Read a sample and set filled_slots[slot]; if the sample is bad, append the reason to `errors` instead."""
        seed = derive_seed(self.seed, "sample", pass_number, source_number, index_in_source)
        try:
            sample = self.sources[source_number].read(index_in_source)
            filled_slots[slot] = sample_index, self.preprocessor.process(sample, seed)
        except BadSampleError as error:
            errors.append(error.record)

    def _replace_bad_samples(
        self, epoch: int, batch_index: int, indices: SampleIndices,
        filled_slots: dict[int, tuple[int, TrainingSample]], errors: list[SampleError],
    ) -> None:  # fmt: skip
        """Fill the slots that are still empty with samples that no rank has in this batch.

        Adds to `filled_slots`, and bad substitutes to `errors`. `indices` are the samples that were tried first, one
        per slot.
        """
        positions = self.rank_positions(batch_index)
        all_positions = np.array(self.global_positions(batch_index))
        taken = set(self.schedule.sample_indices(epoch, all_positions).samples.tolist())
        for slot in [slot for slot in range(len(positions)) if slot not in filled_slots]:
            for sample_index in self._iter_substitutes(epoch, positions[slot], int(indices.sources[slot])):
                if sample_index in taken:
                    continue
                taken.add(sample_index)
                source_numbers, indices_in_source = self.schedule.locate(np.array([sample_index]))
                self._fill_slot(
                    slot, sample_index, int(source_numbers[0]), int(indices_in_source[0]), int(indices.passes[slot]),
                    filled_slots, errors,
                )  # fmt: skip
                if slot in filled_slots:
                    break
            if (
                not filled_slots
            ):  # no sample was good, nor any substitute for this slot: don't try 20 for each slot
                break

    def _iter_substitutes(self, epoch: int, position: int, source_number: int) -> Iterator[int]:
        """Sample indices to try in place of a bad sample of a source, which was at `position` of the epoch.

        At most MAX_SUBSTITUTES; with weights, half of them come first from the same source, to keep proportions.
        Position k of a global batch of size G draws from k, k + G, k + 2 G, ..., which are then scattered one to one.
        So no two positions have the same substitute, whichever ranks they are on, without communication.
        """
        own_source = [self.schedule.samples_of_source(source_number)] if self.weighted else []
        for round_number, candidates in enumerate([*own_source, range(self.schedule.size)]):
            first = candidates.start + (position - candidates.start) % self.global_batch_size
            samples = range(first, candidates.stop, self.global_batch_size)
            tries = np.arange(min(len(samples), MAX_SUBSTITUTES // (1 + len(own_source))))
            if len(tries):
                key = derive_seed(self.seed, "substitute", epoch, position, round_number)
                batch_index = position // self.global_batch_size
                for i in permute(tries, len(samples), key).tolist():
                    yield self._scatter(samples[i], epoch, batch_index)

    def _scatter(self, sample_index: int, epoch: int, batch_index: int) -> int:
        """Map a sample index to another one of the same source, by a permutation that differs for each batch.

        Bad samples may be as regular as the positions k + G, k + 2 G, ...: every tenth, say, with G = 10.
        """
        source_number = int(self.schedule.locate(np.array([sample_index]))[0][0])
        samples = self.schedule.samples_of_source(source_number)
        key = derive_seed(self.seed, "scatter", epoch, batch_index, source_number)
        return samples.start + int(permute(np.array([sample_index - samples.start]), len(samples), key)[0])


@dataclass
class _Requests:
    """Iterable over the requests (epoch, batch index) that the loader sends to its pool of workers.

    The loader sets both fields before it iterates over the pool. A separate object, so that the pool doesn't keep the
    loader alive.
    """

    epoch: int = 0
    batch_indices: range = field(default_factory=lambda: range(0))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        return ((epoch, batch_index) for batch_index in self.batch_indices)


def _check_sources(sources: Source | Sequence[Source]) -> tuple[Source, ...]:
    """The sources as a tuple, also if it is only one; TypeError for a path or a stream, ValueError if there is none."""
    checked = tuple(sources) if isinstance(sources, Sequence) and not isinstance(sources, str) else (sources,)
    for source in checked:
        if isinstance(source, str | Path):
            raise TypeError(f"{source!r} is a path, not a source. Open it first: open_data({str(source)!r})")
        if not isinstance(source, Source):
            raise TypeError(
                f"Loader reads a Source, not a {type(source).__name__}. For a TarStream use StreamLoader(stream, ...)."
            )
    if not checked:
        raise ValueError("Loader needs at least one source")
    return checked


def _make_schedule(sources: Sequence[Source], config: LoaderConfig) -> Schedule:
    """The order of the samples; with drop_last, an epoch is rounded down to whole batches.

    Without weights and samples_per_epoch it stays one pass, and the loader stops before its last, incomplete batch.
    ValueError if an epoch has no full batch.
    """
    samples_per_epoch, batch_size = config.samples_per_epoch, config.global_batch_size
    if config.drop_last:
        num_samples = sum(map(len, sources)) if samples_per_epoch is None else samples_per_epoch
        if num_samples < batch_size:
            raise ValueError(
                f"An epoch of {num_samples} samples has no full batch of {batch_size}. Make the batch size "
                "(global_batch_size) smaller, or keep incomplete batches with drop_last=False."
            )
        if samples_per_epoch is not None or config.weights is not None:
            samples_per_epoch = num_samples // batch_size * batch_size
    return Schedule(
        sources, weights=config.weights, samples_per_epoch=samples_per_epoch, seed=config.seed,
        shuffle=config.shuffle, window=config.window,
    )  # fmt: skip
