"""Quantiles of uncertainty in one pass and fixed memory.

The bits of a non-negative float32, read as an integer, have the same order as its value. Their upper 20 are a bin
(1/2048 of its value wide); for each bin the count and the largest value are stored: 6 MiB, however many values come.
"""

from __future__ import annotations

import numpy as np

LEVELS = 1000
"""Quantiles are computed at 1/1000, 2/1000, ... 1."""
DROPPED_BITS = 12
"""Lower bits that share a bin."""
BINS = 1 << (31 - DROPPED_BITS)
"""Bins of a sketch: the sign bit is always 0."""


class QuantileSketch:
    """Counts of the values seen so far, bin by bin.

    Attributes:
        counts: int64 (BINS,): values in each bin.
        largest: float32 (BINS,): the largest value in each bin.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.largest = np.zeros(BINS, dtype=np.float32)

    def add(self, values: np.ndarray) -> None:
        """Count values, and update the largest of each bin.

        Args:
            values: float32 (n,), none below 0.
        """
        bins = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> DROPPED_BITS
        self.counts += np.bincount(bins, minlength=BINS)
        np.maximum.at(self.largest, bins, values)

    def compute_quantiles(self) -> np.ndarray:
        """Compute the quantiles of the values seen so far.

        Returns:
            float32 (LEVELS,): value l is at least as large as the fraction (l + 1) / LEVELS of the values, rounded up
            to whole values. It is one of them, and at most 1/2048 above the smallest that would do. Empty if no
            value was seen.
        """
        cumulative = np.cumsum(self.counts)
        if not cumulative[-1]:
            return np.empty(0, dtype=np.float32)
        ranks = -(-np.arange(1, LEVELS + 1) * cumulative[-1] // LEVELS)  # rounded up
        values: np.ndarray = self.largest[np.searchsorted(cumulative, ranks)]
        return values


def value_at_fraction(quantiles: np.ndarray, fraction: float) -> float:
    """Look up the value that a fraction of what was seen does not exceed.

    Args:
        quantiles: (LEVELS,), of `QuantileSketch.compute_quantiles`.
        fraction: Above 0, at most 1; it is rounded to a thousandth.

    Returns:
        The value.

    Raises:
        ValueError: The fraction is out of range.
    """
    return float(quantiles[_find_level(fraction) - 1])


def fraction_below(quantiles: np.ndarray, value: float) -> float:
    """Compute the fraction of what was seen that is below a value.

    Args:
        quantiles: (LEVELS,), of `QuantileSketch.compute_quantiles`.
        value: Any number.

    Returns:
        The fraction, to a thousandth.
    """
    return float(np.searchsorted(quantiles, np.float32(value))) / len(quantiles)


def _find_level(fraction: float) -> int:
    """Find the nearest level of a fraction, from 1 to LEVELS; a ValueError if the fraction is not in (0, 1]."""
    if not 0 < fraction <= 1:
        raise ValueError(f"the fraction of a quantile must be above 0 and at most 1, not {fraction}")
    return max(1, round(fraction * LEVELS))
