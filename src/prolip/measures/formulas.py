"""Closed-form measures per dimension, on plain tensors: unchecked, differentiable, compilable.

Arguments broadcast. `mean1, log_var1` belong to Z1, `mean2, log_var2` to Z2; s = exp(log_var).
`measures.public` is the API for these; the losses call them directly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.choices import Form as Form  # noqa: PLC0414

LOG_2 = math.log(2.0)
LOG_2PI = math.log(2.0 * math.pi)


def kl_standard(mean: Tensor, log_var: Tensor) -> Tensor:
    """KL(Z || N(0, 1)) = (s + mean^2 - 1 - log s) / 2, the VIB term of appendix A.7.

    Args:
        mean: Any shape; each element is one dimension of a Gaussian.
        log_var: Broadcast against mean.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    return 0.5 * (torch.expm1(log_var) - log_var + mean.square())


def kl_divergence(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """KL(Z1 || Z2): `kl_standard` in the coordinates in which Z2 is N(0, 1).

    Args:
        mean1: Any shape, broadcast against the others.
        log_var1: Likewise.
        mean2: Likewise.
        log_var2: Likewise.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    return kl_standard((mean1 - mean2) * torch.exp(-0.5 * log_var2), log_var1 - log_var2)


def log_density(point: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """log N(point; mean, s).

    Args:
        point: Any shape, broadcast against the others.
        mean: Likewise.
        log_var: Likewise.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    return -0.5 * (LOG_2PI + log_var + (point - mean).square() * torch.exp(-log_var))


def log_inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """log of the integral of p1^2 p2 (Eq. 4), in a closed form without cancellation.

    With L = log(s1 + 2 s2), B^2/4A - C of the paper is -(mean1 - mean2)^2 / e^L and log A is
    L - log 2 - log_var1 - log_var2.

    Args:
        mean1: Any shape, broadcast against the others.
        log_var1: Likewise.
        mean2: Likewise.
        log_var2: Likewise.
        form: `exact` is the integral; `published` is Eq. 4 as printed.
        eps: A logarithm: the paper's epsilon on 1/s inside A, B and C is e^eps.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    log_var_sum = torch.logaddexp(log_var1, log_var2 + LOG_2)
    shared = -0.5 * (log_var_sum + eps) - (mean1 - mean2).square() * torch.exp(eps - log_var_sum)
    if form == "exact":
        return shared - LOG_2PI - 0.5 * log_var1
    return shared + 0.5 * LOG_2 - 1.5 * log_var1 - 0.5 * log_var2


def inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """H(Z1 in Z2) = inc(Z1, Z2) - inc(Z2, Z1) (Eq. 5), an odd function of x = log_var2 - log_var1.

    With t = tanh(x/2) = (s2 - s1)/(s1 + s2):  1/2 log((s1 + 2 s2)/(s2 + 2 s1)) = atanh(t/3)  and
    (s2 - s1)/((s1 + 2 s2)(s2 + 2 s1)) = 4 t / ((9 - t^2)(s1 + s2)).
    Nothing cancels in this form, and it is antisymmetric to the last bit.

    Args:
        mean1: Any shape, broadcast against the others.
        log_var1: Likewise.
        mean2: Likewise.
        log_var2: Likewise.
        form: As for `log_inclusion`.
        eps: As for `log_inclusion`.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    log_ratio = log_var2 - log_var1
    tanh = torch.tanh(0.5 * log_ratio)
    weight = 4.0 * tanh / (9.0 - tanh.square()) * torch.exp(eps - torch.logaddexp(log_var1, log_var2))
    return (
        inclusion_log_var_factor(form) * log_ratio
        - torch.atanh(tanh / 3.0)
        + (mean1 - mean2).square() * weight
    )


def inclusion_log_var_factor(form: Form) -> float:
    """k, the factor of log_var2 - log_var1 in H: 1/2 by the appendix's derivation, 1 by Eq. 4 as printed.

    Args:
        form: As for `log_inclusion`.

    Returns:
        0.5 or 1.
    """
    return 0.5 if form == "exact" else 1.0


def log_containment(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, half_width: float
) -> Tensor:
    """log P(|x - mean2| <= half_width sigma2) for x ~ Z1, in one dimension; needs float64.

    In units of sigma1: `gap` between the means, `reach` of the interval to either side of mean2, so that
    P = Phi(reach - gap) - Phi(-reach - gap).

    Args:
        mean1: Any shape, broadcast against the others; float64.
        log_var1: Likewise.
        mean2: Likewise.
        log_var2: Likewise.
        half_width: Half width of the interval, in sigma2.

    Returns:
        Of the same shape: a term of the sum over dimensions.
    """
    gap = (mean1 - mean2).abs() * torch.exp(-0.5 * log_var1)
    log_reach = math.log(half_width) + 0.5 * (log_var2 - log_var1)
    reach = log_reach.exp()

    # An interval so narrow that the two Phi agree in most digits: density times width, off by reach^2 at most.
    narrow = reach * (1.0 + gap) < 1e-5
    log_narrow = -0.5 * (gap.square() + LOG_2PI) + LOG_2 + log_reach

    reach = torch.where(narrow, 1.0, reach)  # so that the branch not taken has finite gradients
    log_inner = torch.special.log_ndtr(reach - gap)
    log_outer = torch.special.log_ndtr(-reach - gap)
    # The normal's hazard at x exceeds x, so the difference is below -2 reach gap: true also where both round alike.
    drop = torch.minimum(log_outer - log_inner, -2.0 * reach * gap)
    return torch.where(narrow, log_narrow, log_inner + _log_one_minus_exp(drop))


def _log_one_minus_exp(x: Tensor) -> Tensor:
    """log(1 - e^x) for x < 0, accurate for x near 0 and for very negative x."""
    # the inner `where` keeps the branch that is not taken finite, and with it the gradients
    near_zero = x > -LOG_2
    small = torch.log(-torch.expm1(torch.where(near_zero, x, -1.0)))
    return torch.where(near_zero, small, torch.log1p(-torch.exp(torch.where(near_zero, -1.0, x))))
