"""From images to their roots over captions that lie on disk, of any number (SPEC section 7)."""

from __future__ import annotations

from typing import Protocol, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.checks import require_choice, require_count
from prolip.gaussian import Gaussian, checked
from prolip.measures.nearest import Score
from prolip.retrieval.caption_tables import CaptionTable
from prolip.retrieval.max_inclusion import Measure
from prolip.retrieval.traverse import Of, Root, Walks, measure_of, root_means


class Search(Protocol):
    """What a walk asks of captions: `Scan` looks at all of them, `Candidates` at a few. Answers are places."""

    @property
    def table(self) -> CaptionTable: ...

    def nearest(self, queries: Gaussian, *, by: Score = "csd") -> Tensor:
        """The caption nearest to each query (Q, D): (Q,)."""

    def most_inclusive(self, queries: Gaussian, measure: Measure = "inclusion") -> Tensor:
        """The caption that includes each query (Q, D) most: (Q,)."""

    def along(self, starts: Tensor, ends: Tensor, steps: int, *, by: Score = "csd") -> Tensor:
        """The caption nearest to each step from starts to ends, (N, D) of unit length: (N, steps)."""


def traverse_table(
    images: Gaussian,
    captions: Search,
    null: Gaussian,
    *,
    root: Root = "inclusion+null",
    of: Of = "image",
    by: Score = "csd",
    steps: int = 50,
) -> Walks:
    """As `traverse.traverse`, over captions on disk; the captions of the walks are places in the table.

    images: (N, D). null: (1, D), the embedding of "".
    """
    require_choice(root, get_args(Root), "root")
    require_choice(of, get_args(Of), "of")
    require_choice(by, get_args(Score), "by")
    require_count(steps, "steps", most=10_000)
    dim = captions.table.header.dim
    if checked(images, "images").shape[1:] != (dim,) or checked(null, "null").shape != (1, dim):
        raise ValueError(
            f"images must be (N, {dim}) and null (1, {dim}), as {captions.table.name} has them, not "
            f"{tuple(images.shape)} and {tuple(null.shape)}"
        )
    start = captions.nearest(images, by=by)
    first = captions.table.at(start)
    nothing = normalize(null.mean.float(), dim=-1)
    if root == "null":
        roots, own = torch.full_like(start, -1), first.z.mean
    else:
        roots = captions.most_inclusive(images if of == "image" else first.gaussian(), measure_of(root))
        own = captions.table.at(roots).z.mean
    ends = root_means(normalize(own, dim=-1), nothing, root)
    visited = captions.along(normalize(first.z.mean, dim=-1), ends, steps, by=by)
    return Walks(start, roots, ends, visited)
