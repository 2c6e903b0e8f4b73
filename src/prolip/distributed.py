"""Ranks: who we are, and a gather that carries gradients. Safe, and without cost, when nothing is initialised.

The convention: each rank computes its share of the global loss, and the shares add up to it. So parameter
gradients are added over ranks (DDP averages them: multiply the share by the world size there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from prolip.checks import forbid_double_backward
from prolip.gaussian import Gaussian, MeanTrace


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    return dist.get_rank() if is_distributed() else 0


def gather_batch_sizes(local: int, device: torch.device | str = "cpu") -> list[int]:
    """Number of rows on each rank, in rank order. An exchange that synchronises: call it once, not every step."""
    if world_size() == 1:
        return [local]
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([local], dtype=torch.int64, device=device))
    return [int(size) for size in sizes]


def all_gather(rows: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
    """Rows of all ranks in rank order: (n_r, ...) -> (sum n_r, ...), with the sum of all ranks' gradients flowing back.

    sizes: rows on each rank; None asks for them (which synchronises).
    """
    if world_size() == 1:
        return rows
    sizes = list(sizes) if sizes is not None else gather_batch_sizes(rows.shape[0], rows.device)
    if len(sizes) != world_size() or sizes[rank()] != rows.shape[0]:
        raise ValueError(f"sizes {sizes} don't fit rank {rank()} of {world_size()} with {rows.shape[0]} rows")
    gathered: Tensor = _Gather.apply(rows, sizes)
    return gathered


def gather_mean_trace(z: Gaussian, sizes: Sequence[int] | None = None) -> MeanTrace:
    """Mean and trace of all ranks' Gaussians: D + 1 numbers a row cross the wire, in one call."""
    if world_size() == 1:
        return z.mean_trace()
    packed = all_gather(torch.cat([z.mean, z.uncertainty[:, None]], dim=-1), sizes)
    return MeanTrace(packed[:, :-1], packed[:, -1])


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum of a detached value over ranks: for reporting."""
    total = value.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


class _Gather(torch.autograd.Function):
    """all_gather forward, reduce_scatter backward, on rows filled up to the largest rank's number."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        filled = _fill(rows, max(sizes))
        gathered = rows.new_empty((len(sizes) * max(sizes), *rows.shape[1:]))
        dist.all_gather_single(gathered, filled)
        parts = gathered.split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        forbid_double_backward("gather has a first derivative only")
        sizes: list[int] = ctx.sizes
        filled = torch.cat([_fill(part, max(sizes)) for part in grad.split(sizes)])
        own = grad.new_empty((max(sizes), *grad.shape[1:]))
        dist.reduce_scatter_single(own, filled)
        return own[: sizes[rank()]], None


def _fill(rows: Tensor, count: int) -> Tensor:
    """Rows of zeros added up to `count`: collectives want equal sizes."""
    missing = rows.new_zeros((count - rows.shape[0], *rows.shape[1:]))
    return torch.cat([rows, missing])
