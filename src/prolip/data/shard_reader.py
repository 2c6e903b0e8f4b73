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

    pass_number: number of the pass over the stream, from 0.
    entry:       the window starts in this shard, an index into the reader's shards of the pass, ...
    skip:        ... at this sample of the shard.
    offset:      samples of the window that were delivered.
    """

    pass_number: int = 0
    entry: int = 0
    skip: int = 0
    offset: int = 0


class ShardSample(NamedTuple):
    """A sample, good or bad, with the index of its shard in the stream and its own index in the shard."""

    shard: int
    sample_index: int
    content: Sample | SampleError


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
        *,
        number: int,
        num_readers: int,
        rank: int,
        world_size: int,
        buffer_size: int,
        seed: int,
        shuffle: bool,
    ) -> None:
        """Start reading.

        Args:
            stream: the shards.
            state: where to start.
            number: index of this reader among the readers of the rank, from 0.
            num_readers: number of readers of the rank.
            rank, world_size: rank of the loader, from 0, and number of ranks.
            buffer_size: samples of a window.
            seed: determines the shuffles.
            shuffle: whether to shuffle shards and samples.

        Raises:
            ValueError: If the data is shorter than it was when the state was saved.
        """
        self._stream, self._buffer_size, self._seed, self._shuffle = stream, buffer_size, seed, shuffle
        self._rank, self._world_size, self._number, self._num_readers = rank, world_size, number, num_readers
        self._start_pass(state.pass_number, state.entry, state.skip)
        if state.offset:
            self._read_window()
            if state.offset > len(self._window):
                raise ValueError(
                    f"{stream.name}: a shard has fewer samples than when the state was saved. "
                    "Restore the data, or start from the beginning."
                )
            self._offset = state.offset

    @property
    def state(self) -> ReaderState:
        """The position of the next sample."""
        if self._offset < len(self._window):
            return ReaderState(self._pass_number, *self._window_start, self._offset)
        return ReaderState(self._pass_number, self._entry, self._skip, 0)

    def take(self) -> ShardSample | None:
        """Return the next sample, good or bad; None at the end of a pass, after which the next pass begins."""
        if self._offset == len(self._window):
            self._read_window()
            if not self._window:
                self._start_pass(self._pass_number + 1, 0, 0)
                return None
        self._offset += 1
        return self._window[self._order[self._offset - 1]]

    def _start_pass(self, pass_number: int, entry: int, skip: int) -> None:
        """Begin a pass at sample `skip` of its shard `entry`: choose the shards of this reader; read nothing yet."""
        self._pass_number, self._entry, self._skip = pass_number, entry, skip
        self._content: Iterator[Sample | SampleError] | None = None
        self._window: list[ShardSample] = []
        self._offset = 0
        shards = np.arange(len(self._stream.shards))
        if self._shuffle:
            shards = random_permutation(len(shards), derive_seed(self._seed, "shards", pass_number))
        shards_of_rank = shards[self._rank :: self._world_size]
        self._shards: list[int] = shards_of_rank[self._number :: self._num_readers].tolist()

    def _read_window(self) -> None:
        """Read the next window: `buffer_size` samples, fewer at the end of a pass, none after it."""
        self._window_start = (self._entry, self._skip)
        self._window, self._offset = [], 0
        while len(self._window) < self._buffer_size and (sample := self._read_sample()):
            self._window.append(sample)
        order = np.arange(len(self._window))
        if self._shuffle:
            position = (self._pass_number, self._rank, self._number, *self._window_start)
            order = random_permutation(len(order), derive_seed(self._seed, "window", *position))
        self._order: list[int] = order.tolist()

    def _read_sample(self) -> ShardSample | None:
        """Read the next sample of the current shard, or of the next one at its end; None after the last shard."""
        while self._entry < len(self._shards):
            shard = self._shards[self._entry]
            if self._content is None:
                self._content = iter(self._stream.read(shard, self._skip))
            for content in self._content:
                self._skip += 1
                return ShardSample(shard, self._skip - 1, content)
            self._entry, self._skip, self._content = self._entry + 1, 0, None
        return None
