"""Near-duplicates among what is kept: of those that are alike the one with the best score stays.

Exact up to `EXACT` kept pairs; beyond, only pairs that share a cell are compared, and the share of alike pairs that
this finds is measured. Memory: under 100 bytes a kept pair and its caption, and a block of cosines; the means (4 D
bytes a kept pair) lie in a file without a name, which is gone when the process is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np
import torch

from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.schema import matrix
from prolip.extras import require
from prolip.filtering.cells import homes_of, members_of, recall_of
from prolip.filtering.criteria import Criterion
from prolip.filtering.likeness import NOBODY, Equal, Likeness, Near, twins
from prolip.filtering.score_cache import Scores
from prolip.filtering.threshold import Cut, Sieve, keys_of

EXACT = 50_000
"""Kept pairs of which all are compared with all."""

Duplicates = Literal["images", "captions", "both"]
"""images, captions: pairs whose images, or whose captions, are alike. both: either of them."""
ROW = {"images": "image_row", "captions": "text_row"}
NAME = {"images": "pixels", "captions": "caption"}
"""What is equal of exact copies."""


@dataclass(frozen=True, eq=False)
class Twins:
    """Kept pairs by rank, the best first; n of them.

    part, number: int64 (n,). twin: int64 (n,): the rank of the better one that it is alike to; -1: it stays.
    recall: of the cells, by what was compared; empty: all pairs were. None: no two of a sample are alike.
    """

    part: np.ndarray
    number: np.ndarray
    twin: np.ndarray
    recall: dict[str, float | None]

    @property
    def count(self) -> int:
        return int((self.twin != NOBODY).sum())

    def gone_of(self, part: int) -> np.ndarray:
        """The numbers of a part's samples that go."""
        parts, numbers = self._gone
        first, last = np.searchsorted(parts, [part, part + 1])
        return numbers[first:last]

    @cached_property
    def _gone(self) -> tuple[np.ndarray, np.ndarray]:
        """Parts and numbers of all that go, by part."""
        ranks = np.flatnonzero(self.twin != NOBODY)
        ranks = ranks[np.argsort(self.part[ranks], kind="stable")]
        return self.part[ranks], self.number[ranks]

    def pairs(self, most: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Of the first that go: (part, number), and that of the one that stays."""
        rows = np.flatnonzero(self.twin != NOBODY)[:most]
        return [(self._name(row), self._name(self.twin[row])) for row in rows]

    def _name(self, rank: int) -> tuple[int, int]:
        return int(self.part[rank]), int(self.number[rank])


def find_twins(
    embeddings: Embeddings,
    scores: Scores,
    criterion: Criterion,
    cut: Cut,
    *,
    kind: Duplicates,
    alike: float,
    scratch: Path,
) -> Twins:
    """alike: the least cosine of means. scratch: a folder with room for the means of what is kept."""
    kinds = ("images", "captions") if kind == "both" else (kind,)
    kept = _kept(scores, criterion, cut, kinds)
    order = np.argsort(~keys_of(kept.score), kind="stable")
    likenesses: list[Likeness] = []
    recall: dict[str, float | None] = {}
    for one in kinds:
        likenesses.append(Equal(groups_of(kept.names[one])[order]))
        means = _means(embeddings, kept.part, kept.rows[one], order, scratch)
        if len(order) <= EXACT:
            cells = [np.arange(len(order))]
        else:
            homes = homes_of(means)
            cells, recall[one] = members_of(homes), recall_of(homes, means, alike)
        likenesses.append(Near(means, alike, cells))
    return Twins(kept.part[order], kept.number[order], twins(len(order), likenesses), recall)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is above the cut, in the order of the data. rows: in their part of the embeddings; names: see `NAME`."""

    part: np.ndarray
    number: np.ndarray
    score: np.ndarray
    rows: dict[str, np.ndarray]
    names: dict[str, Any]


def _kept(scores: Scores, criterion: Criterion, cut: Cut, kinds: tuple[str, ...]) -> _Kept:
    arrow = require("pyarrow", "data")
    sieve = Sieve(cut)
    found, values, parts = [], [], []
    for best in scores.best(criterion, [*(ROW[kind] for kind in kinds), *(NAME[kind] for kind in kinds)]):
        keeps = sieve.keeps(best.score)
        found.append(best.rows.filter(arrow.array(keeps)))
        values.append(best.score[keeps])
        parts.append(np.full(len(values[-1]), best.part))
    table = arrow.concat_tables(found)
    return _Kept(
        np.concatenate(parts),
        table["number"].to_numpy(),
        np.concatenate(values),
        {kind: table[ROW[kind]].fill_null(NOBODY).to_numpy() for kind in kinds},
        {kind: table[NAME[kind]] for kind in kinds},
    )


def groups_of(names: Any) -> np.ndarray:
    """int64 (n,): a number for each different text, without regard to case and outer space; NOBODY for nulls."""
    compute = require("pyarrow.compute", "data")
    long = names.cast("large_string")  # of texts that are more than 2 GiB together
    plain = compute.utf8_lower(compute.utf8_trim_whitespace(long)).combine_chunks()
    groups: np.ndarray = plain.dictionary_encode().indices.fill_null(NOBODY).to_numpy().astype(np.int64)
    return groups


def _means(
    embeddings: Embeddings, parts: np.ndarray, rows: np.ndarray, order: np.ndarray, scratch: Path
) -> np.ndarray:
    """float32 (n, D) by rank, of unit length; zero where there is no row, so that nothing is alike to it."""
    shape = (len(order), embeddings.header.dim)
    if not len(order):
        return np.zeros(shape, np.float32)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    with TemporaryFile(dir=scratch) as file:
        means = np.memmap(file, np.float32, "w+", shape=shape)
    for number, items in _by_part(parts):
        items = items[rows[items] != NOBODY]
        block = matrix(embeddings.part(number, ["mean"])["mean"])[rows[items]]
        means[rank[items]] = torch.nn.functional.normalize(block, dim=1).numpy()
    return means


def _by_part(parts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Items of each part; `parts` is increasing."""
    numbers, starts = np.unique(parts, return_index=True)
    for number, items in zip(numbers, np.split(np.arange(len(parts)), starts[1:]), strict=True):
        yield int(number), items
