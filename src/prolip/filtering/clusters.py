"""Overlapping clusters of embeddings, so that near-duplicates are found without comparing all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

CLUSTERS_PER_ITEM = 3
"""Clusters that an item belongs to: two similar items may lie on either side of a border."""
BLOCK = 8192
"""Items that are compared together."""
SAMPLED_ITEMS = 1000
"""Items whose similar pairs are all searched, to measure what clusters miss."""


def assign_clusters(means: np.ndarray) -> np.ndarray:
    """Assign every item to its nearest clusters.

    The centers are about sqrt(n) of the items themselves, drawn at random: dense regions get more.

    Args:
        means: float32 (n, D), of unit length, n >= 1; may be a memory map.

    Returns:
        int32 (n, CLUSTERS_PER_ITEM), or fewer columns if there are fewer clusters.
    """
    num_clusters = math.isqrt(len(means) - 1) + 1
    centers = np.sort(np.random.default_rng(0).choice(len(means), num_clusters, replace=False))
    center_means = torch.from_numpy(means[centers])
    clusters = np.empty((len(means), min(CLUSTERS_PER_ITEM, num_clusters)), np.int32)
    for rows, block in _iter_blocks(means):
        clusters[rows] = (block @ center_means.mT).topk(clusters.shape[1], dim=1).indices.numpy()
    return clusters


def group_by_cluster(clusters: np.ndarray) -> list[np.ndarray]:
    """List the items of each cluster.

    Args:
        clusters: int32 (n, c), of `assign_clusters`.

    Returns:
        For each cluster the indices of its items, increasing, int64.
    """
    # position p of the flattened array belongs to item p // c; stable sorting keeps items increasing in each cluster
    order = np.argsort(clusters.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(clusters.ravel()))
    return np.split(order // clusters.shape[1], ends[:-1])


def measure_cluster_recall(clusters: np.ndarray, means: np.ndarray, min_cosine: float) -> float | None:
    """Measure the fraction of similar pairs that share a cluster, over the pairs of a random sample of items.

    Args:
        clusters: int32 (n, c), of `assign_clusters`.
        means: float32 (n, D), of unit length.
        min_cosine: Smallest cosine of a similar pair.

    Returns:
        The fraction; None if the sample has no similar pair.
    """
    sample = np.sort(
        np.random.default_rng(1).choice(len(means), min(SAMPLED_ITEMS, len(means)), replace=False)
    )
    sample_means = torch.from_numpy(means[sample])
    num_similar = num_sharing = 0  # pairs
    for rows, block in _iter_blocks(means):
        sample_rows, block_rows = (sample_means @ block.mT >= min_cosine).numpy().nonzero()
        a, b = sample[sample_rows], block_rows + rows.start  # item numbers of both sides of each similar pair
        a, b = a[a != b], b[a != b]  # an item is not its own duplicate
        num_similar += len(a)
        # whether any cluster of a is any cluster of b
        num_sharing += int((clusters[a][:, :, None] == clusters[b][:, None]).any((1, 2)).sum())
    return num_sharing / num_similar if num_similar else None


def _iter_blocks(means: np.ndarray) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield consecutive rows of means (n, D), at most `BLOCK` at a time: their slice, and a copy as a tensor."""
    for first in range(0, len(means), BLOCK):
        rows = slice(first, min(first + BLOCK, len(means)))
        yield rows, torch.from_numpy(np.array(means[rows]))
