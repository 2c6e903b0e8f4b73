"""What was kept and what was dropped, in numbers: counts, the spread of scores, and whether the truth agrees."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from prolip.filtering.selection import WORDS, Fate, Judged, Selection

BINS = 4096
"""Of the histogram that quantiles are read from: they are right to within (largest - least) / 4096."""
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Histogram:
    """edges: float64 (B + 1,), values of the criterion's column. kept, dropped: int64 (B,)."""

    edges: np.ndarray
    kept: np.ndarray
    dropped: np.ndarray


@dataclass(frozen=True)
class Truth:
    """How a column that is true for right pairs agrees. precision: share of the kept that are right. recall: share of
    the right that are kept. chance: both for keeping as many at random. unknown: samples where the column is null."""

    column: str
    precision: float | None
    recall: float | None
    chance_precision: float | None
    chance_recall: float | None
    unknown: int


@dataclass(frozen=True, eq=False)
class Account:
    """fates: samples by what became of them. histogram: None if not one score is finite."""

    fates: dict[Fate, int]
    histogram: Histogram | None
    truth: Truth | None = None

    @property
    def kept(self) -> int:
        return self.fates[Fate.KEPT]

    @property
    def total(self) -> int:
        return sum(self.fates.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "fates": {WORDS[fate]: count for fate, count in self.fates.items()},
            "quantiles": None if self.histogram is None else _quantiles(self.histogram),
            "truth": None if self.truth is None else asdict(self.truth),
        }


def take_account(selection: Selection, truth: str | None = None) -> Account:
    """Two passes over the scores: the first counts, and finds the ends of the histogram that the second fills."""
    tally = _Tally(truth)
    for judged in selection.parts([] if truth is None else [truth]):
        tally.add(judged)
    ends = None if tally.least > tally.largest else (tally.least, tally.largest)
    return Account(tally.fates(), None if ends is None else _histogram(selection, ends), tally.truth())


@dataclass
class _Tally:
    column: str | None
    counts: Counter[int] = field(default_factory=Counter)
    least: float = np.inf
    largest: float = -np.inf
    known: int = 0
    right: int = 0
    known_kept: int = 0
    right_kept: int = 0

    def add(self, judged: Judged) -> None:
        self.counts.update(dict(enumerate(np.bincount(judged.fate, minlength=len(Fate)).tolist())))
        finite = judged.score[np.isfinite(judged.score)]
        if len(finite):
            self.least = min(self.least, float(finite.min()))
            self.largest = max(self.largest, float(finite.max()))
        if self.column is not None:
            self._compare(judged, self.column)

    def _compare(self, judged: Judged, column: str) -> None:
        right, known = _truths(judged.rows[column], column)
        kept = judged.fate == Fate.KEPT
        self.known += int(known.sum())
        self.right += int(right.sum())
        self.known_kept += int((known & kept).sum())
        self.right_kept += int((right & kept).sum())

    def fates(self) -> dict[Fate, int]:
        return {fate: self.counts[fate] for fate in Fate}

    def truth(self) -> Truth | None:
        if self.column is None:
            return None
        return Truth(
            self.column,
            precision=_share(self.right_kept, self.known_kept),
            recall=_share(self.right_kept, self.right),
            chance_precision=_share(self.right, self.known),
            chance_recall=_share(self.known_kept, self.known),
            unknown=self.counts.total() - self.known,
        )


def _truths(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """bool (n,) each: whether the pair is right; whether anything is known of it."""
    kind = str(column.type)
    if kind not in ("bool", "int64", "double"):
        raise ValueError(
            f"the truth {name!r} must be a column of true and false or of numbers, not of {kind}"
        )
    values = column.cast("double").to_numpy(zero_copy_only=False)  # null is NaN then
    return np.nan_to_num(values) != 0, ~np.isnan(values)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _histogram(selection: Selection, ends: tuple[float, float]) -> Histogram:
    """Of scores turned back into values of the column; infinite ones are left out."""
    sign = selection.criterion.sign
    low, high = sorted(sign * end for end in ends)
    edges = np.linspace(low, high if high > low else low + max(abs(low), 1.0) * 1e-6, BINS + 1)
    kept, dropped = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    for judged in selection.parts():
        finite = np.isfinite(judged.score)
        for counts, chosen in ((kept, judged.fate == Fate.KEPT), (dropped, judged.fate != Fate.KEPT)):
            counts += np.histogram(sign * judged.score[finite & chosen].astype(np.float64), edges)[0]
    return Histogram(edges, kept, dropped)


def _quantiles(histogram: Histogram) -> dict[str, dict[str, float] | None]:
    return {
        name: _of_counts(counts, histogram.edges)
        for name, counts in (("kept", histogram.kept), ("dropped", histogram.dropped))
    }


def _of_counts(counts: np.ndarray, edges: np.ndarray) -> dict[str, float] | None:
    """The upper edge of the bin in which each quantile lies; of the least the lower one."""
    total = int(counts.sum())
    if not total:
        return None
    ranks = np.maximum(1, np.ceil(np.array(QUANTILES) * total))
    bins = np.searchsorted(np.cumsum(counts), ranks)
    values = np.where(np.array(QUANTILES) == 0, edges[bins], edges[bins + 1])
    return {f"{quantile:g}": float(value) for quantile, value in zip(QUANTILES, values, strict=True)}
