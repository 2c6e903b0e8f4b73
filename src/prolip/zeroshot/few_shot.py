"""Labelled images to learn from: chosen at random, and kept apart from those that are scored."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prolip.checks import require_count


class Split(NamedTuple):
    """Numbers of images, int64, increasing: those that are scored, and those that are kept for learning."""

    scored: Tensor
    kept: Tensor


def choose_shots(labels: Tensor, classes: int, shots: int, generator: torch.Generator) -> Tensor:
    """Random images of each class: int64 (C, shots). Images of a small class come in turn; -1: it has none.

    labels: int64 (N,), from 0 to C - 1, on the CPU, as the generator.
    """
    require_count(shots, "shots")
    order, counts = _by_class(labels, classes, generator)
    first = (counts.cumsum(0) - counts)[:, None]
    turns = torch.arange(shots) % counts.clamp_min(1)[:, None]
    padded = torch.cat([order, order.new_tensor([-1])])  # classes without images may point behind the last
    return torch.where(counts[:, None] > 0, padded[first + turns], -1)


def keep_apart(labels: Tensor, classes: int, most: int, generator: torch.Generator) -> Split:
    """Up to `most` random images of each class are kept, at most half of the class; all others are scored."""
    order, counts = _by_class(labels, classes, generator)
    own = labels[order]
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[own]  # in its class
    keep = torch.zeros(len(labels), dtype=torch.bool)
    keep[order] = place < (counts // 2).clamp_max(most)[own]
    return Split((~keep).nonzero()[:, 0], keep.nonzero()[:, 0])


def _by_class(labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers of all images, class by class and random inside, (N,); how many each class has, (C,)."""
    if labels.ndim != 1 or labels.dtype != torch.int64 or bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(f"labels must be whole numbers (N,) in 0..{classes - 1}, int64")
    order = torch.randperm(len(labels), generator=generator)
    return order[labels[order].argsort(stable=True)], torch.bincount(labels, minlength=classes)
