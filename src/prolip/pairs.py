"""All pairs of two sets of Gaussians, block by block: an (N, M) result without an (N, M, D) tensor.

`sum_terms` works for every per-dimension formula and carries gradients. `inclusion` and `log_inclusion` are
the same sums as hand-ordered passes over buffers that stay in cache; docs/performance.md says what they gain.
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
    mean1, var1, mean2, var2 = _padded(mean1, log_var1.exp(), mean2, log_var2.exp(), halvings)
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
    mean1, width1, mean2, width2 = _padded(
        mean1, (log_var1 - centre).exp(), mean2, (log_var2 + LOG_2 - centre).exp(), halvings
    )
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


def _padded(
    mean1: Tensor, width1: Tensor, mean2: Tensor, width2: Tensor, halvings: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """D filled up to a multiple of 2^halvings with dimensions that add nothing: equal means, widths with ratio and sum 1."""
    missing = -mean1.shape[-1] % 2**halvings

    def pad(tensor: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, missing), value=value) if missing else tensor

    return pad(mean1, 0.0), pad(width1, 0.5), pad(mean2, 0.0), pad(width2, 0.5)


def _fold_product_(values: Tensor, halvings: int) -> Tensor:
    """Multiply the left half of the last axis by the right half, in place, `halvings` times: each pass costs half the last."""
    for _ in range(halvings):
        half = values.shape[-1] // 2
        values = values[..., :half].mul_(values[..., half:])
    return values


def _product_plan(log_var1: Tensor, log_var2: Tensor) -> tuple[float, int]:
    """(centre, halvings): log(s1 + 2 s2) lies within `reach` of centre, and 2^halvings of them within LARGEST_LOG."""
    if log_var1.numel() == 0 or log_var2.numel() == 0:
        return 0.0, 0
    low1, high1 = (v.item() for v in log_var1.aminmax())
    low2, high2 = (v.item() + LOG_2 for v in log_var2.aminmax())
    low, high = max(low1, low2), max(high1, high2) + LOG_2  # of logaddexp(l1, l2 + log 2)
    centre, reach = 0.5 * (low + high), max(0.5 * (high - low), LOG_2)
    return centre, max(0, min(6, int(math.log2(max(1.0, LARGEST_LOG / reach)))))
