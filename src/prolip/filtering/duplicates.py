"""Near-duplicates among kept pairs: of similar ones the one with the best score is kept.

Exact up to `MAX_EXACT` kept pairs; beyond, only pairs that share a cluster are compared, and the fraction of similar
pairs that this finds is measured. Memory: under 100 bytes per kept pair and its caption, and a block of cosines; the
means (4 D bytes per kept pair) are in an unnamed temporary file, which the operating system removes with the process.
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

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.schema import column_to_tensor
from prolip.extras import import_extra
from prolip.filtering.clusters import assign_clusters, group_by_cluster, measure_cluster_recall
from prolip.filtering.criteria import FilterScore
from prolip.filtering.greedy_dedup import (
    NO_DUPLICATE,
    CosineSimilarityTest,
    GroupSimilarity,
    SimilarityRelation,
    remove_greedily,
)
from prolip.filtering.score_cache import ScoreCache
from prolip.filtering.threshold import Threshold, ThresholdFilter, to_sort_keys

MAX_EXACT = 50_000
"""Up to this many kept pairs, all are compared with all."""

DuplicateKind = Literal["images", "captions", "both"]
"""images, captions: pairs whose images, or whose captions, are similar. both: either of them."""
ROW_COLUMN = {"images": "image_row", "captions": "text_row"}
COPY_COLUMN = {"images": "pixel_digest", "captions": "caption"}
"""The column that exact copies have in common."""


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """The n pairs above the threshold by rank, the best first.

    part, index:  int64 (n,), of the sample.
    better:       int64 (n,): the rank of the better pair that it duplicates; -1: it is kept.
    recall:       of the clusters, by what was compared; empty: all pairs were compared. None: no two pairs of a sample
                  are similar.
    """

    part: np.ndarray
    index: np.ndarray
    better: np.ndarray
    recall: dict[str, float | None]

    @property
    def count(self) -> int:
        """The number of dropped pairs."""
        return int((self.better != NO_DUPLICATE).sum())

    def dropped_in_part(self, part: int) -> np.ndarray:
        """The sample indices of a part that are dropped."""
        parts, indices = self._dropped
        first, last = np.searchsorted(parts, [part, part + 1])
        return indices[first:last]

    @cached_property
    def _dropped(self) -> tuple[np.ndarray, np.ndarray]:
        """Parts and sample indices of all dropped pairs, by part."""
        ranks = np.flatnonzero(self.better != NO_DUPLICATE)
        ranks = ranks[np.argsort(self.part[ranks], kind="stable")]
        return self.part[ranks], self.index[ranks]

    def list_pairs(self, max_pairs: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The first dropped pairs: (part, index) of each, and of the one that is kept."""
        rows = np.flatnonzero(self.better != NO_DUPLICATE)[:max_pairs]
        return [(self._locate(row), self._locate(self.better[row])) for row in rows]

    def _locate(self, rank: int) -> tuple[int, int]:
        return int(self.part[rank]), int(self.index[rank])


def find_near_duplicates(
    embeddings: EmbeddingDataset,
    scores: ScoreCache,
    criterion: FilterScore,
    threshold: Threshold,
    *,
    kind: DuplicateKind,
    min_cosine: float,
    temp_folder: Path,
) -> NearDuplicates:
    """Find the near-duplicates among the pairs above a threshold.

    Args:
        embeddings: What `prolip embed` wrote.
        scores: Scores of these embeddings.
        criterion: What ranks pairs.
        threshold: Above which pairs are compared.
        kind: What is compared.
        min_cosine: The least cosine of the means of near-duplicates.
        temp_folder: With room for the means of the pairs above the threshold.

    Returns:
        For every pair above the threshold whether it is kept, or which better pair it duplicates.
    """
    kinds = ("images", "captions") if kind == "both" else (kind,)
    kept = _read_kept(scores, criterion, threshold, kinds)
    order = np.argsort(~to_sort_keys(kept.score), kind="stable")
    relations: list[SimilarityRelation] = []
    recall: dict[str, float | None] = {}
    for one in kinds:
        relations.append(GroupSimilarity(group_equal_texts(kept.copy_keys[one])[order]))
        means = _load_means(embeddings, kept.part, kept.rows[one], order, temp_folder)
        if len(order) <= MAX_EXACT:
            groups = [np.arange(len(order))]
        else:
            clusters = assign_clusters(means)
            groups = group_by_cluster(clusters)
            recall[one] = measure_cluster_recall(clusters, means, min_cosine)
        relations.append(CosineSimilarityTest(means, min_cosine, groups))
    return NearDuplicates(kept.part[order], kept.index[order], remove_greedily(len(order), relations), recall)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Pairs above the threshold, in data order. rows: in their part of the embeddings; copy_keys: see `COPY_COLUMN`."""

    part: np.ndarray
    index: np.ndarray
    score: np.ndarray
    rows: dict[str, np.ndarray]
    copy_keys: dict[str, Any]


def _read_kept(
    scores: ScoreCache, criterion: FilterScore, threshold: Threshold, kinds: tuple[str, ...]
) -> _Kept:
    arrow = import_extra("pyarrow", "data")
    threshold_filter = ThresholdFilter(threshold)
    found, values, parts = [], [], []
    for best in scores.iter_best(
        criterion, [*(ROW_COLUMN[kind] for kind in kinds), *(COPY_COLUMN[kind] for kind in kinds)]
    ):
        is_kept = threshold_filter.apply(best.score)
        found.append(best.rows.filter(arrow.array(is_kept)))
        values.append(best.score[is_kept])
        parts.append(np.full(len(values[-1]), best.part))
    table = arrow.concat_tables(found)
    return _Kept(
        np.concatenate(parts),
        table["index"].to_numpy(),
        np.concatenate(values),
        {kind: table[ROW_COLUMN[kind]].fill_null(NO_DUPLICATE).to_numpy() for kind in kinds},
        {kind: table[COPY_COLUMN[kind]] for kind in kinds},
    )


def group_equal_texts(texts: Any) -> np.ndarray:
    """Number the distinct texts of a column, ignoring case and outer white space.

    Args:
        texts: A pyarrow column of n texts.

    Returns:
        int64 (n,): equal integers for equal texts; NO_DUPLICATE for nulls.
    """
    compute = import_extra("pyarrow.compute", "data")
    long = texts.cast("large_string")  # texts may have more than 2 GiB together
    plain = compute.utf8_lower(compute.utf8_trim_whitespace(long)).combine_chunks()
    groups: np.ndarray = plain.dictionary_encode().indices.fill_null(NO_DUPLICATE).to_numpy().astype(np.int64)
    return groups


def _load_means(
    embeddings: EmbeddingDataset, parts: np.ndarray, rows: np.ndarray, order: np.ndarray, temp_folder: Path
) -> np.ndarray:
    """float32 (n, D) by rank, of unit length; zero where there is no row, so that nothing is similar to it."""
    shape = (len(order), embeddings.header.dim)
    if not len(order):
        return np.zeros(shape, np.float32)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    with TemporaryFile(dir=temp_folder) as file:
        means = np.memmap(file, np.float32, "w+", shape=shape)
    for part, items in _group_by_part(parts):
        items = items[rows[items] != NO_DUPLICATE]
        block = column_to_tensor(embeddings.read_part(part, ["mean"])["mean"])[rows[items]]
        means[rank[items]] = torch.nn.functional.normalize(block, dim=1).numpy()
    return means


def _group_by_part(parts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Items of each part; `parts` is increasing."""
    unique, starts = np.unique(parts, return_index=True)
    for part, items in zip(unique, np.split(np.arange(len(parts)), starts[1:]), strict=True):
        yield int(part), items
