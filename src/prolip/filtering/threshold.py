"""The exact global cut between what is kept and what is not, in two passes and half a megabyte.

A float32 becomes a whole number of 32 bits of the same order. The first pass counts how often each upper half occurs;
the cut lies in one of these 65,536 bins. The second counts the lower halves in that bin: the cut is then known to the
last bit. Counts add up, so that parts, and machines, can be counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

HALF = 2**16
NOTHING = 0
"""The key of a score that is none (NaN). No number has it."""


@dataclass(frozen=True)
class Cut:
    """What is kept: all with a key above `key`, and of those that have it the first `ties`, in the order of the data.

    total: scores in all. none: how many of them are NaN.
    """

    key: int
    ties: int
    total: int
    none: int

    @property
    def score(self) -> float | None:
        """The lowest score that is kept; None if nothing is."""
        return None if self.ties == 0 else float(scores_of(np.array([self.key], np.uint32))[0])


def keys_of(scores: np.ndarray) -> np.ndarray:
    """float32 (n,) -> uint32 (n,) of the same order; both zeros are equal; NaN is `NOTHING`, below -infinity."""
    values = scores.astype(np.float32) + np.float32(0)  # -0 + 0 = 0
    bits = values.view(np.uint32)
    keys = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return np.where(np.isnan(values), np.uint32(NOTHING), keys)


def scores_of(keys: np.ndarray) -> np.ndarray:
    """The way back, for keys of numbers: uint32 (n,) -> float32 (n,)."""
    return np.where(keys >> 31, keys & np.uint32(2**31 - 1), ~keys).astype(np.uint32).view(np.float32)


def find_cut(passes: Callable[[], Iterable[np.ndarray]], keep: float) -> Cut:
    """The best round(keep * N) of N scores; fewer only if more than the rest are NaN.

    passes: called for each pass; gives float32 scores block after block, in the same order each time, larger is better.
    """
    require_share(keep)
    upper = sum((count_upper(scores) for scores in passes()), np.zeros(HALF, np.int64))
    total, none = int(upper.sum()), int(upper[NOTHING])
    upper[NOTHING] = 0
    wanted = min(round(keep * total), total - none)
    if wanted == 0:
        return Cut(2**32 - 1, 0, total, none)
    half, left = _place(upper, wanted)
    lower = sum((count_lower(scores, half) for scores in passes()), np.zeros(HALF, np.int64))
    rest, ties = _place(lower, left)
    return Cut(half * HALF + rest, ties, total, none)


def count_upper(scores: np.ndarray) -> np.ndarray:
    """int64 (65536,): how often each upper half of a key occurs; 0 is NaN's alone."""
    return np.bincount(keys_of(scores) >> 16, minlength=HALF)


def count_lower(scores: np.ndarray, half: int) -> np.ndarray:
    """int64 (65536,): how often each lower half occurs under one upper half."""
    keys = keys_of(scores)
    return np.bincount(keys[keys >> 16 == half] & (HALF - 1), minlength=HALF)


def require_share(keep: float) -> None:
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be a share above 0 and at most 1, not {keep!r}")


def _place(counts: np.ndarray, wanted: int) -> tuple[int, int]:
    """The bin of the wanted-th largest value, and how many values of that bin are wanted."""
    above = np.cumsum(counts[::-1])
    place = int(np.searchsorted(above, wanted))
    return len(counts) - 1 - place, wanted - int(above[place - 1] if place else 0)


class Sieve:
    """Applies a cut to blocks of scores, one after another, in the order in which they were counted."""

    def __init__(self, cut: Cut) -> None:
        self._cut, self._ties = cut, cut.ties

    def keeps(self, scores: np.ndarray) -> np.ndarray:
        """bool (n,)."""
        keys = keys_of(scores)
        tied = np.flatnonzero(keys == self._cut.key)[: self._ties]
        self._ties -= len(tied)
        kept = keys > self._cut.key
        kept[tied] = True
        return kept
