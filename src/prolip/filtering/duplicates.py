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
from typing import Any

import numpy as np
import torch

from prolip.choices import DuplicateKind
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

ROW_COLUMN = {"images": "image_row", "captions": "text_row"}
"""The column of the scores with the row in the part of the embeddings, by what is compared."""
COPY_COLUMN = {"images": "pixel_digest", "captions": "caption"}
"""The column of the scores that exact copies have in common, by what is compared."""
NO_ROW = -1
"""In place of a row: the sample has no image, or no text."""


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Which of the n pairs above the threshold are near-duplicates. Pairs are in the order of rank, the best first.

    Attributes:
        part: int64 (n,): part of the embeddings that holds the sample.
        index: int64 (n,): index of the sample.
        better: int64 (n,): rank of the better pair that it duplicates; NO_DUPLICATE (-1): it is kept.
        recall: By what was compared (images, captions): the fraction of similar pairs that clusters find, None if no
            similar pair was sampled. Empty if all pairs were compared.
    """

    part: np.ndarray
    index: np.ndarray
    better: np.ndarray
    recall: dict[str, float | None]

    @property
    def count(self) -> int:
        """Number of pairs that are dropped as duplicates."""
        return int((self.better != NO_DUPLICATE).sum())

    def dropped_in_part(self, part: int) -> np.ndarray:
        """Find the samples of a part that are dropped as duplicates.

        Args:
            part: Index of the part.

        Returns:
            int64 (k,): their indices, in the order of ranks.
        """
        parts, indices = self._dropped
        first, last = np.searchsorted(parts, [part, part + 1])
        return indices[first:last]

    @cached_property
    def _dropped(self) -> tuple[np.ndarray, np.ndarray]:
        """Parts and sample indices of all dropped pairs, (k,) each, sorted by part."""
        ranks = np.flatnonzero(self.better != NO_DUPLICATE)
        ranks = ranks[np.argsort(self.part[ranks], kind="stable")]
        return self.part[ranks], self.index[ranks]

    def list_pairs(self, max_pairs: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """List the dropped pairs with the best ranks, and what they duplicate.

        Args:
            max_pairs: How many to list at most.

        Returns:
            For each, (part, sample index) of the dropped pair, and of the better one that is kept.
        """
        ranks = np.flatnonzero(self.better != NO_DUPLICATE)[:max_pairs]
        return [(self._locate(rank), self._locate(self.better[rank])) for rank in ranks]

    def _locate(self, rank: int) -> tuple[int, int]:
        """(part, sample index) of the pair with a rank."""
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
        threshold: Pairs above it are compared.
        kind: What is compared: images, captions, or both.
        min_cosine: Smallest cosine of the means of near-duplicates.
        temp_folder: Folder for an unnamed temporary file, with room for the means of the pairs above the threshold.

    Returns:
        For every pair above the threshold whether it is kept, or which better pair it duplicates.
    """
    kinds = ("images", "captions") if kind == "both" else (kind,)
    kept = _read_kept_pairs(scores, criterion, threshold, kinds)
    # ~ reverses the order: the largest score first, equal ones in data order
    order = np.argsort(~to_sort_keys(kept.score), kind="stable")
    relations: list[SimilarityRelation] = []
    recall: dict[str, float | None] = {}
    for compared in kinds:
        # exact copies first: they are found without clusters, however many there are
        relations.append(GroupSimilarity(group_equal_texts(kept.copy_keys[compared])[order]))
        means = _load_means(embeddings, kept.part, kept.rows[compared], order, temp_folder)
        if len(order) <= MAX_EXACT:
            groups = [np.arange(len(order))]  # one group: all are compared with all
        else:
            clusters = assign_clusters(means)
            groups = group_by_cluster(clusters)
            recall[compared] = measure_cluster_recall(clusters, means, min_cosine)
        relations.append(CosineSimilarityTest(means, min_cosine, groups))
    return NearDuplicates(kept.part[order], kept.index[order], remove_greedily(len(order), relations), recall)


@dataclass(frozen=True, eq=False)
class _KeptPairs:
    """The n pairs above the threshold, in data order.

    Attributes:
        part: int64 (n,): part of the embeddings.
        index: int64 (n,): index of the sample.
        score: float32 (n,), larger is better.
        rows: By what is compared, int64 (n,): row of the image or text in its part; NO_ROW (-1) if there is none.
        copy_keys: By what is compared, a pyarrow column of n texts that are equal for exact copies (`COPY_COLUMN`).
    """

    part: np.ndarray
    index: np.ndarray
    score: np.ndarray
    rows: dict[str, np.ndarray]
    copy_keys: dict[str, Any]


def _read_kept_pairs(
    scores: ScoreCache, criterion: FilterScore, threshold: Threshold, kinds: tuple[str, ...]
) -> _KeptPairs:
    """Read the pairs above the threshold, of all parts, from the cached scores.

    `kinds`: what is compared, images, captions or both; only columns that these need are read.
    """
    arrow = import_extra("pyarrow", "data")
    threshold_filter = ThresholdFilter(threshold)
    tables, kept_scores, parts = [], [], []
    for best in scores.iter_best(
        criterion, [*(ROW_COLUMN[kind] for kind in kinds), *(COPY_COLUMN[kind] for kind in kinds)]
    ):
        is_kept = threshold_filter.apply(best.score)
        tables.append(best.rows.filter(arrow.array(is_kept)))
        kept_scores.append(best.score[is_kept])
        parts.append(np.full(len(kept_scores[-1]), best.part))
    table = arrow.concat_tables(tables)
    return _KeptPairs(
        np.concatenate(parts),
        table["index"].to_numpy(),
        np.concatenate(kept_scores),
        {kind: table[ROW_COLUMN[kind]].fill_null(NO_ROW).to_numpy() for kind in kinds},
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
    large_texts = texts.cast("large_string")  # texts may have more than 2 GiB together
    normalized = compute.utf8_lower(compute.utf8_trim_whitespace(large_texts)).combine_chunks()
    groups: np.ndarray = (
        normalized.dictionary_encode().indices.fill_null(NO_DUPLICATE).to_numpy().astype(np.int64)
    )
    return groups


def _load_means(
    embeddings: EmbeddingDataset, parts: np.ndarray, rows: np.ndarray, order: np.ndarray, temp_folder: Path
) -> np.ndarray:
    """Read the means of n pairs into a memory-mapped temporary file.

    Args:
        embeddings: What `prolip embed` wrote.
        parts: int64 (n,), increasing: part of each pair.
        rows: int64 (n,): row in the part; NO_ROW (-1): none.
        order: int64 (n,): the pairs by rank, the best first.
        temp_folder: Folder for the temporary file, which has no name.

    Returns:
        float32 (n, D) by rank, of unit length; zero where there is no row, so that nothing is similar to it.
    """
    shape = (len(order), embeddings.header.dim)
    if not len(order):
        return np.zeros(shape, np.float32)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    with TemporaryFile(dir=temp_folder) as file:
        means = np.memmap(file, np.float32, "w+", shape=shape)  # outlives the closed file
    for part, items in _group_by_part(parts):
        items = items[rows[items] != NO_ROW]
        block = column_to_tensor(embeddings.read_part(part, ["mean"])["mean"])[rows[items]]
        means[rank[items]] = torch.nn.functional.normalize(block, dim=1).numpy()
    return means


def _group_by_part(parts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each part with the positions of its items in `parts` (n,), which is increasing."""
    unique, starts = np.unique(parts, return_index=True)
    for part, items in zip(unique, np.split(np.arange(len(parts)), starts[1:]), strict=True):
        yield int(part), items
