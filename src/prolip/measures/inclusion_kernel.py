"""Fast kernels of H and log inclusion for all pairs, without gradients; timings in docs/performance.md."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.measures.all_pairs import iter_tiles_with_buffers, max_safe_halvings, multiply_halves_, pad_dims
from prolip.measures.formulas import LOG_2, LOG_2PI, Form, inclusion_log_var_factor

MIN_SPREAD, MAX_SPREAD = 0.5, 40.0
"""Half the range of a dimension's log-variances. Below: s2 - s1 must be computed without cancellation. Above: a product
of ratios times a variance leaves float32 (2^64 times e^40 doesn't)."""
MIN_PAIRS = 2**14
"""Pairs from which H is computed dimension by dimension: fewer don't pay for the calls of one dimension."""
HALVINGS = 6
RATIOS_PER_LOG = 2**HALVINGS
"""Ratios between 1/2 and 2 that are multiplied before a logarithm is taken: to between 2^-64 and 2^64."""


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
    n, m = mean1.shape[0], mean2.shape[0]
    if 0 in (n, m):
        return mean1.new_zeros(n, m)
    middle, spreads = _middle_log_var(log_var1, log_var2)
    log_ratio1, log_ratio2 = log_var1 - middle, log_var2 - middle
    least, largest = (spread.item() for spread in spreads.aminmax())
    if mean1.is_cpu and least >= MIN_SPREAD and largest <= MAX_SPREAD and n * m >= MIN_PAIRS:
        scale = torch.exp(0.5 * (eps - middle))
        out = _sum_by_dimension(mean1 * scale, log_ratio1.exp(), mean2 * scale, log_ratio2.exp())
    else:
        out = _sum_by_pair(mean1, log_ratio1, mean2, log_ratio2, torch.exp(eps - middle), largest)
    k = inclusion_log_var_factor(form)
    return out.add_(log_ratio2.sum(-1), alpha=k).sub_(log_ratio1.sum(-1)[:, None], alpha=k)


def _sum_by_dimension(mean1: Tensor, var1: Tensor, mean2: Tensor, var2: Tensor) -> Tensor:
    """H without the sums of log-variances, (N, M), one dimension after the other.

    Seven passes over a tile of pairs per dimension, and no sum over an axis. By partial fractions
    d^2 (s2 - s1)/(w12 w21) = d^2/w21 - d^2/w12; where all s are nearly equal, these two cancel.

    Args:
        mean1: (N, D), divided by sqrt(e^(middle - eps)).
        var1: (N, D), divided by e^middle.
        mean2: (M, D), as mean1.
        var2: (M, D), as var1.
    """
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    columns_of_1 = [values.mT.contiguous()[..., None] for values in (mean1, var1)]  # (D, N, 1)
    rows_of_2 = [values.mT.contiguous() for values in (mean2, var2)]  # (D, M)
    square_difference = torch.ops.aten.mse_loss.out  # (a - b)^2 in one pass; sub and square are two
    for rows, columns, (var_sum, square, ratios) in iter_tiles_with_buffers(mean1[:, :1], mean2[:, :1], 3):
        var_sum, square, ratios = (buffer[..., 0] for buffer in (var_sum, square, ratios))
        total = out[rows, columns].zero_()
        ratios.fill_(1.0)
        dimensions = zip(
            *(v[:, rows] for v in columns_of_1), *(v[:, columns] for v in rows_of_2), strict=True
        )
        for number, (m1, s1, m2, s2) in enumerate(dimensions, start=1):
            square_difference(m2, m1, 0, out=square)
            torch.add(s2, s1, alpha=2, out=var_sum)  # w21
            total.addcdiv_(square, var_sum)
            ratios.div_(var_sum)
            torch.add(s1, s2, alpha=2, out=var_sum)  # w12
            total.addcdiv_(square, var_sum, value=-1)
            ratios.mul_(var_sum)
            if number % RATIOS_PER_LOG == 0 or number == mean1.shape[1]:
                total.sub_(ratios.log_(), alpha=0.5)
                ratios.fill_(1.0)
    return out


def _sum_by_pair(
    mean1: Tensor, log_ratio1: Tensor, mean2: Tensor, log_ratio2: Tensor, scale: Tensor, spread: float
) -> Tensor:
    """H without the sums of log-variances, (N, M), in tiles (rows, columns, D); also where all s are nearly equal.

    Args:
        mean1: (N, D).
        log_ratio1: (N, D), log_var1 - middle.
        mean2: (M, D).
        log_ratio2: (M, D), log_var2 - middle.
        scale: (D,), e^(eps - middle).
        spread: Largest absolute value of the log-ratios.
    """
    # expm1 keeps the digits of s2 - s1 where both are near 1; that it subtracts 1 from both cancels
    relative = torch.expm1 if spread < MIN_SPREAD else torch.exp
    mean1, mean2 = (pad_dims(mean, HALVINGS, 0.0) for mean in (mean1, mean2))
    var1, var2 = (pad_dims(log_ratio.exp(), HALVINGS, 1.0) for log_ratio in (log_ratio1, log_ratio2))
    scaled1, scaled2 = (
        pad_dims(relative(log_ratio) * scale, HALVINGS, 0.0) for log_ratio in (log_ratio1, log_ratio2)
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
        log_ratio = multiply_halves_(var12.div_(var21), HALVINGS).log_().sum(-1)
        out[rows, columns] = distance_term.sum(-1).sub_(log_ratio, alpha=0.5)
    return out


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


def _middle_log_var(log_var1: Tensor, log_var2: Tensor) -> tuple[Tensor, Tensor]:
    """Middle and half the range of each dimension's log-variances, (D,) each."""
    low = torch.minimum(log_var1.amin(0), log_var2.amin(0))
    high = torch.maximum(log_var1.amax(0), log_var2.amax(0))
    return 0.5 * (low + high), 0.5 * (high - low)


def _log_var_sum_range(log_var1: Tensor, log_var2: Tensor) -> tuple[float, float]:
    """(middle, reach): every log(s1 + 2 s2) lies within `reach` of `middle`."""
    low1, high1 = (v.item() for v in log_var1.aminmax())
    low2, high2 = (v.item() + LOG_2 for v in log_var2.aminmax())
    low, high = max(low1, low2), max(high1, high2) + LOG_2  # of logaddexp(l1, l2 + log 2)
    return 0.5 * (low + high), 0.5 * (high - low)
