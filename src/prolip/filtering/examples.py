"""A few samples to look at: the best, those on both sides of the cut, the worst, and duplicates."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prolip.filtering.score_cache import best_of
from prolip.filtering.selection import Fate, Judged, Selection

COUNT = 12


@dataclass(frozen=True)
class Example:
    """part, and all columns of the row of the scores that counts (see filter/scores.py)."""

    part: int
    row: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Each list is ordered by score, the best first; of duplicates (what went, what it is alike to)."""

    best: list[Example]
    just_kept: list[Example]
    just_dropped: list[Example]
    worst: list[Example]
    duplicates: list[tuple[Example, Example]]


def find_examples(selection: Selection, count: int = COUNT) -> Examples:
    """One pass over the scores, then the rows of those that were chosen."""
    best, just_kept = _Top(count, Fate.KEPT, 1), _Top(count, Fate.KEPT, -1)
    just_dropped, worst = _Top(count, Fate.BELOW, 1), _Top(count, Fate.BELOW, -1)
    for judged in selection.parts():
        for one in (best, just_kept, just_dropped, worst):
            one.add(judged)
    pairs = [] if selection.twins is None else selection.twins.pairs(count)
    wanted = [name for one in (best, just_kept, just_dropped, worst) for name in one.names()]
    rows = _rows(selection, [*wanted, *(name for pair in pairs for name in pair)])
    return Examples(
        best=[rows[name] for name in best.names()],
        just_kept=[rows[name] for name in just_kept.names()[::-1]],
        just_dropped=[rows[name] for name in just_dropped.names()],
        worst=[rows[name] for name in worst.names()[::-1]],
        duplicates=[(rows[gone], rows[stays]) for gone, stays in pairs],
    )


@dataclass
class _Top:
    """The samples of one fate with the largest scores (sign 1), or the smallest (-1); of equal ones the first."""

    count: int
    fate: Fate
    sign: int
    found: list[tuple[float, int, int]] = field(default_factory=list)  # -sign * score, part, number

    def add(self, judged: Judged) -> None:
        rows = np.flatnonzero(judged.fate == self.fate)
        rows = rows[np.argsort(-self.sign * judged.score[rows], kind="stable")[: self.count]]
        numbers = judged.rows["number"].to_numpy()[rows].tolist()
        ordered = (-self.sign * judged.score[rows]).tolist()
        more = [(value, judged.part, number) for value, number in zip(ordered, numbers, strict=True)]
        self.found = heapq.nsmallest(self.count, [*self.found, *more])

    def names(self) -> list[tuple[int, int]]:
        """(part, number), the extreme one first."""
        return [(part, number) for _, part, number in self.found]


def _rows(selection: Selection, names: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Example]:
    by_part: dict[int, list[int]] = {}
    for part, number in dict.fromkeys(names):
        by_part.setdefault(part, []).append(number)
    return {
        (part, example.row["number"]): example
        for part, numbers in by_part.items()
        for example in _of_part(selection, part, numbers)
    }


def _of_part(selection: Selection, part: int, numbers: Sequence[int]) -> list[Example]:
    best = best_of(selection.scores.part(part), part, selection.criterion)
    wanted = np.flatnonzero(np.isin(best.rows["number"].to_numpy(), numbers))
    return [Example(part, row) for row in best.rows.take(wanted).to_pylist()]
