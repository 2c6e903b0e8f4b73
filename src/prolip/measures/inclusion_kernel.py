"""Fast kernels of H and log inclusion for all pairs, without gradients; timings in docs/performance.md."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.measures.all_pairs import iter_tiles_with_buffers, max_safe_halvings, multiply_halves_, pad_dims
from prolip.measures.formulas import LOG_2, LOG_2PI, Form, inclusion_log_var_factor


def inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """H(Z1_i in Z2_j), summed over D: (N, M).

    H = k (sum l2 - sum l1) - 1/2 log prod w12/w21 + e^eps sum d^2 (s2 - s1)/(w12 w21),
    with w12 = s1 + 2 s2 and w21 = s2 + 2 s1: two vectors, a product of ratios between 1/2 and 2, of which one
    logarithm per 64 dimensions is taken, and a quotient. Variances are divided by e^middle of their dimension
    (`_middle_log_var`), so that little cancels where all are nearly equal.

    Args:
        mean1: (N, D).
        log_var1: (N, D).
        mean2: (M, D).
        log_var2: (M, D).
        form: As for `formulas.log_inclusion`.
        eps: As for `formulas.log_inclusion`.

    Returns:
        (N, M).
    """
    if 0 in (mean1.shape[0], mean2.shape[0]):
        return mean1.new_zeros(mean1.shape[0], mean2.shape[0])
    middle, spread = _middle_log_var(log_var1, log_var2)
    log_ratio1, log_ratio2 = log_var1 - middle, log_var2 - middle
    # expm1 keeps the digits of s2 - s1 where both are near 1; that it subtracts 1 from both cancels
    relative = torch.expm1 if spread < 0.5 else torch.exp
    halvings = 6  # 2^6 ratios multiply to between 2^-64 and 2^64
    mean1, mean2 = (pad_dims(mean, halvings, 0.0) for mean in (mean1, mean2))
    var1, var2 = (pad_dims(log_ratio.exp(), halvings, 1.0) for log_ratio in (log_ratio1, log_ratio2))
    scaled1, scaled2 = (
        pad_dims(relative(log_ratio) * torch.exp(eps - middle), halvings, 0.0)
        for log_ratio in (log_ratio1, log_ratio2)
    )
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    # var12, var21: w12, w21. distance_term: e^eps d^2 (s2 - s1)/(w12 w21). var_difference: e^eps (s2 - s1).
    for rows, columns, (var12, var21, distance_term, var_difference) in iter_tiles_with_buffers(
        mean1, mean2, 4
    ):
        torch.add(var1[rows, None], var2[None, columns], alpha=2, out=var12)
        torch.add(var2[None, columns], var1[rows, None], alpha=2, out=var21)
        torch.sub(mean1[rows, None], mean2[None, columns], out=distance_term).square_()
        torch.sub(scaled2[None, columns], scaled1[rows, None], out=var_difference)
        distance_term.mul_(var_difference).div_(var12).div_(var21)
        log_ratio = multiply_halves_(var12.div_(var21), halvings).log_().sum(-1)
        out[rows, columns] = distance_term.sum(-1).sub_(log_ratio, alpha=0.5)
    k = inclusion_log_var_factor(form)
    return out.add_(log_ratio2.sum(-1), alpha=k).sub_(log_ratio1.sum(-1)[:, None], alpha=k)


def log_inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """inc(Z1_i, Z2_j), summed over D: (N, M).

    The logarithm is taken of products of s1 + 2 s2, each divided by e^middle (`_log_var_sum_range`); how many of them
    fit into a float32 before a logarithm must be taken depends on the range of the data.

    Args:
        mean1: (N, D).
        log_var1: (N, D).
        mean2: (M, D).
        log_var2: (M, D).
        form: As for `formulas.log_inclusion`.
        eps: As for `formulas.log_inclusion`.

    Returns:
        (N, M).
    """
    if 0 in (mean1.shape[0], mean2.shape[0]):
        return mean1.new_zeros(mean1.shape[0], mean2.shape[0])
    dims = mean1.shape[-1]
    middle, reach = _log_var_sum_range(log_var1, log_var2)
    halvings = max_safe_halvings(reach)
    mean1, mean2 = (pad_dims(mean, halvings, 0.0) for mean in (mean1, mean2))
    # padded dimensions have s1 + 2 s2 = 0.5 + 0.5, whose logarithm is 0
    var1 = pad_dims((log_var1 - middle).exp(), halvings, 0.5)
    var2 = pad_dims((log_var2 + LOG_2 - middle).exp(), halvings, 0.5)
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    for rows, columns, (var_sum, square) in iter_tiles_with_buffers(mean1, mean2, 2):
        torch.add(var1[rows, None], var2[None, columns], out=var_sum)
        torch.sub(mean1[rows, None], mean2[None, columns], out=square).square_()
        distance = square.div_(var_sum).sum(-1)
        log_var_sum = multiply_halves_(var_sum, halvings).log_().sum(-1)
        out[rows, columns] = log_var_sum.mul_(-0.5).sub_(distance, alpha=math.exp(eps - middle))
    # the constant and the factors of log_var1, log_var2 are those of `formulas.log_inclusion`
    constant = -0.5 * (middle + eps) + (-LOG_2PI if form == "exact" else 0.5 * LOG_2)
    weight1, weight2 = (0.5, 0.0) if form == "exact" else (1.5, 0.5)
    out.sub_(log_var1.sum(-1)[:, None], alpha=weight1).sub_(log_var2.sum(-1), alpha=weight2)
    return out.add_(dims * constant)


def _middle_log_var(log_var1: Tensor, log_var2: Tensor) -> tuple[Tensor, float]:
    """The middle of the range of each dimension's log-variances, (D,), and the largest distance from it in any."""
    low = torch.minimum(log_var1.amin(0), log_var2.amin(0))
    high = torch.maximum(log_var1.amax(0), log_var2.amax(0))
    return 0.5 * (low + high), 0.5 * (high - low).max().item()


def _log_var_sum_range(log_var1: Tensor, log_var2: Tensor) -> tuple[float, float]:
    """(middle, reach): every log(s1 + 2 s2) lies within `reach` of `middle`."""
    low1, high1 = (v.item() for v in log_var1.aminmax())
    low2, high2 = (v.item() + LOG_2 for v in log_var2.aminmax())
    low, high = max(low1, low2), max(high1, high2) + LOG_2  # of logaddexp(l1, l2 + log 2)
    return 0.5 * (low + high), 0.5 * (high - low)
