"""All pairs, tile by tile: a differentiable sum for every formula, and what the fast kernels share.

A kernel computes the same sum as a sequence of in-place passes over buffers that stay in cache. A logarithm costs as
much as several products, so kernels multiply many factors before they take one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prolip.measures.formulas import LOG_2

Terms = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A formula per dimension: (mean1, log_var1, mean2, log_var2) -> terms, broadcasting."""

BLOCK_ELEMENTS = {"cpu": 2**19, "cuda": 2**25}
"""Elements of one (rows, columns, D) tile, by device: a few megabytes on a CPU (cache), more where launches cost."""

MAX_LOG = 80.0
"""Logarithms that a float32 product may reach: e^80 is 5e34, e^-80 is 2e-35 and still a normal number."""


def sum_terms(terms: Terms, mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """Sum a formula over dimensions, for all pairs. Tiles are recomputed in the backward pass.

    Args:
        terms: The formula per dimension.
        mean1: (N, D); log_var1 likewise.
        mean2: (M, D); log_var2 likewise.

    Returns:
        (N, M).
    """
    tensors = (mean1, log_var1, mean2, log_var2)
    with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)

    # the sum over D of one tile: (n, D) and (m, D) -> (n, m)
    def sum_tile(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
        return terms(mean1[:, None], log_var1[:, None], mean2[None], log_var2[None]).sum(-1)

    strips: dict[int, list[Tensor]] = {}  # the tiles of the same rows, by their first row
    for rows, columns in iter_tiles(mean1, mean2):
        inputs = (mean1[rows], log_var1[rows], mean2[columns], log_var2[columns])
        tile = checkpoint(sum_tile, *inputs, use_reentrant=False) if with_grad else sum_tile(*inputs)
        strips.setdefault(rows.start, []).append(tile)
    if not strips:  # no rows on one side: (0, M) or (N, 0), with its node in the autograd graph
        return sum_tile(*tensors)
    return torch.cat([torch.cat(strip, dim=1) for strip in strips.values()])


def iter_tiles(mean1: Tensor, mean2: Tensor) -> Iterator[tuple[slice, slice]]:
    """Iterate over tiles of an (N, M) result, so small that their (rows, columns, D) terms fit into BLOCK_ELEMENTS.

    Tiles are as wide as possible, so that a row of the result has few of them.

    Args:
        mean1: (N, D).
        mean2: (M, D).

    Yields:
        (rows of the result, columns of the result) of a tile, as slices; all tiles of the first rows come first.
    """
    (n, dims), m = mean1.shape, mean2.shape[0]
    tile_pairs = max(1, BLOCK_ELEMENTS.get(mean1.device.type, 2**22) // max(1, dims))
    columns = max(1, min(m, tile_pairs))
    rows = max(1, min(n, tile_pairs // columns))
    for i in range(0, n, rows):
        for j in range(0, m, columns):
            yield slice(i, min(i + rows, n)), slice(j, min(j + columns, m))


def iter_tiles_with_buffers(
    mean1: Tensor, mean2: Tensor, num_buffers: int
) -> Iterator[tuple[slice, slice, tuple[Tensor, ...]]]:
    """`iter_tiles`, with buffers for each tile. Memory is reused, since allocating costs more than a pass.

    Args:
        mean1: (N, D).
        mean2: (M, D).
        num_buffers: Number of buffers.

    Yields:
        (rows, columns, buffers): two slices, as of `iter_tiles`, and `num_buffers` tensors (rows, columns, D) of
        undefined content, valid until the next tile.
    """
    memory: list[Tensor] = []
    for rows, columns in iter_tiles(mean1, mean2):
        shape = (rows.stop - rows.start, columns.stop - columns.start, mean1.shape[-1])
        size = math.prod(shape)
        memory = memory or [
            mean1.new_empty(size) for _ in range(num_buffers)
        ]  # the first tile is the largest
        yield rows, columns, tuple(buffer[:size].view(shape) for buffer in memory)


def max_safe_halvings(reach: float) -> int:
    """How often values may be folded (`multiply_halves_`) before products leave the range of float32.

    Args:
        reach: Values are in [e^-reach, e^reach].

    Returns:
        0 to 6.
    """
    return int(math.log2(max(1.0, MAX_LOG / max(reach, LOG_2))))


def pad_dims(values: Tensor, halvings: int, value: float) -> Tensor:
    """Pad D to a multiple of 2^halvings.

    Args:
        values: (..., D).
        halvings: At most `max_safe_halvings`.
        value: Value of the new dimensions; the caller chooses one that adds nothing to the sum.

    Returns:
        (..., D rounded up).
    """
    missing = -values.shape[-1] % 2**halvings
    return torch.nn.functional.pad(values, (0, missing), value=value) if missing else values


def multiply_halves_(values: Tensor, halvings: int) -> Tensor:
    """Multiply the left half of the last axis by the right half, in place, `halvings` times.

    Each pass costs half of the last, so that all together cost one.

    Args:
        values: (..., D), D a multiple of 2^halvings; overwritten.
        halvings: Number of passes.

    Returns:
        (..., D / 2^halvings), a view of `values`.
    """
    for _ in range(halvings):
        half = values.shape[-1] // 2
        values = values[..., :half].mul_(values[..., half:])
    return values
