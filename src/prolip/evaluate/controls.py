"""Controls: what a model gives that has learned nothing. What it makes is not worth keeping on disk."""

from __future__ import annotations

import torch

from prolip.model.prolip import ProLIP


def untrained(model: ProLIP, seed: int) -> ProLIP:
    """A model of the same config and tokenizer with fresh weights, on the same device."""
    fresh = ProLIP(model.config, model.tokenizer).start(torch.Generator().manual_seed(seed))
    return fresh.to(model.device).eval()
