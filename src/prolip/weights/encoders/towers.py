"""The towers of a finished model (CLIP, SigLIP, ProLIP) as frozen encoders: their features are its means."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor

from prolip.model.frozen_config import EncoderConfig
from prolip.model.prolip import ProLIP
from prolip.weights.encoders.base import VERSION, ImageEncoder, TextEncoder


def make_tower_encoders(model: ProLIP, name: str) -> tuple[ImageEncoder, TextEncoder]:
    """The image and the text tower of a model as encoders.

    Features are the means before normalization, so that a model that keeps them has the same means, to the bit.

    Args:
        model: The model, with a tokenizer; it must not be changed afterwards.
        name: As `prolip.load` takes it.

    Returns:
        The encoders.

    Raises:
        ValueError: The model has no tokenizer, or frozen encoders itself.
    """
    if model.config.is_frozen:
        raise ValueError(f"{name} has frozen encoders itself: name these as encoders instead")
    if model.tokenizer is None:
        model.tokenize("")  # raises the error that says why
    tokenizer = model.tokenizer
    assert tokenizer is not None
    model = model.eval()
    images = EncoderConfig(name=name, digest=_hash_tower(model, "image"), dim=model.config.embed_dim)
    texts = EncoderConfig(name=name, digest=_hash_tower(model, "text"), dim=model.config.embed_dim)
    return (
        ImageEncoder(images, model.config.image.preprocessing, _Tower(model, "image")),
        TextEncoder(texts, tokenizer, _Tower(model, "text")),
    )


class _Tower:
    """Inputs (B, ...) of a tower -> its mean (B, D), not of unit length; the variances are not used."""

    def __init__(self, model: ProLIP, tower: str) -> None:
        self._model, self._tower = model, tower

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        self._model.to(inputs.device)
        mean: Tensor = getattr(self._model, self._tower)(inputs)[0]
        return mean.float()


def _hash_tower(model: ProLIP, tower: str) -> str:
    """16 hexadecimal digits: hash of a tower's weights, config and, for texts, tokenizer."""
    config = model.config.to_dict()[tower]
    digest = hashlib.blake2b(json.dumps([VERSION, config], sort_keys=True).encode(), digest_size=8)
    if tower == "text" and model.tokenizer is not None:
        digest.update(model.tokenizer.copy_backend().to_str().encode())
    for name, value in sorted(getattr(model, tower).state_dict().items()):
        digest.update(f"{name} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
