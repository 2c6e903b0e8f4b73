"""What becomes of every sample: kept, or dropped and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from prolip.filtering.criteria import Criterion
from prolip.filtering.duplicates import Twins
from prolip.filtering.score_cache import Scores
from prolip.filtering.threshold import Cut, Sieve


class Fate(IntEnum):
    KEPT = 0
    BELOW = 1
    DUPLICATE = 2
    NO_SCORE = 3


WORDS = {
    Fate.KEPT: "kept",
    Fate.BELOW: "below the cut",
    Fate.DUPLICATE: "duplicate of a better one",
    Fate.NO_SCORE: "no score",
}


@dataclass(frozen=True, eq=False)
class Judged:
    """A part's samples by number. score: float32 (n,), larger is better. fate: (n,). rows: a pyarrow table."""

    part: int
    score: np.ndarray
    fate: np.ndarray
    rows: Any

    @property
    def kept(self) -> Any:
        """The rows that are kept."""
        return self.rows.take(np.flatnonzero(self.fate == Fate.KEPT))


@dataclass(frozen=True, eq=False)
class Selection:
    """Of all scores those above the cut, without twins. twins: None: they were not looked for."""

    scores: Scores
    criterion: Criterion
    cut: Cut
    twins: Twins | None = None

    def parts(self, columns: Sequence[str] = ()) -> Iterator[Judged]:
        """Part after part; nothing is held between them."""
        sieve = Sieve(self.cut)
        for best in self.scores.best(self.criterion, columns):
            fate = np.where(sieve.keeps(best.score), Fate.KEPT, Fate.BELOW).astype(np.uint8)
            fate[np.isnan(best.score)] = Fate.NO_SCORE
            if self.twins is not None:
                fate[np.isin(best.rows["number"].to_numpy(), self.twins.gone_of(best.part))] = Fate.DUPLICATE
            yield Judged(best.part, best.score, fate, best.rows)
