"""CSD as plain L2, so that any vector database ranks by it.

For a query q, CSD(q, i) = |mu_q - mu_i|^2 + tr_q + tr_i. What is stored of an item is [mu_i, sqrt(tr_i), 0 ...], what
is asked is [mu_q, 0, 0 ...]; their squared L2 distance is |mu_q - mu_i|^2 + tr_i = CSD(q, i) - tr_q, and tr_q is the
same for all items. Their inner product is mu_q . mu_i: means have unit length, so that one vector also serves the
cosine.
"""

from __future__ import annotations

import numpy as np

MULTIPLE = 16
"""Vectors are filled up with zeros to a multiple of this many numbers: a rule of the indexes IVF_PQ and IVF_RQ."""


def width(dim: int) -> int:
    """Numbers of a vector in a space of D dimensions: at least D + 1."""
    return -(-(dim + 1) // MULTIPLE) * MULTIPLE


def stored(mean: np.ndarray, uncertainty: np.ndarray) -> np.ndarray:
    """[mu, sqrt(tr), 0 ...] of items: mean (n, D), uncertainty (n,) -> float32 (n, width)."""
    vectors = asked(mean)
    vectors[:, mean.shape[1]] = np.sqrt(uncertainty)
    return vectors


def asked(mean: np.ndarray) -> np.ndarray:
    """[mu, 0, 0 ...] of queries: mean (n, D) -> float32 (n, width)."""
    vectors = np.zeros((len(mean), width(mean.shape[1])), dtype=np.float32)
    vectors[:, : mean.shape[1]] = mean
    return vectors


def mean_of(vectors: np.ndarray, dim: int) -> np.ndarray:
    """The way back from what is stored or asked: (n, width) -> (n, D)."""
    return vectors[:, :dim]
