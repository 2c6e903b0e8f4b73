"""Batches from shards that can only be read from their beginning, of unknown length: still resumable, still the same
for any number of workers.

A rank reads through lanes, in turn: batch i comes from lane i mod L. A lane has shards of its own and reads them one
after another, whichever worker serves it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from prolip.checks import require_positive_int
from prolip.data.base_loader import (
    BaseLoader,
    WorkerFailure,
    WorkerSettings,
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
from prolip.data.order import derive_seed
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts, make_unfillable_error
from prolip.data.shard_reader import ShardSample, ReaderState, ShardReader, ShardStream

VERSION = 1
MOST_BAD = 1000
"""Bad samples after which a batch is given up, or twenty times the good ones in it if that is more."""
MOST_BROKEN = 20
"""Broken shards after which a batch without a good sample is given up."""
log = logging.getLogger("prolip.data")


class StreamLoader(BaseLoader):
    """Batches of one rank from a stream; to iterate as a `Loader`.

    batch:   samples of a batch on this rank.
    samples_per_epoch: over all ranks. A number, for training: an epoch is as many full batches as fit into it, and the
             next one goes on where it ended, through pass after pass. None: an epoch is one pass, each sample exactly
             once on one of the ranks; lanes end with what they have, so batches may be smaller, and ranks may differ in
             their number.
    lanes:   readers of a rank; as many as it has shards, if that is less.
    buffer:  samples that a lane shuffles together. Their files' bytes are held in memory: lanes * buffer of them.
    shuffle: False: shards and samples in their order, though lanes still take turns.
    max_bad_fraction: as for `Loader`. Bad samples are left out, and the lane's next ones fill the batch.
    workers: processes; one that doesn't divide the number of lanes is lowered to one that does.

    The position is a rank's own: save the state of each rank. `Batch.samples` are shard * 2**32 + number in the shard.
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
        super().__init__()
        for value, name in ((batch_size, "batch"), (num_readers, "lanes"), (buffer_size, "buffer")):
            require_positive_int(value, name)
        require_max_bad_fraction(max_bad_fraction)
        seed = index(seed)  # NumPy's integers are none for JSON
        rank, world_size = resolve_rank(rank, world_size)
        if len(stream.shards) < world_size:
            raise ValueError(
                f"{stream.name}: {len(stream.shards)} shards can't be shared by {world_size} ranks; "
                "there must be at least one for each"
            )
        num_readers = min(num_readers, len(stream.shards) // world_size)
        self._batches = _batches(samples_per_epoch, batch_size * world_size)
        self._reader = _StreamReader(
            stream=stream, preprocessor=preprocessor, batch=batch_size, buffer=buffer_size, seed=seed, shuffle=shuffle,
            rank=rank, world_size=world_size, lanes=num_readers, one_pass=samples_per_epoch is None,
        )  # fmt: skip
        self._facts = {
            "version": VERSION, "seed": seed, "rank": rank, "world_size": world_size, "batch_size": batch_size,
            "samples_per_epoch": samples_per_epoch, "lanes": num_readers, "buffer": buffer_size, "shuffle": shuffle,
            "preprocessor": preprocessor.fingerprint(), "fingerprint": stream.fingerprint(),
        }  # fmt: skip
        settings = check_worker_settings(num_workers, prefetch_factor)
        self._pool_settings: WorkerSettings = {**settings, "workers": _divisor(num_readers, num_workers)}
        self._answers: Iterator[_Answer | WorkerFailure] | None = None
        self._bad_limit, self._shards = max_bad_fraction, len(stream.shards) / world_size
        self._turn = 0
        self._spots = [ReaderState()] * num_readers

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        if self._batches is None:
            raise TypeError(
                f"{self._reader.stream.name}: how many batches a pass has is known when it is read"
            )
        return self._batches

    def _rest_of_epoch(self) -> Iterator[Batch]:
        while not self._epoch_is_over():
            answer = self._next_answer()
            self._turn = (self._turn + 1) % len(self._spots)
            self._spots[answer.lane] = answer.spot
            self.position += answer.batch is not None
            self.tally.add(answer.tried, answer.bads)
            self.tally.check(self._bad_limit, self._shards)
            if answer.batch is not None:
                yield answer.batch
            elif self._batches is not None:
                raise self._nothing_in(answer)
        if self._batches is None:
            self.close()  # its workers are to stop at the end of a pass that is over
        self.tally.end_epoch(self.epoch, self._bad_limit)

    def state_dict(self) -> dict[str, Any]:
        """Where this rank stands, for JSON."""
        return {**self._place(self._facts), "turn": self._turn, "spots": [list(spot) for spot in self._spots]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there: with the same data, ranks and settings, and any number of workers."""
        require_same_stream(self._facts, state)
        epoch, position, turn = (read_count(state, name) for name in ("epoch", "batch", "turn"))
        spots = _checked_spots(state.get("spots"), len(self._spots))
        if turn >= len(spots):
            raise ValueError(f"the saved position is at the turn of lane {turn}, of {len(spots)}")
        tally = ErrorCounts()
        tally.load_state_dict(state.get("tally", {}))
        self.close()
        self.epoch, self.position, self._turn, self._spots, self.tally = epoch, position, turn, spots, tally

    def close(self) -> None:
        """End the workers. (They also end with the loader.) Iterating again starts new ones at the same position."""
        shut_down_workers(self._answers)
        self._answers = None

    def _epoch_is_over(self) -> bool:
        if self._batches is None:
            return all(spot.pass_number > self.epoch for spot in self._spots)
        return self.position >= self._batches

    def _next_answer(self) -> _Answer:
        if self._answers is None:
            reader = self._reader.at(self.epoch, self._turn, self._spots)
            self._answers = iter(make_worker_pool(reader, itertools.count(self._turn), **self._pool_settings))
        try:
            answer: _Answer = unwrap(next(answers(self._answers)))
            return answer
        except BaseException:
            self.close()  # the next answer would be another one's: start anew from the last that came
            raise

    def _nothing_in(self, answer: _Answer) -> ValueError:
        if answer.bads:
            return make_unfillable_error(answer.tried, answer.bads)
        name, lane = self._reader.stream.name, answer.lane
        return ValueError(
            f"{name}: all shards of lane {lane} are empty; leave empty shards out, or use fewer lanes"
        )


class _Answer(NamedTuple):
    """What a worker sends: a batch or None, what was tried for it, and where its lane then stands."""

    batch: Batch | None
    tried: int
    bads: tuple[SampleError, ...]
    lane: int
    spot: ReaderState


@dataclass(kw_only=True)
class _StreamReader(Dataset[_Answer]):
    """Batches by their number. Copied into each worker, where the lanes live that it serves."""

    stream: ShardStream
    preprocessor: Preprocessor
    batch: int
    buffer: int
    seed: int
    shuffle: bool
    rank: int
    world_size: int
    lanes: int
    one_pass: bool
    epoch: int = 0
    start: int = 0
    spots: tuple[ReaderState, ...] = ()
    _open: dict[int, ShardReader] = field(default_factory=dict)
    _due: dict[int, int] = field(default_factory=dict)

    def at(self, epoch: int, start: int, spots: list[ReaderState]) -> _StreamReader:
        """A reader for the batches from number `start` on."""
        return replace(self, epoch=epoch, start=start, spots=tuple(spots), _open={}, _due={})

    def __getitem__(self, request: int) -> _Answer:
        lane = self._lane(request)
        if self.one_pass and lane.spot.pass_number > self.epoch:
            return _Answer(None, 0, (), request % self.lanes, lane.spot)
        items, samples, bads = self._filled(lane)
        tried = len(items) + len(bads)
        enough = len(items) == self.batch or (self.one_pass and items)
        batch = self.preprocessor.batch(items, samples) if enough else None
        return _Answer(batch, tried, tuple(bads), request % self.lanes, lane.spot)

    def _lane(self, request: int) -> ShardReader:
        number = request % self.lanes
        due = self._due.get(number, self.start + (number - self.start) % self.lanes)
        if request != due:  # a lane that two workers serve would come twice
            raise RuntimeError(
                f"batch {request} was asked of a worker whose lane {number} stands before batch {due}"
            )
        self._due[number] = request + self.lanes
        if number not in self._open:
            self._open[number] = ShardReader(
                self.stream, self.spots[number], number=number, lanes=self.lanes, rank=self.rank,
                world_size=self.world_size, buffer=self.buffer, seed=self.seed, shuffle=self.shuffle,
            )  # fmt: skip
        return self._open[number]

    def _filled(self, lane: ShardReader) -> tuple[list[Item], list[int], list[SampleError]]:
        """A lane's next samples: a batch; less at the end of the one pass, or if too many are bad, or none is left."""
        items: list[Item] = []
        samples: list[int] = []
        bads: list[SampleError] = []
        ends_since_last = broken = 0
        while len(items) < self.batch and len(bads) < max(MOST_BAD, 20 * len(items)):
            pass_number = lane.spot.pass_number
            met = lane.take()
            if met is None:
                ends_since_last += 1
                if self.one_pass or ends_since_last > 1:
                    break
                continue
            ends_since_last = 0
            try:
                items.append(self._item(met, pass_number))
                samples.append(met.shard << 32 | met.number)
            except BadSampleError as error:
                bads.append(error.record)
                broken += error.record.reason == "broken shard"
                if broken > MOST_BROKEN and not items:
                    break
        return items, samples, bads

    def _item(self, met: ShardSample, pass_number: int) -> Item:
        if isinstance(met.content, SampleError):
            raise BadSampleError(*met.content)
        seed = derive_seed(self.seed, "sample", pass_number, met.shard, met.number)
        return self.preprocessor.item(met.content, seed)


def _batches(samples_per_epoch: int | None, global_batch: int) -> int | None:
    if samples_per_epoch is None:
        return None
    require_positive_int(samples_per_epoch, "samples_per_epoch", maximum=2**48)
    if samples_per_epoch < global_batch:
        raise ValueError(
            f"samples_per_epoch {samples_per_epoch} is less than one batch of all ranks, {global_batch}"
        )
    return samples_per_epoch // global_batch


def _divisor(lanes: int, workers: int) -> int:
    """As many workers as wanted, or the next smaller number that divides the lanes: a lane has one worker."""
    fitting = max(
        (count for count in range(1, min(workers, lanes) + 1) if lanes % count == 0), default=workers
    )
    if fitting != workers:
        log.warning("%d workers can't share %d lanes evenly: there will be %d", workers, lanes, fitting)
    return fitting


def _checked_spots(rows: object, lanes: int) -> list[ReaderState]:
    """Spots from JSON."""
    if not isinstance(rows, list) or len(rows) != lanes:
        raise ValueError(f"the saved position must hold a spot for each of {lanes} lanes, not {rows!r:.80}")
    for row in rows:
        if not isinstance(row, list) or len(row) != 4 or not all(type(n) is int and n >= 0 for n in row):
            raise ValueError(f"a spot of the saved position must be four whole numbers, not {row!r:.80}")
    return [ReaderState(*row) for row in rows]
