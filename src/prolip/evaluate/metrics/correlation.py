"""Correlations: Pearson's, Spearman's, and Spearman's with other things held fixed. None where a side is constant."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_RESIDUE = 1e-9
"""A side that others explain to this share of its own length is constant once they are held fixed: rounding is left."""


def pearson(a: Tensor, b: Tensor) -> float | None:
    """Pearson's correlation of two (N,). With a side of zeros and ones it is the point-biserial one."""
    return _cosine(*(_centred(values) for values in _pair(a, b)))


def spearman(a: Tensor, b: Tensor) -> float | None:
    """Spearman's correlation of two (N,): Pearson's of their ranks; equal values share the mean of their ranks."""
    return pearson(*(ranks(values) for values in _pair(a, b)))


def partial_spearman(a: Tensor, b: Tensor, given: Tensor) -> float | None:
    """Spearman's correlation of a and b with `given` held fixed.

    a, b: (N,). given: (N,), or (N, K) for K things at once. Pearson's correlation of what is left of the ranks of a
    and of b after a linear regression on the ranks of `given`; for one thing this is the usual formula
    (r_ab - r_ag r_bg) / sqrt((1 - r_ag^2)(1 - r_bg^2)). None if nothing is left of a side.
    """
    first, second = _pair(a, b)
    columns = (given[:, None] if given.ndim == 1 else given).unbind(1)
    held = torch.stack([_centred(ranks(_pair(a, column)[1])) for column in columns], 1)
    left = []
    for values in (first, second):
        centred = _centred(ranks(values))
        # a pseudo-inverse: columns of `given` may repeat each other or be constant
        residue = centred - held @ (torch.linalg.pinv(held) @ centred)
        if residue.norm() <= SMALLEST_RESIDUE * centred.norm():
            return None
        left.append(residue)
    return _cosine(*left)


def ranks(values: Tensor) -> Tensor:
    """Ranks from 1, float64 (N,): equal values share the mean of theirs."""
    ordered = values.sort().values
    below = torch.searchsorted(ordered, values.contiguous())
    up_to = torch.searchsorted(ordered, values.contiguous(), right=True)
    return 0.5 * (below + up_to + 1).double()


def _cosine(a: Tensor, b: Tensor) -> float | None:
    """Of two centred vectors."""
    length = a.norm() * b.norm()
    return None if length == 0 else (a @ b / length).clamp(-1.0, 1.0).item()


def _centred(values: Tensor) -> Tensor:
    """Less their mean and scaled; zeros if all are equal.

    The first value is taken off before: close values then differ exactly, and equal ones by no rounding.
    """
    shifted = values - values[:1]
    largest = shifted.abs().max() if len(values) else values.new_zeros(())
    if largest == 0:
        return torch.zeros_like(values)
    shifted = shifted / largest
    return shifted - shifted.mean()


def _pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, or a sentence."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"{tuple(a.shape)} and {tuple(b.shape)} must both be (N,)")
    a, b = a.double(), b.double()
    if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
        raise ValueError("a correlation needs finite numbers; leave out what is not known")
    return a, b
