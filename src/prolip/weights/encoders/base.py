"""Encoders as towers use them: what they make of pixels or token ids, and the digest that tells two apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from prolip.model.frozen_config import EncoderConfig
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import Tokenizer

VERSION = 1
"""Version of the features: it enters every digest, so that features of another version are refused."""
BLOCK = 1 << 20
"""Bytes that are hashed at a time."""


class Network(Protocol):
    """What computes the features: inputs (B, ...) -> float32 (B, F)."""

    def __call__(self, inputs: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """A frozen image encoder.

    Attributes:
        config: Name, digest, number of features.
        preprocessing: How an image becomes its pixels.
        network: Normalized pixels (B, 3, S, S) -> features (B, F).
        files: Its files, for bundling; empty if it can't be bundled.
    """

    config: EncoderConfig
    preprocessing: ImagePreprocessing
    network: Network
    files: tuple[Path, ...] = ()

    def encode(self, inputs: Tensor) -> Tensor:
        """Features (B, F) of normalized pixels (B, 3, S, S)."""
        return _run(self.network, inputs, self.config)


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A frozen text encoder.

    Attributes:
        config: Name, digest, number of features.
        tokenizer: How a text becomes its ids.
        network: Ids (B, T) -> features (B, F).
        files: Its files, for bundling; empty if it can't be bundled.
    """

    config: EncoderConfig
    tokenizer: Tokenizer
    network: Network
    files: tuple[Path, ...] = ()

    def encode(self, inputs: Tensor) -> Tensor:
        """Features (B, F) of ids (B, T)."""
        return _run(self.network, inputs, self.config)


@torch.no_grad()
def _run(network: Network, inputs: Tensor, config: EncoderConfig) -> Tensor:
    """Checked features (B, F) of inputs, without gradients. A network of torch comes to the device of the inputs."""
    if isinstance(network, nn.Module):
        network.to(inputs.device)
        inputs = (
            inputs.float() if inputs.is_floating_point() else inputs
        )  # a model in half precision halves pixels
    return check_features(network(inputs), len(inputs), config)


def check_features(features: Tensor, count: int, config: EncoderConfig) -> Tensor:
    """Check what an encoder returned.

    Args:
        features: What it returned.
        count: Number of inputs B.
        config: The encoder's.

    Returns:
        The features, float32.

    Raises:
        ValueError: Their shape is not (B, F), or a value is not finite.
    """
    if tuple(features.shape) != (count, config.dim):
        raise ValueError(
            f"the encoder {config.name} returned features of shape {tuple(features.shape)} for {count} inputs, not "
            f"({count}, {config.dim})"
        )
    if not bool(features.isfinite().all()):
        raise ValueError(f"the encoder {config.name} returned features that are NaN or infinite")
    return features.float()


def hash_files(paths: Iterable[Path], *settings: object) -> str:
    """Hash the content of files and all settings that change the features.

    Args:
        paths: Files, in a fixed order; their names don't matter.
        *settings: Values that have a stable repr.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(json.dumps([VERSION, list(map(repr, settings))]).encode(), digest_size=8)
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()


def find_tokens(ids: Tensor, pad_id: int) -> Tensor:
    """Find which ids are no padding. A text without tokens counts as one padding token: features need something.

    Args:
        ids: (B, T).
        pad_id: The id of padding.

    Returns:
        bool (B, T), at least one True in each row.
    """
    is_token = ids != pad_id
    is_first = torch.arange(ids.shape[1], device=ids.device) == 0
    return is_token | (is_first & ~is_token.any(1, keepdim=True))


def pool_map(x: Tensor) -> Tensor:
    """Pool a feature map: the mean, and the largest mean of 3 x 3 overlapping cells.

    Args:
        x: (B, C, H, W).

    Returns:
        (B, 2 C): what is there on average, and what is there anywhere.
    """
    cells = torch.nn.functional.adaptive_avg_pool2d(x, (min(3, x.shape[2]), min(3, x.shape[3])))
    return torch.cat([x.mean((2, 3)), cells.amax((2, 3))], dim=1)


def pool_tokens(x: Tensor, is_token: Tensor | None = None) -> Tensor:
    """Pool tokens: their mean, and the largest value of each channel.

    Args:
        x: (B, T, W).
        is_token: bool (B, T), False for padding, with a True in each row (`find_tokens`); None: there is no padding.

    Returns:
        (B, 2 W).
    """
    if is_token is None:
        return torch.cat([x.mean(1), x.amax(1)], dim=1)
    mask = is_token[..., None]
    mean = (x * mask).sum(1) / mask.sum(1)
    return torch.cat([mean, x.masked_fill(~mask, -torch.inf).amax(1)], dim=1)
