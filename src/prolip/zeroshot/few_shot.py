"""Few-shot images: chosen at random per class, and split from the test images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prolip.checks import require_positive_int


class FewShotSplit(NamedTuple):
    """Images split for few-shot classification.

    Attributes:
        test: Indices of test images, int64, increasing.
        train: Indices of images to learn from, int64, increasing.
    """

    test: Tensor
    train: Tensor


def choose_shots(labels: Tensor, num_classes: int, shots: int, generator: torch.Generator) -> Tensor:
    """Choose random images of each class.

    Args:
        labels: Index of each image's class, int64 (N,), from 0 to C - 1, on the CPU.
        num_classes: C, the number of classes.
        shots: Number of images per class.
        generator: Generator of the choice, on the CPU.

    Returns:
        Indices of images, int64 (C, shots). Images of a class with fewer images repeat; -1: the class has none.
    """
    require_positive_int(shots, "shots")
    order, counts = _shuffle_by_class(labels, num_classes, generator)
    first_of_class = (counts.cumsum(0) - counts)[:, None]
    # 0, 1, ... within the class; a class with fewer images begins again
    image_in_class = torch.arange(shots) % counts.clamp_min(1)[:, None]
    padded = torch.cat([order, order.new_tensor([-1])])  # classes without images may index one past the end
    return torch.where(counts[:, None] > 0, padded[first_of_class + image_in_class], -1)


def split_few_shot(
    labels: Tensor, num_classes: int, max_per_class: int, generator: torch.Generator
) -> FewShotSplit:
    """Split images into test images and images to learn from.

    Args:
        labels: Index of each image's class, int64 (N,), from 0 to C - 1.
        num_classes: C, the number of classes.
        max_per_class: Largest number of images to learn from per class; never more than half of the class.
        generator: Generator of the choice.

    Returns:
        Indices of both; every image is in one of them.
    """
    order, counts = _shuffle_by_class(labels, num_classes, generator)
    sorted_labels = labels[order]
    rank_in_class = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[sorted_labels]
    is_train = torch.zeros(len(labels), dtype=torch.bool)
    is_train[order] = rank_in_class < (counts // 2).clamp_max(max_per_class)[sorted_labels]
    return FewShotSplit((~is_train).nonzero()[:, 0], is_train.nonzero()[:, 0])


def _shuffle_by_class(labels: Tensor, num_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of all images (N,), class after class, in random order within a class; number of images per class (C,).

    Raises ValueError unless labels are int64 (N,) from 0 to num_classes - 1.
    """
    if (
        labels.ndim != 1
        or labels.dtype != torch.int64
        or bool(((labels < 0) | (labels >= num_classes)).any())
    ):
        raise ValueError(
            f"labels must be int64 (N,) in 0..{num_classes - 1}; they are {labels.dtype} {tuple(labels.shape)}"
            + (f" in {int(labels.min())}..{int(labels.max())}" if labels.numel() else "")
        )
    order = torch.randperm(len(labels), generator=generator)
    return order[labels[order].argsort(stable=True)], torch.bincount(labels, minlength=num_classes)
