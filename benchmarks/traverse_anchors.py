"""Comparison of roots of traversals on scenes: how often a path rises in generality, stays true, and ends general."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.choices import Root
from prolip.console import make_table, print_tables
from prolip.evaluation import chains as scores
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.measures.nearest import find_nearest, similarity
from prolip.model.prolip import ProLIP
from prolip.retrieval.traversal.most_general import PairScore
from prolip.retrieval.traversal.traverse import find_roots, traverse_to_roots
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.captions import Caption, make_caption_chain
from prolip.scenes.meaning import is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render
from prolip.scenes.world import get_world
from prolip.weights.load import load

SEEDS = (80_001, 80_002)
"""Of the scenes on which thresholds are chosen, and of those that are reported."""
CHAIN_STREAM = 99
"""Last number of the seeds of caption chains."""
STRICT_RATIO = 1.65
"""A caption that must match this many times as well as "" says something of the image. Set by hand, on other seeds."""
COLUMNS = (
    "true and general", "true", "level", "rises", "captions true", "captions", "at root", "distinct", "precision",
    "recall",
)  # fmt: skip
"""Scores of the paths to one kind of root."""
STEPS = 50
"""Points on a path."""
RANKED_BY_MATCH = ("null", "inclusion", "general-match")
"""Roots to which paths are also traversed by the trained match."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AnchorData:
    """N scenes with chains of captions, of M different texts: images (N, D), captions (M, D), null (1, D)."""

    images: Gaussian
    captions: Gaussian
    null: Gaussian
    chains: Tensor
    truth: scores.CaptionTruth


FindRoots = Callable[[AnchorData], Tensor]
"""Finds the caption of each image's root, int64 (N,); -1 for the null root."""


def run(*, model: str = "scenes-tiny", num_scenes: int = 1000) -> dict[str, Any]:
    """Traverse to each kind of root, alone and averaged with null.

    Args:
        model: What `prolip.load` takes.
        num_scenes: Scenes per split.

    Returns:
        images, captions: numbers of them. rows: {root, threshold, with_null, steps_by (csd or match), and a number for
        each of COLUMNS}.
    """
    loaded = load(model).eval()
    chosen_on, reported = (embed_chains(loaded, seed, num_scenes) for seed in SEEDS)
    rows = []
    for name, candidates in list_roots(loaded).items():
        best = max(
            candidates, key=lambda threshold: _score(chosen_on, candidates[threshold], False)[COLUMNS[0]]
        )
        for with_null in (False, True)[: 1 if name == "null" else 2]:
            row = {"root": name, "threshold": best, "with_null": with_null, "steps_by": "csd"}
            rows.append(row | _score(reported, candidates[best], with_null))
        if name in RANKED_BY_MATCH:
            row = {"root": name, "threshold": best, "with_null": False, "steps_by": "match"}
            rows.append(row | _score(reported, candidates[best], False, loaded))
    return {"images": len(reported.images), "captions": len(reported.captions), "rows": rows}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    table = make_table(
        f"{result['images']:,} images, {result['captions']:,} captions; fractions of paths, mean level, number of "
        "distinct ends",
        ("root", "threshold", "with null", "steps by"),
        COLUMNS,
    )
    for row in result["rows"]:
        numbers = (f"{row[name]}" if name == "distinct" else f"{row[name]:.3f}" for name in COLUMNS)
        with_null = "yes" if row["with_null"] else "no"
        table.add_row(row["root"], row["threshold"], with_null, row["steps_by"], *numbers)
    print_tables([table])


def list_roots(model: ProLIP) -> dict[str, dict[str, FindRoots]]:
    """List the roots that are compared: by name, then by threshold ("" without one)."""
    match = model.match_probability_matrix
    return {
        "null": {"": lambda data: find_roots(data.images, data.captions, "null")},
        "inclusion": {"": lambda data: find_roots(data.images, data.captions, "inclusion")},
        "containment": {"": lambda data: find_roots(data.images, data.captions, "containment")},
        "largest match": {"": lambda data: match(data.images, data.captions).argmax(1)},
        "most uncertain, match >= p": {
            f"{p}": _above(match, p) for p in (0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5)
        },
        "most uncertain, containment >= p": {
            f"{p}": _above(public.containment_matrix, p) for p in (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1)
        },
        "most uncertain of k nearest by CSD": {
            f"{k}": _of_nearest(similarity, k) for k in (5, 20, 50, 100, 200)
        },
        "most uncertain of k nearest by distance / width": {
            f"{k}": _of_nearest(_relative_nearness, k) for k in (5, 20, 50, 100, 200)
        },
        "most uncertain, match >= ratio x that of null": {
            f"{STRICT_RATIO}": lambda data: _above(match, STRICT_RATIO * match(data.images, data.null))(data)
        },
        "general-containment": {'""': _general("general-containment")},
        "general-match": {'""': _general("general-match")},
    }


def embed_chains(model: ProLIP, seed: int, num_scenes: int) -> AnchorData:
    """Draw scenes of the world "simple" with a chain of captions each, and embed them."""
    world = get_world("simple")
    scenes = [world.draw_scene(seed, index) for index in range(num_scenes)]
    chains = [
        make_caption_chain(scene, RandomDraws(seed, index, CHAIN_STREAM), world)
        for index, scene in enumerate(scenes)
    ]
    by_text: dict[str, Caption] = {}
    for chain in chains:
        for caption in chain:
            by_text.setdefault(caption.text, caption)
    index_of = {text: index for index, text in enumerate(by_text)}
    captions = list(by_text.values())
    chain_indices = torch.tensor([[index_of[caption.text] for caption in chain] for chain in chains])
    truth = scores.CaptionTruth(
        is_true=lambda row, caption: is_true(captions[caption].meaning, scenes[row]),
        levels=scores.get_caption_levels(chain_indices, len(captions)),
        log_ambiguity=torch.tensor([log_ambiguity(caption.meaning, world) for caption in captions]),
    )
    return AnchorData(
        images=model.embed_images([render(scene, 48) for scene in scenes]),
        captions=model.embed_texts(list(by_text)),
        null=model.embed_texts(""),
        chains=chain_indices,
        truth=truth,
    )


def _above(score: PairScore, threshold: float | Tensor) -> FindRoots:
    """The most uncertain caption with at least this score; the one with the highest score if there is none."""

    def find(data: AnchorData) -> Tensor:
        values = score(data.images, data.captions)
        return torch.where(values >= threshold, data.captions.uncertainty, values - threshold).argmax(1)

    return find


def _of_nearest(score: PairScore, k: int) -> FindRoots:
    """The most uncertain of the k captions with the highest scores."""

    def find(data: AnchorData) -> Tensor:
        nearest = score(data.images, data.captions).topk(min(k, len(data.captions))).indices
        return nearest.gather(1, data.captions.uncertainty[nearest].argmax(1, keepdim=True))[:, 0]

    return find


def _relative_nearness(images: Gaussian, captions: Gaussian) -> Tensor:
    """Minus the squared distance of means over the sum of uncertainties: (N, M)."""
    distance = 2 - 2 * images.mean @ captions.mean.mT
    return -distance / (images.uncertainty[:, None] + captions.uncertainty)


def _general(root: Root) -> FindRoots:
    """A general-... root of the package."""
    return lambda data: find_roots(data.images, data.captions, root, null=data.null)


def _score(
    data: AnchorData, find: FindRoots, with_null: bool, model: ProLIP | None = None
) -> dict[str, float | int]:
    """Traverse to the roots that `find` finds, and score the paths: a number for each of COLUMNS.

    With a model, steps are ranked by its match; without, by CSD.
    """
    start = find_nearest(data.images, data.captions, 1)[1][:, 0]
    roots = find(data)
    caption_root: Root = (
        "inclusion+null" if with_null else "inclusion"
    )  # roots are given: only "+null" counts
    root: Root = "null" if bool((roots < 0).all()) else caption_root
    traversals = traverse_to_roots(data.captions, data.null, start, roots, root=root, steps=STEPS)
    visited = traversals.visited if model is None else _visit_by_match(data, traversals.root_mean, model)
    ends = scores.score_ends(visited, traversals.roots, data.captions.uncertainty, data.truth)
    paths = scores.score_paths(visited, data.truth.levels, data.truth)
    own_chain = scores.traversal_scores(visited, data.chains)
    lengths = [len(torch.unique_consecutive(path)) for path in visited]
    estimates: Sequence[Any] = (ends.true_and_general, ends.true, ends.level, paths.rises, paths.true)
    values = [
        *(estimate.value for estimate in estimates), sum(lengths) / len(lengths), ends.at_root.value,
        ends.num_distinct, own_chain.precision.value, own_chain.recall.value,
    ]  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _visit_by_match(data: AnchorData, root_mean: Tensor, model: ProLIP) -> Tensor:
    """The caption with the highest match at each step: int64 (N, STEPS).

    A step has the image's variances. The start is the caption that matches the image best. `root_mean`: (N, D).
    """
    match = model.match_probability_matrix
    start = normalize(data.captions.mean[match(data.images, data.captions).argmax(1)], dim=-1)
    visited = []
    for step in range(STEPS):
        mean = normalize(torch.lerp(start, root_mean, step / STEPS), dim=-1)
        visited.append(match(Gaussian(mean, data.images.log_var), data.captions).argmax(1))
    return torch.stack(visited, dim=1)
