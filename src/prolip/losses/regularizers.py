"""Losses besides the contrastive ones: the inclusion loss, the VIB term, and the distillation of widths.

Each rank sums its own rows and divides by `count`, the number on all ranks.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor
from torch.nn.functional import logsigmoid

from prolip.checks import require_choice
from prolip.gaussian import Gaussian
from prolip.measures import formulas
from prolip.measures.formulas import Form

Reduction = Literal["per_dimension", "summed"]
"""A log-sigmoid for each dimension and their mean (as trained), or one for the summed H (as printed)."""


def inclusion(
    inner: Gaussian,
    outer: Gaussian,
    *,
    c: float = 10.0,
    eps: float = -10.0,
    form: Form = "published",
    reduction: Reduction = "per_dimension",
    count: int | None = None,
) -> Tensor:
    """Inclusion loss -log sigmoid(c H_eps(inner in outer)) (Eq. 6), averaged over dimensions and pairs.

    Args:
        inner: (n, D).
        outer: (n, D), paired row by row with inner.
        c: Factor of H.
        eps: A logarithm: the paper's epsilon is e^eps.
        form: Form of H, see `Form`.
        reduction: See `Reduction`.
        count: Pairs in the global batch; None: n.

    Returns:
        This rank's part of the loss, a scalar; 0 for no rows.
    """
    require_choice(form, get_args(Form), "form")
    require_choice(reduction, get_args(Reduction), "reduction")
    inner, outer = _check_and_promote(inner, "inner"), _check_and_promote(outer, "outer")
    if inner.shape != outer.shape:
        raise ValueError(f"inner {tuple(inner.shape)} and outer {tuple(outer.shape)} must pair row by row")
    terms = formulas.inclusion(inner.mean, inner.log_var, outer.mean, outer.log_var, form, eps)
    summed = reduction == "summed"
    per_pair = -logsigmoid(c * terms.sum(-1)) if summed else -logsigmoid(c * terms).mean(-1)
    return per_pair.sum() / _divisor(count, inner)


def vib(z: Gaussian, *, count: int | None = None) -> Tensor:
    """KL(z || N(0, I)) (appendix A.7), averaged over dimensions and rows.

    Args:
        z: (n, D).
        count: Rows in the global batch; None: n.

    Returns:
        This rank's part of the loss, a scalar.
    """
    z = _check_and_promote(z, "z")
    return formulas.kl_standard(z.mean, z.log_var).mean(-1).sum() / _divisor(count, z)


def distillation(z: Gaussian, target: Tensor, *, count: int | None = None) -> Tensor:
    """Squared error of the logarithm of the uncertainty, ln tr(Sigma), averaged over rows.

    Args:
        z: (n, D); means get no gradient.
        target: (n,), ln of the uncertainty that each row should have.
        count: Rows in the global batch; None: n.

    Returns:
        This rank's part of the loss, a scalar.
    """
    z = _check_and_promote(z, "z")
    if target.shape != z.shape[:1]:
        raise ValueError(f"target must be ({len(z)},), one number per row of z, not {tuple(target.shape)}")
    return (z.log_var.logsumexp(-1) - target).square().sum() / _divisor(count, z)


def _check_and_promote(z: Gaussian, name: str) -> Gaussian:
    """Return z, of shape (n, D), with its mean in the dtype of its log_var: bfloat16 is too coarse for differences.

    Raises ValueError, with `name`, for another shape.
    """
    if z.check_shapes(name).mean.ndim != 2:
        raise ValueError(f"{name} must be (n, D), not {tuple(z.shape)}")
    return z.to(z.log_var.dtype)


def _divisor(count: int | None, z: Gaussian) -> int:
    """What sums over rows are divided by: `count`, or the rows of z for None; at least 1, so that 0 rows give 0."""
    return max(1, len(z) if count is None else count)
