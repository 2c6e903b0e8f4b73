"""Loader: shuffled, resumable batches from sources, the same for any number of workers and ranks.

A batch is requested by (epoch, batch index) alone; a worker computes everything else from these two numbers. So it
makes no difference which worker reads it, and resuming costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index as as_index
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch.utils.data import Dataset

from prolip.checks import require_choice, require_fraction, require_positive_int
from prolip.data.base_loader import (
    BaseLoader,
    WorkerResult,
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
from prolip.data.order import SampleIndices, Schedule, derive_seed, permute
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_error
from prolip.data.source import Source, compute_fingerprint

OnBad = Literal["replace", "drop"]
"""What happens to a bad sample; see `Loader`."""

MAX_SUBSTITUTES = 20
"""Samples that are tried in place of a bad one."""
STATE_VERSION = 2
"""Version of `Loader.state_dict`; a state of another version is refused."""


class Loader(BaseLoader):
    """Batches of one rank, epoch after epoch: `for batch in loader` goes on to the end of the current epoch.

    Args:
        sources: the data.
        preprocessor: makes batches of samples.
        global_batch_size: samples of a batch over all ranks; each rank has its contiguous part of it.
        weights, samples_per_epoch, shuffle, window: see `Schedule`.
        seed: Seed of the order, the augmentation and the choice of captions.
        num_workers: processes that read ahead, `prefetch_factor` batches each; 0: no process, nothing ahead. They live
            until `close`, or as long as the loader.
        rank, world_size: None: those of the process group.
        drop_last: what happens to the last global batch of an epoch if it is not full. True: it is skipped (with one
            pass per epoch and shuffling, the next epoch skips other samples; with samples_per_epoch or weights
            nothing is lost, because the next epoch starts where this one ended). False: the ranks share it as evenly
            as possible, and a rank that would get nothing has one batch less.
        on_bad: "replace": another sample, drawn at random, takes the place of a bad one, so that batches stay full;
            after 20 bad ones, or if the data is hardly larger than a batch, the batch may be smaller. "drop": the batch
            is smaller, and skipped if it is empty.
        max_bad_fraction: fraction of bad samples, 0 to 1, above which loading ends in TooManyBadSamplesError; see
            `ErrorCounts.check`. The counts are of one epoch and of this rank.
        prefetch_factor: batches that each worker prepares ahead.
    """

    def __init__(
        self,
        sources: Source | Sequence[Source],
        preprocessor: Preprocessor,
        *,
        global_batch_size: int,
        weights: Sequence[float] | None = None,
        samples_per_epoch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        window: int = 16,
        num_workers: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = True,
        on_bad: OnBad = "replace",
        max_bad_fraction: float = 0.1,
        prefetch_factor: int = 2,
    ) -> None:
        """Check the arguments and fingerprint the data; workers start with the first iteration."""
        super().__init__()
        require_choice(on_bad, get_args(OnBad), "on_bad")
        require_positive_int(global_batch_size, "global_batch_size")
        require_fraction(max_bad_fraction, "max_bad_fraction")
        seed = as_index(seed)  # JSON can't hold NumPy's integers
        rank, world_size = resolve_rank(rank, world_size)
        if global_batch_size % world_size:
            raise ValueError(
                f"global_batch_size {global_batch_size} can't be divided evenly among {world_size} ranks"
            )
        checked = _check_sources(sources)
        if drop_last:
            samples_per_epoch = _round_to_batches(checked, weights, samples_per_epoch, global_batch_size)
        schedule = Schedule(
            checked, weights=weights, samples_per_epoch=samples_per_epoch, seed=seed, shuffle=shuffle, window=window
        )  # fmt: skip
        self._reader = _BatchReader(
            sources=checked, schedule=schedule, preprocessor=preprocessor, seed=seed,
            global_batch_size=global_batch_size, rank=rank, world_size=world_size, on_bad=on_bad,
            weighted=weights is not None,
        )  # fmt: skip
        self._settings = {
            "version": STATE_VERSION,
            "seed": seed,
            "global_batch_size": global_batch_size,
            "samples_per_epoch": schedule.samples_per_epoch,
            "shuffle": shuffle,
            "window": window,
            "weights": None if weights is None else [float(weight) for weight in weights],
            "drop_last": drop_last,
            "on_bad": on_bad,
            "preprocessor": preprocessor.fingerprint(),
            "fingerprint": compute_fingerprint(*(source.fingerprint() for source in checked)),
        }
        self._length = schedule.samples_per_epoch // global_batch_size
        if not drop_last and self._reader.rank_positions(self._length):
            self._length += 1
        self._max_bad_fraction = max_bad_fraction
        self._shards = sum(len(source.chunks) for source in checked) / world_size  # of this rank, on average
        self._requests = _Requests()
        self._worker_settings = check_worker_settings(num_workers, prefetch_factor)
        self._pool = make_worker_pool(self._reader, self._requests, **self._worker_settings)
        self._iteration = 0  # changes with whatever makes older iterators invalid

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return self._length

    def _iter_rest_of_epoch(self) -> Iterator[Batch]:
        """Request the remaining batches of the epoch from the pool, count their bad samples, and skip empty batches.

        TooManyBadSamplesError by `max_bad_fraction`; RuntimeError if another iteration, `close` or `load_state_dict`
        came in between.
        """
        self._iteration += 1
        iteration = self._iteration
        self._requests.epoch, self._requests.batches = self.epoch, range(self.position, len(self))
        for received in iter_results(self._pool) if self._requests.batches else ():
            result = unwrap(received)
            self.position += 1
            self.error_counts.add(result.tried, result.errors)
            self.error_counts.check(self._max_bad_fraction, self._shards)
            if result.batch is None:
                if self._reader.on_bad == "replace":
                    raise make_unfillable_error(result.tried, result.errors)
                continue
            yield result.batch
            # All iterators share one pool and one position. An older one that went on would take the results of the
            # newer one, and the position would be wrong for both.
            if iteration != self._iteration:
                raise RuntimeError("The loader was closed, moved or iterated again during this iteration")
        self.error_counts.end_epoch(self.epoch, self._max_bad_fraction)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as values that JSON can hold. It is the same on all ranks but for `error_counts`."""
        return self._make_state(self._settings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        The data and all settings that determine the stream must be the same; the numbers of workers and of ranks may
        differ.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: If it is the state of another stream.
        """
        require_same_stream(self._settings, state)
        # Rounded up, and not len(self): a state of another rank may be one batch further.
        batches = -(-self._reader.schedule.samples_per_epoch // self._reader.global_batch_size)
        epoch, position = (read_count(state, name) for name in ("epoch", "batch"))
        if position > batches:
            raise ValueError(f"The saved position is batch {position} of an epoch that has {batches}")
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

    Slots are the places of a rank's batch, from 0; `found` maps a slot to (sample index through all sources, sample).
    weighted: whether sources have weights: then a bad sample is replaced by one of the same source, if possible.
    The other fields are the arguments of `Loader`.
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
        epoch, batch = request
        indices = self.schedule.sample_indices(epoch, np.array(self.rank_positions(batch)))
        found: dict[int, tuple[int, TrainingSample]] = {}
        errors: list[SampleError] = []
        rows = list(zip(*(column.tolist() for column in indices), strict=True))
        # In the order on disk, so that each chunk (a shard, a row group) is visited once.
        for slot in np.argsort(indices.samples, kind="stable").tolist():
            sample, source, index, pass_number = rows[slot]
            self._try_sample(slot, sample, source, index, pass_number, found, errors)
        if self.on_bad == "replace" and errors:
            self._replace_bad(epoch, batch, indices, found, errors)
        tried = len(found) + len(errors)
        if not found:
            return WorkerResult(None, tried, tuple(errors))
        samples, processed = zip(*(found[slot] for slot in sorted(found)), strict=True)
        return WorkerResult(self.preprocessor.collate(processed, samples), tried, tuple(errors))

    def rank_positions(self, batch: int) -> range:
        """This rank's positions of a global batch. The first ranks have one more where it can't be divided evenly."""
        positions = self.global_positions(batch)
        each, rest = divmod(len(positions), self.world_size)
        start = self.rank * each + min(self.rank, rest)
        return positions[start : start + each + (self.rank < rest)]

    def global_positions(self, batch: int) -> range:
        """The positions of a global batch in the epoch, of all ranks."""
        start = batch * self.global_batch_size
        return range(start, min(start + self.global_batch_size, self.schedule.samples_per_epoch))

    def _try_sample(
        self, slot: int, sample: int, source: int, index: int, pass_number: int,
        found: dict[int, tuple[int, TrainingSample]], errors: list[SampleError],
    ) -> None:  # fmt: skip
        """Read a sample into found[slot], or append to `errors` why it is bad.

        `sample` is its index through all sources, which is `index` in the source number `source`.
        """
        seed = derive_seed(self.seed, "sample", pass_number, source, index)
        try:
            found[slot] = sample, self.preprocessor.process(self.sources[source].read(index), seed)
        except BadSampleError as error:
            errors.append(error.record)

    def _replace_bad(
        self, epoch: int, batch: int, indices: SampleIndices,
        found: dict[int, tuple[int, TrainingSample]], errors: list[SampleError],
    ) -> None:  # fmt: skip
        """Fill the slots that `found` lacks with samples that no rank has in this batch. Adds to `found`, `errors`.

        `indices` are the samples that were tried first, one per slot.
        """
        positions, all_positions = self.rank_positions(batch), np.array(self.global_positions(batch))
        taken = set(self.schedule.sample_indices(epoch, all_positions).samples.tolist())
        for slot in [slot for slot in range(len(positions)) if slot not in found]:
            for sample in self._iter_substitutes(epoch, positions[slot], int(indices.sources[slot])):
                if sample in taken:
                    continue
                taken.add(sample)
                source, index = (int(values[0]) for values in self.schedule.locate(np.array([sample])))
                self._try_sample(slot, sample, source, index, int(indices.passes[slot]), found, errors)
                if slot in found:
                    break
            if not found:  # nothing is good, and 20 more were no better: don't try 20 for each slot
                break

    def _iter_substitutes(self, epoch: int, position: int, source: int) -> Iterator[int]:
        """Indices of samples to try in place of a bad one of `source`, which was at `position` of the epoch.

        At most MAX_SUBSTITUTES; with weights, half of them come first from the same source, to keep proportions.
        Position k of a global batch of size G draws from k, k + G, k + 2 G, ..., which are then scattered one to one.
        So no two positions have the same substitute, whichever ranks they are on, without communication.
        """
        own_source = [self.schedule.samples_of_source(source)] if self.weighted else []
        for part, candidates in enumerate([*own_source, range(self.schedule.size)]):
            first = candidates.start + (position - candidates.start) % self.global_batch_size
            samples = range(first, candidates.stop, self.global_batch_size)
            tries = np.arange(min(len(samples), MAX_SUBSTITUTES // (1 + len(own_source))))
            if len(tries):
                key = derive_seed(self.seed, "substitute", epoch, position, part)
                batch = position // self.global_batch_size
                for i in permute(tries, len(samples), key).tolist():
                    yield self._scatter(samples[i], epoch, batch)

    def _scatter(self, sample: int, epoch: int, batch: int) -> int:
        """Permute the samples of each source, differently for each batch.

        Bad samples may be as regular as the positions k + G, k + 2 G, ...: every tenth, say, with G = 10.
        """
        source = int(self.schedule.locate(np.array([sample]))[0][0])
        samples = self.schedule.samples_of_source(source)
        key = derive_seed(self.seed, "scatter", epoch, batch, source)
        return samples.start + int(permute(np.array([sample - samples.start]), len(samples), key)[0])


@dataclass
class _Requests:
    """Iterable over the (epoch, batch index) that the loader asks its pool for.

    A separate object, so that the pool of workers doesn't keep the loader alive.
    """

    epoch: int = 0
    batches: range = field(default_factory=lambda: range(0))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        return ((epoch, batch) for batch in self.batches)


def _check_sources(sources: Source | Sequence[Source]) -> tuple[Source, ...]:
    """One source or several as a tuple; TypeError for a path or a stream, ValueError if there is none."""
    checked = tuple(sources) if isinstance(sources, Sequence) and not isinstance(sources, str) else (sources,)
    for source in checked:
        if isinstance(source, str | Path):
            raise TypeError(f"{source!r} is a path, not a source. Open it first: open_data({str(source)!r})")
        if not isinstance(source, Source):
            raise TypeError(
                f"A {type(source).__name__} is not a Source. Give a TarStream to StreamLoader(stream, ...)."
            )
    if not checked:
        raise ValueError("There is no source to read")
    return checked


def _round_to_batches(
    sources: Sequence[Source],
    weights: Sequence[float] | None,
    samples_per_epoch: int | None,
    global_batch_size: int,
) -> int | None:
    """`samples_per_epoch` of a schedule for drop_last: rounded down to full batches; ValueError if there is none.

    None without weights and samples_per_epoch: an epoch stays one pass, and the loader stops before its end.
    """
    samples = sum(map(len, sources)) if samples_per_epoch is None else samples_per_epoch
    if samples < global_batch_size:
        raise ValueError(
            f"An epoch of {samples} samples has no full batch of {global_batch_size}. Make global_batch_size smaller, "
            "or keep incomplete batches with drop_last=False."
        )
    if samples_per_epoch is None and weights is None:
        return None
    return samples // global_batch_size * global_batch_size
