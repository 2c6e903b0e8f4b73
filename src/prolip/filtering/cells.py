"""Cells of neighbours, so that not all pairs need be compared; and what they miss, measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

HOMES = 3
"""Cells that an item belongs to: two items that are alike may lie on either side of a border."""
BLOCK = 8192
SAMPLED = 1000
"""Items whose neighbours are all looked for, to measure what cells miss."""


def homes_of(means: np.ndarray) -> np.ndarray:
    """int32 (n, HOMES): the cells of each item. means: float32 (n, D), of unit length, n >= 1; may lie on disk.

    The centres are about sqrt(n) of the items themselves, drawn at random: dense regions get more.
    """
    count = math.isqrt(len(means) - 1) + 1
    centres = np.sort(np.random.default_rng(0).choice(len(means), count, replace=False))
    middle = torch.from_numpy(means[centres])
    homes = np.empty((len(means), min(HOMES, count)), np.int32)
    for rows, block in _blocks(means):
        homes[rows] = (block @ middle.mT).topk(homes.shape[1], dim=1).indices.numpy()
    return homes


def members_of(homes: np.ndarray) -> list[np.ndarray]:
    """The items of each cell, increasing."""
    order = np.argsort(homes.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(homes.ravel()))
    return np.split(order // homes.shape[1], ends[:-1])


def recall_of(homes: np.ndarray, means: np.ndarray, least: float) -> float | None:
    """The share of pairs with a cosine of at least `least` that share a cell, over the neighbours of a sample of items;
    None if they have none."""
    rows = np.sort(np.random.default_rng(1).choice(len(means), min(SAMPLED, len(means)), replace=False))
    left = torch.from_numpy(means[rows])
    pairs = found = 0
    for columns, block in _blocks(means):
        first, second = (left @ block.mT >= least).numpy().nonzero()
        a, b = rows[first], second + columns.start
        a, b = a[a != b], b[a != b]
        pairs += len(a)
        found += int((homes[a][:, :, None] == homes[b][:, None]).any((1, 2)).sum())
    return found / pairs if pairs else None


def _blocks(means: np.ndarray) -> Iterator[tuple[slice, torch.Tensor]]:
    for first in range(0, len(means), BLOCK):
        rows = slice(first, min(first + BLOCK, len(means)))
        yield rows, torch.from_numpy(np.array(means[rows]))
