"""The exact global threshold of a kept fraction, in two passes over the scores and half a megabyte.

A float32 becomes a 32-bit integer of the same order. The first pass counts how often each upper half occurs; the
threshold lies in one of these 65,536 bins. The second counts the lower halves in that bin: the threshold is then known
to the last bit. Counts add up, so that parts, and machines, can be counted separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from prolip.checks import require_fraction

HALF = 2**16
"""Number of values of the upper, or of the lower, 16 bits of a key."""
NAN_KEY = 0
"""The key of NaN. No number has it."""


@dataclass(frozen=True)
class Threshold:
    """What is kept: all scores with a key above `key`, and of those that have it the first `ties` in data order.

    Attributes:
        key: Sort key (`to_sort_keys`) of the lowest score that is kept.
        ties: How many scores with exactly that key are kept.
        total: Number of scores.
        nan_count: How many of them are NaN.
    """

    key: int
    ties: int
    total: int
    nan_count: int

    @property
    def score(self) -> float | None:
        """The lowest score that is kept; None if nothing is."""
        return None if self.ties == 0 else float(from_sort_keys(np.array([self.key], np.uint32))[0])


def to_sort_keys(scores: np.ndarray) -> np.ndarray:
    """Map scores to integers of the same order.

    Args:
        scores: float32 (n,). -0 equals 0.

    Returns:
        uint32 (n,); `NAN_KEY` for NaN, which is below -infinity.
    """
    values = scores.astype(np.float32) + np.float32(0)  # -0 + 0 = 0
    bits = values.view(np.uint32)
    # a negative number has its sign bit set, and its order reversed: flip all bits; of others only the sign bit
    keys = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return np.where(np.isnan(values), np.uint32(NAN_KEY), keys)


def from_sort_keys(keys: np.ndarray) -> np.ndarray:
    """Map keys back to scores, the inverse of `to_sort_keys`.

    Args:
        keys: uint32 (n,), of numbers (not `NAN_KEY`).

    Returns:
        float32 (n,).
    """
    return np.where(keys >> 31, keys & np.uint32(2**31 - 1), ~keys).astype(np.uint32).view(np.float32)


def find_threshold(iter_scores: Callable[[], Iterable[np.ndarray]], keep_fraction: float) -> Threshold:
    """Find the threshold that keeps the best round(keep_fraction * N) of N scores.

    Fewer are kept only if too many scores are NaN.

    Args:
        iter_scores: Called once per pass; gives blocks of float32 scores, larger is better, in the same order each
            time.
        keep_fraction: Above 0, at most 1.

    Returns:
        The threshold, to be applied to the scores in the same order (`ThresholdFilter`).
    """
    require_fraction(keep_fraction, "keep_fraction", exclude_zero=True)
    upper_counts = sum((count_upper_key_halves(scores) for scores in iter_scores()), np.zeros(HALF, np.int64))
    total, nan_count = int(upper_counts.sum()), int(upper_counts[NAN_KEY])
    upper_counts[NAN_KEY] = 0
    num_kept = min(round(keep_fraction * total), total - nan_count)
    if num_kept == 0:  # no key is above the largest, and no tie is kept
        return Threshold(2**32 - 1, 0, total, nan_count)
    upper_half, rank_in_bin = _find_bin(upper_counts, num_kept)
    lower_counts = sum(
        (count_lower_key_halves(scores, upper_half) for scores in iter_scores()), np.zeros(HALF, np.int64)
    )
    lower_half, ties = _find_bin(lower_counts, rank_in_bin)
    return Threshold(upper_half * HALF + lower_half, ties, total, nan_count)


def count_upper_key_halves(scores: np.ndarray) -> np.ndarray:
    """Count how often each upper half (16 bits) of a sort key occurs.

    Args:
        scores: float32 (n,).

    Returns:
        int64 (65536,); only NaN counts for half 0.
    """
    return np.bincount(to_sort_keys(scores) >> 16, minlength=HALF)


def count_lower_key_halves(scores: np.ndarray, upper_half: int) -> np.ndarray:
    """Count how often each lower half of a key occurs under one upper half.

    Args:
        scores: float32 (n,).
        upper_half: The upper 16 bits of the keys that are counted.

    Returns:
        int64 (65536,).
    """
    keys = to_sort_keys(scores)
    return np.bincount(keys[keys >> 16 == upper_half] & (HALF - 1), minlength=HALF)


def _find_bin(counts: np.ndarray, rank: int) -> tuple[int, int]:
    """Find the bin of the rank-th largest value.

    Args:
        counts: int64 (bins,): values in each bin, the smallest values first.
        rank: From 1 to the number of values.

    Returns:
        The bin, and the rank of the value within that bin, from 1.
    """
    cumulative = np.cumsum(counts[::-1])  # values in the largest bin, in the two largest, ...
    index = int(np.searchsorted(cumulative, rank))
    return len(counts) - 1 - index, rank - int(cumulative[index - 1] if index else 0)


class ThresholdFilter:
    """Applies a threshold to blocks of scores, in the order in which they were counted.

    It has a state: of scores that equal the threshold only the first `ties` are kept.
    """

    def __init__(self, threshold: Threshold) -> None:
        self._threshold, self._ties_left = threshold, threshold.ties

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Decide which scores of the next block are kept. Counts the ties that it keeps.

        Args:
            scores: float32 (n,), larger is better.

        Returns:
            bool (n,): which of them are kept.
        """
        keys = to_sort_keys(scores)
        tied = np.flatnonzero(keys == self._threshold.key)[: self._ties_left]
        self._ties_left -= len(tied)
        is_kept = keys > self._threshold.key
        is_kept[tied] = True
        return is_kept
