"""From an image to its most general caption: along the chord from the nearest caption to a root (SPEC section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.checks import require_choice, require_count
from prolip.gaussian import Gaussian, checked, work_dtype
from prolip.measures.formulas import Form
from prolip.measures.nearest import Score, nearest
from prolip.retrieval.blocks import best_at_steps, bias_of
from prolip.retrieval.max_inclusion import Measure, most_inclusive

Root = Literal["null", "inclusion", "containment", "inclusion+null", "containment+null"]
"""null: the embedding of "". inclusion, containment: the caption that includes the query most by that measure.
...+null: the mean of the two, of unit length: the paper's choice."""
Of = Literal["image", "caption"]
"""Whose root is sought: the image's, or that of the caption nearest to it (the paper has both)."""


@dataclass(frozen=True, eq=False)
class Walks:
    """N ways from the specific to the general.

    start:     int64 (N,): the caption nearest to each image.
    roots:     int64 (N,): the caption that the root is made of; -1 with the null root.
    root_mean: (N, D), of unit length: where each way leads to.
    visited:   int64 (N, steps): the caption nearest to each step, from the start on.
    """

    start: Tensor
    roots: Tensor
    root_mean: Tensor
    visited: Tensor

    def path(self, row: int) -> list[int]:
        """The captions of one way, repeats that follow each other merged."""
        return [int(caption) for caption in torch.unique_consecutive(self.visited[row])]


def traverse(
    images: Gaussian,
    captions: Gaussian,
    null: Gaussian,
    *,
    root: Root = "inclusion+null",
    of: Of = "image",
    by: Score = "csd",
    steps: int = 50,
    form: Form = "exact",
) -> Walks:
    """The nearest caption of each image (N, D), and the captions (M, D) that are nearest on the way to its root.

    null: (1, D), the embedding of "". form: of log inclusion. by, steps: see `walk`.
    """
    require_choice(of, get_args(Of), "of")
    start = nearest(images, captions, 1, by=by)[1][:, 0]
    roots = find_roots(images if of == "image" else captions[start], captions, root, form)
    return walk(captions, null, start, roots, root=root, by=by, steps=steps)


def walk(
    captions: Gaussian,
    null: Gaussian,
    start: Tensor,
    roots: Tensor,
    *,
    root: Root,
    by: Score = "csd",
    steps: int = 50,
    weight: float = 1.0,
) -> Walks:
    """From start captions to roots, int64 (N,) each: what `find_roots` gave.

    Step i of `steps` is (1 - t) start + t root with t = i / steps, of unit length; the root itself is not asked.
    by: how the nearest caption is found. weight: of the caption against null in a ...+null root.
    """
    require_choice(root, get_args(Root), "root")
    require_count(steps, "steps", most=10_000)
    if not weight > 0:
        raise ValueError(f"the weight of the caption in the root must be above 0, not {weight}")
    if checked(null, "null").shape != (1, captions.dim):
        raise ValueError(f"null must be one embedding, (1, {captions.dim}), not {tuple(null.shape)}")
    means = normalize(captions.mean.to(work_dtype(captions.mean)), dim=-1)
    root_mean = root_means(means[roots], normalize(null.mean.to(means.dtype), dim=-1), root, weight)
    visited = best_at_steps(means[start], root_mean, means, bias_of(captions, by), steps)[1]
    return Walks(start, roots, root_mean, visited)


def nearest_to_roots(walks: Walks, captions: Gaussian, by: Score = "csd") -> Tensor:
    """The caption nearest to each root itself, int64 (N,)."""
    points = Gaussian.point(walks.root_mean)
    return nearest(points, captions, 1, by=by)[1][:, 0]


def find_roots(queries: Gaussian, captions: Gaussian, root: Root, form: Form = "exact") -> Tensor:
    """The caption that includes each query most, int64 (N,), by the measure in the root's name; -1 for null."""
    require_choice(root, get_args(Root), "root")
    if root == "null":
        return torch.full((len(queries),), -1, device=queries.device)
    if not bool(captions.uncertainty.any()):
        raise ValueError(
            f'a deterministic model has no inclusion, so no root {root!r}: ask for the root "null"'
        )
    return most_inclusive(queries, captions, measure_of(root), form=form)[1]


def measure_of(root: Root) -> Measure:
    """By which a root that is not null is found."""
    return "inclusion" if root.startswith("inclusion") else "containment"


def root_means(own: Tensor, null: Tensor, root: Root, weight: float = 1.0) -> Tensor:
    """Where ways lead to, (N, D), of unit length. own: of the captions that include most, (N, D); null: (1, D)."""
    if root == "null":
        return null.expand(len(own), -1)
    return normalize(weight * own + null, dim=-1) if root.endswith("+null") else own
