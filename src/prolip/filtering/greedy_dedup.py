"""Greedy removal of near-duplicates: of similar items the best one is kept, however many there are.

Items are sorted by rank: 0 is the best. An item is dropped if it is similar to a better one that is kept. Which are
kept is found in rounds: an item is kept if it is similar to no better item that is kept or still undecided. The result
is that of going from the best to the worst, without a list of all similar pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

UNDECIDED, KEPT, DROPPED = 0, 1, 2
"""States of an item."""
BLOCK = (2048, 8192)
"""Items, and better items, that are compared together: 64 MiB of cosines."""
NO_DUPLICATE = -1
"""In place of the rank of a better item: there is none."""


class SimilarityRelation(Protocol):
    """A rule that says which items are similar."""

    def update(self, states: np.ndarray, better: np.ndarray, must_wait: np.ndarray) -> None:
        """Compare every undecided item with the better ones.

        Args:
            states: uint8 (n,): UNDECIDED, KEPT or DROPPED.
            better: int64 (n,), written: for each undecided item the best kept item that is similar and better than it,
                unless the present value is an even better one.
            must_wait: bool (n,), written: set to True where a better item that is undecided is similar.
        """


def remove_greedily(count: int, relations: Sequence[SimilarityRelation]) -> np.ndarray:
    """Drop every item that is similar to a better one that is kept.

    Args:
        count: n, the number of items, best first.
        relations: Two items are similar if they are by any of these.

    Returns:
        int64 (n,): for each dropped item the better one that is kept and similar; NO_DUPLICATE: it is kept.
    """
    states = np.full(count, UNDECIDED, np.uint8)
    better = np.full(count, NO_DUPLICATE)
    while (states == UNDECIDED).any():
        must_wait = np.zeros(count, bool)
        for relation in relations:
            relation.update(states, better, must_wait)
        undecided = states == UNDECIDED
        states[undecided & (better != NO_DUPLICATE)] = DROPPED
        states[undecided & (better == NO_DUPLICATE) & ~must_wait] = KEPT
    return better


@dataclass(frozen=True, eq=False)
class GroupSimilarity:
    """Items are similar if they are in the same group.

    Attributes:
        groups: int64 (n,), from 0: group of each item; NO_DUPLICATE: similar to no other item.
    """

    groups: np.ndarray

    def update(self, states: np.ndarray, better: np.ndarray, must_wait: np.ndarray) -> None:
        """Compare every undecided item with the better ones of its group.

        Args:
            states: uint8 (n,), as in `SimilarityRelation.update`.
            better: int64 (n,), written.
            must_wait: bool (n,), written.
        """
        undecided = np.flatnonzero((states == UNDECIDED) & (self.groups != NO_DUPLICATE))
        best_kept = self._find_best_of_groups(states == KEPT)[self.groups[undecided]]
        has_better = best_kept < undecided
        _record_better(better, undecided[has_better], best_kept[has_better])
        best_undecided = self._find_best_of_groups(states == UNDECIDED)[self.groups[undecided]]
        must_wait[undecided] |= best_undecided < undecided

    def _find_best_of_groups(self, mask: np.ndarray) -> np.ndarray:
        """Find the best item of each group among those in `mask`, bool (n,): int64 (groups,); n if there is none."""
        best = np.full(self.groups.max(initial=NO_DUPLICATE) + 1, len(self.groups))
        rows = np.flatnonzero(mask & (self.groups != NO_DUPLICATE))
        np.minimum.at(best, self.groups[rows], rows)
        return best


@dataclass(frozen=True, eq=False)
class CosineSimilarityTest:
    """Items are similar if they share a cluster and the cosine of their means is at least `min_cosine`.

    Attributes:
        means: float32 (n, D), of unit length; may be a memory map.
        min_cosine: Smallest cosine of similar items.
        clusters: For each cluster its items, increasing, int64.
    """

    means: np.ndarray
    min_cosine: float
    clusters: Sequence[np.ndarray]

    def update(self, states: np.ndarray, better: np.ndarray, must_wait: np.ndarray) -> None:
        """Compare every undecided item with the better ones of its clusters.

        Args:
            states: uint8 (n,), as in `SimilarityRelation.update`.
            better: int64 (n,), written.
            must_wait: bool (n,), written.
        """
        for cluster in self.clusters:
            undecided = cluster[states[cluster] == UNDECIDED]
            others = cluster[states[cluster] != DROPPED]
            for first in range(0, len(undecided), BLOCK[0]):
                self._compare_block(undecided[first : first + BLOCK[0]], others, states, better, must_wait)

    def _compare_block(
        self,
        items: np.ndarray,
        others: np.ndarray,
        states: np.ndarray,
        better: np.ndarray,
        must_wait: np.ndarray,
    ) -> None:
        """Compare undecided items with the better ones of their cluster; writes `better` and `must_wait`.

        Args:
            items: int64, increasing: undecided items, at most BLOCK[0].
            others: int64, increasing: items of the cluster that are kept or undecided.
            states: uint8 (n,), as in `SimilarityRelation.update`.
            better: int64 (n,), written.
            must_wait: bool (n,), written.
        """
        item_means = torch.from_numpy(self.means[items])
        others = others[: np.searchsorted(others, items[-1])]  # only better ones count
        for first in range(0, len(others), BLOCK[1]):
            block = others[first : first + BLOCK[1]]
            is_similar = (item_means @ torch.from_numpy(self.means[block]).mT >= self.min_cosine).numpy()
            is_similar &= block < items[:, None]  # (items, block); smaller numbers are better ranks
            to_kept, to_undecided = (
                is_similar & (states[block] == KEPT),
                is_similar & (states[block] == UNDECIDED),
            )
            has_better = to_kept.any(1)
            # argmax gives the first, which is the best, as a block is sorted by rank
            _record_better(better, items[has_better], block[to_kept[has_better].argmax(1)])
            must_wait[items] |= to_undecided.any(1)


def _record_better(better: np.ndarray, items: np.ndarray, duplicates_of: np.ndarray) -> None:
    """Write into `better` which kept item each of `items` duplicates, unless it has an even better one there.

    `items` and `duplicates_of` are ranks, int64 (m,) each.
    """
    present = better[items]
    better[items] = np.where(present == NO_DUPLICATE, duplicates_of, np.minimum(present, duplicates_of))
