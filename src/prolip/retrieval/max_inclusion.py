"""For each query the candidate that includes it most: exact, and for log inclusion without looking at every pair in
every dimension.

Log inclusion can't be split into a part of the query and a part of the candidate, but it has an upper bound that is
cheap for all pairs. The few candidates with the largest bounds are judged exactly; if the best of them beats all other
bounds, it is the answer. Queries for which it doesn't are judged against all candidates. Containment has no such bound:
its parts, dimension by dimension, are too much alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.checks import require_choice
from prolip.gaussian import Gaussian, checked, work_dtype
from prolip.measures import public
from prolip.measures.formulas import Form
from prolip.measures.nearest import top_of_blocks

Measure = Literal["inclusion", "containment"]
"""inclusion: log inclusion inc(query, candidate) (Eq. 4). containment: log containment. Never H: it grows with the
distance of the two, so that its largest value belongs to a stranger (docs/measures.md)."""

FIRST = 8
"""Candidates that are judged exactly at first."""
BLOCK = (1024, 16_384)
"""Queries and candidates that are bounded together. Bounds are tighter the more alike the queries' variances are."""
FEW_QUERIES = 64
"""Up to so many, to judge all candidates exactly costs no more than to bound them."""
SCAN = 2**25
"""Exact values in memory at one time."""


def most_inclusive(
    queries: Gaussian, candidates: Gaussian, measure: Measure = "inclusion", *, form: Form = "exact"
) -> tuple[Tensor, Tensor]:
    """The largest value of the measure for each query (Q, D) over all candidates (M, D), and whose it is: (Q,), (Q,).

    form: of log inclusion, as in `log_inclusion`. Of equal candidates the first counts.
    """
    require_choice(measure, get_args(Measure), "measure")
    queries, candidates = (_ready(z, name) for z, name in ((queries, "queries"), (candidates, "candidates")))
    if queries.dim != candidates.dim or not len(candidates):
        raise ValueError(
            f"queries {tuple(queries.shape)} and candidates {tuple(candidates.shape)} must have the same dimensions, "
            "and there must be a candidate"
        )
    if measure == "containment":
        return _scanned(queries, candidates, public.log_containment_matrix)
    if len(queries) <= FEW_QUERIES:
        return _scanned(queries, candidates, partial(public.log_inclusion_matrix, form=form))
    found = [_best(part, candidates, form) for part in _parts(queries, BLOCK[0])]
    return torch.cat([values for values, _ in found]), torch.cat([places for _, places in found])


def _ready(z: Gaussian, name: str) -> Gaussian:
    if checked(z, name).mean.ndim != 2:
        raise ValueError(f"{name} must be (rows, D), not {tuple(z.shape)}")
    if not bool(torch.isfinite(z.log_var).all()):
        raise ValueError(f"{name} have no uncertainty in some dimension: a point includes nothing")
    return z.detach().to(work_dtype(z.mean))


def _best(queries: Gaussian, candidates: Gaussian, form: Form) -> tuple[Tensor, Tensor]:
    few = min(FIRST, len(candidates))
    bounds, places = top_of_blocks(
        lambda block: _inclusion_bound(queries, candidates[block], form), len(candidates), BLOCK[1], few + 1
    )
    rows = torch.arange(len(queries), device=queries.device).repeat_interleave(few)
    shortlist = places[:, :few].sort(dim=1)[0]  # of equal values the first candidate wins, as in a full scan
    exact = public.log_inclusion(queries[rows], candidates[shortlist.flatten()], form=form)
    values, which = exact.view(len(queries), few).max(dim=1)
    winners = shortlist.gather(1, which[:, None])[:, 0]
    if len(candidates) > few:
        beaten = (values <= bounds[:, few]).nonzero()[:, 0]
        if len(beaten):
            judge = partial(public.log_inclusion_matrix, form=form)
            values[beaten], winners[beaten] = _scanned(queries[beaten], candidates, judge)
    return values, winners


def _scanned(
    queries: Gaussian, candidates: Gaussian, judge: Callable[[Gaussian, Gaussian], Tensor]
) -> tuple[Tensor, Tensor]:
    """By looking at all candidates, some queries at a time. judge: the measure of all pairs."""
    found = [judge(part, candidates).max(dim=1) for part in _parts(queries, max(1, SCAN // len(candidates)))]
    return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])


def _parts(z: Gaussian, step: int) -> list[Gaussian]:
    return [z[first : first + step] for first in range(0, max(1, len(z)), step)]


def _inclusion_bound(queries: Gaussian, candidates: Gaussian, form: Form) -> Tensor:
    """inc = ... - 1/2 sum log w - sum d^2 / w, with w = s1 + 2 s2, from above: (n, M).

    Both -log w and 1/w are convex in s1. Over the range [low, high] that s1 has in these queries, the chord lies above
    -log w, and the tangent in the middle below 1/w. Both are linear in s1, so that the sum over dimensions is one
    matrix product of five features a dimension: s1, and (m1^2, m1) with and without s1.
    """
    s1, s2 = queries.var, 2.0 * candidates.var
    low, high = s1.amin(0), s1.amax(0)
    middle = 0.5 * (low + high)
    flat, slope = _chord_of_minus_log(low, high, s2)
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
    weight = _weight_of_own(form)
    constant = (0.5 * flat - m2.square() * height - weight * candidates.log_var).sum(-1)
    bound = torch.addmm(constant, left, right.mT)
    bound += _query_part(queries, form)[:, None]
    rounding = 16 * torch.finfo(bound.dtype).eps
    return bound.add_(rounding * (left.abs().amax(0) * right.abs().amax(0)).sum())


def _chord_of_minus_log(low: Tensor, high: Tensor, s2: Tensor) -> tuple[Tensor, Tensor]:
    """(flat, slope) of the line through -log(s1 + s2) at s1 = low and s1 = high. low, high: (D,), s2: (M, D)."""
    at_low = -(low + s2).log()
    spread = high - low
    # log1p keeps the difference of two nearly equal logarithms; without any range the chord is a point
    slope = torch.where(spread > 0, -(spread / (low + s2)).log1p() / spread.clamp_min(1e-45), 0.0)
    return at_low - slope * low, slope


def _query_part(queries: Gaussian, form: Form) -> Tensor:
    """What depends on the query alone, (n,): read off one exact value, so that no constant is written twice."""
    s1 = queries.var
    value = public.log_inclusion(queries, queries, form=form)
    return value + 0.5 * (3.0 * s1).log().sum(-1) + _weight_of_own(form) * queries.log_var.sum(-1)


def _weight_of_own(form: Form) -> float:
    """What the candidate's own log-variances count in log inclusion, beside its width."""
    return 0.0 if form == "exact" else 0.5
