"""The towers of a finished model (CLIP, SigLIP, ProLIP) as frozen encoders: their features are its means."""

from __future__ import annotations

import hashlib
import json

from torch import Tensor, nn

from prolip.model.folder import hash_state
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
    identity = f"model-{images.digest[:8]}-{texts.digest[:8]}"
    return (
        ImageEncoder(images, model.config.image.preprocessing, TowerNetwork(model, "image", identity)),
        TextEncoder(texts, tokenizer, TowerNetwork(model, "text", identity)),
    )


class TowerNetwork(nn.Module):
    """Inputs (B, ...) of a tower -> its mean (B, D), not of unit length; the variances are not used.

    Attributes:
        model: The model that the tower is of.
        identity: A name of the model: equal for equal models.
    """

    def __init__(self, model: ProLIP, tower: str, identity: str) -> None:
        super().__init__()
        self.model, self._tower, self.identity = model, tower, identity

    def forward(self, inputs: Tensor) -> Tensor:
        """Encode a batch, see the class."""
        mean: Tensor = getattr(self.model, self._tower)(inputs)[0]
        return mean.float()


def _hash_tower(model: ProLIP, tower: str) -> str:
    """16 hexadecimal digits: hash of a tower's weights, config and, for texts, tokenizer."""
    config = model.config.to_dict()[tower]
    digest = hashlib.blake2b(json.dumps([VERSION, config], sort_keys=True).encode(), digest_size=8)
    if tower == "text" and model.tokenizer is not None:
        digest.update(model.tokenizer.copy_backend().to_str().encode())
    hash_state(digest, getattr(model, tower).state_dict())
    return digest.hexdigest()
