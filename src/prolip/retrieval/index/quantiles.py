"""Quantiles of uncertainty in one pass and fixed memory.

The bits of a float32 that is not negative, read as a whole number, are in its order. Their upper 20 are a bin (1/2048
of its value wide); of each bin the count and the largest value are kept: 6 MiB, however many values come.
"""

from __future__ import annotations

import numpy as np

LEVELS = 1000
"""Quantiles are kept at 1/1000, 2/1000, ... 1."""
DROPPED = 12
"""Lower bits that share a bin."""
BINS = 1 << (31 - DROPPED)


class Tally:
    """Values that were seen, bin by bin."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.largest = np.zeros(BINS, dtype=np.float32)

    def add(self, values: np.ndarray) -> None:
        """values: float32 (n,), none below 0."""
        bins = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> DROPPED
        self.counts += np.bincount(bins, minlength=BINS)
        np.maximum.at(self.largest, bins, values)

    def quantiles(self) -> np.ndarray:
        """float32 (LEVELS,): value l is at least as large as the share (l + 1) / LEVELS of what was seen, rounded up to
        whole values. It is one of them, and at most 1/2048 above the smallest that would do. Empty if nothing was."""
        seen = np.cumsum(self.counts)
        if not seen[-1]:
            return np.empty(0, dtype=np.float32)
        ranks = -(-np.arange(1, LEVELS + 1) * seen[-1] // LEVELS)
        values: np.ndarray = self.largest[np.searchsorted(seen, ranks)]
        return values


def cut(quantiles: np.ndarray, share: float) -> float:
    """The value that the share of what was seen is not above, the share taken to a thousandth."""
    return float(quantiles[_level(share) - 1])


def share_below(quantiles: np.ndarray, value: float) -> float:
    """The share of what was seen that is below a value, to a thousandth."""
    return float(np.searchsorted(quantiles, np.float32(value))) / len(quantiles)


def _level(share: float) -> int:
    if not 0 < share <= 1:
        raise ValueError(f"a share of the most certain must be above 0 and at most 1, not {share}")
    return max(1, round(share * LEVELS))
