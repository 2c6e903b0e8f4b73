"""Masked views: which patches of an image stay visible, which tokens of a text are masked.

Every draw comes from a generator. Counts are rounded half to even, as Python's `round` and `torch.round` both do:
2.5 -> 2, 3.5 -> 4.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from prolip.checks import require_fraction
from prolip.tensor_checks import describe_type


def draw_patch_indices(
    num_images: int, num_patches: int, keep_fraction: float, generator: torch.Generator
) -> Tensor:
    """Draw the visible patches of each image.

    Args:
        num_images: Number of images B.
        num_patches: Number of patches P of an image.
        keep_fraction: Fraction of the patches that stay visible, above 0 and at most 1; the paper's is 0.25.
        generator: The draw is made on its device.

    Returns:
        Indices of the visible patches, (B, K), int64, each row ascending, K = max(1, round(keep_fraction * P)).
    """
    if num_images < 0 or num_patches < 1:
        raise ValueError(
            f"num_images must be at least 0 and num_patches at least 1, not {num_images} and {num_patches}"
        )
    noise = torch.rand(num_images, num_patches, generator=generator, device=generator.device)
    return select_patches(noise, keep_fraction)


def select_patches(noise: Tensor, keep_fraction: float) -> Tensor:
    """Choose the visible patches of each image: those with the smallest noise.

    Args:
        noise: A random number for each patch, (B, P).
        keep_fraction: Fraction of the patches that stay visible, above 0 and at most 1.

    Returns:
        Indices of the visible patches, (B, K), int64, each row ascending, K = max(1, round(keep_fraction * P)).
    """
    require_fraction(keep_fraction, "keep_fraction", exclude_zero=True)
    num_visible = max(1, round(keep_fraction * noise.shape[1]))
    return noise.argsort(dim=1)[:, :num_visible].sort(dim=1).values


def mask_tokens(
    ids: Tensor,
    *,
    mask_id: int,
    special_ids: Collection[int],
    mask_fraction: float = 0.75,
    generator: torch.Generator,
) -> Tensor:
    """Replace randomly drawn tokens by the mask token.

    Args:
        ids: Token ids (B, T), int64; not changed.
        mask_id: Id of the mask token.
        special_ids: Ids that are never masked (padding, start, end, ...). All others are ordinary tokens.
        mask_fraction: Fraction of each row's ordinary tokens that is masked, above 0 and at most 1. Exactly
            max(1, round(mask_fraction * n)) of a row's n ordinary tokens are masked; none in a row without any.
        generator: Generator of the random numbers; it may be on another device than `ids`.

    Returns:
        A copy of `ids` with `mask_id` at the drawn positions, (B, T), int64.
    """
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
        raise TypeError(f"ids must be a torch.int64 tensor, not {describe_type(ids)}")
    if ids.ndim != 2:
        raise ValueError(f"ids must have the shape (B, T), not {tuple(ids.shape)}")
    noise = torch.rand(ids.shape, generator=generator, device=generator.device).to(ids.device)
    return ids.masked_fill(select_masked_tokens(ids, noise, special_ids, mask_fraction), mask_id)


def select_masked_tokens(
    ids: Tensor, noise: Tensor, special_ids: Collection[int], mask_fraction: float
) -> Tensor:
    """Choose the tokens to mask: the ordinary tokens with the smallest noise of each row.

    Args:
        ids: Token ids (B, T), int64.
        noise: A random number for each token, (B, T), on the device of `ids`.
        special_ids: Ids that are never masked, as for `mask_tokens`.
        mask_fraction: Fraction of each row's ordinary tokens, as for `mask_tokens`.

    Returns:
        (B, T), bool: True where a token is masked.
    """
    ordinary, num_masked = _find_ordinary_tokens(ids, special_ids, mask_fraction)
    # The rank of each token's noise in its row. Special tokens rank last, at or above num_ordinary.
    rank = noise.masked_fill(~ordinary, torch.inf).argsort(dim=1).argsort(dim=1)
    return rank < num_masked


def select_tokens_outside_span(
    ids: Tensor, noise: Tensor, special_ids: Collection[int], mask_fraction: float
) -> Tensor:
    """Choose the tokens that a crop of a text loses: the ordinary tokens outside a contiguous span of them.

    All spans of the length are equally likely. Tokens are pieces of words, so that a span may begin inside a word.

    Args:
        ids: Token ids (B, T), int64.
        noise: A random number in [0, 1) for each token, (B, T), on the device of `ids`; each row's first one is read.
        special_ids: Ids that are never lost, as for `mask_tokens`.
        mask_fraction: Fraction of each row's ordinary tokens that is lost, as for `mask_tokens`.

    Returns:
        (B, T), bool: True where a token is lost.
    """
    ordinary, num_lost = _find_ordinary_tokens(ids, special_ids, mask_fraction)
    first = (noise[:, :1].double() * (num_lost + 1)).floor()  # of the span, counted in ordinary tokens
    length = ordinary.sum(dim=1, keepdim=True) - num_lost
    position = ordinary.cumsum(dim=1) - 1
    return ordinary & ((position < first) | (position >= first + length))


def _find_ordinary_tokens(
    ids: Tensor, special_ids: Collection[int], mask_fraction: float
) -> tuple[Tensor, Tensor]:
    """Find the ordinary tokens and how many of each row are masked.

    Returns:
        Whether each token is ordinary, (B, T), bool, and the number of masked ones of each row, (B, 1), float64.
    """
    require_fraction(mask_fraction, "mask_fraction", exclude_zero=True)
    ordinary = ~torch.isin(ids, torch.tensor(list(special_ids), dtype=torch.int64, device=ids.device))
    num_ordinary = ordinary.sum(dim=1, keepdim=True)
    return ordinary, (mask_fraction * num_ordinary.double()).round().clamp(min=1).minimum(num_ordinary)


def drop_tokens(ids: Tensor, masked: Tensor, pad_id: int) -> Tensor:
    """Remove the masked tokens: the others move to the front, padding follows.

    Args:
        ids: Token ids (B, T); not changed.
        masked: True where a token is to be removed, (B, T), bool.
        pad_id: Id that fills the end of each row.

    Returns:
        Token ids (B, T): the remaining ones in their order, then padding.
    """
    # A stable sort by "is masked" keeps the order of the visible tokens and puts the masked ones behind them.
    order = masked.to(torch.uint8).argsort(dim=1, stable=True)
    return ids.masked_fill(masked, pad_id).gather(1, order)
