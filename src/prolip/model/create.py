"""prolip.create: a new model of a named size."""

from __future__ import annotations

import torch

from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.preprocessing.tokenizer import Tokenizer


def create(size: str, tokenizer: Tokenizer, *, seed: int = 0) -> ProLIP:
    """Create a model with new weights, ready to be trained.

    For other configs: `ProLIP(config, tokenizer).init_weights(generator)`.

    Args:
        size: A key of `prolip.model.sizes.SIZES`. The context length is the size's.
        tokenizer: See `prolip.preprocessing.tokenizer_builders`.
        seed: Seed of the weights.

    Returns:
        The model, in float32 on the CPU.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"tokenizer must be a Tokenizer (see preprocessing.tokenizer_builders), not {type(tokenizer).__name__}"
        )
    config = get_config(size, tokenizer.config)
    model = ProLIP(config, Tokenizer(tokenizer.copy_backend(), config.text.tokenizer))
    return model.init_weights(torch.Generator().manual_seed(seed))
