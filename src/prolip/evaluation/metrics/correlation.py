"""Pearson's and Spearman's correlation, and ranks; None where a side is constant."""

from __future__ import annotations

import torch
from torch import Tensor


def pearson(a: Tensor, b: Tensor) -> float | None:
    """Pearson's correlation. If one side is zeros and ones it is the point-biserial correlation.

    Args:
        a: Values, (N,).
        b: Values, (N,).

    Returns:
        -1 to 1, or None if a side is constant.
    """
    return _cosine(*(_center(values) for values in _check_pair(a, b)))


def spearman(a: Tensor, b: Tensor) -> float | None:
    """Spearman's correlation: Pearson's of the ranks. Equal values get the mean of their ranks.

    Args:
        a: Values, (N,).
        b: Values, (N,).

    Returns:
        -1 to 1, or None if a side is constant.
    """
    return pearson(*(ranks(values) for values in _check_pair(a, b)))


def ranks(values: Tensor) -> Tensor:
    """Rank values from 1 up. Equal values get the mean of their ranks.

    Args:
        values: Values to rank, (N,).

    Returns:
        Ranks from 1 to N, float64 (N,).
    """
    ordered = values.sort().values
    num_below = torch.searchsorted(ordered, values.contiguous())
    num_up_to = torch.searchsorted(ordered, values.contiguous(), right=True)
    return 0.5 * (num_below + num_up_to + 1).double()  # the mean of the ranks num_below + 1 .. num_up_to


def _cosine(a: Tensor, b: Tensor) -> float | None:
    """Cosine of two centered vectors (N,), which is Pearson's correlation; None if one of them is 0."""
    norms = a.norm() * b.norm()
    return None if norms == 0 else (a @ b / norms).clamp(-1.0, 1.0).item()


def _center(values: Tensor) -> Tensor:
    """Values (N,) minus their mean, scaled to a range of order 1; zeros if all are equal.

    The first value is subtracted before the mean: the differences of close values are then exact, and those of equal
    values exactly 0.
    """
    shifted = values - values[:1]
    largest = shifted.abs().max() if len(values) else values.new_zeros(())
    if largest == 0:
        return torch.zeros_like(values)
    shifted = shifted / largest
    return shifted - shifted.mean()


def _check_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both arguments in float64; ValueError unless they are (N,) of one length, and finite."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"{tuple(a.shape)} and {tuple(b.shape)} must both be (N,)")
    a, b = a.double(), b.double()
    if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
        raise ValueError("a correlation needs finite values; remove unknown ones")
    return a, b
