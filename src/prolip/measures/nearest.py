"""The nearest items to each query: exact, by matrix products block after block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice, require_positive_int
from prolip.gaussian import Gaussian, MeanTrace, check_gaussian, compute_dtype
from prolip.progress import progress_bar

SimilarityMetric = Literal["csd", "cosine"]
"""csd: by the closed-form sampled distance (Eq. 1). cosine: by the means alone."""

BLOCK = (2048, 16_384)
"""Queries and items that are compared at one time: 128 MiB of similarities."""


def similarity(queries: Gaussian, items: Gaussian, metric: SimilarityMetric = "csd") -> Tensor:
    """How near each query (Q, D) is to each item (M, D): (Q, M), larger is nearer.

    csd: mu_q . mu_i - (|mu_q|^2 + |mu_i|^2 - 2 + tr_q + tr_i) / 2 = 1 - CSD / 2, of which PPCL
    makes its logits (Eq. 2).
    cosine: of the means.
    """
    _check(queries, items, metric)
    return (
        _sides(queries, metric) @ _sides(items, metric).mT
        + _offsets(queries, metric)[:, None]
        + _offsets(items, metric)
    )


def find_nearest(
    queries: Gaussian,
    items: Gaussian | MeanTrace,
    k: int,
    *,
    metric: SimilarityMetric = "csd",
    progress: bool | None = False,
) -> tuple[Tensor, Tensor]:
    """The k nearest items (M, D) of each query (Q, D): similarities (Q, k), best first, and their indices (Q, k).

    Among equally near ones those of lower index come first. Memory: a block, and 12 k bytes a query; it doesn't grow
    with Q x M. k may be larger than M: then all items come.
    """
    _check(queries, items, metric)
    require_positive_int(k, "k", maximum=2**31)
    k = min(k, len(items.mean))
    left, right, offset = _sides(queries, metric), _sides(items, metric), _offsets(items, metric)
    values, places = (
        left.new_empty(len(left), k),
        torch.empty((len(left), k), dtype=torch.int64, device=left.device),
    )
    steps = range(0, len(left), BLOCK[0])
    with progress_bar("searching", len(left), "queries", progress) as advance:
        for first in steps:
            rows = slice(first, first + BLOCK[0])
            score = partial(_scores, left[rows], right, offset)
            values[rows], places[rows] = stable_topk_blocks(score, len(right), BLOCK[1], k)
            advance(len(left[rows]))
    return values + _offsets(queries, metric)[:, None], places


def _scores(left: Tensor, right: Tensor, offset: Tensor, block: slice) -> Tensor:
    return torch.addmm(offset[block], left, right[block].mT)


def stable_topk_blocks(
    score: Callable[[slice], Tensor], columns: int, block: int, k: int
) -> tuple[Tensor, Tensor]:
    """`top` of (rows, columns) scores that come block after block: score(slice of columns) -> (rows, its length)."""
    values, places = stable_topk(score(slice(0, block)), k)
    for first in range(block, columns, block):
        more, where = stable_topk(score(slice(first, first + block)), k)
        both = torch.cat([values, more], dim=1), torch.cat([places, where + first], dim=1)
        values, order = both[0].sort(
            dim=1, descending=True, stable=True
        )  # earlier blocks stay before later ones
        values, places = values[:, :k], both[1].gather(1, order[:, :k])
    return values, places


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, best first, and where they stand; of equal ones the first come first.

    torch.topk leaves that open: rows in which the k-th value stands k + 1 times or more are sorted.
    """
    k = min(k, scores.shape[1])
    values, places = scores.topk(k, dim=1)
    tied = (scores >= values[:, -1:]).sum(1) > k
    places = places.sort(dim=1)[0]  # then a stable sort by value keeps the order of equal ones
    values, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    places = places.gather(1, order)
    if bool(tied.any()):
        values[tied], places[tied] = (
            part[:, :k] for part in scores[tied].sort(dim=1, descending=True, stable=True)
        )
    return values, places


def _check(queries: Gaussian, items: Gaussian | MeanTrace, metric: SimilarityMetric) -> None:
    require_choice(metric, get_args(SimilarityMetric), "metric")
    check_gaussian(queries, "queries")
    if not isinstance(items, MeanTrace):  # those come block after block from disk, where they were checked
        check_gaussian(items, "items")
    for mean, name in ((queries.mean, "queries"), (items.mean, "items")):
        if mean.ndim != 2:
            raise ValueError(f"{name} must be (rows, D), not {tuple(mean.shape)}")
    if queries.dim != items.mean.shape[1]:
        raise ValueError(
            f"queries have {queries.dim} dimensions, items have {items.mean.shape[1]}: they come from different models"
        )
    if not len(items.mean):
        raise ValueError("there is no item to search")


def _sides(z: Gaussian | MeanTrace, by: SimilarityMetric) -> Tensor:
    mean = z.mean.to(compute_dtype(z.mean))
    return torch.nn.functional.normalize(mean, dim=-1) if by == "cosine" else mean


def _offsets(z: Gaussian | MeanTrace, by: SimilarityMetric) -> Tensor:
    """What a row adds to all its similarities: (rows,)."""
    mean = z.mean.to(compute_dtype(z.mean))
    if by == "cosine":
        return mean.new_zeros(len(mean))
    return 0.5 * (1.0 - mean.square().sum(-1) - z.uncertainty.to(mean.dtype))
