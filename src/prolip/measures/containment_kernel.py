"""Fast kernel of log containment for all pairs: float32, no gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.measures.all_pairs import (
    MAX_LOG,
    iter_tiles_with_buffers,
    max_safe_halvings,
    multiply_halves_,
    pad_dims,
)

MIN_HALF_WIDTH = 0.05
"""Half a box, in sigmas of the draw: below it the box's two tails nearly agree, and float32 loses their difference."""

MILLS_CENTER = 3.75
MILLS = (
    -0.009766481220857492, 0.059823129576616285, -0.13018894752876395, 0.10910458886968166, -0.04109907005028995,
    0.057552888942600994, 0.05889903904927969, 0.08410973750369669, 0.09879537798185838, 0.10638513965438505,
    0.10638460619616431,
)  # fmt: skip
"""R(t)/u as a polynomial in u = 3.75/(3.75 + t), highest power first: a minimax fit, within 2e-8 of R(t) for t >= 0."""


def kernel_applies(log_var1: Tensor, log_var2: Tensor, half_width: float) -> bool:
    """Whether `log_containment` of this file is accurate for these inputs.

    They must be float32 and not empty, with no box narrower than MIN_HALF_WIDTH. Waits for a GPU.

    Args:
        log_var1: (N, D).
        log_var2: (M, D).
        half_width: Half width of the boxes, in sigma2.

    Returns:
        Whether it is.
    """
    if log_var1.dtype != torch.float32 or log_var1.numel() == 0 or log_var2.numel() == 0:
        return False
    log_narrowest = math.log(half_width) + 0.5 * (log_var2.min().item() - log_var1.max().item())
    return log_narrowest > math.log(MIN_HALF_WIDTH)


def log_containment(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, half_width: float
) -> Tensor:
    """log P(draw of Z1_i in the box of Z2_j), summed over D: (N, M). Only for inputs that `kernel_applies` accepts.

    In units of sigma1 the box lies from x = gap - reach to y = gap + reach away, so that P = Q(x) - Q(y), where
    Q(t) = e^(-t^2/2) R(t) for t >= 0 and Q(-t) = 1 - Q(t). As y^2 = x^2 + 4 gap reach, taking e^(-max(x, 0)^2/2)
    out of P leaves, with e = e^(-min(x, 0)^2/2),

        rest = [R(x) if x >= 0 else 1 - e R(-x)] - e e^(-2 gap reach) R(y)

    which is a moderate number: products of it fit a float32, while the exponents taken out are summed directly.

    Args:
        mean1: (N, D).
        log_var1: (N, D).
        mean2: (M, D).
        log_var2: (M, D).
        half_width: Half width of the boxes, in sigma2.

    Returns:
        (N, M).
    """
    unit1 = torch.exp(-0.5 * log_var1)  # 1/sigma1
    halvings = max_safe_halvings(_largest_log_of_rest(mean1, mean2, unit1))
    mean1, mean2, unit1 = (
        pad_dims(mean1, halvings, 0.0),
        pad_dims(mean2, halvings, 0.0),
        pad_dims(unit1, halvings, 1.0),
    )
    # in a padded dimension the box has 20 sigma to either side: rest is 1
    reach2 = pad_dims(half_width * torch.exp(0.5 * log_var2), halvings, 20.0)
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    for rows, columns, (x, y, outer, fall, tail, scratch) in iter_tiles_with_buffers(mean1, mean2, 6):
        unit, reach = unit1[rows, None], reach2[None, columns]
        gap = torch.sub(mean1[rows, None], mean2[None, columns], out=scratch).abs_()
        torch.sub(gap, reach, out=x).mul_(unit)
        torch.add(gap, reach, out=y).mul_(unit)
        _exp_(torch.mul(gap, reach, out=outer).mul_(-2.0 * unit.square()))  # e^(-2 gap reach)
        outer.mul_(_mills_(y, out=tail))  # ... R(y)
        taken_out = torch.clamp_min(x, 0.0, out=scratch).square_().sum(-1)
        _exp_(torch.clamp_max(x, 0.0, out=fall).square_().mul_(-0.5))  # e
        outer.mul_(fall)
        _mills_(torch.abs(x, out=scratch), out=tail)  # R(|x|)
        rest = torch.where(x >= 0, tail, fall.mul_(tail).neg_().add_(1.0), out=y).sub_(outer)
        out[rows, columns] = multiply_halves_(rest, halvings).log_().sum(-1).sub_(taken_out, alpha=0.5)
    return out


def _largest_log_of_rest(mean1: Tensor, mean2: Tensor, unit1: Tensor) -> float:
    """-log of the smallest `rest` can be: R(x) > 1/(2.6 (x + 1)), and MIN_HALF_WIDTH leaves at least 1/25 of it."""
    farthest = (mean1.abs().max() + mean2.abs().max()).item() * unit1.max().item()
    return math.log(2.6 * 25.0 * (farthest + 1.0))


def _exp_(values: Tensor) -> Tensor:
    """e^values in place, at least e^-80: denormal numbers would slow every pass that follows. Returns `values`."""
    return values.clamp_min_(-MAX_LOG).exp_()


def _mills_(t: Tensor, out: Tensor) -> Tensor:
    """Mills ratio R(t) = e^(t^2/2) Q(t) for t >= 0, Q being the normal's upper tail. Fills `out`, and overwrites t."""
    u = t.add_(MILLS_CENTER).reciprocal_().mul_(MILLS_CENTER)
    out.fill_(MILLS[0])  # Horner's scheme, then times u
    for coefficient in MILLS[1:]:
        torch.addcmul(u.new_tensor(coefficient), out, u, out=out)
    return out.mul_(u)
