"""Measures on Gaussians: f(a, b) takes row i of a with row i of b, f_matrix(a, b) takes all pairs.

Every function checks its input, is differentiable, and returns float32 or better. docs/measures.md derives them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import get_args

import torch
from torch import Tensor

from prolip.checks import require_choice
from prolip.gaussian import MAX_LOG_VAR, Gaussian, check_gaussian, compute_dtype
from prolip.measures import all_pairs, containment_kernel, formulas, inclusion_kernel
from prolip.measures.formulas import Form
from prolip.tensor_checks import check_points, is_in_range


def csd(a: Gaussian, b: Gaussian) -> Tensor:
    """Closed-form sampled distance E ||x - y||^2 for x ~ a, y ~ b (Eq. 1), row by row.

    Args:
        a: (..., D), broadcast against b.
        b: (..., D).

    Returns:
        (...,), at least 0.
    """
    a, b = _check_paired(a, b)
    return (a.mean - b.mean).square().sum(-1) + a.uncertainty + b.uncertainty


def csd_matrix(a: Gaussian, b: Gaussian) -> Tensor:
    """`csd` of all pairs, by one matrix product.

    Args:
        a: (N, D).
        b: (M, D).

    Returns:
        (N, M).
    """
    a, b = _check_all_pairs(a, b)
    squares = a.mean.square().sum(-1)[:, None] + b.mean.square().sum(-1)
    with torch.autocast(a.device.type, enabled=False):
        products = a.mean @ b.mean.mT
    distance = (squares - 2.0 * products).clamp_min(0.0)
    return distance + a.uncertainty[:, None] + b.uncertainty


def log_inclusion(a: Gaussian, b: Gaussian, *, form: Form = "exact", eps: float = 0.0) -> Tensor:
    """inc(a, b) = log of the integral of p_a^2 p_b (Eq. 4), row by row: large if b's variance is large and b is near a.

    Args:
        a: (..., D).
        b: (..., D).
        form: `exact` is the integral; `published` is Eq. 4 as printed (no constants, other factors on log sigma^2).
        eps: A logarithm: 1/sigma^2 is multiplied by e^eps inside A, B, C of Eq. 4, as in the inclusion loss. 0: no
            change.

    Returns:
        (...,).
    """
    _check_options(form, eps)
    a, b = _check_variances(*_check_paired(a, b))
    return formulas.log_inclusion(a.mean, a.log_var, b.mean, b.log_var, form, eps).sum(-1)


def log_inclusion_matrix(a: Gaussian, b: Gaussian, *, form: Form = "exact", eps: float = 0.0) -> Tensor:
    """`log_inclusion` of all pairs, in tiles, so that memory stays bounded.

    Args:
        a: (N, D).
        b: (M, D).
        form: As in `log_inclusion`.
        eps: As in `log_inclusion`.

    Returns:
        (N, M).
    """
    _check_options(form, eps)
    a, b = _check_variances(*_check_all_pairs(a, b))
    if _needs_autograd_path(a, b):
        terms = partial(formulas.log_inclusion, form=form, eps=eps)
        return all_pairs.sum_terms(terms, a.mean, a.log_var, b.mean, b.log_var)
    return inclusion_kernel.log_inclusion(a.mean, a.log_var, b.mean, b.log_var, form, eps)


def inclusion(a: Gaussian, b: Gaussian, *, form: Form = "exact", eps: float = 0.0) -> Tensor:
    """H(a in b) = inc(a, b) - inc(b, a) (Eq. 5), row by row: a test of a given pair.

    Positive if b has the larger variance. A distance between the means only scales it, so that the largest H belongs to
    distant, unrelated pairs: search with `log_inclusion` or `containment` instead.

    Args:
        a: (..., D).
        b: (..., D).
        form: As in `log_inclusion`.
        eps: As in `log_inclusion`.

    Returns:
        (...,); H(a in b) = -H(b in a) exactly.
    """
    _check_options(form, eps)
    a, b = _check_variances(*_check_paired(a, b))
    return formulas.inclusion(a.mean, a.log_var, b.mean, b.log_var, form, eps).sum(-1)


def inclusion_matrix(a: Gaussian, b: Gaussian, *, form: Form = "exact", eps: float = 0.0) -> Tensor:
    """`inclusion` of all pairs, H(a_i in b_j), in tiles, so that memory stays bounded.

    Args:
        a: (N, D).
        b: (M, D).
        form: As in `log_inclusion`.
        eps: As in `log_inclusion`.

    Returns:
        (N, M).
    """
    _check_options(form, eps)
    a, b = _check_variances(*_check_all_pairs(a, b))
    if _needs_autograd_path(a, b):
        terms = partial(formulas.inclusion, form=form, eps=eps)
        return all_pairs.sum_terms(terms, a.mean, a.log_var, b.mean, b.log_var)
    return inclusion_kernel.inclusion(a.mean, a.log_var, b.mean, b.log_var, form, eps)


def log_containment(a: Gaussian, b: Gaussian, *, mass: float = 0.95) -> Tensor:
    """log of `containment`, row by row: also where the probability itself underflows.

    Args:
        a: (..., D).
        b: (..., D).
        mass: Probability of the box under b.

    Returns:
        (...,), at most 0.
    """
    a, b = _check_variances(*_check_paired(a, b))
    terms = formulas.log_containment(*_to_float64(a, b), box_half_width(a.dim, mass))
    return terms.sum(-1).to(a.log_var.dtype)


def log_containment_matrix(a: Gaussian, b: Gaussian, *, mass: float = 0.95) -> Tensor:
    """`log_containment` of all pairs, in tiles, so that memory stays bounded.

    Args:
        a: (N, D).
        b: (M, D).
        mass: As in `containment`.

    Returns:
        (N, M).
    """
    a, b = _check_variances(*_check_all_pairs(a, b))
    half_width = box_half_width(a.dim, mass)
    if not _needs_autograd_path(a, b) and containment_kernel.kernel_applies(a.log_var, b.log_var, half_width):
        return containment_kernel.log_containment(a.mean, a.log_var, b.mean, b.log_var, half_width)
    terms = partial(formulas.log_containment, half_width=half_width)
    return all_pairs.sum_terms(terms, *_to_float64(a, b)).to(a.log_var.dtype)


def containment(a: Gaussian, b: Gaussian, *, mass: float = 0.95) -> Tensor:
    """Probability that a draw of a falls into the central box of b that holds `mass` of b, row by row.

    The box is the product of D equal-mass intervals about b's mean. Near 1 only if b covers a in every
    dimension, near 0 for a in b and for b in a if they are disjoint, `mass` if they are equal. Not in the paper.

    Args:
        a: (..., D).
        b: (..., D).
        mass: Probability of the box under b.

    Returns:
        (...,) in [0, 1].
    """
    return log_containment(a, b, mass=mass).exp()


def containment_matrix(a: Gaussian, b: Gaussian, *, mass: float = 0.95) -> Tensor:
    """`containment` of all pairs, in tiles, so that memory stays bounded.

    Args:
        a: (N, D).
        b: (M, D).
        mass: As in `containment`.

    Returns:
        (N, M).
    """
    return log_containment_matrix(a, b, mass=mass).exp()


def kl_standard(z: Gaussian) -> Tensor:
    """KL(z || N(0, I)), summed over dimensions.

    Args:
        z: (..., D).

    Returns:
        (...,), at least 0.
    """
    (z,) = _check_variances(_upcast(check_gaussian(z, "z")))
    return formulas.kl_standard(z.mean, z.log_var).sum(-1)


def kl_divergence(a: Gaussian, b: Gaussian) -> Tensor:
    """KL(a || b), summed over dimensions, row by row.

    Args:
        a: (..., D).
        b: (..., D).

    Returns:
        (...,), at least 0.
    """
    a, b = _check_variances(*_check_paired(a, b))
    return formulas.kl_divergence(a.mean, a.log_var, b.mean, b.log_var).sum(-1)


def log_density(points: Tensor, z: Gaussian) -> Tensor:
    """log N(point; z), row by row.

    Args:
        points: (..., D).
        z: (..., D).

    Returns:
        (...,).
    """
    points, z = check_points(points, "points"), check_gaussian(z, "z")
    if points.shape[-1] != z.dim:
        raise ValueError(f"points have {points.shape[-1]} dimensions, z has {z.dim}")
    _check_rows_broadcast(points.shape, z.shape, "points", "z")
    dtype = compute_dtype(points, z.mean, z.log_var)
    (z,) = _check_variances(Gaussian(z.mean.to(dtype), z.log_var.to(dtype)))
    return formulas.log_density(points.to(dtype), z.mean, z.log_var).sum(-1)


def log_density_matrix(points: Tensor, z: Gaussian) -> Tensor:
    """log density of all points under all Gaussians, by two matrix products.

    The terms of the expanded square cancel (eight digits are lost for sigma about 1e-4), so float64 is used. Where
    that is not enough, the differences x - mean are computed instead, in tiles.

    Args:
        points: (..., N, D).
        z: (..., M, D), with the same leading axes.

    Returns:
        (..., N, M).
    """
    points, z = check_points(points, "points"), check_gaussian(z, "z")
    if min(points.ndim, z.mean.ndim) < 2 or points.shape[:-2] != z.shape[:-2] or points.shape[-1] != z.dim:
        raise ValueError(
            f"points {tuple(points.shape)} and z {tuple(z.shape)} must be (..., N, D) and (..., M, D)"
        )
    (checked,) = _check_variances(_upcast(z))
    x, mean, log_var = points.double(), checked.mean.double(), checked.log_var.double()
    compute = _direct_log_density if _square_cancels(x, mean, log_var) else _expanded_log_density
    return compute(x, mean, log_var).to(compute_dtype(points, z.mean, z.log_var))


def _expanded_log_density(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Log densities (..., N, M) of x (..., N, D) under Gaussians (..., M, D), by two matrix products.

    (x - mean)^2 / s is expanded to x^2 / s - 2 x mean / s + mean^2 / s.
    """
    precision = torch.exp(-log_var)
    weighted_mean = mean * precision
    constant = (mean * weighted_mean + log_var).sum(-1) + mean.shape[-1] * formulas.LOG_2PI
    return x @ weighted_mean.mT - 0.5 * (x.square() @ precision.mT + constant[..., None, :])


def _square_cancels(x: Tensor, mean: Tensor, log_var: Tensor) -> bool:
    """Whether the terms of the expanded square are so large that float64 can't hold their difference to 1e-6."""
    if torch.compiler.is_compiling() or x.numel() == 0 or mean.numel() == 0:
        return False
    largest_coordinate = max(abs(end.item()) for values in (x, mean) for end in values.aminmax())
    largest_term = largest_coordinate * largest_coordinate * math.exp(-log_var.min().item())
    return largest_term * torch.finfo(torch.float64).eps > 1e-6


def _direct_log_density(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """As `_expanded_log_density`, but from the differences x - mean, in tiles, so that memory stays bounded.

    For variances so small that the terms of the expanded square would cancel. Leading axes are looped over.
    """

    # `sum_terms` passes four tensors; points have no log_var, so that x is given twice and the second is ignored
    def terms(points: Tensor, _: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
        return formulas.log_density(points, mean, log_var)

    flat = [t.reshape(-1, *t.shape[-2:]) for t in (x, mean, log_var)]
    matrices = [
        all_pairs.sum_terms(terms, x, x, mean, log_var) for x, mean, log_var in zip(*flat, strict=True)
    ]  # (N, M) each
    return torch.stack(matrices).reshape(*x.shape[:-1], mean.shape[-2])


def box_half_width(dims: int, mass: float) -> float:
    """Half a side, in sigmas, of the central box of a Gaussian that holds `mass`: each of D sides holds mass^(1/D).

    Args:
        dims: D.
        mass: Probability of the box, at least 1e-6 and below 1.

    Returns:
        The half width, in sigmas.
    """
    if not 1e-6 <= mass < 1.0:
        raise ValueError(f"mass must be at least 1e-6 and below 1, not {mass}")
    tail = -0.5 * math.expm1(math.log(mass) / dims)  # (1 - mass^(1/D))/2, the mass beyond one side
    return -float(torch.special.ndtri(torch.tensor(tail, dtype=torch.float64)))


def _check_paired(a: Gaussian, b: Gaussian) -> tuple[Gaussian, Gaussian]:
    """Check a and b for row-by-row measures; returns both in one dtype. Raises TypeError or ValueError."""
    _check_same_space(a, b)
    _check_rows_broadcast(a.shape, b.shape, "a", "b")
    return _upcast(a, b), _upcast(b, a)


def _check_all_pairs(a: Gaussian, b: Gaussian) -> tuple[Gaussian, Gaussian]:
    """Check a (N, D) and b (M, D) for all-pairs measures; returns both in one dtype. Raises TypeError or ValueError."""
    _check_same_space(a, b)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ValueError(f"all pairs need a (N, D) and b (M, D), not {tuple(a.shape)} and {tuple(b.shape)}")
    return _upcast(a, b), _upcast(b, a)


def _check_same_space(a: Gaussian, b: Gaussian) -> None:
    """Check two Gaussians, which must have the same D and device; raises TypeError or ValueError."""
    check_gaussian(a, "a")
    check_gaussian(b, "b")
    if a.dim != b.dim:
        raise ValueError(
            f"a and b must have the same embedding dimension D (the last axis), not {a.dim} and {b.dim}. Embeddings "
            "of two models can't be compared"
        )
    if a.device != b.device:
        raise ValueError(f"a is on {a.device}, b on {b.device}")


def _check_rows_broadcast(shape1: torch.Size, shape2: torch.Size, name1: str, name2: str) -> None:
    """Raise ValueError unless two shapes (..., D) broadcast, for measures that take rows in pairs.

    name1 and name2 are the names of the arguments, for the message.
    """
    try:
        torch.broadcast_shapes(shape1, shape2)
    except RuntimeError:
        raise ValueError(
            f"rows of {name1} {tuple(shape1)} and {name2} {tuple(shape2)} don't pair up; "
            "for all pairs use the _matrix form"
        ) from None


def _check_options(form: Form, eps: float) -> None:
    """Raise ValueError for an unknown form, or for an eps that would overflow."""
    require_choice(form, get_args(Form), "form")
    if not -1000.0 <= eps <= 80.0:
        raise ValueError(f"eps must be at least -1000 and at most 80, not {eps}: it is a logarithm")


def _check_variances(*gaussians: Gaussian) -> tuple[Gaussian, ...]:
    """Raise ValueError for zero variances and for those whose inverse overflows; returns the Gaussians unchanged.

    Nothing is checked while torch.compile traces.
    """
    if torch.compiler.is_compiling():
        return gaussians
    for z in gaussians:
        limit = MAX_LOG_VAR[z.log_var.dtype]
        if not is_in_range(z.log_var, -limit, limit):
            low, high = (v.item() for v in z.log_var.aminmax())
            raise ValueError(
                f"this measure needs log_var between {-limit:g} and {limit:g} in {z.log_var.dtype}, "
                f"not {low:g} to {high:g}. For a deterministic model (zero variance) use csd or cosine"
            )
    return gaussians


def _upcast(z: Gaussian, *others: Gaussian) -> Gaussian:
    """Convert z to float32, or to float64 if z or any of the others has a tensor in float64."""
    dtype = compute_dtype(*(leaf for g in (z, *others) for leaf in (g.mean, g.log_var)))
    return Gaussian(z.mean.to(dtype), z.log_var.to(dtype))


def _to_float64(a: Gaussian, b: Gaussian) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(mean, log_var) of a, then of b, in float64: the arguments of a formula."""
    return a.mean.double(), a.log_var.double(), b.mean.double(), b.log_var.double()


def _needs_autograd_path(*gaussians: Gaussian) -> bool:
    """Whether the kernels can't be used: they have no gradients, and branch on the data, which a compiler can't."""
    return torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(z.mean.requires_grad or z.log_var.requires_grad for z in gaussians)
    )
