"""ShardReader: a sequence of shards of a stream, read one after another and shuffled window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from prolip.data.order import derive_seed, random_permutation
from prolip.data.sample import Sample, SampleError


class ShardStream(Protocol):
    """Shards that can only be read from their beginning. Copied into loader workers: open files when reading."""

    @property
    def name(self) -> str:
        """For messages: the address or pattern that a user gave."""

    @property
    def shards(self) -> tuple[str, ...]:
        """Addresses of the shards."""

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | SampleError]:
        """Iterate over the samples of a shard, good and bad; the same order each time.

        Args:
            shard: its index in `shards`.
            skip: number of samples, good and bad, to skip at the beginning.

        Yields:
            Samples, and errors in place of bad ones.
        """

    def fingerprint(self) -> str:
        """Return a digest that changes when the samples or their order may have changed."""


class ReaderState(NamedTuple):
    """The position of a reader: in which pass, window and sample of the window it is.

    pass_number:    number of the pass over the stream, from 0.
    shard_position: index, among the reader's shards of the pass, of the shard in which the window starts.
    skip:           number of samples of that shard before the window.
    offset:         number of samples of the window that were delivered.
    """

    pass_number: int = 0
    shard_position: int = 0
    skip: int = 0
    offset: int = 0


class ShardSample(NamedTuple):
    """A sample of a stream.

    shard:          index of its shard in the stream.
    index_in_shard: its index in the shard, good and bad samples counted.
    sample:         the sample, or the record of why it is bad.
    """

    shard: int
    index_in_shard: int
    sample: Sample | SampleError


class ReaderShare(NamedTuple):
    """Which shards are a reader's.

    number:      index of the reader among the readers of its rank, from 0.
    num_readers: number of readers of each rank.
    rank:        rank of the loader, from 0.
    world_size:  number of ranks.
    """

    number: int
    num_readers: int
    rank: int
    world_size: int


class ShardReader:
    """The samples of some shards, pass after pass, from a state on.

    Of the shards of a pass, in random order, each of R ranks has every R-th, and each of its L readers every L-th of
    these. `buffer_size` consecutive samples are a window, delivered in random order; then comes the next window. No
    window reaches into the next pass.

    Exact resume: a window's shuffle depends only on where the window starts. So the state is four numbers, not the
    contents of a buffer, and resuming costs reading one window again. (A buffer that is refilled sample by sample
    shuffles a little better, but its state would be all samples in it.)
    """

    def __init__(
        self,
        stream: ShardStream,
        state: ReaderState,
        share: ReaderShare,
        *,
        buffer_size: int,
        seed: int,
        shuffle: bool,
    ) -> None:
        """Go to the position of `state`; in the middle of a window, that window is read again.

        Args:
            stream: the shards.
            state: where to start.
            share: which of the shards to read.
            buffer_size: samples of a window.
            seed: determines the shuffles.
            shuffle: whether to shuffle shards and samples.

        Raises:
            ValueError: If the data is shorter than it was when the state was saved.
        """
        self._stream, self._share = stream, share
        self._buffer_size, self._seed, self._shuffle = buffer_size, seed, shuffle
        self._start_pass(state.pass_number, state.shard_position, state.skip)
        if state.offset:
            self._read_window()
            if state.offset > len(self._window):
                raise ValueError(
                    f"{stream.name}: a shard has fewer samples than when the loader's state was saved. "
                    "Restore the shards, or start the run from the beginning."
                )
            self._offset = state.offset

    @property
    def state(self) -> ReaderState:
        """The position of the next sample."""
        if self._offset < len(self._window):
            return ReaderState(self._pass_number, *self._window_start, self._offset)
        return ReaderState(self._pass_number, self._shard_position, self._skip, 0)

    def next_sample(self) -> ShardSample | None:
        """Return the next sample, good or bad; None at the end of a pass, after which the next pass begins."""
        if self._offset == len(self._window):
            self._read_window()
            if not self._window:
                self._start_pass(self._pass_number + 1, 0, 0)
                return None
        self._offset += 1
        return self._window[self._order[self._offset - 1]]

    def _start_pass(self, pass_number: int, shard_position: int, skip: int) -> None:
        """Set the position to sample `skip` of a shard of a pass, and choose this reader's shards; read nothing yet."""
        self._pass_number, self._shard_position, self._skip = pass_number, shard_position, skip
        self._shard_samples: Iterator[Sample | SampleError] | None = None
        self._window: list[ShardSample] = []
        self._offset = 0
        shards = np.arange(len(self._stream.shards))
        if self._shuffle:
            shards = random_permutation(len(shards), derive_seed(self._seed, "shards", pass_number))
        shards_of_rank = shards[self._share.rank :: self._share.world_size]
        self._shards: list[int] = shards_of_rank[self._share.number :: self._share.num_readers].tolist()

    def _read_window(self) -> None:
        """Replace `_window` and `_order` by the next window: `buffer_size` samples, fewer at the end of a pass."""
        self._window_start = (self._shard_position, self._skip)
        self._window, self._offset = [], 0
        while len(self._window) < self._buffer_size and (sample := self._read_sample()):
            self._window.append(sample)
        order = np.arange(len(self._window))
        if self._shuffle:
            position = (self._pass_number, self._share.rank, self._share.number, *self._window_start)
            order = random_permutation(len(order), derive_seed(self._seed, "window", *position))
        self._order: list[int] = order.tolist()

    def _read_sample(self) -> ShardSample | None:
        """Read the next sample and advance; at the end of a shard go on with the next one. None after the last."""
        while self._shard_position < len(self._shards):
            shard = self._shards[self._shard_position]
            if self._shard_samples is None:
                self._shard_samples = iter(self._stream.read(shard, self._skip))
            sample = next(self._shard_samples, None)
            if sample is not None:
                self._skip += 1
                return ShardSample(shard, self._skip - 1, sample)
            self._shard_position, self._skip, self._shard_samples = self._shard_position + 1, 0, None
        return None
