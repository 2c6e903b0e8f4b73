"""Classification accuracy: top-k, per-class recall, macro F1, worst group."""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.tensor_checks import require_all, require_float_tensor


def top_k_accuracy(scores: Tensor, labels: Tensor, k: int = 1) -> float | None:
    """Fraction of samples whose true class is among the k highest scores.

    Args:
        scores: Similarities of samples and classes, (N, C). Of equal scores the lower class index comes first, as in a
            stable sort.
        labels: Index of each sample's true class, int64 (N,), from 0 to C - 1.
        k: Number of highest scores that count, at least 1.

    Returns:
        The fraction, 0 to 1; None if there are fewer than k classes.
    """
    correct = top_k_correct(scores, labels, k)
    return None if correct is None else correct.double().mean().item()


def top_k_correct(scores: Tensor, labels: Tensor, k: int = 1) -> Tensor | None:
    """Decide whether the true class of each sample is among its k highest scores.

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).
        k: At least 1.

    Returns:
        bool (N,), or None if C is below k.
    """
    require_positive_int(k, "k")
    ranks = label_ranks(scores, labels)
    return None if scores.shape[1] < k else ranks < k


def label_ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """Rank the true class of each sample among its scores.

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).

    Returns:
        Ranks from 0, int64 (N,). Of equal scores the lower class index comes first.
    """
    _check_scores_and_labels(scores, labels)
    true_scores = scores.gather(1, labels[:, None])  # (N, 1)
    has_lower_index = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]  # (N, C)
    return ((scores > true_scores) | ((scores == true_scores) & has_lower_index)).sum(1)


def per_class_recall(scores: Tensor, labels: Tensor) -> Tensor:
    """Fraction of each class's samples that are classified correctly.

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).

    Returns:
        float64 (C,), NaN for a class without samples.
    """
    correct = (label_ranks(scores, labels) == 0).double()
    num_classes = scores.shape[1]
    num_correct = torch.bincount(labels, correct, minlength=num_classes)
    return num_correct / torch.bincount(labels, minlength=num_classes)


def mean_per_class_recall(scores: Tensor, labels: Tensor) -> float:
    """Mean of `per_class_recall` over the classes that have samples (balanced accuracy).

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).

    Returns:
        The mean recall, 0 to 1.
    """
    return per_class_recall(scores, labels).nanmean().item()


def macro_f1(scores: Tensor, labels: Tensor) -> float:
    """Mean over the classes that have samples of F1 = 2 TP / (2 TP + FP + FN).

    A class without samples doesn't count, but a prediction of it lowers the recall of the true class.

    Args:
        scores: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).

    Returns:
        The mean F1, 0 to 1.
    """
    correct = label_ranks(scores, labels) == 0
    num_classes = scores.shape[1]
    support = torch.bincount(labels, minlength=num_classes)  # TP + FN
    predicted = torch.bincount(scores.argmax(1), minlength=num_classes)  # TP + FP
    true_positives = torch.bincount(labels[correct], minlength=num_classes)
    has_samples = support > 0
    return (2.0 * true_positives.double() / (support + predicted))[has_samples].mean().item()


def worst_group_mean(values: Tensor, groups: Tensor) -> tuple[float, dict[int, float]]:
    """Mean value of each group, and the smallest of these.

    Args:
        values: Value of each sample, (N,), such as `top_k_correct`; N at least 1.
        groups: Group of each sample, int64 (N,), not negative. Groups without samples don't count.

    Returns:
        The smallest mean, and a dict from each group to its mean.
    """
    if values.ndim != 1 or values.shape != groups.shape or len(values) == 0:
        raise ValueError(
            f"values {tuple(values.shape)} and groups {tuple(groups.shape)} must both be (N,), N at least 1"
        )
    _require_indices(groups, "groups", None)
    count = torch.bincount(groups)
    means = torch.bincount(groups, values.double()) / count
    by_group = {int(group): means[group].item() for group in count.nonzero()[:, 0]}
    return min(by_group.values()), by_group


def _check_scores_and_labels(scores: Tensor, labels: Tensor) -> None:
    """Raise unless scores are float (N, C) without NaN and labels int64 (N,) from 0 to C - 1, with N, C at least 1."""
    require_float_tensor(scores, "scores")
    if scores.ndim != 2 or 0 in scores.shape or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"scores {tuple(scores.shape)} and labels {tuple(labels.shape)} must be (N, C) and (N,), not empty"
        )
    _require_indices(labels, "labels", scores.shape[1])
    if bool(scores.isnan().any()):
        raise ValueError("scores hold NaN, which can't be ranked")


def _require_indices(values: Tensor, name: str, below: int | None) -> None:
    """Raise ValueError unless values are int64, not negative and, unless `below` is None, less than `below`."""
    if values.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, not {values.dtype}")
    if below is None:
        require_all(values, lambda v: v >= 0, name, "not negative")
    else:
        require_all(values, lambda v: (v >= 0) & (v < below), name, f"from 0 to {below - 1}")
