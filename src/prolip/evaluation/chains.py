"""Scores of caption chains: order of uncertainty, precision and recall of traversals.

Pure functions of Gaussians and tensors. A chain is a row of indices into the captions, of which each text occurs once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.choices import SimilarityMetric
from prolip.evaluation.result import Mean, Proportion
from prolip.gaussian import Gaussian, compute_dtype
from prolip.measures.nearest import similarity

BLOCK_ROWS = 1024
"""Images that are compared with all captions at one time."""
MAX_GENERAL_LEVEL = 1
"""Captions of this level and below are general."""


@dataclass(frozen=True, kw_only=True)
class TraversalScores:
    """Precision and recall of the captions that traversals visit, over images."""

    precision: Mean
    """Visited captions of the own chain / visited captions."""
    recall: Mean
    """Fraction of the captions of the chain that are visited."""
    any_recall: Proportion
    """Fraction of images for which at least one caption of the chain is visited. (The paper's "R@1" may be recall or
    any_recall.)"""


@dataclass(frozen=True, kw_only=True)
class RootScores:
    """Recall of a chain by the one caption at the root of each traversal, over images."""

    recall: Proportion
    """Fraction of images for which this caption is one of the own chain (`any_recall` of the root-only mode of the
    authors' public code)."""
    mean_recall: Mean
    """`recall` of `TraversalScores` for this one caption: recall / L if the captions of a chain differ."""
    level_0: Proportion
    """Fraction of images for which it is the most general caption of the chain."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CaptionTruth:
    """What is known of M captions and the images of N traversals.

    Attributes:
        is_true: (row of the image, index of the caption) -> whether the caption is true of the image.
        levels: int64 (M,): level of each caption, 0 for the most general.
        log_ambiguity: float64 (M,): true log-ambiguity of each caption; None: unknown.
    """

    is_true: Callable[[int, int], bool]
    levels: Tensor
    log_ambiguity: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class EndScores:
    """Whether the last captions of traversals are true and general, over images."""

    true_and_general: Proportion
    """Fraction of images whose path ends at a caption that is true of the image and of level 0 or 1."""
    true: Proportion
    """Fraction whose path ends at a true caption."""
    level: Mean
    """Level of the last caption."""
    as_uncertain: Proportion
    """Fraction whose last caption is at least as uncertain as the first."""
    as_ambiguous: Proportion | None
    """Fraction whose last caption has at least the true ambiguity of the first; None if it is unknown."""
    at_root: Proportion
    """Fraction whose last caption is the caption of the root; 0 with the null root, which has none."""
    num_distinct: int
    """Number of different last captions: a few if all paths end at the same."""


@dataclass(frozen=True, kw_only=True)
class PathScores:
    """Whether traversals lead from the specific to the general, over images."""

    rises: Proportion
    """Fraction of paths along which generality never falls, and that end at a more general caption than their first."""
    ends_general: Proportion
    """Fraction of paths that end at a caption of level 0 or 1."""
    true: Mean | None
    """Fraction of a path's captions that are true of the image; None if that is unknown."""


@dataclass(frozen=True, kw_only=True)
class RadialScores:
    """Scores by HierarCaps' own protocol, see `score_radial_protocol`."""

    steps: int
    """Number of thresholds."""
    metric: SimilarityMetric
    """Similarity that finds the nearest caption."""
    precision: Mean
    """Precision of the set of retrieved captions, over images."""
    recall: Mean
    """Recall of the levels, over images."""
    d_corr: float | None
    """`kendall_by_level` of the radii; None if chains have one level."""


def adjacent_order(uncertainty: Tensor) -> Proportion | None:
    """Fraction of pairs of adjacent levels, over all chains, whose uncertainty falls.

    The paper reports it in the appendix, "More discussions for human preference".

    Args:
        uncertainty: Uncertainty of each chain's captions, (N, L), from general to specific. Equal values don't fall.

    Returns:
        The fraction, with the interval of as many cases as there are chains, since pairs of one chain are not
        independent; None without a pair of levels.
    """
    falls = uncertainty[:, :-1] > uncertainty[:, 1:]
    return Proportion.from_mean(falls.double().mean().item(), len(falls)) if falls.numel() else None


def compare_level_pairs(uncertainty: Tensor) -> tuple[tuple[Proportion | None, ...], ...]:
    """Compare the uncertainties of all pairs of levels.

    Args:
        uncertainty: Uncertainty of each chain's captions, (N, L), from general to specific.

    Returns:
        [i][j]: the fraction of chains whose level i is more uncertain than level j; None on the diagonal. With ties
        [i][j] + [j][i] is below 1.
    """
    count = uncertainty.shape[1]
    fractions = (uncertainty[:, :, None] > uncertainty[:, None, :]).double().mean(0)
    return tuple(
        tuple(
            None if i == j else Proportion.from_mean(fractions[i, j].item(), len(uncertainty))
            for j in range(count)
        )
        for i in range(count)
    )


def kendall_by_level(values: Tensor) -> float | None:
    """Mean over chains of Kendall's tau of values with their level. For distances to the root it is HierarCaps' d_corr.

    Args:
        values: One value per chain and level, (N, L).

    Returns:
        -1 to 1; a tie counts as neither. None without chains or if L is below 2.
    """
    count = values.shape[1]
    if count < 2 or not len(values):
        return None
    signs = (values[:, None, :] - values[:, :, None]).sign().double()  # [n, i, j]: 1 if it rises from i to j
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    return signs[:, later].mean().item()


def traversal_scores(visited: Tensor, chains: Tensor) -> TraversalScores:
    """Precision and recall of the captions that traversals visit.

    Args:
        visited: Captions that each image's traversal visits, int64 (N, S); repeats count once.
        chains: Captions of each image's own chain, int64 (N, L).

    Returns:
        The scores.
    """
    hits = _are_levels_visited(visited, chains)
    ordered = visited.sort(dim=1).values
    is_first = torch.ones_like(ordered, dtype=torch.bool)  # so that repeats count once
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    in_own_chain = torch.zeros_like(is_first)
    for captions_of_level in chains.unbind(1):
        in_own_chain |= ordered == captions_of_level[:, None]
    return TraversalScores(
        precision=Mean.from_values((is_first & in_own_chain).sum(1).double() / is_first.sum(1)),
        recall=Mean.from_values(hits.double().mean(1)),
        any_recall=Proportion.from_mean(hits.any(1).double().mean().item(), len(hits)),
    )


def root_scores(root_captions: Tensor, chains: Tensor) -> RootScores:
    """Recall of a chain by the one caption at the root of each traversal.

    Args:
        root_captions: The caption nearest to each image's root, int64 (N,).
        chains: Captions of each image's own chain, int64 (N, L).

    Returns:
        The scores.
    """
    scores = traversal_scores(root_captions[:, None], chains)
    at_level_0 = (root_captions == chains[:, 0]).double().mean().item()
    return RootScores(
        recall=scores.any_recall,
        mean_recall=scores.recall,
        level_0=Proportion.from_mean(at_level_0, len(chains)),
    )


def score_ends(visited: Tensor, roots: Tensor, uncertainty: Tensor, truth: CaptionTruth) -> EndScores:
    """Count the traversals whose last caption is true and general.

    Args:
        visited: Captions that each image's traversal visits, int64 (N, S).
        roots: Caption of each root, int64 (N,); -1 with the null root.
        uncertainty: Uncertainty of all captions, (M,).
        truth: What is known of the captions and the images.

    Returns:
        The scores.
    """
    starts, ends = visited[:, 0], visited[:, -1]
    is_true = torch.tensor([truth.is_true(row, end) for row, end in enumerate(ends.tolist())])
    levels, ambiguity = truth.levels[ends], truth.log_ambiguity
    return EndScores(
        true_and_general=_count(is_true & (levels <= MAX_GENERAL_LEVEL)),
        true=_count(is_true),
        level=Mean.from_values(levels.double()),
        as_uncertain=_count(uncertainty[ends] >= uncertainty[starts]),
        as_ambiguous=None if ambiguity is None else _count(ambiguity[ends] >= ambiguity[starts]),
        at_root=_count(ends == roots),
        num_distinct=len(ends.unique()),
    )


def score_paths(visited: Tensor, levels: Tensor, truth: CaptionTruth | None = None) -> PathScores:
    """Measure whether traversals lead from the specific to the general, and how many of their captions are true.

    A caption's generality is its true log-ambiguity, or minus its level where that is unknown.

    Args:
        visited: Captions that each image's traversal visits, int64 (N, S); repeats count once.
        levels: Level of each caption, int64 (M,), 0 for the most general.
        truth: What is known of the captions and the images; None: nothing.

    Returns:
        The scores.
    """
    generality = -levels.double()
    if truth is not None and truth.log_ambiguity is not None:
        generality = truth.log_ambiguity
    along = generality[visited]
    never_falls = (along.diff(dim=1) >= 0).all(1)
    return PathScores(
        rises=_count(never_falls & (along[:, -1] > along[:, 0])),
        ends_general=_count(levels[visited[:, -1]] <= MAX_GENERAL_LEVEL),
        true=None if truth is None else Mean.from_values(_true_fractions(visited, truth)),
    )


def _true_fractions(visited: Tensor, truth: CaptionTruth) -> Tensor:
    """Fraction of the different captions (N, S) of each path that are true of its image, float64 (N,)."""
    fractions = []
    for row, path in enumerate(visited.tolist()):
        captions = set(path)
        fractions.append(sum(truth.is_true(row, caption) for caption in captions) / len(captions))
    return torch.tensor(fractions, dtype=torch.float64)


def get_caption_levels(chains: Tensor, num_captions: int) -> Tensor:
    """Get the level of each caption.

    Args:
        chains: Captions of each chain, int64 (N, L), from general to specific.
        num_captions: M, the number of captions.

    Returns:
        int64 (M,): the most general level at which it stands in a chain; L if it stands in none.
    """
    levels = torch.full((num_captions,), chains.shape[1])
    for level in reversed(range(chains.shape[1])):
        levels[chains[:, level]] = level
    return levels


def score_radial_protocol(
    images: Gaussian,
    captions: Gaussian,
    null: Gaussian,
    chains: Tensor,
    image_of_chain: Tensor,
    *,
    steps: int = 50,
) -> RadialScores:
    """Precision, recall and d_corr by HierarCaps' own protocol (Alper and Averbuch-Elor, 2024; their public code).

    The root is the text "". Radii are Euclidean distances of caption means from it; `steps` thresholds are evenly
    spaced from the smallest to the largest radius. At each threshold the caption nearest to the *image* by cosine,
    among those within it, is retrieved. An image may have several chains; a level counts as recalled if the caption of
    this level of any of its chains is retrieved.

    Args:
        images: The images, (I, D).
        captions: The distinct captions, (M, D).
        null: The embedding of the text "", (1, D).
        chains: Rows of each chain's captions, int64 (N, L).
        image_of_chain: Row of each chain's image, int64 (N,).
        steps: Number of thresholds.

    Returns:
        The scores.
    """
    radii = _radii_from_root(captions, null)
    order = radii.argsort(stable=True)
    sorted_radii = radii[order]
    thresholds = torch.linspace(float(sorted_radii[0]), float(sorted_radii[-1]), steps, dtype=torch.float64)
    num_within = torch.searchsorted(sorted_radii, thresholds, right=True)
    num_within[-1] = len(order)  # the last threshold is the largest radius, despite rounding by linspace
    retrieved = []
    for rows in _split_rows(len(images)):
        # the best among the k captions nearest to the root, for all k at once
        best = similarity(images[rows], captions[order], "cosine").cummax(1).indices
        retrieved.append(order[best[:, num_within.clamp_min(1) - 1]])
    precision, recall = _precision_and_recall(torch.cat(retrieved), chains, image_of_chain)
    return RadialScores(
        steps=steps,
        metric="cosine",
        precision=precision,
        recall=recall,
        d_corr=kendall_by_level(radii[chains]),
    )


def _precision_and_recall(retrieved: Tensor, chains: Tensor, image_of_chain: Tensor) -> tuple[Mean, Mean]:
    """Precision and recall of sets of retrieved captions, over the images that have a chain.

    retrieved: int64 (I, S), the captions that each image retrieved; repeats count once.
    chains, image_of_chain: see `score_radial_protocol`.
    """
    num_captions = int(max(retrieved.max(), chains.max())) + 1
    images = torch.arange(len(retrieved))
    # a pair of image and caption as one integer, so that sets of pairs are sets of integers
    pairs = (images[:, None] * num_captions + retrieved).flatten().unique()
    own_pairs = image_of_chain[:, None] * num_captions + chains  # (N, L)
    image, is_own = pairs // num_captions, torch.isin(pairs, own_pairs).double()
    hits = torch.zeros(len(retrieved)).double().index_add(0, image, is_own)
    precision = hits / image.bincount(minlength=len(retrieved))
    is_retrieved = torch.isin(own_pairs, pairs).double()
    by_level = (
        torch.zeros(len(retrieved), chains.shape[1]).double().index_add(0, image_of_chain, is_retrieved)
    )
    has_chain = torch.isin(images, image_of_chain)
    recall = (by_level[has_chain] > 0).double().mean(1)
    return Mean.from_values(precision[has_chain]), Mean.from_values(recall)


def _count(is_case: Tensor) -> Proportion:
    """The fraction of rows that are cases, from bool (N,)."""
    return Proportion.from_mean(is_case.double().mean().item(), len(is_case))


def _are_levels_visited(visited: Tensor, chains: Tensor) -> Tensor:
    """Whether each caption of an image's own chain is visited, bool (N, L). Arguments: see `traversal_scores`."""
    return torch.stack([(visited == level[:, None]).any(1) for level in chains.unbind(1)], 1)


def _radii_from_root(captions: Gaussian, null: Gaussian) -> Tensor:
    """Distance of each caption's mean from the mean of the text "", the root: float64 (M,).

    Norms of differences, not differences of squared norms, in which digits of close means would cancel.
    """
    means = captions.mean.to(compute_dtype(captions.mean)).double()
    distance: Tensor = torch.linalg.vector_norm(means - null.mean.double().reshape(1, -1), dim=-1)
    return distance


def _split_rows(count: int) -> list[slice]:
    """Slices of at most BLOCK_ROWS rows that cover `count` rows."""
    return [slice(first, first + BLOCK_ROWS) for first in range(0, count, BLOCK_ROWS)]
