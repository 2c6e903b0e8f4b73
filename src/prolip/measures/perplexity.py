"""Pool perplexity: the effective number of items of a pool that fit an embedding, by its mean or the trained match."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from prolip.gaussian import Gaussian, MeanTrace, check_gaussian, compute_dtype
from prolip.measures.match import LogitParameters

BLOCK_PAIRS = 2**22
"""Pairs of a query and an item of the pool that are in memory at one time: 32 MiB of logits in float64."""
BLOCK_ITEMS = 2**14
"""Items of the pool that are compared at a time."""


def log_perplexity(
    queries: Gaussian | MeanTrace,
    pool: Gaussian | Iterable[MeanTrace],
    logits: float | LogitParameters,
    *,
    k: float = 1.0,
    exclude: Tensor | None = None,
) -> Tensor:
    """Entropy, in nats, of the softmax of a query's logits over the items of a pool; exp of it: how many items fit.

    A caption that fits many images has a high entropy. With a number for `logits`, the logit of an item x is
    k scale mu . x: it needs means only, so it also works for CLIP and SigLIP, and it is a control of learned
    variances. With `LogitParameters` it is k times the logit of the match that the model was trained with. Such a logit
    estimates the pointwise mutual information, so that with k = 1 and a pool drawn as in training the softmax
    estimates p(item | query); it depends on the variances of the pool, and of a likelihood model also of the queries.

    The pool is read once, in blocks; memory grows neither with the pool nor with the pairs.

    Args:
        queries: (N, D).
        pool: (M, D), of the other modality; or its parts, one after the other.
        logits: Scale of the logits by the means alone (not its logarithm), at least 0; or what the model was trained
            with, `ProLIP.logit_parameters`.
        k: Factor of the logits, at least 0. Small values count more items as fitting; 0 counts all.
        exclude: Row of the pool that each query leaves out (its own pair), int64 (N,); -1: none. None: none for all.

    Returns:
        float64 (N,), from 0 to ln M (M - 1 where an item is excluded).

    Raises:
        ValueError: Shapes or values are wrong, or no item remains for a query.
    """
    return sum_softmax(queries, pool, logits, k=k, exclude=exclude).entropy.clamp_min(0.0)


def sum_softmax(
    queries: Gaussian | MeanTrace,
    pool: Gaussian | Iterable[MeanTrace],
    logits: float | LogitParameters,
    *,
    k: float = 1.0,
    exclude: Tensor | None = None,
) -> RunningEntropy:
    """Read the pool of `log_perplexity` once, and sum up the softmax of each query.

    Args:
        queries: As for `log_perplexity`.
        pool: As for `log_perplexity`.
        logits: As for `log_perplexity`.
        k: As for `log_perplexity`.
        exclude: As for `log_perplexity`.

    Returns:
        The entropies, and the logarithms of the sums of exp(logit).

    Raises:
        ValueError: As `log_perplexity`.
    """
    asked = _to_mean_trace(queries, "queries")
    _check_options(len(asked.mean), logits, k, exclude)
    parts = [_to_mean_trace(pool, "pool")] if isinstance(pool, Gaussian) else pool
    num_queries, dim = asked.mean.shape
    running = RunningEntropy(num_queries, asked.mean.device)
    first = 0  # row of the block's first item in the pool
    for block in _split_blocks(parts):
        if block.mean.ndim != 2 or block.mean.shape[1] != dim:
            raise ValueError(
                f"queries have {dim} dimensions, the pool has {block.mean.shape[-1]}. Embed both with one model"
            )
        for rows in _split_rows(num_queries, len(block.mean)):
            values = k * compute_logits(MeanTrace(asked.mean[rows], asked.uncertainty[rows]), block, logits)
            if exclude is not None:
                _remove_excluded(values, exclude[rows] - first)
            running.add(rows, values)
        first += len(block.mean)
    if exclude is not None and len(exclude) and int(exclude.max()) >= first:
        raise ValueError(f"exclude must be rows of a pool of {first}, or -1, not {int(exclude.max())}")
    if bool(running.log_sum.isneginf().any()) or not first:
        raise ValueError(f"the pool has {first} items; at least one must remain for every query")
    return running


def compute_logits(queries: MeanTrace, items: MeanTrace, logits: float | LogitParameters) -> Tensor:
    """Compute the logits of all pairs, by the means alone or by the trained match.

    Args:
        queries: (N, D).
        items: (M, D).
        logits: As for `log_perplexity`.

    Returns:
        float64 (N, M).
    """
    with torch.autocast(queries.mean.device.type, enabled=False):
        if isinstance(logits, LogitParameters):
            return logits.logits_matrix(queries, items).double()
        dtype = compute_dtype(queries.mean, items.mean)
        return logits * (queries.mean.to(dtype) @ items.mean.to(dtype).mT).double()


def estimate_entropy(exact: Tensor, sampled: Tensor, num_others: int) -> tuple[float, float]:
    """Estimate the entropy of a softmax of which some logits are known, and some of the others were drawn.

    Each drawn logit stands for as many as are left. One more item of logit l changes the entropy by
    exp(l) (1 - l + E[logit]) / Z, and the spread of that among the drawn ones gives the error (delta method).

    Args:
        exact: Known logits, float64 (K,), K at least 1.
        sampled: Logits that were drawn at random, without replacement, from the others, float64 (S,).
        num_others: Number of others, at least S; at least one is drawn if it isn't 0.

    Returns:
        The entropy in nats, at least 0, and its standard error: 0 if all others were drawn.
    """
    count = len(sampled)
    if not count:
        if num_others:
            raise ValueError(f"{num_others} items are left, but none of them was drawn: draw at least one")
        return float(softmax_entropy(exact[None])[0]), 0.0
    weight = num_others / count
    running = RunningEntropy(1, exact.device)
    running.add(slice(0, 1), exact[None])
    running.add(slice(0, 1), sampled[None], math.log(weight))
    log_z, entropy = float(running.log_sum[0]), float(running.entropy[0])
    change = (sampled - log_z).exp() * (1 - sampled + log_z - entropy)  # E[logit] = log Z - entropy
    spread = float(change.std()) if count > 1 else math.inf
    remaining = 1 - count / num_others
    return max(entropy, 0.0), 0.0 if remaining <= 0 else weight * spread * math.sqrt(count * remaining)


class RunningEntropy:
    """Entropy of softmaxes whose logits come in blocks.

    Of two blocks with the sums of exponentials Z1 and Z2, the softmax over both has probability w = Z1 / (Z1 + Z2) for
    the first, and its entropy is w H1 + (1 - w) H2 + H(w). Unlike log Z - E[logit] this cancels no large numbers.

    Attributes:
        log_sum: ln of the sum of exponentials so far, float64 (N,); -inf before the first block.
        entropy: Entropy so far in nats, float64 (N,).
    """

    def __init__(self, num_rows: int, device: torch.device | None = None) -> None:
        """Start without logits for `num_rows` softmaxes."""
        self.log_sum = torch.full((num_rows,), -torch.inf, dtype=torch.float64, device=device)
        self.entropy = torch.zeros(num_rows, dtype=torch.float64, device=device)

    def add(self, rows: slice, logits: Tensor, log_weight: float = 0.0) -> None:
        """Add a block of logits.

        Args:
            rows: Softmaxes that they belong to, n of them.
            logits: float64 (n, B). -inf has probability 0.
            log_weight: ln of the number of items that each logit stands for.
        """
        log_sum = logits.logsumexp(1)
        is_empty = log_sum.isneginf()  # all of them excluded: the softmax is not defined
        entropy = torch.where(is_empty, 0.0, softmax_entropy(logits) + log_weight)
        log_sum, old = log_sum + log_weight, self.log_sum[rows]
        total = torch.logaddexp(old, log_sum)
        known = ~total.isneginf()
        before, new = (torch.where(known, (value - total).exp(), 0.0) for value in (old, log_sum))
        mixing = torch.special.entr(before) + torch.special.entr(new)
        self.entropy[rows] = before * self.entropy[rows] + new * entropy + mixing
        self.log_sum[rows] = total


def softmax_entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax over each row of logits.

    Args:
        logits: (B, M). -inf has probability 0.

    Returns:
        (B,), in nats.
    """
    entropy: Tensor = torch.special.entr(logits.softmax(1)).sum(1)
    return entropy


def _to_mean_trace(z: Gaussian | MeanTrace, name: str) -> MeanTrace:
    """Means and traces of (N, D), after a check; the values of a `MeanTrace` come from disk, already checked."""
    result = z if isinstance(z, MeanTrace) else check_gaussian(z, name).mean_trace()
    if result.mean.ndim != 2:
        raise ValueError(f"{name} must be (rows, D), not {tuple(result.mean.shape)}")
    return result


def _split_blocks(parts: Iterable[MeanTrace]) -> Iterator[MeanTrace]:
    """Split parts of a pool into blocks of at most BLOCK_ITEMS; empty parts have none."""
    for part in parts:
        for first in range(0, len(part.mean), BLOCK_ITEMS):
            rows = slice(first, first + BLOCK_ITEMS)
            yield MeanTrace(part.mean[rows], part.uncertainty[rows])


def _split_rows(num_queries: int, num_items: int) -> Iterator[slice]:
    """Slices of queries such that their pairs with a block of items are at most BLOCK_PAIRS."""
    count = max(1, BLOCK_PAIRS // num_items)
    return (slice(first, min(first + count, num_queries)) for first in range(0, num_queries, count))


def _remove_excluded(logits: Tensor, excluded: Tensor) -> None:
    """Set the excluded logits of a block (n, B) to -inf. excluded: column of each row, outside of 0..B-1: none."""
    inside = ((excluded >= 0) & (excluded < logits.shape[1])).nonzero()[:, 0]
    logits[inside, excluded[inside]] = -torch.inf


def _check_options(
    num_queries: int, logits: float | LogitParameters, k: float, exclude: Tensor | None
) -> None:
    """Raise ValueError unless the factors and `exclude` of N queries are valid."""
    scale = logits.scale if isinstance(logits, LogitParameters) else logits
    for name, value in (("the scale of the logits", scale), ("k", k)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
    if exclude is None:
        return
    if tuple(exclude.shape) != (num_queries,) or exclude.dtype != torch.int64:
        raise ValueError(
            f"exclude must be int64 ({num_queries},), one row per query, not {exclude.dtype} {tuple(exclude.shape)}"
        )
    if len(exclude) and int(exclude.min()) < -1:
        raise ValueError(f"exclude must be rows of the pool, or -1, not {int(exclude.min())}")
