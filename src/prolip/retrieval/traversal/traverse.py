"""Traversal from an image's nearest caption along the chord to a root caption (docs/traversal.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.checks import require_choice, require_positive_int
from prolip.choices import InclusionMeasure, Root, RootOf
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric
from prolip.retrieval.traversal.captions import CaptionsInMemory, CaptionTable
from prolip.retrieval.traversal.exact import ExactSearch


class CaptionSearch(Protocol):
    """The searches a traversal needs. `ExactSearch` compares all captions, `CandidateSearch` those an index finds."""

    @property
    def table(self) -> CaptionTable:
        """The captions that are searched."""

    def find_nearest(self, queries: Gaussian, *, rank_by: SimilarityMetric = "csd") -> Tensor:
        """Find the caption nearest to each query.

        Args:
            queries: (Q, D).
            rank_by: csd or cosine.

        Returns:
            int64 (Q,), positions in the table.
        """

    def find_max_inclusion(
        self, queries: Gaussian, measure: InclusionMeasure = "inclusion", form: Form = "exact"
    ) -> Tensor:
        """Find the caption that includes each query most.

        Args:
            queries: (Q, D).
            measure: inclusion or containment.
            form: Form of log inclusion.

        Returns:
            int64 (Q,), positions in the table.
        """

    def find_most_general(self, queries: Gaussian, null: Gaussian, root: Root) -> Tensor:
        """Find the most uncertain caption among those that count as true of each query.

        Args:
            queries: (Q, D).
            null: (1, D), the embedding of "".
            root: general-match or general-containment, with or without null.

        Returns:
            int64 (Q,), positions in the table.
        """

    def find_nearest_at_steps(
        self, starts: Tensor, ends: Tensor, steps: int, *, rank_by: SimilarityMetric = "csd"
    ) -> Tensor:
        """Find the caption nearest to each step of the chords from starts to ends.

        Args:
            starts: (N, D), of unit length.
            ends: (N, D), of unit length.
            steps: Points per chord; the end itself is not one.
            rank_by: How the nearest caption is found.

        Returns:
            int64 (N, steps), positions in the table.
        """


@dataclass(frozen=True, eq=False)
class Traversals:
    """N traversals from the specific to the general. Captions are positions in their table.

    Attributes:
        start: int64 (N,): the caption nearest to each image.
        roots: int64 (N,): the caption that the root is made of, alone or with null; -1 with the null root.
        root_mean: (N, D), of unit length: the end of each traversal.
        visited: int64 (N, steps): the caption nearest to each step, from the start on.
    """

    start: Tensor
    roots: Tensor
    root_mean: Tensor
    visited: Tensor

    def get_path(self, row: int) -> list[int]:
        """List the captions of one traversal; consecutive repeats are merged.

        Args:
            row: Number of the traversal.

        Returns:
            Positions in the table, from the start on.
        """
        return [int(caption) for caption in torch.unique_consecutive(self.visited[row])]


def traverse(
    images: Gaussian,
    captions: Gaussian | CaptionSearch,
    null: Gaussian,
    *,
    root: Root = "inclusion+null",
    root_of: RootOf = "image",
    rank_by: SimilarityMetric = "csd",
    steps: int = 50,
    form: Form = "exact",
) -> Traversals:
    """Traverse from the caption nearest to each image to the image's root.

    Args:
        images: (N, D).
        captions: (M, D) in memory; or a search over captions on disk.
        null: (1, D), the embedding of "".
        root: What the root is made of.
        root_of: Whose root: the image's, or that of its nearest caption.
        rank_by: How the nearest caption is found: csd or cosine.
        steps: Points on the chord at which the nearest caption is found.
        form: Form of log inclusion (docs/measures.md).

    Returns:
        N traversals. Over captions in memory positions are indices.

    Raises:
        ValueError: An argument is invalid, or the root needs variances that the captions lack.
    """
    require_choice(root, get_args(Root), "root")
    require_choice(root_of, get_args(RootOf), "root_of")
    require_choice(rank_by, get_args(SimilarityMetric), "rank_by")
    search = _as_search(captions)
    dim = search.table.dim
    if check_gaussian(images, "images").shape[1:] != (dim,):
        raise ValueError(
            f"images must be (N, {dim}) for the captions of {search.table.name}, not {tuple(images.shape)}"
        )
    start = search.find_nearest(images, rank_by=rank_by)
    queries = images if root_of == "image" or root == "null" else search.table.take(start).to_gaussian()
    roots = find_roots(queries, search, root, form, null)
    return traverse_to_roots(search, null, start, roots, root=root, rank_by=rank_by, steps=steps)


def traverse_to_roots(
    captions: Gaussian | CaptionSearch,
    null: Gaussian,
    start: Tensor,
    roots: Tensor,
    *,
    root: Root,
    rank_by: SimilarityMetric = "csd",
    steps: int = 50,
    weight: float = 1.0,
) -> Traversals:
    """Traverse from start captions to roots that are already known.

    Step i of `steps` is (1 - t) start + t root with t = i / steps, of unit length; the root itself is not a step.

    Args:
        captions: As in `traverse`.
        null: (1, D), the embedding of "".
        start: int64 (N,), positions of the first captions.
        roots: int64 (N,), positions that `find_roots` returned.
        root: What the root is made of.
        rank_by: How the nearest caption is found.
        steps: The number of steps.
        weight: Weight of the caption against null in a ...+null root.

    Returns:
        N traversals.

    Raises:
        ValueError: An argument is invalid.
    """
    require_choice(root, get_args(Root), "root")
    require_positive_int(steps, "steps", maximum=10_000)
    if not weight > 0:
        raise ValueError(f"the weight of the caption in the root must be above 0, not {weight}")
    search = _as_search(captions)
    dim = search.table.dim
    if check_gaussian(null, "null").shape != (1, dim):
        raise ValueError(f"null must be one embedding, (1, {dim}), not {tuple(null.shape)}")
    starts = normalize(search.table.take(start).z.mean, dim=-1)
    root_mean = normalize(null.mean.to(starts.dtype), dim=-1)
    if root == "null":
        root_mean = root_mean.expand(len(starts), -1)
    else:
        caption_mean = normalize(search.table.take(roots).z.mean, dim=-1)
        with_null = root.endswith("+null")
        root_mean = normalize(weight * caption_mean + root_mean, dim=-1) if with_null else caption_mean
    visited = search.find_nearest_at_steps(starts, root_mean, steps, rank_by=rank_by)
    return Traversals(start, roots, root_mean, visited)


def find_captions_at_roots(
    traversals: Traversals, captions: Gaussian | CaptionSearch, rank_by: SimilarityMetric = "csd"
) -> Tensor:
    """Find the caption nearest to each root itself.

    Args:
        traversals: N traversals.
        captions: As in `traverse`.
        rank_by: How the nearest caption is found.

    Returns:
        int64 (N,), positions.
    """
    return _as_search(captions).find_nearest(Gaussian.point(traversals.root_mean), rank_by=rank_by)


def find_roots(
    queries: Gaussian,
    captions: Gaussian | CaptionSearch,
    root: Root,
    form: Form = "exact",
    null: Gaussian | None = None,
) -> Tensor:
    """Find the caption of each query's root: by the measure in its name, or the most general one that counts as true.

    Args:
        queries: (N, D).
        captions: As in `traverse`.
        root: Which caption, with or without null; the root null has none.
        form: Form of log inclusion.
        null: (1, D), the embedding of "", which the general-... roots need.

    Returns:
        int64 (N,), positions; -1 for null.

    Raises:
        ValueError: The root needs `null`, or variances that the captions lack.
    """
    require_choice(root, get_args(Root), "root")
    if root == "null":
        return torch.full((len(queries),), -1, device=queries.device)
    if root.startswith("general-"):
        if null is None:
            raise ValueError(f'the root {root} compares captions with "": pass its embedding as null')
        return _as_search(captions).find_most_general(queries, null, root)
    measure: InclusionMeasure = "inclusion" if root.startswith("inclusion") else "containment"
    return _as_search(captions).find_max_inclusion(queries, measure, form)


def _as_search(captions: Gaussian | CaptionSearch) -> CaptionSearch:
    """Make an exact search over captions in memory; `captions` itself if it is a search already."""
    if isinstance(captions, Gaussian):
        return ExactSearch(CaptionsInMemory(captions), progress=False)
    return captions
