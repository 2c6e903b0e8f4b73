"""Finite worlds of scenes and captions: exact probabilities, the expected pairwise sigmoid loss, its optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from prolip.scenes.captions import NUM_LEVELS, Caption
from prolip.scenes.meaning import is_true
from prolip.scenes.source import Scenes
from prolip.scenes.world import SIMPLE

LEAST_LOGIT = -80.0
"""Stands for the logit -inf of a pair that never matches."""


@dataclass(frozen=True)
class FiniteWorld:
    """Scenes and captions whose joint probability is known.

    Attributes:
        joint: P(scene, caption), (N, M), adds up to 1.
        levels: Level of each caption, int64 (M,), from 0 (general) up.
        scattered: Captions whose scenes have nothing else in common, bool (M,); None: no caption is known to be so.
    """

    joint: Tensor
    levels: Tensor
    scattered: Tensor | None = None

    @cached_property
    def independent(self) -> Tensor:
        """P(scene) P(caption), (N, M)."""
        return self.joint.sum(1, keepdim=True) * self.joint.sum(0, keepdim=True)

    @cached_property
    def is_true(self) -> Tensor:
        """Whether a caption is true of a scene, bool (N, M)."""
        return self.joint > 0

    @cached_property
    def pmi(self) -> Tensor:
        """ln P(scene, caption) / (P(scene) P(caption)), (N, M); -inf where the caption is false."""
        return (self.joint / self.independent).log()

    @cached_property
    def own_pmi(self) -> Tensor:
        """Mean PMI of a caption with the scenes that it is drawn with, (M,)."""
        return self.average_true(self.pmi)

    @cached_property
    def log_ambiguity(self) -> Tensor:
        """ln P(caption is true of a random scene), (M,)."""
        return (self.is_true * self.joint.sum(1, keepdim=True)).sum(0).log()

    def average_true(self, values: Tensor) -> Tensor:
        """The mean of values (N, M) over the scenes that a caption is drawn with, (M,)."""
        return (torch.where(self.is_true, values, 0) * self.joint).sum(0) / self.joint.sum(0)

    def measure_gap(self, values: Tensor) -> float:
        """Mean of values (M,) over the captions of the most specific level, minus that of the most general one."""
        specific, general = self.levels == self.levels.max(), self.levels == self.levels.min()
        return (values[specific].mean() - values[general].mean()).item()


def draw_world(
    num_scenes: int, num_captions: int, levels: Sequence[float] = (0.1, 0.2, 0.4, 0.3), seed: int = 0
) -> FiniteWorld:
    """Draw scenes, and captions of them with different meanings; scenes are equally likely.

    A caption of a scene is drawn by its level first, then uniformly among those of the level that are true.

    Args:
        num_scenes: At most N; scenes of which none of the captions is true are omitted.
        num_captions: At most M.
        levels: Probability of each level. A level without a true caption leaves its probability to the others.
        seed: Seed of scenes and captions.

    Returns:
        The world, in float64.
    """
    source = Scenes(SIMPLE, length=num_scenes, seed=seed, levels=levels)
    scenes = [source.draw_scene(index) for index in range(num_scenes)]
    drawn: dict[Any, Caption] = {}
    for index in range(num_scenes):
        for caption in source.captions(index):
            if len(drawn) < num_captions:
                drawn.setdefault(caption.meaning, caption)
    captions = list(drawn.values())
    truth = torch.tensor(
        [[is_true(one.meaning, scene) for one in captions] for scene in scenes], dtype=torch.float64
    )
    truth = truth[truth.any(1)]  # a scene without a true caption is in no pair
    level = torch.tensor([one.level for one in captions])
    joint = torch.zeros_like(truth)
    for number in range(NUM_LEVELS):
        of_level = truth * (level == number)
        joint += levels[number] * of_level / of_level.sum(1, keepdim=True).clamp(min=1)
    return FiniteWorld(joint / joint.sum(1, keepdim=True) / len(truth), level)


def grow_tree(depth: int, scattered: float = 0.0, seed: int = 0) -> FiniteWorld:
    """A binary tree: scenes are its leaves, captions its nodes, and a caption is true of the leaves below it.

    Captions of level k have an ambiguity of 2^-k exactly. A caption of a scene is drawn uniformly among the levels.

    Args:
        depth: There are 2^depth scenes.
        scattered: Above 0, each level has as many captions again, whose scenes are as many, but shuffled; they are
            drawn with this probability. A scattered caption is as ambiguous as its compact counterpart.
        seed: Seed of the shuffle.

    Returns:
        The world, in float64.
    """
    num_scenes = 2**depth
    shuffled = torch.randperm(num_scenes, generator=torch.Generator().manual_seed(seed))
    orders = (
        {False: torch.arange(num_scenes), True: shuffled} if scattered else {False: shuffled.sort().values}
    )
    columns, levels, is_scattered = [], [], []
    for shuffle, order in orders.items():
        probability = scattered if shuffle else 1 - scattered
        for level in range(depth + 1):
            for leaves in order.chunk(2**level):
                column = torch.zeros(num_scenes, dtype=torch.float64)
                column[leaves] = probability / (depth + 1) / num_scenes
                columns.append(column)
                levels.append(level)
                is_scattered.append(shuffle)
    marks = torch.tensor(is_scattered) if scattered else None
    return FiniteWorld(torch.stack(columns, 1), torch.tensor(levels), marks)


def compute_loss(logits: Tensor, world: FiniteWorld, batch_size: int, false_weight: float = 1.0) -> Tensor:
    """The expected pairwise sigmoid loss of one scene: its own caption, and B - 1 that are drawn independently.

    Args:
        logits: (N, M).
        world: Probabilities of the pairs.
        batch_size: B.
        false_weight: Weight of pairs that never match.

    Returns:
        Scalar. `compute_optimal_logits` minimizes it.
    """
    own = world.joint.to(logits) * softplus(-logits)
    others = _weigh_others(world, batch_size, false_weight).to(logits) * softplus(logits)
    return (own + others).sum()


def compute_optimal_logits(world: FiniteWorld, batch_size: int) -> Tensor:
    """The logits PMI - ln(B - 1) that minimize the expected loss, (N, M); LEAST_LOGIT stands for -inf."""
    return (world.pmi - math.log(batch_size - 1)).clamp(min=LEAST_LOGIT)


def compute_least_loss(world: FiniteWorld, batch_size: int) -> float:
    """The loss of the optimal logits, which no embeddings can beat."""
    return compute_loss(compute_optimal_logits(world, batch_size), world, batch_size).item()


def calibrate_offsets(
    similarities: Tensor, world: FiniteWorld, batch_size: int, false_weight: float = 1.0
) -> Tensor:
    """The offsets u_j that minimize the expected loss of the logits similarity_ij + u_j, exactly.

    The loss is convex in u_j. At its minimum the expected number of matches that the model predicts for a caption is
    the true one: sum_i [P(i, j) + (B - 1) P(i) P(j)] sigmoid(similarity_ij + u_j) = P(j).

    Args:
        similarities: Fixed logits without the offsets, (N, M).
        world: Probabilities of the pairs.
        batch_size: B.
        false_weight: Weight of pairs that never match; 0 calibrates on true captions only.

    Returns:
        Offsets, float64 (M,), by bisection to rounding error.
    """
    similarities = similarities.double()
    matches = world.joint.sum(0)
    weights = world.joint + _weigh_others(world, batch_size, false_weight)
    bound = similarities.abs().amax() + 4 * math.log(batch_size) + 100
    low, high = -bound.expand_as(matches), bound.expand_as(matches)
    for _ in range(80):
        middle = 0.5 * (low + high)
        is_high = (weights * (similarities + middle).sigmoid()).sum(0) > matches
        low, high = torch.where(is_high, low, middle), torch.where(is_high, middle, high)
    return 0.5 * (low + high)


def _weigh_others(world: FiniteWorld, batch_size: int, false_weight: float) -> Tensor:
    """Expected number of times that a scene meets each caption as one of the B - 1 others, weighted, (N, M)."""
    return torch.where(world.is_true, 1.0, false_weight) * (batch_size - 1) * world.independent
