"""A lane: some of the shards of a stream, read one after another and shuffled window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from prolip.data.order import derive_seed, random_permutation
from prolip.data.sample import Sample, SampleError


class ShardStream(Protocol):
    """Shards that are read one after another. Copied into loader workers: open files when reading."""

    @property
    def name(self) -> str: ...

    @property
    def shards(self) -> tuple[str, ...]: ...

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | SampleError]:
        """The samples of a shard, good and bad, but for the first `skip`; the same ones in the same order each time."""

    def fingerprint(self) -> str: ...


class ReaderState(NamedTuple):
    """Where a lane stands: it has read the window that starts at `skip` samples of its shard `entry` of a pass, and
    delivered `offset` of it."""

    pass_number: int = 0
    entry: int = 0
    skip: int = 0
    offset: int = 0


class ShardSample(NamedTuple):
    """A sample, good or bad, and its number in its shard."""

    shard: int
    number: int
    content: Sample | SampleError


class ShardReader:
    """The samples of a lane, pass after pass, from a spot on.

    Of the shards of a pass, in random order, a rank has every R-th, and a lane every L-th of these. `buffer` samples
    in a row are a window, delivered in random order, then the next; no window reaches into the next pass. So a spot is
    four numbers, and to go on from it costs reading one window again.
    """

    def __init__(
        self,
        stream: ShardStream,
        spot: ReaderState,
        *,
        number: int,
        lanes: int,
        rank: int,
        world_size: int,
        buffer: int,
        seed: int,
        shuffle: bool,
    ) -> None:
        self._stream, self._buffer, self._seed, self._shuffle = stream, buffer, seed, shuffle
        self._rank, self._world_size, self._number, self._lanes = rank, world_size, number, lanes
        self._start(spot.pass_number, spot.entry, spot.skip)
        if spot.offset:
            self._fill()
            if spot.offset > len(self._window):
                raise ValueError(f"{stream.name}: fewer samples can be read than before the interruption")
            self._offset = spot.offset

    @property
    def spot(self) -> ReaderState:
        if self._offset < len(self._window):
            return ReaderState(self._pass_number, *self._window_start, self._offset)
        return ReaderState(self._pass_number, self._entry, self._skip, 0)

    def take(self) -> ShardSample | None:
        """The next sample, good or bad. None at the end of a pass; the next one begins."""
        if self._offset == len(self._window):
            self._fill()
            if not self._window:
                self._start(self._pass_number + 1, 0, 0)
                return None
        self._offset += 1
        return self._window[self._order[self._offset - 1]]

    def _start(self, pass_number: int, entry: int, skip: int) -> None:
        self._pass_number, self._entry, self._skip = pass_number, entry, skip
        self._content: Iterator[Sample | SampleError] | None = None
        self._window: list[ShardSample] = []
        self._offset = 0
        shards = np.arange(len(self._stream.shards))
        if self._shuffle:
            shards = random_permutation(len(shards), derive_seed(self._seed, "shards", pass_number))
        self._shards: list[int] = shards[self._rank :: self._world_size][self._number :: self._lanes].tolist()

    def _fill(self) -> None:
        """Read the next window: `buffer` samples, fewer at the end of a pass, none after it."""
        self._window_start = (self._entry, self._skip)
        self._window, self._offset = [], 0
        while len(self._window) < self._buffer and (met := self._read()):
            self._window.append(met)
        order = np.arange(len(self._window))
        if self._shuffle:
            place = (self._pass_number, self._rank, self._number, *self._window_start)
            order = random_permutation(len(order), derive_seed(self._seed, "window", *place))
        self._order: list[int] = order.tolist()

    def _read(self) -> ShardSample | None:
        while self._entry < len(self._shards):
            shard = self._shards[self._entry]
            if self._content is None:
                self._content = iter(self._stream.read(shard, self._skip))
            for content in self._content:
                self._skip += 1
                return ShardSample(shard, self._skip - 1, content)
            self._entry, self._skip, self._content = self._entry + 1, 0, None
        return None
