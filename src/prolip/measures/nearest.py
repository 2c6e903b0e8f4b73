"""Exact nearest neighbors, by matrix products in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_positive_int
from prolip.choices import SimilarityMetric as SimilarityMetric  # noqa: PLC0414
from prolip.gaussian import Gaussian, MeanTrace, check_gaussian, compute_dtype
from prolip.measures.match import LogitParameters
from prolip.progress import progress_bar

RankingMetric = SimilarityMetric | LogitParameters
"""What ranks items: csd, cosine, or the logit of a match with these parameters (of an image and a text, in either
order). Without gamma that logit is affine in CSD, or in the cosine, and its order is exactly theirs."""

BLOCK = (2048, 16_384)
"""Queries and items that are compared at a time: 128 MiB of similarities."""
PMI_BLOCK = (256, 4096)
"""The same for the logits of a likelihood model, which take a dozen intermediate values per pair."""


def similarity(queries: Gaussian, items: Gaussian, metric: RankingMetric = "csd") -> Tensor:
    """Similarity of all pairs; larger is nearer.

    csd: mu_q . mu_i - (|mu_q|^2 + |mu_i|^2 - 2 + tr_q + tr_i) / 2 = 1 - CSD / 2, the similarity in PPCL's logits
    (Eq. 2).

    Args:
        queries: (Q, D).
        items: (M, D).
        metric: csd, cosine of the means, or the parameters of a match logit, see `RankingMetric`.

    Returns:
        (Q, M).
    """
    _check_inputs(queries, items, metric)
    if isinstance(metric, LogitParameters):
        if metric.similarity_metric is not None:
            return _to_logits(similarity(queries, items, metric.similarity_metric), metric)
        score = partial(_score_pmi, queries.mean_trace(), items.mean_trace(), metric)
        rows = max(1, PMI_BLOCK[0] * PMI_BLOCK[1] // len(items))
        starts = range(0, max(1, len(queries)), rows)
        return torch.cat([score(slice(first, first + rows), slice(None)) for first in starts])
    return (
        _similarity_vectors(queries, metric) @ _similarity_vectors(items, metric).mT
        + _similarity_offsets(queries, metric)[:, None]
        + _similarity_offsets(items, metric)
    )


def find_nearest(
    queries: Gaussian,
    items: Gaussian | MeanTrace,
    k: int,
    *,
    metric: RankingMetric = "csd",
    progress: bool | None = False,
) -> tuple[Tensor, Tensor]:
    """The k nearest items of each query. Ties are ordered by index.

    Memory: one block, and 12 k bytes per query; it doesn't grow with Q x M.

    Args:
        queries: (Q, D).
        items: (M, D).
        k: Items per query; all items if there are fewer.
        metric: csd, cosine of the means, or the parameters of a match logit, see `RankingMetric`.
        progress: A progress bar on stderr; None: if it is a terminal.

    Returns:
        Similarities (Q, k), best first, and indices (Q, k).
    """
    _check_inputs(queries, items, metric)
    require_positive_int(k, "k", maximum=2**31)
    if isinstance(metric, LogitParameters) and metric.similarity_metric is not None:
        values, indices = find_nearest(queries, items, k, metric=metric.similarity_metric, progress=progress)
        return _to_logits(values, metric), indices
    num_queries, num_items = len(queries), len(items.mean)
    k = min(k, num_items)
    score, block = _make_scorer(queries, items, metric)
    dtype = compute_dtype(queries.mean, items.mean)
    values = torch.empty((num_queries, k), dtype=dtype, device=queries.device)
    indices = torch.empty((num_queries, k), dtype=torch.int64, device=queries.device)
    with progress_bar("searching", num_queries, "queries", progress) as advance:
        for first_query in range(0, num_queries, block[0]):
            rows = slice(first_query, min(first_query + block[0], num_queries))
            values[rows], indices[rows] = stable_topk_blocks(partial(score, rows), num_items, block[1], k)
            advance(rows.stop - rows.start)
    # a query's own offset changes none of its ranks, so that it is added last
    return values + _similarity_offsets(queries, metric)[:, None], indices


Scorer = Callable[[slice, slice], Tensor]
"""Slices of q queries and n items -> similarities (q, n), without the offsets of the queries."""


def _make_scorer(
    queries: Gaussian, items: Gaussian | MeanTrace, metric: RankingMetric
) -> tuple[Scorer, tuple[int, int]]:
    """The scorer of a metric, and how many queries and items it should get at a time."""
    if isinstance(metric, LogitParameters):
        traces = MeanTrace(items.mean, items.uncertainty)
        return partial(_score_pmi, queries.mean_trace(), traces, metric), PMI_BLOCK
    vectors = _similarity_vectors(queries, metric), _similarity_vectors(items, metric)
    return partial(_score_product, *vectors, _similarity_offsets(items, metric)), BLOCK


def _score_product(
    query_vectors: Tensor, item_vectors: Tensor, item_offsets: Tensor, rows: slice, block: slice
) -> Tensor:
    """`Scorer` of products of vectors (Q, D) and (M, D) with offsets (M,)."""
    return torch.addmm(item_offsets[block], query_vectors[rows], item_vectors[block].mT)


def _score_pmi(
    queries: MeanTrace, items: MeanTrace, metric: LogitParameters, rows: slice, block: slice
) -> Tensor:
    """`Scorer` of the logits of a likelihood model."""
    query_block, item_block = (
        MeanTrace(z.mean[part], z.uncertainty[part]) for z, part in ((queries, rows), (items, block))
    )
    return metric.logits_matrix(query_block, item_block)


def _to_logits(similarities: Tensor, parameters: LogitParameters) -> Tensor:
    """Logits scale x similarity + bias, from similarities of any shape: 1 - CSD / 2 of PPCL, or cosines."""
    return parameters.scale * similarities + (parameters.bias or 0.0)


def stable_topk_blocks(
    score_block: Callable[[slice], Tensor], num_columns: int, block_size: int, k: int
) -> tuple[Tensor, Tensor]:
    """`stable_topk` of scores that are computed in blocks of columns.

    Args:
        score_block: Slice of columns -> scores (rows, length of the slice). The last slice may end after num_columns.
        num_columns: Number of columns of all blocks together.
        block_size: Columns per block.
        k: Scores per row.

    Returns:
        As `stable_topk`.
    """
    values, indices = stable_topk(score_block(slice(0, block_size)), k)
    for first in range(block_size, num_columns, block_size):
        new_values, new_indices = stable_topk(score_block(slice(first, first + block_size)), k)
        all_values = torch.cat([values, new_values], dim=1)
        all_indices = torch.cat([indices, new_indices + first], dim=1)
        # the sort is stable: of equal values, those of earlier blocks stay first
        all_values, order = all_values.sort(dim=1, descending=True, stable=True)
        values, indices = all_values[:, :k], all_indices.gather(1, order[:, :k])
    return values, indices


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row; ties are ordered by column.

    torch.topk doesn't define the order of ties: rows in which the k-th value is tied beyond k are sorted.

    Args:
        scores: (rows, columns).
        k: Scores per row; all columns if there are fewer.

    Returns:
        Values (rows, k), largest first, and column indices (rows, k).
    """
    k = min(k, scores.shape[1])
    values, indices = scores.topk(k, dim=1)
    tied = (scores >= values[:, -1:]).sum(1) > k  # rows with more candidates than places
    indices = indices.sort(dim=1)[0]  # then a stable sort by value keeps the order of equal ones
    values, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    indices = indices.gather(1, order)
    if bool(tied.any()):
        values[tied], indices[tied] = (
            result[:, :k] for result in scores[tied].sort(dim=1, descending=True, stable=True)
        )
    return values, indices


def _check_inputs(queries: Gaussian, items: Gaussian | MeanTrace, metric: RankingMetric) -> None:
    """Check queries (Q, D) and items (M, D), M at least 1; raises TypeError or ValueError.

    The values of a `MeanTrace` are not checked again: it comes from disk, block by block, already checked.
    """
    if not isinstance(metric, LogitParameters):
        require_choice(metric, get_args(SimilarityMetric), "metric")
    check_gaussian(queries, "queries")
    if not isinstance(items, MeanTrace):
        check_gaussian(items, "items")
    for mean, name in ((queries.mean, "queries"), (items.mean, "items")):
        if mean.ndim != 2:
            raise ValueError(f"{name} must be (rows, D), not {tuple(mean.shape)}")
    if queries.dim != items.mean.shape[1]:
        raise ValueError(
            f"queries have {queries.dim} dimensions, items have {items.mean.shape[1]}: they are from different models. "
            "Embed both with one model."
        )
    if not len(items.mean):
        raise ValueError("items are empty: at least one is needed")


def _similarity_vectors(z: Gaussian | MeanTrace, metric: SimilarityMetric) -> Tensor:
    """Vectors (rows, D) whose products are similarities up to the offsets: the means, of unit length for cosine."""
    mean = z.mean.to(compute_dtype(z.mean))
    return torch.nn.functional.normalize(mean, dim=-1) if metric == "cosine" else mean


def _similarity_offsets(z: Gaussian | MeanTrace, metric: RankingMetric) -> Tensor:
    """The term of each row that is added to all its similarities, (rows,): (1 - |mean|^2 - trace)/2 for CSD, else 0."""
    mean = z.mean.to(compute_dtype(z.mean))
    if metric != "csd":
        return mean.new_zeros(len(mean))
    return 0.5 * (1.0 - mean.square().sum(-1) - z.uncertainty.to(mean.dtype))
