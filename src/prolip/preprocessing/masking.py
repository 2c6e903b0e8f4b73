"""Which patches of an image and which tokens of a text a masked twin loses. Every draw comes from a generator.

Counts are rounded half to even, as Python's `round` and `torch.round` both do: 2.5 -> 2, 3.5 -> 4.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from prolip.checks import describe


def kept_patches(batch: int, patches: int, keep: float, generator: torch.Generator) -> Tensor:
    """Indices of the patches that stay, a fresh draw per image: int64 (B, K), each row ascending.

    K = max(1, round(keep * patches)); the paper keeps a quarter. On the generator's device.
    """
    if batch < 0 or patches < 1:
        raise ValueError(f"kept_patches needs a batch and at least one patch, not {batch} x {patches}")
    return kept_by(torch.rand(batch, patches, generator=generator, device=generator.device), keep)


def kept_by(noise: Tensor, keep: float) -> Tensor:
    """The same for noise (B, P) that is already drawn: the patches with the least of it stay."""
    _require_share(keep, "keep")
    count = max(1, round(keep * noise.shape[1]))
    return noise.argsort(dim=1)[:, :count].sort(dim=1).values


def mask_tokens(
    ids: Tensor,
    *,
    mask_id: int,
    special_ids: Collection[int],
    share: float = 0.75,
    generator: torch.Generator,
) -> Tensor:
    """A copy of int64 ids (B, T) where a share of each row's ordinary tokens is mask_id, a fresh draw per text.

    Ordinary are the tokens that are not in `special_ids` (padding, start, end, ...), which never change. Exactly
    max(1, round(share * ordinary)) of a row are masked, none in a row without ordinary tokens.
    """
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
        raise TypeError(f"ids must be a torch.int64 tensor, not {describe(ids)}")
    if ids.ndim != 2:
        raise ValueError(f"ids must have the shape (B, T), not {tuple(ids.shape)}")
    noise = torch.rand(ids.shape, generator=generator, device=generator.device).to(ids.device)
    return ids.masked_fill(lost_tokens(ids, noise, special_ids, share), mask_id)


def lost_tokens(ids: Tensor, noise: Tensor, special_ids: Collection[int], share: float) -> Tensor:
    """Which tokens of ids (B, T) are lost, by noise (B, T) that is already drawn: bool (B, T)."""
    _require_share(share, "share")
    ordinary = ~torch.isin(ids, torch.tensor(list(special_ids), dtype=torch.int64, device=ids.device))
    number = ordinary.sum(dim=1, keepdim=True)
    count = (share * number.double()).round().clamp(min=1).minimum(number)
    rank = noise.masked_fill(~ordinary, torch.inf).argsort(dim=1).argsort(dim=1)
    return rank < count


def drop_tokens(ids: Tensor, lost: Tensor, pad_id: int) -> Tensor:
    """A copy of ids (B, T) without the lost tokens: what is left moves to the front, padding follows."""
    order = lost.to(torch.uint8).argsort(dim=1, stable=True)
    return ids.masked_fill(lost, pad_id).gather(1, order)


def _require_share(value: float, name: str) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be a share above 0 and at most 1, not {value!r}")
