"""Vectors whose squared L2 distance is CSD up to a constant, so that any vector database ranks by CSD.

For a query q, CSD(q, i) = |mu_q - mu_i|^2 + tr_q + tr_i. An item is stored as [mu_i, sqrt(tr_i), 0 ...], a query
is [mu_q, 0, 0 ...]; their squared L2 distance is |mu_q - mu_i|^2 + tr_i = CSD(q, i) - tr_q, and tr_q is the
same for all items. Their inner product is mu_q . mu_i: means have unit length, so that one vector also serves the
cosine.
"""

from __future__ import annotations

import numpy as np

SIZE_MULTIPLE = 16
"""Vectors are padded with zeros to a multiple of this size: the indexes IVF_PQ and IVF_RQ require it."""


def vector_size(dim: int) -> int:
    """Compute the size of a vector for a model of D dimensions.

    Args:
        dim: D.

    Returns:
        The smallest size that is allowed, at least D + 1.
    """
    return -(-(dim + 1) // SIZE_MULTIPLE) * SIZE_MULTIPLE


def make_item_vectors(mean: np.ndarray, uncertainty: np.ndarray) -> np.ndarray:
    """Make the vectors [mu, sqrt(tr), 0 ...] of items.

    Args:
        mean: (n, D).
        uncertainty: (n,), traces.

    Returns:
        float32 (n, vector_size).
    """
    vectors = make_query_vectors(mean)
    vectors[:, mean.shape[1]] = np.sqrt(uncertainty)
    return vectors


def make_query_vectors(mean: np.ndarray) -> np.ndarray:
    """Make the vectors [mu, 0, 0 ...] of queries.

    Args:
        mean: (n, D).

    Returns:
        float32 (n, vector_size).
    """
    vectors = np.zeros((len(mean), vector_size(mean.shape[1])), dtype=np.float32)
    vectors[:, : mean.shape[1]] = mean
    return vectors


def extract_means(vectors: np.ndarray, dim: int) -> np.ndarray:
    """Extract the means of stored or query vectors.

    Args:
        vectors: (n, vector_size).
        dim: D.

    Returns:
        (n, D), a view.
    """
    return vectors[:, :dim]
