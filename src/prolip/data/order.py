"""Which sample comes when: a pure function of the seed and the position, so any position is reached at once.

Nothing here is as long as the data: an order over 1.4 billion samples takes memory for its chunks only.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prolip.checks import require_positive_int
from prolip.data.source import Source

ROUNDS = 8
LEAST_BITS = 6
"""With fewer than 6 bits, eight rounds favour some permutations: a small range is walked inside a larger one."""
BLOCK = 65536
"""Positions in which each weighted source has its exact share."""
GAMMA = 0x9E3779B97F4A7C15
"""2**64 / golden ratio, the step of splitmix64: multiples of it lie far apart."""


def derive_seed(*facts: int | str) -> int:
    """64 bits that depend on all facts and their order; the same in every process. All keys and seeds come from it."""
    told = ",".join(repr(fact) if isinstance(fact, str) else str(operator.index(fact)) for fact in facts)
    return int.from_bytes(hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def permute(positions: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Where a pseudo-random permutation of range(size) takes each position: int64 (n,) -> int64 (n,).

    size, key: one for all positions, or (n,), each position with its own permutation; key is of 64 bits.

    A Feistel network permutes the numbers of as few bits as hold `size`; a result outside range(size) is sent through
    again until it lies inside (on average fewer than twice, from 33 on), which leaves a permutation of range(size).
    """
    values = np.array(positions, dtype=np.uint64)
    sizes = np.broadcast_to(np.asarray(size, dtype=np.uint64), values.shape)
    keys = np.broadcast_to(np.asarray(key, dtype=np.uint64), values.shape)
    bits = np.maximum(np.frexp((sizes - np.uint64(1)).astype(np.float64))[1], LEAST_BITS).astype(np.uint64)
    round_keys = _keys(ROUNDS, keys)
    walking = np.arange(len(values))
    while walking.size:
        values[walking] = _feistel(values[walking], bits[walking], round_keys[:, walking])
        walking = walking[values[walking] >= sizes[walking]]
    return values.astype(np.int64)


def random_permutation(count: int, key: int) -> np.ndarray:
    """A pseudo-random permutation of range(count), for where all of it is wanted: int64 (count,)."""
    return np.argsort(_keys(count, key))


class Order:
    """The order of one pass over samples that lie in chunks: order[positions] are the samples' numbers.

    Shuffled, the chunks come in random order, and each `window` of them that follow each other are pooled and their
    samples shuffled together: so a reader has to do with `window` chunks at a time. Not shuffled: as they lie.

    chunks: int64 (C,), the samples of each chunk; empty ones are fine.
    """

    def __init__(
        self, chunks: np.ndarray, *, seed: int, pass_number: int, window: int, shuffle: bool
    ) -> None:
        require_positive_int(window, "window")
        chunks = np.asarray(chunks, dtype=np.int64)
        self.size = int(chunks.sum())
        self._shuffle = shuffle
        if not shuffle:
            return
        key = derive_seed(seed, "order", pass_number)
        chunk_order = random_permutation(len(chunks), key)
        lengths = chunks[chunk_order]
        self._ends = np.cumsum(lengths)
        self._shifts = (np.cumsum(chunks) - chunks)[chunk_order] - (self._ends - lengths)
        self._pool_ends = np.append(self._ends[window - 1 :: window], self.size)
        self._pool_keys = _keys(len(self._pool_ends), derive_seed(key, "pools"))

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """int64 (n,) positions in 0 .. size - 1 -> int64 (n,) sample numbers in 0 .. size - 1."""
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and not (positions.min() >= 0 and positions.max() < self.size):
            raise IndexError(
                f"positions {positions.min()} .. {positions.max()} reach beyond {self.size} samples"
            )
        if not self._shuffle:
            return positions.copy()
        pool = np.searchsorted(self._pool_ends, positions, side="right")
        start = np.where(pool > 0, self._pool_ends[pool - 1], 0)
        lengths = self._pool_ends[pool] - start
        places = start + permute(positions - start, lengths, self._pool_keys[pool])
        numbers: np.ndarray = places + self._shifts[np.searchsorted(self._ends, places, side="right")]
        return numbers


class SampleIndices(NamedTuple):
    """Samples to read, each an int64 (n,).

    numbers: of the sample, counted through all sources.
    sources, indices: the same number as a source and the sample's number in it.
    passes:  how often the sample was met before.
    """

    numbers: np.ndarray
    sources: np.ndarray
    indices: np.ndarray
    passes: np.ndarray


class Schedule:
    """From a position of an epoch to a sample.

    All passes over the data, one after another, are an endless sequence; epoch e is its positions e * N to
    (e + 1) * N - 1, where N is samples_per_epoch. Within a pass each sample comes exactly once.

    weights: None: the sources are joined, and a pass is once through all of them. Else a positive number for each:
             every 65536 positions hold each source as often as its share says, rounded, in random order, and each
             source goes through passes of its own.
    samples_per_epoch: None: the sum of the sources' lengths; without weights that is one pass.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        weights: Sequence[float] | None = None,
        samples_per_epoch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        window: int = 16,
    ) -> None:
        if not sources:
            raise ValueError("there is no source to read")
        require_positive_int(window, "window")
        chunks = [_checked_chunks(source) for source in sources]
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        if samples_per_epoch is not None:
            require_positive_int(samples_per_epoch, "samples_per_epoch", maximum=2**48)
        self.samples_per_epoch = samples_per_epoch or int(lengths.sum())
        self._source_ends = np.cumsum(lengths)
        self._seed, self._shuffle, self._window = seed, shuffle, window
        self._counts = None if weights is None else shares(weights, [source.name for source in sources])
        self._chunks = [np.concatenate(chunks)] if weights is None else chunks
        self._lengths = np.array([part.sum() for part in self._chunks])
        self._orders: dict[tuple[int, int], Order] = {}
        self._blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def size(self) -> int:
        """Samples of all sources."""
        return int(self._source_ends[-1])

    def places(self, epoch: int, positions: np.ndarray) -> SampleIndices:
        """positions: int64 (n,), each from 0 to samples_per_epoch - 1."""
        endless = epoch * self.samples_per_epoch + np.asarray(positions, dtype=np.int64)
        pools, counters = (np.zeros_like(endless), endless) if self._counts is None else self._drawn(endless)
        passes, within = np.divmod(counters, self._lengths[pools])
        numbers = np.empty_like(endless)
        runs = passes * len(self._chunks) + pools
        for run in np.unique(runs).tolist():
            pass_number, pool = divmod(run, len(self._chunks))
            here = runs == run
            start = int(self._lengths[:pool].sum())
            numbers[here] = start + self._order(pool, pass_number)[within[here]]
        return SampleIndices(numbers, *self.located(numbers), passes)

    def located(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers through all sources, int64 (n,), as (sources, indices)."""
        sources = np.searchsorted(self._source_ends, numbers, side="right")
        return sources, numbers - np.where(sources > 0, self._source_ends[sources - 1], 0)

    def numbers_of(self, source: int) -> range:
        """The numbers of a source's samples."""
        return range(int(self._source_ends[source - 1]) if source else 0, int(self._source_ends[source]))

    def _order(self, pool: int, pass_number: int) -> Order:
        key = (pool, pass_number)
        if key not in self._orders:
            _forget_first(self._orders, 2 * len(self._chunks))
            self._orders[key] = Order(
                self._chunks[pool], seed=derive_seed(self._seed, "pool", pool), pass_number=pass_number,
                window=self._window, shuffle=self._shuffle,
            )  # fmt: skip
        return self._orders[key]

    def _drawn(self, endless: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which source each endless position has, and how many of that source came before it."""
        blocks, within = np.divmod(endless, BLOCK)
        pools, counters = np.empty_like(endless), np.empty_like(endless)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            block_pools, block_counters = self._block(block)
            pools[here], counters[here] = block_pools[within[here]], block_counters[within[here]]
        return pools, counters

    def _block(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        assert self._counts is not None
        if block not in self._blocks:
            _forget_first(self._blocks, 2)
            slots = random_permutation(BLOCK, derive_seed(self._seed, "block", block))
            pools = np.searchsorted(np.cumsum(self._counts), slots, side="right")
            counters = np.empty(BLOCK, dtype=np.int64)
            for pool, count in enumerate(self._counts.tolist()):
                counters[pools == pool] = block * count + np.arange(count)
            self._blocks[block] = pools, counters
        return self._blocks[block]


def shares(weights: Sequence[float], names: Sequence[str]) -> np.ndarray:
    """int64 (S,): how many of 65536 positions each source has, by largest remainder; they add up to 65536."""
    if len(weights) != len(names):
        raise ValueError(
            f"there are {len(names)} sources but {len(weights)} weights; give one for each, or none"
        )
    for weight, name in zip(weights, names, strict=True):
        if not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"{name}: a weight must be a positive number, not {weight!r}")
    counts = apportion(weights, BLOCK)
    for count, name in zip(counts.tolist(), names, strict=True):
        if count == 0:
            raise ValueError(
                f"{name}: its weight is less than 1 in {BLOCK} of the sum, so it would never come; leave it out"
            )
    return counts


def apportion(weights: Sequence[float], total: int) -> np.ndarray:
    """int64 (S,): whole numbers as near to the weights' shares of `total` as can be, which is their sum."""
    parts = np.array(weights, dtype=np.float64) / max(weights)
    exact = parts / parts.sum() * total
    counts = np.floor(exact).astype(np.int64)
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[: total - int(counts.sum())]] += 1
    rounded: np.ndarray = counts
    return rounded


def _checked_chunks(source: Source) -> np.ndarray:
    chunks = np.asarray(source.chunks, dtype=np.int64)
    if len(source) == 0:
        raise ValueError(f"{source.name}: there is no sample in it")
    if int(chunks.sum()) != len(source) or (chunks < 0).any():
        raise ValueError(f"{source.name}: its chunks hold {chunks.sum()} samples, but it has {len(source)}")
    return chunks


def _forget_first(cache: dict[Any, Any], most: int) -> None:
    while len(cache) >= most:
        del cache[next(iter(cache))]


def _feistel(values: np.ndarray, bits: np.ndarray, round_keys: np.ndarray) -> np.ndarray:
    """A permutation of the numbers of `bits` bits: each half in turn is changed by what the other one says."""
    one = np.uint64(1)
    high_bits = bits >> one
    low_bits = bits - high_bits
    low_mask, high_mask = (one << low_bits) - one, (one << high_bits) - one
    low, high = values & low_mask, values >> low_bits
    for turn, keys in enumerate(round_keys):
        if turn % 2:
            low ^= _scrambled(high ^ keys) & low_mask
        else:
            high ^= _scrambled(low ^ keys) & high_mask
    joined: np.ndarray = high << low_bits | low
    return joined


def _keys(count: int, key: int | np.ndarray) -> np.ndarray:
    """`count` keys from each key, all different: uint64 (count, *key.shape)."""
    steps = np.arange(count, dtype=np.uint64) * np.uint64(GAMMA)
    return _scrambled(np.add.outer(steps, np.asarray(key, dtype=np.uint64)))


def _scrambled(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, uint64 -> uint64: every bit of the input moves every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: np.ndarray = values ^ (values >> np.uint64(31))
    return scrambled
