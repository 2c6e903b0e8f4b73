"""Every caption of a table on disk, block after block: exact, and no more in memory than a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from prolip.checks import require_count
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.nearest import Score
from prolip.progress import bar
from prolip.retrieval.blocks import nearest_in, nearest_to_steps
from prolip.retrieval.caption_tables import CaptionTable
from prolip.retrieval.max_inclusion import Measure, most_inclusive

Block = TypeVar("Block", MeanTrace, Gaussian)


@dataclass(frozen=True)
class Scan:
    """Answers are places in the table. Of equally good captions the one that comes first counts."""

    table: CaptionTable
    progress: bool | None = None

    def nearest(self, queries: Gaussian, *, by: Score = "csd") -> Tensor:
        """The nearest caption of each query (Q, D): (Q,)."""
        return self.few_nearest(queries, 1, by=by)[:, 0]

    def few_nearest(self, queries: Gaussian, k: int, *, by: Score = "csd") -> Tensor:
        """The k nearest captions of each query (Q, D), best first: (Q, k), or all if there are fewer."""
        require_count(k, "k")
        return self._best(self.table.mean_traces(), lambda block: nearest_in(queries, block, k, by), k)

    def most_inclusive(self, queries: Gaussian, measure: Measure = "inclusion") -> Tensor:
        """The caption that includes each query (Q, D) most: (Q,)."""

        def judge(block: Gaussian) -> tuple[Tensor, Tensor]:
            values, rows = most_inclusive(queries, block, measure)
            return values[:, None], rows[:, None]

        return self._best(self.table.gaussians(), judge, 1)[:, 0]

    def along(self, starts: Tensor, ends: Tensor, steps: int, *, by: Score = "csd") -> Tensor:
        """The caption nearest to each step from starts to ends, (N, D) of unit length: (N, steps)."""

        def judge(block: MeanTrace) -> tuple[Tensor, Tensor]:
            values, rows = nearest_to_steps(starts, ends, block, steps, by)
            return values[..., None], rows[..., None]

        return self._best(self.table.mean_traces(), judge, 1)[..., 0]

    def _best(
        self,
        blocks: Iterator[tuple[Tensor, Block]],
        judge: Callable[[Block], tuple[Tensor, Tensor]],
        k: int,
    ) -> Tensor:
        """Places of the k best over all blocks, (..., k). judge: a block -> its k best, values and rows, (..., k)."""
        values = places = None
        with bar(f"scanning {self.table.name}", len(self.table), "captions", self.progress) as advance:
            for numbers, captions in blocks:
                if not len(numbers):
                    continue
                found, rows = judge(captions)
                if values is None or places is None:
                    values, places = found, numbers[rows]
                else:
                    values, places = _merged((values, places), (found, numbers[rows]), k)
                advance(len(numbers))
        if places is None:
            raise ValueError(f"{self.table.name} holds no caption to walk over")
        return places


def _merged(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k best of both, (values, places) of (..., k) each; of equal ones the old come first."""
    values, order = torch.cat([old[0], new[0]], dim=-1).sort(dim=-1, descending=True, stable=True)
    places = torch.cat([old[1], new[1]], dim=-1).gather(-1, order)
    return values[..., :k], places[..., :k]
