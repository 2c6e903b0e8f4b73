"""Controls: what a model gives that has learned nothing. What it makes is not worth keeping on disk."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from prolip.model.prolip import ProLIP

MAX_MODELS = 1000


def untrained_models(model: ProLIP, count: int) -> Iterator[ProLIP]:
    """So many models of the same config and tokenizer with fresh weights, of the seeds 0, 1, ...

    count: 0 to 1000; another is an error at once. The models come one by one: only one is in memory.
    """
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_MODELS:
        raise ValueError(f"controls must be a whole number from 0 to {MAX_MODELS}, not {count!r}")
    return (make_untrained(model, seed) for seed in range(count))


def make_untrained(model: ProLIP, seed: int) -> ProLIP:
    """A model of the same config and tokenizer with fresh weights, on the same device."""
    fresh = ProLIP(model.config, model.tokenizer).init_weights(torch.Generator().manual_seed(seed))
    return fresh.to(model.device).eval()
