"""Comparison of roots of traversals on scenes: how often a path ends at a caption that is true and general."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
    "true and general", "true", "level", "as uncertain", "as ambiguous", "at root", "distinct", "precision", "recall",
)  # fmt: skip
"""Scores of the paths to one kind of root."""


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
        images, captions: numbers of them. rows: {root, threshold, with_null, and a number for each of COLUMNS}.
    """
    loaded = load(model).eval()
    chosen_on, reported = (embed_chains(loaded, seed, num_scenes) for seed in SEEDS)
    rows = []
    for name, candidates in list_roots(loaded).items():
        best = max(
            candidates, key=lambda threshold: _score(chosen_on, candidates[threshold], False)[COLUMNS[0]]
        )
        for with_null in (False, True)[: 1 if name == "null" else 2]:
            row = {"root": name, "threshold": best, "with_null": with_null}
            rows.append(row | _score(reported, candidates[best], with_null))
    return {"images": len(reported.images), "captions": len(reported.captions), "rows": rows}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    table = make_table(
        f"{result['images']:,} images, {result['captions']:,} captions; fractions of paths, mean level, number of "
        "distinct ends",
        ("root", "threshold", "with null"),
        COLUMNS,
    )
    for row in result["rows"]:
        numbers = (f"{row[name]}" if name == "distinct" else f"{row[name]:.3f}" for name in COLUMNS)
        table.add_row(row["root"], row["threshold"], "yes" if row["with_null"] else "no", *numbers)
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


def _score(data: AnchorData, find: FindRoots, with_null: bool) -> dict[str, float | int]:
    """Traverse to the roots that `find` finds, and score the paths: a number for each of COLUMNS."""
    start = find_nearest(data.images, data.captions, 1)[1][:, 0]
    roots = find(data)
    caption_root: Root = (
        "inclusion+null" if with_null else "inclusion"
    )  # roots are given: only "+null" counts
    traversals = traverse_to_roots(
        data.captions, data.null, start, roots, root="null" if bool((roots < 0).all()) else caption_root
    )
    ends = scores.score_ends(traversals.visited, traversals.roots, data.captions.uncertainty, data.truth)
    visited = scores.traversal_scores(traversals.visited, data.chains)
    proportions: Sequence[Any] = (
        ends.true_and_general, ends.true, ends.level, ends.as_uncertain, ends.as_ambiguous, ends.at_root,
    )  # fmt: skip
    values = [number.value for number in proportions]
    return dict(
        zip(
            COLUMNS,
            [*values, ends.num_distinct, visited.precision.value, visited.recall.value],
            strict=True,
        )
    )
