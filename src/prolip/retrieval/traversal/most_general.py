"""The most general caption that is true of each query: the most uncertain one that scores at least as high as ""."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.measures.nearest import similarity

PairScore = Callable[[Gaussian, Gaussian], Tensor]
"""(N, D), (M, D) -> (N, M): how well each caption describes each query, such as `model.match_probability_matrix`."""


def get_truth_score(root: str, match: PairScore | None = None) -> PairScore:
    """Get the score that decides which captions count as true, by the name of a root.

    Args:
        root: general-match or general-containment, with or without null.
        match: Score of general-match; None: 1 - CSD / 2, which has the order of PPCL's match probability.

    Returns:
        The score.
    """
    if root.startswith("general-containment"):
        return public.log_containment_matrix
    return match or similarity


def find_most_general(
    queries: Gaussian, candidates: Gaussian, null: Gaussian, score: PairScore
) -> tuple[Tensor, Tensor]:
    """Find the most uncertain candidate among those that score at least as high as the empty caption.

    "" is true of everything, so a caption that describes a query worse than "" counts as false. Only the order of
    scores matters: a probability, its logit and PMI give the same result. If no candidate counts as true, the one with
    the highest score is found.

    Args:
        queries: (Q, D).
        candidates: (M, D), at least one.
        null: (1, D), the embedding of "".
        score: How well a candidate describes a query.

    Returns:
        A value, which can be compared between blocks of candidates (the uncertainty; negative if none counts as
        true), and the index of the candidate, (Q,) each. Of equal candidates the first one wins.
    """
    scores, threshold = score(queries, candidates), score(queries, null)
    uncertainty = candidates.uncertainty.to(scores.dtype)
    # a score below the threshold makes the difference negative, hence smaller than any uncertainty
    best = torch.where(scores >= threshold, uncertainty, scores - threshold).max(dim=1)
    return best.values, best.indices
