"""Pool perplexity: the effective number of items of a pool that fit an embedding, by its mean or the trained match."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from prolip.gaussian import Gaussian, check_gaussian, compute_dtype
from prolip.measures.match import LogitParameters

BLOCK_PAIRS = 2**22
"""Pairs of a query and an item of the pool that are in memory at one time: 32 MiB of logits in float64."""


def log_pool_perplexity(
    queries: Gaussian, pool: Gaussian, scale: float, *, k: float = 1.0, exclude: Tensor | None = None
) -> Tensor:
    """Entropy, in nats, of softmax(k scale mu . x) over the items x of a pool.

    A caption that fits many images of a pool has a high entropy, whatever the model's variances are: this needs means
    only, so it also works for CLIP and SigLIP. One matrix product in blocks; memory doesn't grow with N x M.

    Args:
        queries: (N, D); only the means are used.
        pool: (M, D), of the other modality; only the means are used.
        scale: Scale of the model's logits, not its logarithm, at least 0.
        k: Factor of the scale, at least 0. Small values count more items as fitting; 0 counts all.
        exclude: Row of the pool that each query leaves out (its own pair), int64 (N,); -1: none. None: none for all.

    Returns:
        float64 (N,), from 0 to ln M (M - 1 where an item is excluded).
    """
    _check_inputs(queries, pool, {"scale": scale, "k": k}, exclude)
    dtype = compute_dtype(queries.mean, pool.mean)
    items = pool.mean.to(dtype)

    def compute_logits(rows: Tensor) -> Tensor:
        return k * scale * (queries.mean[rows].to(dtype) @ items.mT).double()

    return _entropy_in_blocks(queries, len(pool), compute_logits, exclude)


def log_match_perplexity(
    queries: Gaussian,
    pool: Gaussian,
    parameters: LogitParameters,
    *,
    k: float = 1.0,
    exclude: Tensor | None = None,
) -> Tensor:
    """Entropy, in nats, of the softmax over a pool of k times the logits of a match that the model was trained with.

    The logit of a sigmoid loss estimates the pointwise mutual information, so that with k = 1 and a pool drawn as in
    training the softmax estimates p(item | query). Unlike `log_pool_perplexity` it depends on variances: those of the
    pool, and of a likelihood model those of the queries too.

    Args:
        queries: (N, D).
        pool: (M, D), of the other modality.
        parameters: Of the model's logits.
        k: Factor of the logits, at least 0.
        exclude: Row of the pool that each query leaves out (its own pair), int64 (N,); -1: none. None: none for all.

    Returns:
        float64 (N,), from 0 to ln M (M - 1 where an item is excluded).
    """
    _check_inputs(queries, pool, {"k": k}, exclude)

    def compute_logits(rows: Tensor) -> Tensor:
        return k * parameters.logits_matrix(queries[rows], pool).double()

    return _entropy_in_blocks(queries, len(pool), compute_logits, exclude)


def pool_perplexity(
    queries: Gaussian, pool: Gaussian, scale: float, *, k: float = 1.0, exclude: Tensor | None = None
) -> Tensor:
    """exp of `log_pool_perplexity`: the effective number of items of the pool that fit each query.

    Args:
        queries: (N, D); only the means are used.
        pool: (M, D), of the other modality; only the means are used.
        scale: Scale of the model's logits, not its logarithm, at least 0.
        k: Factor of the scale, at least 0.
        exclude: Row of the pool that each query leaves out (its own pair), int64 (N,); -1: none. None: none for all.

    Returns:
        float64 (N,), from 1 (one item fits) to M (all fit equally).
    """
    return log_pool_perplexity(queries, pool, scale, k=k, exclude=exclude).exp()


def _entropy_in_blocks(
    queries: Gaussian, num_items: int, compute_logits: Callable[[Tensor], Tensor], exclude: Tensor | None
) -> Tensor:
    """Entropy of the softmax of each query's logits, float64 (N,), some rows at a time.

    compute_logits: rows of the queries, int64 (B,) -> their logits, float64 (B, num_items).
    """
    device = queries.mean.device
    entropy = torch.empty(len(queries), dtype=torch.float64, device=device)
    for rows in torch.arange(len(queries), device=device).split(max(1, BLOCK_PAIRS // num_items)):
        with torch.autocast(device.type, enabled=False):
            logits = compute_logits(rows)
        if exclude is not None:
            own = exclude[rows]
            left_out = (own >= 0).nonzero()[:, 0]
            logits[left_out, own[left_out]] = -torch.inf
        entropy[rows] = _softmax_entropy(logits)
    return entropy


def _softmax_entropy(logits: Tensor) -> Tensor:
    """Entropy, in nats, of the softmax over each row of logits (B, M): (B,). Logits of -inf have probability 0."""
    p = logits.softmax(1)
    entropy: Tensor = -torch.special.xlogy(p, p).sum(1)
    return entropy.clamp_min(0.0)


def _check_inputs(
    queries: Gaussian, pool: Gaussian, factors: dict[str, float], exclude: Tensor | None
) -> None:
    """Raise TypeError or ValueError unless shapes agree, the pool isn't empty, and the factors, by name, are valid."""
    for z, name in ((queries, "queries"), (pool, "pool")):
        check_gaussian(z, name)
        if z.mean.ndim != 2:
            raise ValueError(f"{name} must be (rows, D), not {tuple(z.shape)}")
    if queries.dim != pool.dim:
        raise ValueError(
            f"queries have {queries.dim} dimensions, the pool has {pool.dim}. Embed both with one model"
        )
    for name, value in factors.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
    if exclude is not None:
        _check_excluded(exclude, len(queries), len(pool))
    if len(pool) < (1 if exclude is None else 2):
        raise ValueError(f"the pool has {len(pool)} items; at least one must remain for every query")


def _check_excluded(exclude: Tensor, num_queries: int, num_items: int) -> None:
    """Raise ValueError unless `exclude` is a row of the pool, or -1, for each query."""
    if tuple(exclude.shape) != (num_queries,) or exclude.dtype != torch.int64:
        raise ValueError(
            f"exclude must be int64 ({num_queries},), one row per query, not {exclude.dtype} {tuple(exclude.shape)}"
        )
    if num_queries and not (int(exclude.min()) >= -1 and int(exclude.max()) < num_items):
        raise ValueError(f"exclude must be rows of a pool of {num_items}, or -1, not {exclude.aminmax()}")
