"""All pairs of two sets of Gaussians, block by block: an (N, M) result without an (N, M, D) tensor.

`sum_terms` works for every per-dimension formula and carries gradients. `inclusion`, `log_inclusion` and `log_containment`
are the same sums as hand-ordered passes over buffers that stay in cache; docs/performance.md says what they gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prolip.formulas import LOG_2, LOG_2PI, Form, slope

Terms = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

BLOCK_ELEMENTS = {"cpu": 2**19, "cuda": 2**25}
"""Elements of one (rows, columns, D) block: a few megabytes on a CPU (cache), more where launches cost."""

LARGEST_LOG = 80.0
"""Logarithms that a float32 product may reach: e^80 is 5e34, e^-80 is 2e-35 and still a normal number."""


def sum_terms(terms: Terms, mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """Sum over D of terms(Z1_i, Z2_j), for all i, j: (N, M). Blocks are recomputed in the backward pass."""
    tensors = (mean1, log_var1, mean2, log_var2)
    with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)

    def block(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
        return terms(mean1[:, None], log_var1[:, None], mean2[None], log_var2[None]).sum(-1)

    strips: dict[int, list[Tensor]] = {}
    for rows, columns in _blocks(mean1, mean2):
        parts = (mean1[rows], log_var1[rows], mean2[columns], log_var2[columns])
        value = checkpoint(block, *parts, use_reentrant=False) if with_grad else block(*parts)
        strips.setdefault(rows.start, []).append(value)
    if not strips:
        return mean1.new_zeros(mean1.shape[0], mean2.shape[0])
    return torch.cat([torch.cat(strip, dim=1) for strip in strips.values()])


def inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """H(Z1_i in Z2_j), summed over D: (N, M). No gradients.

    H = k sum(l2) - k sum(l1) - 1/2 log prod (s1 + 2 s2)/(s2 + 2 s1) + e^eps sum d^2/(s2 + 2 s1) - d^2/(s1 + 2 s2):
    two vectors, a product of ratios between 1/2 and 2 of which one logarithm per 64 dimensions is taken, two quotients.
    """
    halvings = 6  # 2^6 ratios multiply to between 2^-64 and 2^64
    mean1, mean2 = (_pad(mean, halvings, 0.0) for mean in (mean1, mean2))
    var1, var2 = (_pad(log_var.exp(), halvings, 1.0) for log_var in (log_var1, log_var2))
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    for rows, columns, (width12, width21, square, pull) in _blocks_with_buffers(mean1, mean2, 4):
        s1, s2 = var1[rows, None], var2[None, columns]
        torch.add(s1, s2, alpha=2, out=width12)
        torch.add(s2, s1, alpha=2, out=width21)
        torch.sub(mean1[rows, None], mean2[None, columns], out=square).square_()
        torch.div(square, width21, out=pull).sub_(square.div_(width12))
        log_ratio = _fold_product_(width12.div_(width21), halvings).log_().sum(-1)
        out[rows, columns] = pull.sum(-1).mul_(math.exp(eps)).sub_(log_ratio, alpha=0.5)
    k = slope(form)
    return out.add_(log_var2.sum(-1), alpha=k).sub_(log_var1.sum(-1)[:, None], alpha=k)


def log_inclusion(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, form: Form, eps: float
) -> Tensor:
    """inc(Z1_i, Z2_j), summed over D: (N, M). No gradients.

    The product is of widths s1 + 2 s2, scaled to lie about 1; how many of them fit into a float32
    before a logarithm must be taken depends on the range of the data.
    """
    dims = mean1.shape[-1]
    centre, halvings = _product_plan(log_var1, log_var2)
    scale = math.exp(-centre)
    mean1, mean2 = (_pad(mean, halvings, 0.0) for mean in (mean1, mean2))
    width1 = _pad((log_var1 - centre).exp(), halvings, 0.5)
    width2 = _pad((log_var2 + LOG_2 - centre).exp(), halvings, 0.5)
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    for rows, columns, (width, square) in _blocks_with_buffers(mean1, mean2, 2):
        torch.add(width1[rows, None], width2[None, columns], out=width)
        torch.sub(mean1[rows, None], mean2[None, columns], out=square).square_()
        pull = square.div_(width).sum(-1)
        log_width = _fold_product_(width, halvings).log_().sum(-1)
        out[rows, columns] = log_width.mul_(-0.5).sub_(pull, alpha=math.exp(eps) * scale)
    constant = -0.5 * (centre + eps) + (-LOG_2PI if form == "exact" else 0.5 * LOG_2)
    weight1, weight2 = (0.5, 0.0) if form == "exact" else (1.5, 0.5)
    out.sub_(log_var1.sum(-1)[:, None], alpha=weight1).sub_(log_var2.sum(-1), alpha=weight2)
    return out.add_(dims * constant)


def log_containment(
    mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor, half_width: float
) -> Tensor:
    """log P(draw of Z1_i in the box of Z2_j): (N, M). No gradients; float32, for boxes that `contains_fast` admits.

    In units of sigma1 the box lies from x = gap - reach to y = gap + reach away, so that P = Q(x) - Q(y), where
    Q(t) = e^(-t^2/2) R(t) for t >= 0 and Q(-t) = 1 - Q(t). As y^2 = x^2 + 4 gap reach, taking e^(-max(x, 0)^2/2) out of P leaves
    [R(x) if x >= 0 else 1 - e R(-x)] - e e^(-2 gap reach) R(y)  with  e = e^(-min(x, 0)^2/2):
    between R(x) and 1, so that products of it fit a float32, while the logarithm of the other factor is summed as it is.
    """
    scale = torch.exp(-0.5 * log_var1)
    farthest = (_largest(mean1) + _largest(mean2)) * _largest(scale)
    halvings = _halvings(math.log(100.0 * (farthest + 1.0)))
    mean1, mean2, scale = _pad(mean1, halvings, 0.0), _pad(mean2, halvings, 0.0), _pad(scale, halvings, 1.0)
    half_side = _pad(half_width * torch.exp(0.5 * log_var2), halvings, 20.0)
    out = mean1.new_empty(mean1.shape[0], mean2.shape[0])
    for rows, columns, (gap, x, y, tail, square, outer) in _blocks_with_buffers(mean1, mean2, 6):
        unit, side = scale[rows, None], half_side[None, columns]
        torch.sub(mean1[rows, None], mean2[None, columns], out=gap).abs_()
        torch.sub(gap, side, out=x).mul_(unit)
        torch.add(gap, side, out=y).mul_(unit)
        _exp_(torch.mul(gap, side, out=outer).mul_(-2.0 * unit.square()))
        outer.mul_(_mills_(y, out=tail))
        exponent = torch.clamp_min(x, 0.0, out=square).square_().sum(-1)
        fall = _exp_(torch.clamp_max(x, 0.0, out=square).square_().mul_(-0.5))
        outer.mul_(fall)
        _mills_(torch.abs(x, out=gap), out=tail)
        torch.where(x < 0, fall.mul_(tail).neg_().add_(1.0), tail, out=y)
        log_left = _fold_product_(y.sub_(outer), halvings).log_().sum(-1)
        out[rows, columns] = log_left.sub_(exponent, alpha=0.5)
    return out


def contains_fast(log_var1: Tensor, log_var2: Tensor, half_width: float) -> bool:
    """Whether `log_containment` keeps its digits: float32, and no box so narrow that Q(x) and Q(y) nearly agree."""
    if log_var1.dtype != torch.float32 or log_var1.numel() == 0 or log_var2.numel() == 0:
        return False
    narrowest = math.log(half_width) + 0.5 * (log_var2.min().item() - log_var1.max().item())
    return narrowest > math.log(0.05)


def _exp_(values: Tensor) -> Tensor:
    """e^values in place, but never below e^-80: denormal numbers would slow every pass that follows."""
    return values.clamp_min_(-LARGEST_LOG).exp_()


def _largest(values: Tensor) -> float:
    return values.abs().max().item()


MILLS_CENTRE = 3.75
MILLS = (
    -0.009766481220857492, 0.059823129576616285, -0.13018894752876395, 0.10910458886968166, -0.04109907005028995,
    0.057552888942600994, 0.05889903904927969, 0.08410973750369669, 0.09879537798185838, 0.10638513965438505,
    0.10638460619616431,
)  # fmt: skip
"""R(t)/u as a polynomial in u = 3.75/(3.75 + t), highest power first: a minimax fit, within 2e-8 of R(t) for all t >= 0."""


def _mills_(t: Tensor, out: Tensor) -> Tensor:
    """R(t) = e^(t^2/2) Q(t) for t >= 0, Q being the normal's upper tail. Overwrites t."""
    u = t.add_(MILLS_CENTRE).reciprocal_().mul_(MILLS_CENTRE)
    out.fill_(MILLS[0])
    for coefficient in MILLS[1:]:
        torch.addcmul(u.new_tensor(coefficient), out, u, out=out)
    return out.mul_(u)


def _blocks(mean1: Tensor, mean2: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices (rows of Z1, rows of Z2) that tile the (N, M) result; columns are long, so that rows are few."""
    (n, dims), m = mean1.shape, mean2.shape[0]
    room = max(1, BLOCK_ELEMENTS.get(mean1.device.type, 2**22) // max(1, dims))
    columns = max(1, min(m, room))
    rows = max(1, min(n, room // columns))
    for i in range(0, n, rows):
        for j in range(0, m, columns):
            yield slice(i, min(i + rows, n)), slice(j, min(j + columns, m))


def _blocks_with_buffers(
    mean1: Tensor, mean2: Tensor, count: int
) -> Iterator[tuple[slice, slice, tuple[Tensor, ...]]]:
    """`_blocks`, each with `count` (rows, columns, D) buffers, the same memory every time: allocating costs more than a pass."""
    memory: list[Tensor] = []
    for rows, columns in _blocks(mean1, mean2):
        shape = (rows.stop - rows.start, columns.stop - columns.start, mean1.shape[-1])
        memory = memory or [
            mean1.new_empty(math.prod(shape)) for _ in range(count)
        ]  # the first block is the largest
        yield rows, columns, tuple(buffer[: math.prod(shape)].view(shape) for buffer in memory)


def _pad(values: Tensor, halvings: int, value: float) -> Tensor:
    """D filled up to a multiple of 2^halvings; with the right values, by dimensions that add nothing."""
    missing = -values.shape[-1] % 2**halvings
    return torch.nn.functional.pad(values, (0, missing), value=value) if missing else values


def _fold_product_(values: Tensor, halvings: int) -> Tensor:
    """Multiply the left half of the last axis by the right half, in place, `halvings` times: each pass costs half the last."""
    for _ in range(halvings):
        half = values.shape[-1] // 2
        values = values[..., :half].mul_(values[..., half:])
    return values


def _halvings(reach: float) -> int:
    """How often products of values within e^-reach and e^reach may be folded before they leave a float32; 6 at most."""
    return max(0, min(6, int(math.log2(max(1.0, LARGEST_LOG / max(reach, LOG_2))))))


def _product_plan(log_var1: Tensor, log_var2: Tensor) -> tuple[float, int]:
    """(centre, halvings): log(s1 + 2 s2) lies within `reach` of centre, and 2^halvings of them within LARGEST_LOG."""
    if log_var1.numel() == 0 or log_var2.numel() == 0:
        return 0.0, 0
    low1, high1 = (v.item() for v in log_var1.aminmax())
    low2, high2 = (v.item() + LOG_2 for v in log_var2.aminmax())
    low, high = max(low1, low2), max(high1, high2) + LOG_2  # of logaddexp(l1, l2 + log 2)
    return 0.5 * (low + high), _halvings(0.5 * (high - low))
