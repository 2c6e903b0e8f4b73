"""The same model for another image size or context length: positions are resized, all else is kept."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from prolip.model.folder import fill
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer

KEPT_POSITIONS = 20
"""First text positions that a stretch leaves alone: nearly all captions lie there, so they are trained best."""


def resized(model: ProLIP, *, image_size: int | None = None, context_length: int | None = None) -> ProLIP:
    """A model for images of `image_size` pixels and texts of `context_length` tokens; None: as it is."""
    config, tensors = model.config, {name: value.clone() for name, value in model.state_dict().items()}
    if image_size is not None and image_size != config.image.pixels.size:
        old = config.image
        image = replace(old, pixels=replace(old.pixels, size=image_size))
        tensors["image.positions"] = resize_grid(tensors["image.positions"], old.added_tokens, image.grid)
        config = replace(config, image=image)
    if context_length is not None and context_length != config.text.tokens.context_length:
        added = max(
            config.text.added_tokens, int(config.text.pooling == "last")
        )  # what is read keeps its position
        text = replace(config.text, tokens=replace(config.text.tokens, context_length=context_length))
        tensors["text.positions"] = stretch(tensors["text.positions"], added, context_length)
        config = replace(config, text=text)
    if config == model.config:
        return model
    result = fill(config, tensors, "the resized model")
    result.origin, result.no_tokenizer = dict(model.origin), model.no_tokenizer
    if model.tokenizer is not None:
        result.use_tokenizer(Tokenizer(model.tokenizer.core(), config.text.tokens))
    return result


def resize_grid(positions: Tensor, added: int, grid: int) -> Tensor:
    """(added + g², W) -> (added + grid², W): the patches' positions resized as a picture; [CLS] and [UNC] untouched."""
    front, patches = positions[:added], positions[added:]
    old = round(len(patches) ** 0.5)
    if old == grid:
        return positions
    picture = patches.detach().float().T.reshape(1, -1, old, old)
    new = interpolate(picture, size=(grid, grid), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([front.detach(), new[0].flatten(1).T.to(positions.dtype)])


def stretch(positions: Tensor, added: int, length: int, kept: int = KEPT_POSITIONS) -> Tensor:
    """(T + added, W) -> (length + added, W). Longer: the first `kept` and the added tokens' positions stay, those
    between are stretched linearly (LongCLIP's and LongProLIP's way). Shorter: cut."""
    words = len(positions) - added
    front, back = positions[:words].detach(), positions[words:].detach()
    if length <= words:
        return torch.cat([front[:length], back])
    if words < kept + 2:
        raise ValueError(f"a context of {words} is too short to be stretched: it needs at least {kept + 2}")
    middle = front[kept:].float().T[None]
    new = interpolate(middle, size=length - kept, mode="linear", align_corners=False)[0].T
    return torch.cat([front[:kept], new.to(positions.dtype), back])
