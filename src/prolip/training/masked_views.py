"""Masked views: which samples of a batch get one, and which patches and tokens they lose.

Everything is drawn from (seed, step, row of the global batch), so the draw doesn't depend on the number of ranks or
micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prolip.data.order import derive_seed, permute
from prolip.preprocessing.masking import (
    drop_tokens,
    select_masked_tokens,
    select_patches,
    select_tokens_outside_span,
)
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.training.config import MaskingConfig


@dataclass(frozen=True, eq=False, kw_only=True)
class MaskedViews:
    """Masked views of consecutive rows of the global batch; row numbers count from the first of these rows.

    Attributes:
        image_rows: int64 (k,), ascending: images that get a view.
        patch_indices: int64 (k, K): patches that each view keeps.
        text_rows: int64 (j,), ascending: texts that get a view.
        masked_ids: int64 (j, T): token ids of each view.
        total_images: Image views in the global batch.
        total_texts: Texts of the global batch that were chosen for a view; with method="general", those without a more
            general caption have none and count as zero in the mean of the loss.
    """

    image_rows: Tensor
    patch_indices: Tensor
    text_rows: Tensor
    masked_ids: Tensor
    total_images: int
    total_texts: int


class BatchSlice(NamedTuple):
    """Consecutive rows of the global batch of a step: those of a rank, from its first row on.

    seed:       seed of the run.
    step:       step, from 0.
    batch_size: rows of the global batch.
    first_row:  index of the rank's first row in the global batch.
    """

    seed: int
    step: int
    batch_size: int
    first_row: int = 0


def draw_masked_views(
    ids: Tensor,
    rows: BatchSlice,
    masking: MaskingConfig,
    tokenizer: TokenizerConfig,
    num_patches: int,
    general_ids: Tensor | None = None,
) -> MaskedViews:
    """Draw the masked views of a rank's rows at a step.

    Args:
        ids: int64 (n, T), on the CPU: token ids of the rank's texts.
        rows: Which rows of which global batch these are.
        masking: Fractions, ratios and method.
        tokenizer: Special ids and context length.
        num_patches: Patches per image.
        general_ids: int64 (n, T): ids of a more general caption of each text, for masking.method general; a row of
            padding if it has none.

    Returns:
        The views. They are the same for any split of the global batch.

    Raises:
        ValueError: The method is general, but `general_ids` is None.
    """
    num_images, num_texts = count_masked_views(masking, rows.batch_size)
    # "twins" is part of the random stream: another word would change the runs of every seed
    key = derive_seed(rows.seed, "twins", rows.step)
    chosen_rows = permute(np.arange(max(num_images, num_texts)), rows.batch_size, key) - rows.first_row
    # Images and texts both get the first of these rows, so that one set contains the other; then the rank's are taken.
    image_rows, text_rows = (
        np.sort(chosen[(chosen >= 0) & (chosen < len(ids))])
        for chosen in (chosen_rows[:num_images], chosen_rows[:num_texts])
    )
    patch_noise = _draw_noise("patches", image_rows, num_patches, rows)
    if masking.method == "general":
        text_rows, masked_ids = _select_general_captions(general_ids, text_rows, tokenizer)
    else:
        # Noise for the full context, cut to the batch's width: the draw must not depend on the other texts' lengths.
        token_noise = _draw_noise("tokens", text_rows, tokenizer.context_length, rows)
        select_tokens = select_tokens_outside_span if masking.method == "crop" else select_masked_tokens
        is_lost = select_tokens(
            ids[text_rows], token_noise[:, : ids.shape[1]], tokenizer.special_ids, masking.token_mask_ratio
        )
        masked_ids = _mask_or_drop_tokens(ids[text_rows], is_lost, masking, tokenizer)
    return MaskedViews(
        image_rows=torch.from_numpy(image_rows),
        patch_indices=select_patches(patch_noise, 1 - masking.patch_mask_ratio),
        text_rows=torch.from_numpy(text_rows),
        masked_ids=masked_ids,
        total_images=num_images,
        total_texts=num_texts,
    )


def count_masked_views(masking: MaskingConfig, batch_size: int) -> tuple[int, int]:
    """Count the images and the texts of a global batch that are chosen for a masked view.

    Args:
        masking: Fractions of images and of texts.
        batch_size: Rows of the global batch.

    Returns:
        (number of images, number of texts): none for a fraction of 0, else at least 1.
    """
    fractions = (masking.image_fraction, masking.text_fraction)
    num_images, num_texts = (max(1, round(f * batch_size)) if f else 0 for f in fractions)
    return num_images, num_texts


def require_mask_token(masking: MaskingConfig, tokenizer: TokenizerConfig) -> None:
    """Raise a ValueError if lost tokens are to become mask tokens but the tokenizer has none.

    Args:
        masking: For its method.
        tokenizer: For its mask id.
    """
    if masking.method == "mask" and tokenizer.mask_id is None:
        raise ValueError(
            "the tokenizer has no mask token: set --masking.method drop or crop, or add one with "
            "prolip.preprocessing.tokenizer.add_mask_token"
        )


def _select_general_captions(
    general_ids: Tensor | None, rows: np.ndarray, tokenizer: TokenizerConfig
) -> tuple[np.ndarray, Tensor]:
    """Select those of the rows (j,) whose text has a more general caption, one that isn't all padding.

    Returns:
        The selected rows, ascending, and the ids of their general captions, int64 (selected, T).

    Raises:
        ValueError: The data has no general captions at all (`general_ids` is None).
    """
    if general_ids is None:
        raise ValueError(
            "masking.method is general, but the data has no more general captions. scenes have them with general=true, "
            "other samples in a list `general` of their json, next to their captions (docs/data.md). Otherwise set "
            "--masking.method mask, drop or crop"
        )
    selected = rows[(general_ids[rows] != tokenizer.pad_id).any(dim=1).numpy()]
    return selected, general_ids[selected]


def _mask_or_drop_tokens(
    ids: Tensor, is_lost: Tensor, masking: MaskingConfig, tokenizer: TokenizerConfig
) -> Tensor:
    """New token ids (j, T) in which the lost tokens (bool (j, T)) are dropped, or replaced by the mask token."""
    if masking.method != "mask":
        return drop_tokens(ids, is_lost, tokenizer.pad_id)
    assert tokenizer.mask_id is not None
    return ids.masked_fill(is_lost, tokenizer.mask_id)


def _draw_noise(stream: str, chosen: np.ndarray, width: int, rows: BatchSlice) -> Tensor:
    """Draw uniform noise on [0, 1), float32 (len(chosen), width). Each row has its own seed: the same on any rank.

    Args:
        stream: Name of the random stream, "patches" or "tokens".
        chosen: Row numbers, counted from the rank's first row.
        width: Values per row.
        rows: The rank's rows.
    """
    generator = torch.Generator()
    noise = torch.empty(len(chosen), width)
    for values, row in zip(noise, chosen, strict=True):
        row_seed = derive_seed(rows.seed, stream, rows.step, rows.first_row + int(row))
        torch.rand(width, generator=generator.manual_seed(row_seed), out=values)
    return noise
