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
    """Make a copy of a model for another image size or context length.

    Args:
        model: Not changed.
        image_size: Side in pixels; None: the model's own.
        context_length: In tokens; None: the model's own.

    Returns:
        A new model in eval mode, or the model itself if both are its own.

    Raises:
        ValueError: If the model's context length is too small to be extended.
    """
    config, tensors = model.config, {name: value.clone() for name, value in model.state_dict().items()}
    if image_size is not None and image_size != config.image.preprocessing.size:
        preprocessing = replace(config.image.preprocessing, size=image_size)
        image = replace(config.image_transformer, preprocessing=preprocessing)
        tensors["image.positions"] = resize_image_positions(
            tensors["image.positions"], image.num_added_tokens, image.grid
        )
        config = replace(config, image=image)
    if context_length is not None and context_length != config.text.tokenizer.context_length:
        # the position that is pooled keeps its embedding: that of an added token, or the last one (SigLIP)
        num_added = max(
            config.text_transformer.num_added_tokens, int(config.text_transformer.pooling == "last")
        )
        text = replace(
            config.text_transformer, tokenizer=replace(config.text.tokenizer, context_length=context_length)
        )
        tensors["text.positions"] = resize_text_positions(
            tensors["text.positions"], num_added, context_length
        )
        config = replace(config, text=text)
    if config == model.config:
        return model
    result = ProLIP.from_tensors(config, tensors, "the resized model")
    result.origin, result.tokenizer_error = dict(model.origin), model.tokenizer_error
    if model.tokenizer is not None:
        result.set_tokenizer(Tokenizer(model.tokenizer.copy_backend(), config.text.tokenizer))
    return result


def resize_image_positions(positions: Tensor, num_added: int, grid: int) -> Tensor:
    """Interpolate the positions of patches bicubically.

    Args:
        positions: (num_added + g², W).
        num_added: Number of tokens before the patches ([CLS], [UNC]); their positions stay.
        grid: Patches along an edge.

    Returns:
        (num_added + grid², W).
    """
    front, patches = positions[:num_added], positions[num_added:]
    old_grid = round(len(patches) ** 0.5)
    if old_grid == grid:
        return positions
    image = patches.detach().float().T.reshape(1, -1, old_grid, old_grid)  # the width W as channels
    new = interpolate(image, size=(grid, grid), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([front.detach(), new[0].flatten(1).T.to(positions.dtype)])


def resize_text_positions(
    positions: Tensor, num_added: int, length: int, unchanged: int = UNCHANGED_POSITIONS
) -> Tensor:
    """Interpolate the positions of tokens linearly, as LongCLIP and LongProLIP do.

    Args:
        positions: (T + num_added, W).
        num_added: Number of tokens after the text ([UNC], [CLS]); their positions stay.
        length: The new T. If it is smaller, positions are cut.
        unchanged: Number of first positions that stay.

    Returns:
        (length + num_added, W).

    Raises:
        ValueError: If T is too small to be extended.
    """
    old_length = len(positions) - num_added
    front, back = positions[:old_length].detach(), positions[old_length:].detach()
    if length <= old_length:
        return torch.cat([front[:length], back])
    if old_length < unchanged + 2:
        raise ValueError(
            f"a context length of {old_length} is too short to be extended: it must be at least {unchanged + 2}"
        )
    middle = front[unchanged:].float().T[None]
    new = interpolate(middle, size=length - unchanged, mode="linear", align_corners=False)[0].T
    return torch.cat([front[:unchanged], new.to(positions.dtype), back])
