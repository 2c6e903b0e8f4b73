"""Scores of caption chains, from general to specific: their order by uncertainty, and what a walk finds of them.

Pure functions of Gaussians and numbers. A chain is a row of indices into the captions, which are unique by their text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prolip.gaussian import Gaussian, compute_dtype
from prolip.measures.nearest import similarity

ROWS = 1024
"""Images that are compared with all captions at one time."""


def adjacent_order(uncertainty: Tensor) -> float | None:
    """Share of neighbouring levels whose uncertainty falls (appendix, "More discussions for human preference").

    uncertainty: (N, L), from general to specific. A tie counts as not falling. None without a pair.
    """
    falls = uncertainty[:, :-1] > uncertainty[:, 1:]
    return falls.double().mean().item() if falls.numel() else None


def level_pairs(uncertainty: Tensor) -> list[list[float | None]]:
    """[i][j]: share of chains whose level i is more uncertain than their level j; None on the diagonal.

    With ties [i][j] + [j][i] is below 1.
    """
    count = uncertainty.shape[1]
    shares = (uncertainty[:, :, None] > uncertainty[:, None, :]).double().mean(0)
    return [[None if i == j else shares[i, j].item() for j in range(count)] for i in range(count)]


def kendall_by_level(values: Tensor) -> float | None:
    """Mean over chains of Kendall's tau of the values (N, L) with their level; a tie counts as neither. None if L < 2.

    Of distances to the root this is HierarCaps' d_corr.
    """
    count = values.shape[1]
    if count < 2 or not len(values):
        return None
    signs = (
        (values[:, None, :] - values[:, :, None]).sign().double()
    )  # [n, i, j]: whether it rises from i to j
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    return signs[:, later].mean().item()


def traversal_scores(visited: Tensor, chains: Tensor) -> dict[str, float]:
    """What the captions that a walk visits have of the image's own chain; means over images.

    visited: int64 (N, S), captions; repeats count once. chains: int64 (N, L).
    precision:  visited captions of the own chain / visited captions.
    recall:     share of the L captions of the chain that are visited.
    any_recall: whether any of them is. (The paper's "R@1" doesn't say which of the two it is.)
    """
    hits = _visited_levels(visited, chains)
    ordered = visited.sort(dim=1).values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    own = torch.zeros_like(fresh)
    for level in chains.unbind(1):
        own |= ordered == level[:, None]
    return {
        "precision": ((fresh & own).sum(1).double() / fresh.sum(1)).mean().item(),
        "recall": hits.double().mean().item(),
        "any_recall": hits.any(1).double().mean().item(),
    }


def root_scores(found: Tensor, chains: Tensor) -> dict[str, float]:
    """What roots alone retrieve. found: int64 (N,), the caption nearest to each root. chains: int64 (N, L).

    root_recall:      share of images for which it is one of the own chain. (The release's `any_recall` of its
                      root-only mode; its other reading, over the L captions, is an L-th of it where captions differ.)
    root_mean_recall: that other reading.
    root_level_0:     share of images for which it is the most general caption of the own chain.
    """
    scores = traversal_scores(found[:, None], chains)
    return {
        "root_recall": scores["any_recall"],
        "root_mean_recall": scores["recall"],
        "root_level_0": (found == chains[:, 0]).double().mean().item(),
    }


def radial_scores(
    images: Gaussian,
    captions: Gaussian,
    null: Gaussian,
    chains: Tensor,
    image_of_chain: Tensor,
    *,
    steps: int = 50,
) -> dict[str, Any]:
    """HierarCaps' own protocol (Alper and Averbuch-Elor, 2024), as their public evaluation has it.

    The root is the text "". Radii are distances of captions from it; `steps` thresholds lie evenly from the least to
    the largest of all captions. At each threshold the caption nearest to the *image*, among those within it, is taken.
    Precision and recall are of the set of captions taken; an image may have several chains, and a level counts as
    recalled if that of any chain is. d_corr: `kendall_by_level` of the radii. Captions are ranked by cosine.

    images: (I, D). captions: (M, D). null: (1, D). chains: int64 (N, L). image_of_chain: int64 (N,).
    """
    radius = _radius(captions, null)
    order = radius.argsort(stable=True)
    sorted_radius = radius[order]
    thresholds = torch.linspace(float(sorted_radius[0]), float(sorted_radius[-1]), steps, dtype=torch.float64)
    within = torch.searchsorted(sorted_radius, thresholds, right=True)
    within[-1] = len(order)  # the last threshold is the largest radius, whatever linspace rounds it to
    taken = []
    for rows in _blocks(len(images)):
        # the best among the k captions nearest to the root, for all k at once
        best = similarity(images[rows], captions[order], "cosine").cummax(1).indices
        taken.append(order[best[:, within.clamp_min(1) - 1]])
    precision, recall = _several_chains(torch.cat(taken), chains, image_of_chain)
    return {
        "steps": steps,
        "by": "cosine",
        "precision": precision,
        "recall": recall,
        "d_corr": kendall_by_level(radius[chains]),
    }


def _several_chains(taken: Tensor, chains: Tensor, image_of_chain: Tensor) -> tuple[float, float]:
    """Precision and recall, means over the images that have a chain. taken: (I, S), captions that each image took."""
    count = int(max(taken.max(), chains.max())) + 1
    owner = torch.arange(len(taken))
    # an image and a caption as one number: sets of them are sets of pairs
    pairs = (owner[:, None] * count + taken).flatten().unique()
    own_pairs = image_of_chain[:, None] * count + chains  # (N, L)
    taken_by, true = pairs // count, torch.isin(pairs, own_pairs).double()
    hits = torch.zeros(len(taken)).double().index_add(0, taken_by, true)
    precision = hits / taken_by.bincount(minlength=len(taken))
    found = torch.isin(own_pairs, pairs).double()
    by_level = torch.zeros(len(taken), chains.shape[1]).double().index_add(0, image_of_chain, found)
    judged = torch.isin(owner, image_of_chain)
    return precision[judged].mean().item(), (by_level[judged] > 0).double().mean().item()


def _visited_levels(visited: Tensor, chains: Tensor) -> Tensor:
    """Whether each caption of the own chain is visited: bool (N, L)."""
    return torch.stack([(visited == level[:, None]).any(1) for level in chains.unbind(1)], 1)


def _radius(captions: Gaussian, null: Gaussian) -> Tensor:
    """Distance of each caption's mean from that of the root: (M,), float64. (Differences first: no digits cancel.)"""
    means = captions.mean.to(compute_dtype(captions.mean)).double()
    distance: Tensor = torch.linalg.vector_norm(means - null.mean.double().reshape(1, -1), dim=-1)
    return distance


def _blocks(count: int) -> list[slice]:
    return [slice(first, first + ROWS) for first in range(0, count, ROWS)]
