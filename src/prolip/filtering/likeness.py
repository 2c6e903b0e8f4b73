"""Which items are alike, and which of them stay: of those that are alike the best, however many there are.

Items are numbered by rank: 0 is the best. One goes if it is alike to a better one that stays. Who stays is found in
rounds: an item that is alike to no better one that is still open, nor to one that stays, stays. The result is that of
going from the best to the worst, without a list of all pairs that are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

OPEN, STAYS, GOES = 0, 1, 2
BLOCK = (2048, 8192)
"""Items that are compared at one time: 64 MiB of cosines."""
NOBODY = -1


class Likeness(Protocol):
    def look(self, fates: np.ndarray, twin: np.ndarray, waits: np.ndarray) -> None:
        """For every item that is open: into `twin` (int64 (n,)) goes the best staying item before it that is alike, if
        it is better than what is there; into `waits`, whether an open item before it is alike."""


def twins(count: int, likenesses: Sequence[Likeness]) -> np.ndarray:
    """int64 (n,): of each item that goes the better one that stays and is alike by any likeness; NOBODY: it stays."""
    fates = np.full(count, OPEN, np.uint8)
    twin = np.full(count, NOBODY)
    while (fates == OPEN).any():
        waits = np.zeros(count, bool)
        for likeness in likenesses:
            likeness.look(fates, twin, waits)
        is_open = fates == OPEN
        fates[is_open & (twin != NOBODY)] = GOES
        fates[is_open & (twin == NOBODY) & ~waits] = STAYS
    return twin


@dataclass(frozen=True, eq=False)
class Equal:
    """Alike: the same group. groups: int64 (n,) from 0; each item without a group of its own is told by NOBODY."""

    groups: np.ndarray

    def look(self, fates: np.ndarray, twin: np.ndarray, waits: np.ndarray) -> None:
        sought = np.flatnonzero((fates == OPEN) & (self.groups != NOBODY))
        best = self._best_of_groups(fates == STAYS)[self.groups[sought]]
        found = best < sought
        _better(twin, sought[found], best[found])
        waits[sought] |= self._best_of_groups(fates == OPEN)[self.groups[sought]] < sought

    def _best_of_groups(self, wanted: np.ndarray) -> np.ndarray:
        """int64: of each group the first wanted item; n if there is none."""
        best = np.full(self.groups.max(initial=NOBODY) + 1, len(self.groups))
        rows = np.flatnonzero(wanted & (self.groups != NOBODY))
        np.minimum.at(best, self.groups[rows], rows)
        return best


@dataclass(frozen=True, eq=False)
class Near:
    """Alike: a cosine of at least `least`, of items that share a cell.

    means: float32 (n, D), of unit length; may lie on disk. cells: items of each, increasing.
    """

    means: np.ndarray
    least: float
    cells: Sequence[np.ndarray]

    def look(self, fates: np.ndarray, twin: np.ndarray, waits: np.ndarray) -> None:
        for cell in self.cells:
            sought, others = cell[fates[cell] == OPEN], cell[fates[cell] != GOES]
            for first in range(0, len(sought), BLOCK[0]):
                self._look(sought[first : first + BLOCK[0]], others, fates, twin, waits)

    def _look(
        self, sought: np.ndarray, others: np.ndarray, fates: np.ndarray, twin: np.ndarray, waits: np.ndarray
    ) -> None:
        left = torch.from_numpy(self.means[sought])
        others = others[: np.searchsorted(others, sought[-1])]  # only better ones count
        for first in range(0, len(others), BLOCK[1]):
            block = others[first : first + BLOCK[1]]
            alike = (left @ torch.from_numpy(self.means[block]).mT >= self.least).numpy()
            alike &= block < sought[:, None]
            staying, still_open = alike & (fates[block] == STAYS), alike & (fates[block] == OPEN)
            found = staying.any(1)
            _better(twin, sought[found], block[staying[found].argmax(1)])
            waits[sought] |= still_open.any(1)


def _better(twin: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
    known = twin[rows]
    twin[rows] = np.where(known == NOBODY, found, np.minimum(known, found))
