"""Order of samples: a pure function of seed and position, so that any position is reached at once.

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
"""Rounds of the Feistel network."""
MIN_BITS = 6
"""With fewer bits, eight rounds favor some permutations: a small range is permuted inside one of 64 numbers."""
BLOCK = 65536
"""Positions in which each weighted source has its exact fraction."""
GAMMA = 0x9E3779B97F4A7C15
"""2**64 / golden ratio, the step of splitmix64: multiples of it lie far apart."""


def derive_seed(*values: int | str) -> int:
    """Hash values to a seed of 64 bits. All seeds and keys come from here.

    Args:
        values: integers and texts; the seed depends on all of them and on their order. The texts that callers pass
            ("order", "window", ...) are part of the random stream: changing one changes every shuffle.

    Returns:
        The seed; the same in every process.
    """
    text = ",".join(repr(value) if isinstance(value, str) else str(operator.index(value)) for value in values)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def permute(positions: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Apply a pseudo-random permutation of range(size) to positions.

    A Feistel network needs no table: it computes where any single position goes, in constant memory, so a position in
    the middle of 1.4 billion samples is reached without the ones before it. It permutes numbers of a fixed bit length;
    where `size` is not a power of two, a result outside range(size) is permuted again until it lies inside (known as
    "cycle walking"). That is still a permutation of range(size), because it follows the cycle of the larger
    permutation to the next member inside the range, and two positions never meet on a cycle. On average it takes
    fewer than two applications (for sizes from 33 on).

    Args:
        positions: int64 (n,), each from 0 to size - 1.
        size: length of the range; one for all positions, or (n,).
        key: 64 bits that choose the permutation; one for all positions, or (n,).

    Returns:
        int64 (n,): where each position goes, from 0 to size - 1.
    """
    values = np.array(positions, dtype=np.uint64)
    sizes = np.broadcast_to(np.asarray(size, dtype=np.uint64), values.shape)
    keys = np.broadcast_to(np.asarray(key, dtype=np.uint64), values.shape)
    # The bit length of size - 1: frexp writes x as m * 2**e with 0.5 <= m < 1, so its exponent e is the bit length.
    bits = np.maximum(np.frexp((sizes - np.uint64(1)).astype(np.float64))[1], MIN_BITS).astype(np.uint64)
    round_keys = _derive_keys(ROUNDS, keys)
    outside = np.arange(len(values))  # indices of the values that are still to be permuted (again)
    while outside.size:
        values[outside] = _apply_feistel_rounds(values[outside], bits[outside], round_keys[:, outside])
        outside = outside[values[outside] >= sizes[outside]]
    return values.astype(np.int64)


def random_permutation(count: int, key: int) -> np.ndarray:
    """Make a whole pseudo-random permutation, of chunks or shards: unlike `permute` it needs O(count) memory.

    Args:
        count: Length of the permutation.
        key: Key of 64 bits; the same key gives the same permutation.

    Returns:
        int64 (count,): range(count) in random order.
    """
    return np.argsort(_derive_keys(count, key))


class SampleOrder:
    """The order of one pass over samples that lie in chunks: order[positions] are the samples' indices.

    Shuffled, the chunks come in random order; every `window` consecutive chunks are pooled and their samples shuffled
    together. So a reader has at most `window` chunks (shards, row groups) open at a time. Not shuffled: as on disk.

    Args:
        chunks: int64 (C,), the number of samples of each chunk; 0 is allowed.
        seed: determines the order, together with the pass number.
        pass_number: number of the pass over the data, from 0; each has its own order.
        window: chunks that are pooled.
        shuffle: whether to shuffle.
    """

    def __init__(
        self, chunks: np.ndarray, *, seed: int, pass_number: int, window: int, shuffle: bool
    ) -> None:
        """Shuffle the chunks and set the keys of the pools' permutations: O(C) memory, whatever their sizes."""
        require_positive_int(window, "window")
        chunks = np.asarray(chunks, dtype=np.int64)
        self.size = int(chunks.sum())
        self._shuffle = shuffle
        if not shuffle:
            return
        key = derive_seed(seed, "order", pass_number)
        chunk_order = random_permutation(len(chunks), key)
        lengths = chunks[chunk_order]
        self._ends = np.cumsum(lengths)  # of the chunks, in shuffled order
        # For each chunk in shuffled order: its start on disk minus its start in the shuffled sequence.
        self._shifts = (np.cumsum(chunks) - chunks)[chunk_order] - (self._ends - lengths)
        self._pool_ends = np.append(self._ends[window - 1 :: window], self.size)
        self._pool_keys = _derive_keys(len(self._pool_ends), derive_seed(key, "pools"))

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Map positions, int64 (n,), to indices of samples, int64 (n,); both are from 0 to size - 1."""
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and not (positions.min() >= 0 and positions.max() < self.size):
            raise IndexError(
                f"positions {positions.min()} .. {positions.max()} are out of range: there are {self.size} samples"
            )
        if not self._shuffle:
            return positions.copy()
        pool = np.searchsorted(self._pool_ends, positions, side="right")
        start = np.where(pool > 0, self._pool_ends[pool - 1], 0)
        lengths = self._pool_ends[pool] - start
        shuffled = start + permute(positions - start, lengths, self._pool_keys[pool])
        # From a position in the shuffled sequence of chunks to the index on disk.
        indices: np.ndarray = shuffled + self._shifts[np.searchsorted(self._ends, shuffled, side="right")]
        return indices


class SampleIndices(NamedTuple):
    """Samples to read, each field int64 (n,).

    samples: index of the sample, counted through all sources.
    sources, indices: the same as a source and the index of the sample in it.
    passes:  passes over the data (with weights: over the source) that were completed before.
    """

    samples: np.ndarray
    sources: np.ndarray
    indices: np.ndarray
    passes: np.ndarray


class Schedule:
    """Maps positions of an epoch to samples.

    All passes over the data, one after another, are an endless sequence; epoch e is its positions e * N to
    (e + 1) * N - 1, where N is samples_per_epoch. Within a pass each sample comes exactly once.

    What has passes of its own is called a group here: without weights all sources together are the only group, with
    weights each source is one.

    Args:
        sources: the data, none of them empty.
        weights: None: the sources are concatenated, and a pass goes once through all of them. Otherwise a positive
            number for each: every 65536 positions have each source in proportion to its weight, rounded, in random
            order, and each source has passes of its own.
        samples_per_epoch: None: the sum of the sources' lengths; without weights that is one pass.
        seed: determines all orders.
        shuffle: whether to shuffle.
        window: chunks that are shuffled together; see `SampleOrder`.

    Raises:
        ValueError: If there is no source, one is empty, or an argument is out of range.
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
            raise ValueError("Schedule needs at least one source")
        require_positive_int(window, "window")
        chunks = [_check_chunks(source) for source in sources]
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        if samples_per_epoch is not None:
            require_positive_int(samples_per_epoch, "samples_per_epoch", maximum=2**48)
        self.samples_per_epoch = samples_per_epoch or int(lengths.sum())
        self._source_ends = np.cumsum(lengths)
        self._seed, self._shuffle, self._window = seed, shuffle, window
        self._block_counts = (  # positions of each source in a block
            None if weights is None else count_per_block(weights, [source.name for source in sources])
        )
        self._group_chunks = [np.concatenate(chunks)] if weights is None else chunks
        self._group_lengths = np.array([sizes.sum() for sizes in self._group_chunks])
        # Caches of `_get_sample_order` and `_get_block_sources`.
        self._orders: dict[tuple[int, int], SampleOrder] = {}
        self._blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def size(self) -> int:
        """Number of samples of all sources."""
        return int(self._source_ends[-1])

    def sample_indices(self, epoch: int, positions: np.ndarray) -> SampleIndices:
        """Find the samples at positions of an epoch.

        Args:
            epoch: number of the epoch, from 0.
            positions: int64 (n,), each from 0 to samples_per_epoch - 1.

        Returns:
            The samples at these positions, in the same order.
        """
        endless_positions = epoch * self.samples_per_epoch + np.asarray(positions, dtype=np.int64)
        # The group of each position, and how many samples of that group came before it.
        if self._block_counts is None:
            groups, counters = np.zeros_like(endless_positions), endless_positions
        else:
            groups, counters = self._draw_sources(endless_positions)
        passes, positions_in_pass = np.divmod(counters, self._group_lengths[groups])
        samples = np.empty_like(endless_positions)
        # A number for each pair (pass, group), so that the positions of a pair are mapped together.
        pairs = passes * len(self._group_chunks) + groups
        for pair in np.unique(pairs).tolist():
            pass_number, group = divmod(pair, len(self._group_chunks))
            selected = pairs == pair
            start = int(self._group_lengths[:group].sum())
            samples[selected] = (
                start + self._get_sample_order(group, pass_number)[positions_in_pass[selected]]
            )
        return SampleIndices(samples, *self.locate(samples), passes)

    def locate(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the sources of samples.

        Args:
            samples: int64 (n,): indices of samples, counted through all sources.

        Returns:
            (sources, indices), int64 (n,) each: the source of each sample, and the sample's index in it.
        """
        sources = np.searchsorted(self._source_ends, samples, side="right")
        return sources, samples - np.where(sources > 0, self._source_ends[sources - 1], 0)

    def samples_of_source(self, source: int) -> range:
        """Return the indices of a source's samples, counted through all sources; `source` is its number, from 0."""
        return range(int(self._source_ends[source - 1]) if source else 0, int(self._source_ends[source]))

    def _get_sample_order(self, group: int, pass_number: int) -> SampleOrder:
        """The order of one pass over a group, made or from the cache, which holds two orders per group."""
        key = (group, pass_number)
        if key not in self._orders:
            _drop_oldest(self._orders, 2 * len(self._group_chunks))
            self._orders[key] = SampleOrder(
                self._group_chunks[group], seed=derive_seed(self._seed, "pool", group), pass_number=pass_number,
                window=self._window, shuffle=self._shuffle,
            )  # fmt: skip
        return self._orders[key]

    def _draw_sources(self, endless_positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the source of each position, int64 (n,), of the endless sequence; only if there are weights.

        Returns (sources, counters), int64 (n,) each; a counter is how many samples of that source came before.
        """
        blocks, positions_in_block = np.divmod(endless_positions, BLOCK)
        sources, counters = np.empty_like(endless_positions), np.empty_like(endless_positions)
        for block in np.unique(blocks).tolist():
            selected = blocks == block
            block_sources, block_counters = self._get_block_sources(block)
            sources[selected] = block_sources[positions_in_block[selected]]
            counters[selected] = block_counters[positions_in_block[selected]]
        return sources, counters

    def _get_block_sources(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """(sources, counters) of all positions of a block, see `_draw_sources`: int64 (65536,) each. Cached."""
        assert self._block_counts is not None
        if block not in self._blocks:
            _drop_oldest(self._blocks, 2)
            # Numbers 0 .. BLOCK - 1 in random order: the first count_0 of them stand for source 0, and so on.
            numbers = random_permutation(BLOCK, derive_seed(self._seed, "block", block))
            sources = np.searchsorted(np.cumsum(self._block_counts), numbers, side="right")
            counters = np.empty(BLOCK, dtype=np.int64)
            for source, count in enumerate(self._block_counts.tolist()):
                counters[sources == source] = block * count + np.arange(count)
            self._blocks[block] = sources, counters
        return self._blocks[block]


def count_per_block(weights: Sequence[float], names: Sequence[str]) -> np.ndarray:
    """Divide the 65536 positions of a block among sources, in proportion to their weights.

    Args:
        weights: positive, one per source; they needn't sum to 1.
        names: names of the sources, for errors.

    Returns:
        int64 (S,): positions of each source; their sum is 65536.

    Raises:
        ValueError: If a weight is not positive, or too small for a single position.
    """
    if len(weights) != len(names):
        raise ValueError(
            f"There are {len(names)} sources but {len(weights)} weights. Give one weight per source, or no weights."
        )
    for weight, name in zip(weights, names, strict=True):
        if not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"{name}: a weight must be a positive number, not {weight!r}")
    counts = apportion(weights, BLOCK)
    for count, name in zip(counts.tolist(), names, strict=True):
        if count == 0:
            raise ValueError(
                f"{name}: its weight is less than 1/{BLOCK} of the sum, so it would never be read. "
                "Raise its weight, or leave the source out."
            )
    return counts


def apportion(weights: Sequence[float], total: int) -> np.ndarray:
    """Divide an integer in proportion to weights, by the largest remainder method.

    Args:
        weights: S positive numbers.
        total: the integer.

    Returns:
        int64 (S,), whose sum is `total`.
    """
    relative = np.array(weights, dtype=np.float64) / max(weights)  # so that their sum can't overflow
    exact = relative / relative.sum() * total
    counts = np.floor(exact).astype(np.int64)
    largest_remainder_first = np.argsort(counts - exact, kind="stable")
    counts[largest_remainder_first[: total - int(counts.sum())]] += 1
    rounded: np.ndarray = counts
    return rounded


def _check_chunks(source: Source) -> np.ndarray:
    """The sizes of a source's chunks, int64 (C,).

    ValueError if the source is empty, if a size is negative, or if the sizes don't add up to the source's length.
    """
    chunks = np.asarray(source.chunks, dtype=np.int64)
    if len(source) == 0:
        raise ValueError(f"{source.name}: the source has no samples")
    if (chunks < 0).any():
        raise ValueError(f"{source.name}: a chunk has the negative size {chunks.min()}")
    if int(chunks.sum()) != len(source):
        raise ValueError(
            f"{source.name}: the chunks have {chunks.sum()} samples, but the source has {len(source)}"
        )
    return chunks


def _drop_oldest(cache: dict[Any, Any], max_size: int) -> None:
    """Remove the entries of a dict that were inserted first, until it has room for one more."""
    while len(cache) >= max_size:
        del cache[next(iter(cache))]


def _apply_feistel_rounds(values: np.ndarray, bits: np.ndarray, round_keys: np.ndarray) -> np.ndarray:
    """Permute the numbers of `bits` bits: each half in turn is XORed with a hash of the other half.

    Such a round can be undone whatever the hash is (XOR the same hash again), so all rounds together are one to one.
    uint64: values and bits (n,), round_keys (ROUNDS, n); the result is (n,), each below 2**bits.
    """
    one = np.uint64(1)
    high_bits = bits >> one
    low_bits = bits - high_bits
    low_mask, high_mask = (one << low_bits) - one, (one << high_bits) - one
    low, high = values & low_mask, values >> low_bits
    for round_index, keys in enumerate(round_keys):
        if round_index % 2:
            low ^= _scramble(high ^ keys) & low_mask
        else:
            high ^= _scramble(low ^ keys) & high_mask
    combined: np.ndarray = high << low_bits | low
    return combined


def _derive_keys(count: int, key: int | np.ndarray) -> np.ndarray:
    """Derive `count` different keys from each key, as splitmix64 does: uint64 (count, *key.shape)."""
    steps = np.arange(count, dtype=np.uint64) * np.uint64(GAMMA)
    return _scramble(np.add.outer(steps, np.asarray(key, dtype=np.uint64)))


def _scramble(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of splitmix64, uint64 -> uint64: each bit of the input affects all bits of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: np.ndarray = values ^ (values >> np.uint64(31))
    return scrambled
