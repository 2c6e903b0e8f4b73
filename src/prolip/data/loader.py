"""Batches from sources that can be read at any position: the same stream for any number of workers, resumable.

A batch is asked for by (epoch, number) alone; a worker finds out the rest. So it makes no difference who reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch.utils.data import Dataset

from prolip.checks import require_choice, require_positive_int
from prolip.data.base_loader import (
    BaseLoader,
    WorkerResult,
    answers,
    check_worker_settings,
    resolve_rank,
    shut_down_workers,
    require_max_bad_fraction,
    require_same_stream,
    unwrap,
    read_count,
    make_worker_pool,
)
from prolip.data.batch import Batch, Item, Preprocessor
from prolip.data.order import SampleIndices, Schedule, derive_seed, permute
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_error
from prolip.data.source import Source, compute_fingerprint

Last = Literal["drop", "keep"]
OnBad = Literal["replace", "drop"]

ATTEMPTS = 20
VERSION = 1


class Loader(BaseLoader):
    """Batches of one rank, epoch after epoch: `for batch in loader` goes on to the end of the present epoch.

    global_batch: samples of a batch over all ranks; each rank has its contiguous share of it.
    weights, samples_per_epoch, shuffle, window: see `Schedule`.
    last:    what becomes of the last global batch of an epoch, if it is not full. "drop": it is left out (one pass an
             epoch and random_permutation, the next epoch leaves out others; with samples_per_epoch or weights nothing is lost,
             for the next epoch starts where this one ended). "keep": the ranks share it as evenly as can be, and one
             that would get nothing has a batch less.
    on_bad:  "replace": another sample, drawn at random, takes a bad one's place, so that batches stay full; after 20
             bad ones, or if the data is hardly larger than a batch, there may be none. "drop": the batch is smaller,
             and passed over if it is empty.
    max_bad_fraction: share of bad samples from which on loading ends in TooManyBadSamplesError; see `ErrorCounts.check`. The tally
             is of one epoch, and of this rank.
    workers: processes that read ahead, `prefetch` batches each; 0: no process, nothing ahead. They live until `close`,
             or as long as the loader.
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
        last: Last = "drop",
        on_bad: OnBad = "replace",
        max_bad_fraction: float = 0.1,
        prefetch_factor: int = 2,
    ) -> None:
        super().__init__()
        require_choice(last, get_args(Last), "last")
        require_choice(on_bad, get_args(OnBad), "on_bad")
        require_positive_int(global_batch_size, "global_batch")
        require_max_bad_fraction(max_bad_fraction)
        seed = index(seed)  # NumPy's integers are none for JSON
        rank, world_size = resolve_rank(rank, world_size)
        if global_batch_size % world_size:
            raise ValueError(f"global_batch {global_batch_size} can't be shared evenly by {world_size} ranks")
        many = _sources(sources)
        if last == "drop":
            samples_per_epoch = _whole_batches(many, weights, samples_per_epoch, global_batch_size)
        schedule = Schedule(
            many, weights=weights, samples_per_epoch=samples_per_epoch, seed=seed, shuffle=shuffle, window=window
        )  # fmt: skip
        self._reader = _Reader(
            sources=many, schedule=schedule, preprocessor=preprocessor, seed=seed, global_batch=global_batch_size,
            rank=rank, world_size=world_size, on_bad=on_bad, weighted=weights is not None,
        )  # fmt: skip
        self._facts = {
            "version": VERSION,
            "seed": seed,
            "global_batch": global_batch_size,
            "samples_per_epoch": schedule.samples_per_epoch,
            "shuffle": shuffle,
            "window": window,
            "weights": None if weights is None else [float(weight) for weight in weights],
            "last": last,
            "on_bad": on_bad,
            "preprocessor": preprocessor.fingerprint(),
            "fingerprint": compute_fingerprint(*(source.fingerprint() for source in many)),
        }
        self._length = schedule.samples_per_epoch // global_batch_size
        if last == "keep" and self._reader.share(self._length):
            self._length += 1
        self._bad_limit = max_bad_fraction
        self._shards = sum(len(source.chunks) for source in many) / world_size
        self._requests = _Requests()
        self._pool_settings = check_worker_settings(num_workers, prefetch_factor)
        self._pool = make_worker_pool(self._reader, self._requests, **self._pool_settings)
        self._iteration = 0

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return self._length

    def _rest_of_epoch(self) -> Iterator[Batch]:
        self._iteration += 1
        iteration = self._iteration
        self._requests.epoch, self._requests.numbers = self.epoch, range(self.position, len(self))
        for answer in answers(self._pool) if self._requests.numbers else ():
            delivery = unwrap(answer)
            self.position += 1
            self.tally.add(delivery.tried, delivery.bads)
            self.tally.check(self._bad_limit, self._shards)
            if delivery.batch is None:
                if self._reader.on_bad == "replace":
                    raise make_unfillable_error(delivery.tried, delivery.bads)
                continue
            yield delivery.batch
            if iteration != self._iteration:  # what comes next would be another's, and the position neither's
                raise RuntimeError(
                    "the loader was closed, moved or iterated anew while this iteration went on"
                )
        self.tally.end_epoch(self.epoch, self._bad_limit)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, for JSON. All ranks stand at the same place; the tally is this rank's."""
        return self._place(self._facts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. The data and all settings that make the stream must be the same; the number of workers may
        be another, and so may the number of ranks."""
        require_same_stream(self._facts, state)
        batches = -(-self._reader.schedule.samples_per_epoch // self._reader.global_batch)
        epoch, position = (read_count(state, name) for name in ("epoch", "batch"))
        if position > batches:
            raise ValueError(f"the saved position is batch {position} of an epoch that has {batches}")
        tally = ErrorCounts()
        tally.load_state_dict(state.get("tally", {}))
        self._iteration += 1
        self.epoch, self.position, self.tally = epoch, position, tally

    def close(self) -> None:
        """End the workers. (They also end with the loader.) It can be iterated again, which starts new ones."""
        self._iteration += 1
        shut_down_workers(self._pool._iterator)
        self._pool = make_worker_pool(self._reader, self._requests, **self._pool_settings)


@dataclass(frozen=True, kw_only=True)
class _Reader(Dataset[WorkerResult]):
    """Batches by (epoch, number). Copied into each worker."""

    sources: tuple[Source, ...]
    schedule: Schedule
    preprocessor: Preprocessor
    seed: int
    global_batch: int
    rank: int
    world_size: int
    on_bad: OnBad
    weighted: bool

    def __getitem__(self, request: tuple[int, int]) -> WorkerResult:
        epoch, number = request
        positions = self.share(number)
        places = self.schedule.places(epoch, np.array(positions))
        found: dict[int, tuple[int, Item]] = {}
        bads: list[SampleError] = []
        rows = list(zip(*(column.tolist() for column in places), strict=True))
        for slot in np.argsort(
            places.numbers, kind="stable"
        ).tolist():  # as they lie on disk: each chunk is met once
            sample, source, index, pass_number = rows[slot]
            self._try(slot, sample, source, index, pass_number, found, bads)
        if self.on_bad == "replace" and bads:
            self._replace(epoch, number, places, found, bads)
        tried = len(found) + len(bads)
        if not found:
            return WorkerResult(None, tried, tuple(bads))
        samples, items = zip(*(found[slot] for slot in sorted(found)), strict=True)
        return WorkerResult(self.preprocessor.batch(items, samples), tried, tuple(bads))

    def share(self, number: int) -> range:
        """This rank's positions of a global batch. The first ranks have one more where it doesn't come out even."""
        shared = self.shared(number)
        each, rest = divmod(len(shared), self.world_size)
        start = self.rank * each + min(self.rank, rest)
        return shared[start : start + each + (self.rank < rest)]

    def shared(self, number: int) -> range:
        """All ranks' positions of a global batch."""
        start = number * self.global_batch
        return range(start, min(start + self.global_batch, self.schedule.samples_per_epoch))

    def _try(
        self, slot: int, number: int, source: int, index: int, pass_number: int,
        found: dict[int, tuple[int, Item]], bads: list[SampleError],
    ) -> None:  # fmt: skip
        """Read a sample into a slot; else note why not."""
        seed = derive_seed(self.seed, "sample", pass_number, source, index)
        try:
            found[slot] = number, self.preprocessor.item(self.sources[source].read(index), seed)
        except BadSampleError as error:
            bads.append(error.record)

    def _replace(
        self,
        epoch: int,
        number: int,
        places: SampleIndices,
        found: dict[int, tuple[int, Item]],
        bads: list[SampleError],
    ) -> None:
        """Fill the empty slots with samples that no rank has in this batch."""
        positions, everyone = self.share(number), np.array(self.shared(number))
        taken = set(self.schedule.places(epoch, everyone).numbers.tolist())
        for slot in [slot for slot in range(len(positions)) if slot not in found]:
            for sample in self._substitutes(epoch, positions[slot], int(places.sources[slot])):
                if sample in taken:
                    continue
                taken.add(sample)
                source, index = (int(values[0]) for values in self.schedule.located(np.array([sample])))
                self._try(slot, sample, source, index, int(places.passes[slot]), found, bads)
                if slot in found:
                    break
            if not found:  # nothing is good, and 20 more were no better: don't try them for each slot
                break

    def _substitutes(self, epoch: int, position: int, source: int) -> Iterator[int]:
        """Numbers to try in place of a bad sample: of the same source first, where sources have shares to keep.

        Place k of a global batch draws from k, k + G, k + 2 G, ..., scattered one to one: so no two places have the
        same substitute, whichever ranks they are on.
        """
        own = [self.schedule.numbers_of(source)] if self.weighted else []
        for part, among in enumerate([*own, range(self.schedule.size)]):
            first = among.start + (position - among.start) % self.global_batch
            numbers = range(first, among.stop, self.global_batch)
            tries = np.arange(min(len(numbers), ATTEMPTS // (1 + len(own))))
            if len(tries):
                key = derive_seed(self.seed, "substitute", epoch, position, part)
                batch = position // self.global_batch
                for i in permute(tries, len(numbers), key).tolist():
                    yield self._scattered(numbers[i], epoch, batch)

    def _scattered(self, number: int, epoch: int, batch: int) -> int:
        """One to one within each source, anew for each batch: bad samples may be as regular as the places are."""
        source = int(self.schedule.located(np.array([number]))[0][0])
        among = self.schedule.numbers_of(source)
        key = derive_seed(self.seed, "scatter", epoch, batch, source)
        return among.start + int(permute(np.array([number - among.start]), len(among), key)[0])


@dataclass
class _Requests:
    """What the loader asks for next. Apart from it, so that the pool of workers doesn't keep the loader alive."""

    epoch: int = 0
    numbers: range = field(default_factory=lambda: range(0))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        return ((epoch, number) for number in self.numbers)


def _sources(sources: Source | Sequence[Source]) -> tuple[Source, ...]:
    many = tuple(sources) if isinstance(sources, Sequence) and not isinstance(sources, str) else (sources,)
    for source in many:
        if isinstance(source, str | Path):
            raise TypeError(f"{source!r} is a path, not a source; open it first: open_data({str(source)!r})")
        if not isinstance(source, Source):
            raise TypeError(
                f"a {type(source).__name__} is no Source; a TarStream goes into StreamLoader(stream, ..., batch=)"
            )
    if not many:
        raise ValueError("there is no source to read")
    return many


def _whole_batches(
    sources: Sequence[Source],
    weights: Sequence[float] | None,
    samples_per_epoch: int | None,
    global_batch: int,
) -> int | None:
    """Samples of an epoch without its incomplete batch; None: still one pass, whose end the loader won't reach."""
    samples = sum(map(len, sources)) if samples_per_epoch is None else samples_per_epoch
    if samples < global_batch:
        raise ValueError(
            f"an epoch of {samples} samples has no full batch of {global_batch}; make global_batch smaller, or "
            'keep incomplete batches (last="keep")'
        )
    return None if samples_per_epoch is None and weights is None else samples // global_batch * global_batch
