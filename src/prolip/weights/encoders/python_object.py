"""Encoders that are Python objects: anything with a name, a digest and `encode(batch) -> features`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from prolip.model.frozen_config import EncoderConfig
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import Tokenizer, TokenizerConfig
from prolip.weights.encoders.base import VERSION, ImageEncoder, TextEncoder

PIXELS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Mean and standard deviation that leave pixels as fractions of full scale."""
DEFAULT_SIZE = 224
MAX_BYTES = 512
"""Longest text, in UTF-8 bytes, that reaches an object: longer ones are cut."""


@runtime_checkable
class PythonEncoder(Protocol):
    """What an object must have to serve as an encoder.

    An image encoder may have `image_size` (224): images come as uint8 (B, S, S, 3), RGB, resized to S x S. A text
    encoder gets a list of B strings. It must be deterministic: equal inputs, equal features.

    Attributes:
        name: For messages and the model's config.
        digest: Any string that changes with the features: a version, a hash of weights.
    """

    name: str
    digest: str

    def encode(self, batch: Any) -> Any:
        """Encode B images or texts to features (B, F), an array or tensor of floats."""


def make_image_encoder(encoder: PythonEncoder) -> ImageEncoder:
    """Wrap an object as an image encoder.

    Args:
        encoder: The object.

    Returns:
        The encoder.
    """
    _require_encoder(encoder)
    size = int(getattr(encoder, "image_size", DEFAULT_SIZE))
    preprocessing = ImagePreprocessing(size=size, mean=PIXELS[0], std=PIXELS[1], resize_mode="squash")
    network = _ImageObject(encoder)
    dim = network(torch.zeros(1, 3, size, size)).shape[1]
    return ImageEncoder(_make_config(encoder, dim, preprocessing), preprocessing, network)


def make_text_encoder(encoder: PythonEncoder) -> TextEncoder:
    """Wrap an object as a text encoder. Texts travel to it as UTF-8 bytes, so that all that moves ids moves them.

    Args:
        encoder: The object.

    Returns:
        The encoder.
    """
    _require_encoder(encoder)
    tokenizer = make_byte_tokenizer()
    network = _TextObject(encoder, tokenizer)
    dim = network(tokenizer(["a"])).shape[1]
    return TextEncoder(_make_config(encoder, dim, tokenizer.config), tokenizer, network)


def make_byte_tokenizer() -> Tokenizer:
    """A tokenizer whose ids are the bytes of a text, after [PAD] = 0."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"[PAD]": 0} | {letter: index for index, letter in enumerate(alphabet, start=1)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["[PAD]"])
    config = TokenizerConfig(
        vocab_size=len(vocabulary), context_length=MAX_BYTES, pad_id=0, cleaning="whitespace"
    )
    return Tokenizer(backend, config)


def _require_encoder(encoder: object) -> None:
    """Raise TypeError if an object isn't an encoder."""
    if not isinstance(encoder, PythonEncoder):
        raise TypeError(
            f"an encoder is a name or an object with name, digest and encode(batch), not {type(encoder).__name__}"
        )


def _make_config(encoder: PythonEncoder, dim: int, settings: object) -> EncoderConfig:
    """The config of an object: its name, and a hash of its digest and of what is done with its input."""
    text = repr([VERSION, encoder.name, encoder.digest, settings])
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return EncoderConfig(name=f"python:{encoder.name}", digest=digest, dim=dim)


def _as_features(values: Any, count: int, name: str) -> Tensor:
    """The features (B, F) that an object returned; ValueError unless they are B rows of numbers."""
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(np.asarray(values, dtype=np.float32))
        except (TypeError, ValueError):
            raise ValueError(
                f"encode of {name} returned {type(values).__name__}, not (B, F) numbers as an array or tensor"
            ) from None
    features: Tensor = values.detach().float()
    if features.ndim != 2 or len(features) != count:
        raise ValueError(
            f"encode of {name} returned {tuple(features.shape)} for {count} inputs; it must be (B, F)"
        )
    if not features.shape[1]:
        raise ValueError(f"encode of {name} returned no features: {tuple(features.shape)}; it must be (B, F)")
    return features


class _ImageObject:
    """Pixels (B, 3, S, S), fractions of full scale -> features (B, F) of an object."""

    def __init__(self, encoder: PythonEncoder) -> None:
        self._encoder = encoder

    def __call__(self, inputs: Tensor) -> Tensor:
        pixels = inputs.mul(255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
        values = self._encoder.encode(pixels.contiguous().cpu().numpy())
        return _as_features(values, len(inputs), self._encoder.name).to(inputs.device)


class _TextObject:
    """Ids (B, T) of `make_byte_tokenizer` -> features (B, F) of an object."""

    def __init__(self, encoder: PythonEncoder, tokenizer: Tokenizer) -> None:
        self._encoder, self._backend = encoder, tokenizer.copy_backend()

    def __call__(self, inputs: Tensor) -> Tensor:
        texts = self._decode(inputs.cpu().tolist())
        return _as_features(self._encoder.encode(texts), len(texts), self._encoder.name).to(inputs.device)

    def _decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of rows of ids; padding is dropped."""
        return [self._backend.decode([i for i in row if i != 0], skip_special_tokens=False) for row in rows]
