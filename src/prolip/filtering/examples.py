"""Example samples for reports: the best, those next to the threshold, the worst, and duplicates."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prolip.filtering.score_cache import select_best_captions
from prolip.filtering.selection import PartFilterOutcomes, SampleOutcome, Selection

COUNT = 12
"""Examples per list."""


@dataclass(frozen=True)
class FilterExample:
    """A sample that a report shows.

    Attributes:
        part: Index of its part.
        row: All columns of its best row of the scores (filtering/scores.py), by name.
    """

    part: int
    row: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FilterExamples:
    """Lists of example samples, each sorted by score, the best first.

    Attributes:
        best: The best of the kept samples.
        just_kept: The worst of the kept samples.
        just_dropped: The best of those below the threshold.
        worst: The worst of those below the threshold.
        duplicates: (dropped sample, better one that is kept).
    """

    best: list[FilterExample]
    just_kept: list[FilterExample]
    just_dropped: list[FilterExample]
    worst: list[FilterExample]
    duplicates: list[tuple[FilterExample, FilterExample]]


def find_examples(selection: Selection, count: int = COUNT) -> FilterExamples:
    """Select examples in one pass over the scores, then read their rows.

    Args:
        selection: The outcome of every sample.
        count: Examples per list.

    Returns:
        The examples of each list.
    """
    best, just_kept = (
        _ExtremeSamples(count, SampleOutcome.KEPT, 1),
        _ExtremeSamples(count, SampleOutcome.KEPT, -1),
    )
    just_dropped = _ExtremeSamples(count, SampleOutcome.BELOW_THRESHOLD, 1)
    worst = _ExtremeSamples(count, SampleOutcome.BELOW_THRESHOLD, -1)
    lists = (best, just_kept, just_dropped, worst)
    for part_outcomes in selection.iter_parts():
        for samples in lists:
            samples.add(part_outcomes)
    pairs = [] if selection.duplicates is None else selection.duplicates.list_pairs(count)
    keys = [key for samples in lists for key in samples.list_samples()]
    rows = _read_examples(selection, [*keys, *(key for pair in pairs for key in pair)])
    return FilterExamples(
        best=[rows[key] for key in best.list_samples()],
        just_kept=[rows[key] for key in just_kept.list_samples()[::-1]],
        just_dropped=[rows[key] for key in just_dropped.list_samples()],
        worst=[rows[key] for key in worst.list_samples()[::-1]],
        duplicates=[(rows[dropped], rows[kept]) for dropped, kept in pairs],
    )


@dataclass
class _ExtremeSamples:
    """The `count` samples of one outcome with the largest scores (sign 1) or the smallest (-1); ties in data order.

    Attributes:
        samples: (-sign * score, part, sample index) of the most extreme samples so far, the most extreme first.
    """

    count: int
    outcome: SampleOutcome
    sign: int
    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def add(self, part_outcomes: PartFilterOutcomes) -> None:
        """Update `samples` by those of another part."""
        rows = np.flatnonzero(part_outcomes.outcome == self.outcome)
        rows = rows[np.argsort(-self.sign * part_outcomes.score[rows], kind="stable")[: self.count]]
        indices = part_outcomes.rows["index"].to_numpy()[rows].tolist()
        sort_values = (-self.sign * part_outcomes.score[rows]).tolist()
        new = [(value, part_outcomes.part, index) for value, index in zip(sort_values, indices, strict=True)]
        self.samples = heapq.nsmallest(self.count, [*self.samples, *new])

    def list_samples(self) -> list[tuple[int, int]]:
        """(part, sample index) of each, the most extreme first."""
        return [(part, index) for _, part, index in self.samples]


def _read_examples(
    selection: Selection, keys: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], FilterExample]:
    """Read the row of the best caption of some samples; each part is read once.

    `keys` are (part, sample index); returns the examples by key.
    """
    by_part: dict[int, list[int]] = {}
    for part, index in dict.fromkeys(keys):
        by_part.setdefault(part, []).append(index)
    return {
        (part, example.row["index"]): example
        for part, indices in by_part.items()
        for example in _read_part_examples(selection, part, indices)
    }


def _read_part_examples(selection: Selection, part: int, indices: Sequence[int]) -> list[FilterExample]:
    """Read the row of the best caption of some samples of one part, in the order of the part.

    `indices` are sample indices.
    """
    best = select_best_captions(selection.scores.read_part(part), part, selection.criterion)
    rows = np.flatnonzero(np.isin(best.rows["index"].to_numpy(), indices))
    return [FilterExample(part, row) for row in best.rows.take(rows).to_pylist()]
