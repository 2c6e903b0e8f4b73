"""Rank, world size, and a differentiable all-gather. No-ops if torch.distributed is not initialized.

The convention: each rank computes its part of the global loss, and the parts add up to it. So parameter gradients are
summed over ranks (DDP averages them: multiply the part by the world size there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from prolip.gaussian import Gaussian, MeanTrace
from prolip.tensor_checks import forbid_double_backward


def is_distributed() -> bool:
    """Whether a process group is initialized."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Number of ranks; 1 without a process group."""
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    """This process's rank; 0 without a process group."""
    return dist.get_rank() if is_distributed() else 0


def gather_batch_sizes(num_rows: int, device: torch.device | str = "cpu") -> list[int]:
    """Exchange batch sizes. It synchronizes: call it once, not every step.

    Args:
        num_rows: Rows on this rank.
        device: Device of the exchange.

    Returns:
        Rows on each rank, in rank order.
    """
    if world_size() == 1:
        return [num_rows]
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([num_rows], dtype=torch.int64, device=device))
    return [int(size) for size in sizes]


def all_gather(rows: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
    """Concatenate the rows of all ranks. The backward pass returns the sum of all ranks' gradients.

    Args:
        rows: (n_r, ...), of this rank.
        sizes: Rows on each rank; None: they are exchanged, which synchronizes.

    Returns:
        (sum of n_r, ...), in rank order.

    Raises:
        ValueError: `sizes` doesn't fit the number of ranks or the rows of this rank.
    """
    if world_size() == 1:
        return rows
    sizes = list(sizes) if sizes is not None else gather_batch_sizes(rows.shape[0], rows.device)
    if len(sizes) != world_size() or sizes[rank()] != rows.shape[0]:
        raise ValueError(
            f"sizes {sizes} must have an entry for each of {world_size()} ranks, and entry {rank()} must be "
            f"{rows.shape[0]}, the number of rows on this rank"
        )
    gathered: Tensor = _AllGather.apply(rows, sizes)
    return gathered


def gather_mean_trace(z: Gaussian, sizes: Sequence[int] | None = None) -> MeanTrace:
    """`all_gather` of mean and trace: D + 1 numbers per row, in one call.

    Args:
        z: (n_r, D), of this rank.
        sizes: As for `all_gather`.

    Returns:
        Mean (sum of n_r, D) and trace (sum of n_r,).
    """
    if world_size() == 1:
        return z.mean_trace()
    packed = all_gather(torch.cat([z.mean, z.uncertainty[:, None]], dim=-1), sizes)
    return MeanTrace(packed[:, :-1], packed[:, -1])


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum of a detached value over ranks, for logging.

    Args:
        value: A tensor of any shape; the shape must be the same on each rank.

    Returns:
        A detached tensor of the same shape.
    """
    total = value.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


class _AllGather(torch.autograd.Function):
    """all_gather forward, reduce_scatter backward, on rows padded to the largest rank's size."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        """Gather rows (n_r, ...) of all ranks: (sum of n_r, ...). `sizes` has n_r of each rank.

        Collectives need equal sizes: rows are padded to the size of the largest rank; the padding is then cut.
        """
        ctx.sizes = sizes
        padded = _pad_rows(rows, max(sizes))
        gathered = rows.new_empty((len(sizes) * max(sizes), *rows.shape[1:]))
        dist.all_gather_single(gathered, padded)
        parts = gathered.split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Sum the gradient over ranks; returns the part of this rank's rows, (n_r, ...), and None for sizes."""
        forbid_double_backward("all_gather has a first derivative only")
        sizes: list[int] = ctx.sizes
        padded = torch.cat([_pad_rows(part, max(sizes)) for part in grad.split(sizes)])
        own_padded = grad.new_empty((max(sizes), *grad.shape[1:]))
        dist.reduce_scatter_single(own_padded, padded)
        return own_padded[: sizes[rank()]], None


def _pad_rows(rows: Tensor, num_rows: int) -> Tensor:
    """Append rows of zeros, so that there are `num_rows` rows: collectives need equal sizes."""
    padding = rows.new_zeros((num_rows - rows.shape[0], *rows.shape[1:]))
    return torch.cat([rows, padding])
