"""Of a block of captions those nearest to queries, and to the steps of walks. Values of one query, or of one step, can
be compared between blocks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.nearest import Score, top

BLOCK_ELEMENTS = 2**18
"""Scores that are looked at together: they stay in cache."""


def nearest_in(queries: Gaussian, captions: MeanTrace, k: int, by: Score) -> tuple[Tensor, Tensor]:
    """The k nearest captions (M, D) of each query (Q, D), best first: values and rows, (Q, k) each.

    A value is the similarity, up to what depends on the query alone.
    """
    mean = queries.mean.to(captions.mean.dtype)
    if by == "cosine":
        return top(mean @ normalize(captions.mean, dim=-1).mT, k)
    own = -0.5 * (captions.mean.square().sum(-1) + captions.uncertainty)
    return top(torch.addmm(own, mean, captions.mean.mT), k)


def nearest_to_steps(
    starts: Tensor, ends: Tensor, captions: MeanTrace, steps: int, by: Score
) -> tuple[Tensor, Tensor]:
    """The caption (M, D) nearest to each step from starts to ends, (N, D) of unit length: (N, steps) each."""
    return best_at_steps(starts, ends, normalize(captions.mean, dim=-1), bias_of(captions, by), steps)


def bias_of(captions: Gaussian | MeanTrace, by: Score) -> Tensor:
    """What a caption has to make up for, (M,): half its uncertainty, or nothing."""
    return 0.5 * captions.uncertainty if by == "csd" else torch.zeros_like(captions.uncertainty)


def best_at_steps(
    starts: Tensor, ends: Tensor, means: Tensor, bias: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The largest score at each step of each way, and the caption that has it: (N, steps) each.

    starts, ends (N, D) and captions' means (M, D): of unit length. bias: (M,), what a caption has to make up for.
    Step i is (1 - t) start + t end with t = i / steps, of unit length.

    The products of a step with all captions are a mixture of those of its two ends. So each end is multiplied once:
    of ((1 - t) a_j + t b_j) / length - bias_j only the largest counts, and the length may as well multiply the bias.
    """
    values = means.new_empty(len(starts), steps)
    places = torch.empty((len(starts), steps), dtype=torch.int64, device=means.device)
    rows_at_once = max(1, BLOCK_ELEMENTS // len(means))
    shares = torch.arange(steps, dtype=means.dtype, device=means.device) / steps
    cosines = (starts * ends).sum(-1)
    lengths = (1 - 2 * (shares * (1 - shares)) * (1 - cosines[:, None])).clamp_min(0).sqrt()  # (N, steps)
    for first in range(0, len(starts), rows_at_once):
        rows = slice(first, first + rows_at_once)
        from_start, from_end = starts[rows] @ means.mT, ends[rows] @ means.mT
        scores = torch.empty_like(from_start)
        for step, share in enumerate(shares.tolist()):
            torch.lerp(from_start, from_end, share, out=scores)
            scores.addcmul_(lengths[rows, step, None], bias[None], value=-1)
            values[rows, step], places[rows, step] = scores.max(dim=1)
    return values, places
