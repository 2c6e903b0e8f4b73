"""The outcome of every sample: kept, or dropped and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from prolip.filtering.criteria import FilterScore
from prolip.filtering.duplicates import NearDuplicates
from prolip.filtering.score_cache import ScoreCache
from prolip.filtering.threshold import Threshold, ThresholdFilter


class SampleOutcome(IntEnum):
    """What a filter decided about a sample."""

    KEPT = 0
    BELOW_THRESHOLD = 1
    DUPLICATE = 2
    NO_SCORE = 3


OUTCOME_NAMES = {
    SampleOutcome.KEPT: "kept",
    SampleOutcome.BELOW_THRESHOLD: "below the threshold",
    SampleOutcome.DUPLICATE: "duplicate of a better sample",
    SampleOutcome.NO_SCORE: "no score",
}


@dataclass(frozen=True, eq=False)
class PartFilterOutcomes:
    """The outcomes of the n samples of a part, by sample index.

    Attributes:
        part: Index of the part.
        score: float32 (n,), larger is better; NaN: none.
        outcome: uint8 (n,), values of `SampleOutcome`.
        rows: A pyarrow table of n rows: `index`, the criterion's column and those that were requested.
    """

    part: int
    score: np.ndarray
    outcome: np.ndarray
    rows: Any

    @property
    def kept_rows(self) -> Any:
        """The rows of kept samples, a pyarrow table."""
        return self.rows.take(np.flatnonzero(self.outcome == SampleOutcome.KEPT))


@dataclass(frozen=True, eq=False)
class Selection:
    """The samples above a threshold, without near-duplicates.

    Attributes:
        scores: Scores of all samples, on disk.
        criterion: What ranks samples.
        threshold: Which scores are kept.
        duplicates: Near-duplicates above the threshold; None: they were not searched.
    """

    scores: ScoreCache
    criterion: FilterScore
    threshold: Threshold
    duplicates: NearDuplicates | None = None

    def iter_parts(self, columns: Sequence[str] = ()) -> Iterator[PartFilterOutcomes]:
        """Read the scores, and decide about each sample, one part at a time.

        Args:
            columns: Columns of the scores that the rows have, besides `index` and the criterion's.

        Yields:
            The outcomes of each part, in order.
        """
        threshold_filter = ThresholdFilter(self.threshold)
        for best in self.scores.iter_best(self.criterion, columns):
            is_kept = threshold_filter.apply(best.score)
            outcome = np.where(is_kept, SampleOutcome.KEPT, SampleOutcome.BELOW_THRESHOLD).astype(np.uint8)
            outcome[np.isnan(best.score)] = SampleOutcome.NO_SCORE
            if self.duplicates is not None:
                duplicates = self.duplicates.dropped_in_part(best.part)
                outcome[np.isin(best.rows["index"].to_numpy(), duplicates)] = SampleOutcome.DUPLICATE
            yield PartFilterOutcomes(best.part, best.score, outcome, best.rows)
