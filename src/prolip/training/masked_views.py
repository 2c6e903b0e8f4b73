"""Which samples of a batch get a masked twin, and what the twin loses.

Everything is drawn from (seed, step, row of the global batch), so that it doesn't depend on how the batch is shared by
ranks or cut into parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prolip.data.order import mixed, permuted
from prolip.preprocessing.masking import drop_tokens, kept_by, lost_tokens
from prolip.preprocessing.tokenizer import TokenRules
from prolip.training.config import Masking


@dataclass(frozen=True, eq=False, kw_only=True)
class TwinDraw:
    """The twins of some consecutive rows of the global batch; rows are counted from the first of them.

    image_rows: int64 (k,), ascending: the images that get a twin.  keep: int64 (k, K): the patches that it sees.
    text_rows:  int64 (j,): the texts that get one.  masked_ids: int64 (j, T).
    images, texts: how many there are in the whole batch.
    """

    image_rows: Tensor
    keep: Tensor
    text_rows: Tensor
    masked_ids: Tensor
    images: int
    texts: int


def draw_twins(
    ids: Tensor, masking: Masking, tokens: TokenRules, patches: int, *, seed: int, step: int, batch: int, first: int,
    general: Tensor | None = None,
) -> TwinDraw:  # fmt: skip
    """Twins of ids (n, T), on the CPU, which are the rows from `first` on of a batch of `batch` rows at this step.

    general: int64 (n, T), the ids of a more general caption of each, for masking by these."""
    counts = twin_counts(masking, batch)
    chosen = permuted(np.arange(max(counts)), batch, mixed(seed, "twins", step)) - first
    image_rows, text_rows = (
        np.sort(rows[(rows >= 0) & (rows < len(ids))]) for rows in (chosen[: counts[0]], chosen[: counts[1]])
    )
    noise = _noise(image_rows, patches, seed, "patches", step, first)
    if masking.how == "general":
        text_rows, masked_ids = _more_general(general, text_rows, tokens)
    else:
        # however long the rows are here: the draw must not depend on their neighbours
        width = tokens.context_length
        noise_of_tokens = _noise(text_rows, width, seed, "tokens", step, first)[:, : ids.shape[1]]
        lost = lost_tokens(ids[text_rows], noise_of_tokens, tokens.special_ids, masking.tokens)
        masked_ids = _without(ids[text_rows], lost, masking, tokens)
    return TwinDraw(
        image_rows=torch.from_numpy(image_rows),
        keep=kept_by(noise, 1 - masking.patches),
        text_rows=torch.from_numpy(text_rows),
        masked_ids=masked_ids,
        images=counts[0],
        texts=counts[1],
    )


def twin_counts(masking: Masking, batch: int) -> tuple[int, int]:
    """How many images and texts of a batch get a twin."""
    return max(1, round(masking.images * batch)), max(1, round(masking.texts * batch))


def require_mask_token(masking: Masking, tokens: TokenRules) -> None:
    """An error if a twin's tokens are to become mask tokens, and there is none."""
    if masking.how == "mask" and tokens.mask_id is None:
        raise ValueError("the tokenizer has no mask token: with_mask_token adds one, or masking.how=drop")


def _more_general(general: Tensor | None, rows: np.ndarray, tokens: TokenRules) -> tuple[np.ndarray, Tensor]:
    """Those of the rows that have a more general caption, and its ids."""
    if general is None:
        raise ValueError(
            "masking.how=general, but the data brings no more general captions: scenes do (general=true), or samples "
            "whose json has a list `general` beside their captions (docs/data.md); else choose mask or drop"
        )
    known = rows[(general[rows] != tokens.pad_id).any(dim=1).numpy()]
    return known, general[known]


def _without(ids: Tensor, lost: Tensor, masking: Masking, tokens: TokenRules) -> Tensor:
    if masking.how == "drop":
        return drop_tokens(ids, lost, tokens.pad_id)
    assert tokens.mask_id is not None
    return ids.masked_fill(lost, tokens.mask_id)


def _noise(
    rows: Sequence[int] | np.ndarray, width: int, seed: int, what: str, step: int, first: int
) -> Tensor:
    """Uniform on [0, 1), (rows, width): each row from a seed of its own."""
    generator = torch.Generator()
    noise = torch.empty(len(rows), width)
    for values, row in zip(noise, rows, strict=True):
        torch.rand(
            width, generator=generator.manual_seed(mixed(seed, what, step, first + int(row))), out=values
        )
    return noise
