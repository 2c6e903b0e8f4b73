"""A fresh model of a named size."""

from __future__ import annotations

import torch

from prolip.model.prolip import ProLIP
from prolip.model.sizes import named
from prolip.preprocessing.tokenizer import Tokenizer


def create(size: str, tokenizer: Tokenizer, *, seed: int = 0) -> ProLIP:
    """A model of this size with fresh weights and this tokenizer, ready to be trained.

    The sizes are the keys of `prolip.model.sizes.SIZES`; the context length is the size's. (Other configs:
    `ProLIP(config, tokenizer).start(generator)`.)
    """
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"a model needs a Tokenizer (see preprocessing.tokenizer_builders), not {type(tokenizer).__name__}"
        )
    config = named(size, tokenizer.rules)
    model = ProLIP(config, Tokenizer(tokenizer.core(), config.text.tokens))
    return model.start(torch.Generator().manual_seed(seed))
