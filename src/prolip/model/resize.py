"""Changing a model's image size or context length by interpolating its positional embeddings."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer

UNCHANGED_POSITIONS = 20
"""First text positions that are not interpolated: nearly all captions end there, so they are trained best."""


def resize_model(
    model: ProLIP, *, image_size: int | None = None, context_length: int | None = None
) -> ProLIP:
    """The model for another image size or context length.

    Args:
        model: Not changed.
        image_size: Side in pixels; None: as it is.
        context_length: In tokens; None: as it is.

    Returns:
        A new model, or the same one if nothing changes.
    """
    config, tensors = model.config, {name: value.clone() for name, value in model.state_dict().items()}
    if image_size is not None and image_size != config.image.preprocessing.size:
        old = config.image
        image = replace(old, preprocessing=replace(old.preprocessing, size=image_size))
        tensors["image.positions"] = resize_image_positions(
            tensors["image.positions"], old.added_tokens, image.grid
        )
        config = replace(config, image=image)
    if context_length is not None and context_length != config.text.tokenizer.context_length:
        # the position that is pooled stays as it is: of an added token, or the last (SigLIP)
        added = max(config.text.added_tokens, int(config.text.pooling == "last"))
        text = replace(config.text, tokenizer=replace(config.text.tokenizer, context_length=context_length))
        tensors["text.positions"] = resize_text_positions(tensors["text.positions"], added, context_length)
        config = replace(config, text=text)
    if config == model.config:
        return model
    result = ProLIP.from_tensors(config, tensors, "the resized model")
    result.origin, result.tokenizer_error = dict(model.origin), model.tokenizer_error
    if model.tokenizer is not None:
        result.set_tokenizer(Tokenizer(model.tokenizer.copy_backend(), config.text.tokenizer))
    return result


def resize_image_positions(positions: Tensor, added: int, grid: int) -> Tensor:
    """Interpolate the positions of patches bicubically.

    Args:
        positions: (added + g², W).
        added: Number of tokens before the patches ([CLS], [UNC]); their positions stay.
        grid: Patches along an edge.

    Returns:
        (added + grid², W).
    """
    front, patches = positions[:added], positions[added:]
    old_grid = round(len(patches) ** 0.5)
    if old_grid == grid:
        return positions
    image = patches.detach().float().T.reshape(1, -1, old_grid, old_grid)  # the width W as channels
    new = interpolate(image, size=(grid, grid), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([front.detach(), new[0].flatten(1).T.to(positions.dtype)])


def resize_text_positions(
    positions: Tensor, added: int, length: int, unchanged: int = UNCHANGED_POSITIONS
) -> Tensor:
    """Interpolate the positions of tokens linearly, as LongCLIP and LongProLIP do.

    Args:
        positions: (T + added, W).
        added: Number of tokens after the text ([UNC], [CLS]); their positions stay.
        length: The new T. If it is smaller, positions are cut.
        unchanged: Number of first positions that stay.

    Returns:
        (length + added, W).

    Raises:
        ValueError: If T is too small to be extended.
    """
    words = len(positions) - added
    front, back = positions[:words].detach(), positions[words:].detach()
    if length <= words:
        return torch.cat([front[:length], back])
    if words < unchanged + 2:
        raise ValueError(
            f"a context length of {words} is too short to be extended: it must be at least {unchanged + 2}"
        )
    middle = front[unchanged:].float().T[None]
    new = interpolate(middle, size=length - unchanged, mode="linear", align_corners=False)[0].T
    return torch.cat([front[:unchanged], new.to(positions.dtype), back])
