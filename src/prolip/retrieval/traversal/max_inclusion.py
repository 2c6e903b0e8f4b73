"""The candidate that includes each query most: exact, without computing every pair in full.

Log inclusion can't be split into a part of the query and a part of the candidate, but it has an upper bound that is
cheap for all pairs. The few candidates with the largest bounds are computed exactly; if the best of them exceeds all
other bounds, it is the result. Queries for which it doesn't are compared with all candidates. Containment has no such
bound: its terms, dimension by dimension, are too similar.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch import Tensor

from prolip.checks import require_choice
from prolip.choices import InclusionMeasure
from prolip.gaussian import Gaussian, check_gaussian, compute_dtype
from prolip.measures import public
from prolip.measures.formulas import Form
from prolip.measures.nearest import stable_topk_blocks

SHORTLIST = 8
"""Candidates with the largest bounds that are computed exactly."""
BLOCK = (1024, 16_384)
"""Queries and candidates that are bounded together. Bounds are tighter the more alike the queries' variances are."""
FEW_QUERIES = 64
"""Up to this many queries, computing all candidates exactly costs no more than bounding them."""
MAX_EXACT_VALUES = 2**25
"""Exact values in memory at one time."""


def find_max_inclusion(
    queries: Gaussian, candidates: Gaussian, measure: InclusionMeasure = "inclusion", *, form: Form = "exact"
) -> tuple[Tensor, Tensor]:
    """Find the candidate that includes each query most.

    Args:
        queries: (Q, D).
        candidates: (M, D), at least one.
        measure: inclusion or containment.
        form: Form of log inclusion, as in `log_inclusion`.

    Returns:
        The largest value and the index of its candidate, (Q,) each. Of equal candidates the first one wins.

    Raises:
        ValueError: Shapes don't fit, there is no candidate, or a variance is 0.
    """
    require_choice(measure, get_args(InclusionMeasure), "measure")
    queries, candidates = (
        _check_and_detach(z, name) for z, name in ((queries, "queries"), (candidates, "candidates"))
    )
    if queries.dim != candidates.dim or not len(candidates):
        raise ValueError(
            f"queries {tuple(queries.shape)} and candidates {tuple(candidates.shape)} must have the same dimensions, "
            "and there must be a candidate"
        )
    if measure == "containment":
        return _find_max_over_all(queries, candidates, public.log_containment_matrix)
    if len(queries) <= FEW_QUERIES:
        return _find_max_over_all(queries, candidates, partial(public.log_inclusion_matrix, form=form))
    results = [_search_by_bound(block, candidates, form) for block in _split_rows(queries, BLOCK[0])]
    return torch.cat([values for values, _ in results]), torch.cat([indices for _, indices in results])


def _check_and_detach(z: Gaussian, name: str) -> Gaussian:
    """Check Gaussians (rows, D); returns them detached, in the dtype to compute in, float32 at least.

    Raises:
        ValueError: They have another shape, or a variance of 0. `name` is for the message.
    """
    if check_gaussian(z, name).mean.ndim != 2:
        raise ValueError(f"{name} must be (rows, D), not {tuple(z.shape)}")
    if not bool(torch.isfinite(z.log_var).all()):
        raise ValueError(
            f"{name} have no uncertainty in some dimension, and a point includes nothing: "
            "inclusion needs a model with uncertainty"
        )
    return z.detach().to(compute_dtype(z.mean))


def _search_by_bound(queries: Gaussian, candidates: Gaussian, form: Form) -> tuple[Tensor, Tensor]:
    """Find the largest log inclusion of each query, and the index of its candidate, (Q,) each, by upper bounds.

    The candidates with the largest bounds are computed exactly. Queries for which another bound is as large as the best
    of these are compared with all candidates.
    """
    size = min(SHORTLIST, len(candidates))  # of the shortlist
    # one more bound than the shortlist needs: the largest of all other candidates
    bounds, indices = stable_topk_blocks(
        lambda block: _inclusion_bound(queries, candidates[block], form), len(candidates), BLOCK[1], size + 1
    )
    rows = torch.arange(len(queries), device=queries.device).repeat_interleave(size)
    shortlist = indices[:, :size].sort(dim=1)[
        0
    ]  # of equal values the first candidate wins, as in a full scan
    exact = public.log_inclusion(queries[rows], candidates[shortlist.flatten()], form=form)
    values, best = exact.view(len(queries), size).max(dim=1)
    winners = shortlist.gather(1, best[:, None])[:, 0]
    if len(candidates) > size:
        unsure = (values <= bounds[:, size]).nonzero()[:, 0]  # another candidate may be larger
        if len(unsure):
            compare = partial(public.log_inclusion_matrix, form=form)
            values[unsure], winners[unsure] = _find_max_over_all(queries[unsure], candidates, compare)
    return values, winners


def _find_max_over_all(
    queries: Gaussian, candidates: Gaussian, measure: Callable[[Gaussian, Gaussian], Tensor]
) -> tuple[Tensor, Tensor]:
    """Find the largest value over all candidates, some queries at a time: at most MAX_EXACT_VALUES are in memory.

    Args:
        queries: (Q, D).
        candidates: (M, D).
        measure: Of all pairs, (n, D), (M, D) -> (n, M).

    Returns:
        The largest value and the index of its candidate, (Q,) each.
    """
    results = [
        measure(block, candidates).max(dim=1)
        for block in _split_rows(queries, max(1, MAX_EXACT_VALUES // len(candidates)))
    ]
    return torch.cat([result.values for result in results]), torch.cat([result.indices for result in results])


def _split_rows(z: Gaussian, block_size: int) -> list[Gaussian]:
    """Split into consecutive blocks of `block_size` rows; one empty block if there are no rows."""
    return [z[first : first + block_size] for first in range(0, max(1, len(z)), block_size)]


def _inclusion_bound(queries: Gaussian, candidates: Gaussian, form: Form) -> Tensor:
    """Upper bound of log inclusion of queries (n, D) in candidates (M, D): (n, M).

    inc = ... - 1/2 sum log w - sum d^2 / w, with w = s1 + 2 s2, where s1 are the variances of the query, s2 those of
    the candidate, and d is the difference of the means.

    Both -log w and 1/w are convex in s1. Over the range [low, high] that s1 has in these queries, the chord lies
    above -log w, and the tangent in the middle below 1/w. Both are linear in s1, so that the sum over dimensions is one
    matrix product of five features per dimension: s1, and (m1^2, m1) with and without s1.
    """
    s1, s2 = queries.var, 2.0 * candidates.var  # s2: already doubled
    low, high = s1.amin(0), s1.amax(0)
    middle = 0.5 * (low + high)
    intercept, slope = _chord_of_minus_log(low, high, s2)
    height = (middle + s2).reciprocal()  # the tangent of 1/w: height - (s1 - middle) height^2
    fall = height.square()
    height = height + middle * fall
    m1, m2 = queries.mean, candidates.mean
    left = torch.cat([s1, m1.square(), m1.square() * s1, m1, m1 * s1], dim=1)
    right = torch.cat(
        [
            0.5 * slope + m2.square() * fall,
            -height,
            fall,
            2.0 * m2 * height,
            -2.0 * m2 * fall,
        ],
        dim=1,
    )
    weight = _log_var_weight(form)
    constant = (0.5 * intercept - m2.square() * height - weight * candidates.log_var).sum(-1)
    bound = torch.addmm(constant, left, right.mT)
    bound += _query_term(queries, form)[:, None]
    # the bound must hold in floating point: add what the matrix product may have lost
    rounding = 16 * torch.finfo(bound.dtype).eps
    return bound.add_(rounding * (left.abs().amax(0) * right.abs().amax(0)).sum())


def _chord_of_minus_log(low: Tensor, high: Tensor, s2: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the line through -log(s1 + s2) at s1 = low and at s1 = high, as a function of s1.

    Args:
        low, high: (D,).
        s2: (M, D).

    Returns:
        (intercept, slope), (M, D) each: the line is intercept + slope * s1.
    """
    at_low = -(low + s2).log()
    spread = high - low
    # log1p keeps the difference of two nearly equal logarithms. Where low = high, the chord is a point: its slope is
    # set to 0, and 1e-45, about the smallest float32, avoids 0 / 0.
    slope = torch.where(spread > 0, -(spread / (low + s2)).log1p() / spread.clamp_min(1e-45), 0.0)
    return at_low - slope * low, slope


def _query_term(queries: Gaussian, form: Form) -> Tensor:
    """The terms of log inclusion that depend on the query alone, (n,).

    They are what is left of log inclusion of a query in itself (w = 3 s1, d = 0) without the terms of the candidate, so
    that no constant of the formula is written twice.
    """
    s1 = queries.var
    value = public.log_inclusion(queries, queries, form=form)
    return value + 0.5 * (3.0 * s1).log().sum(-1) + _log_var_weight(form) * queries.log_var.sum(-1)


def _log_var_weight(form: Form) -> float:
    """The weight of the candidate's log-variances in log inclusion, apart from the term -1/2 sum log w."""
    return 0.0 if form == "exact" else 0.5
