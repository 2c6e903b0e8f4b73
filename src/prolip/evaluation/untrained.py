"""Untrained models of the same config, as controls for evaluations."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP

MAX_MODELS = 1000


def untrained_models(model: ProLIP, count: int) -> Iterator[ProLIP]:
    """Make models of the same config and tokenizer with untrained weights, with the seeds 0, 1, ...

    Args:
        model: The model whose config, tokenizer and device they have.
        count: Number of models, 0 to 1000.

    Returns:
        An iterator that makes one model at a time, so that only one is in memory.

    Raises:
        ValueError: The count is not valid; raised at once, before the first model is made.
    """
    _require_count(count)
    return (make_untrained(model, seed) for seed in range(count))


def untrained_embedders(embedder: BaseEmbedder, count: int) -> Iterator[BaseEmbedder]:
    """Make embedders with untrained models of the same config, without a cache; see `untrained_models`.

    Args:
        embedder: The embedder whose model and settings they have.
        count: Number of embedders, 0 to 1000; for 0, no model is needed.

    Returns:
        An iterator that makes one at a time.

    Raises:
        ValueError: The count is not valid, or there is no model; raised at once.
    """
    _require_count(count)
    if not count:
        return iter(())
    models = untrained_models(embedder.require_model("a comparison with untrained models"), count)
    return map(embedder.with_model, models)


def make_untrained(model: ProLIP, seed: int) -> ProLIP:
    """Make a model of the same config and tokenizer with untrained weights.

    Args:
        model: The model whose config, tokenizer and device it has; it is not changed.
        seed: Seed of the weights.

    Returns:
        The untrained model, on the same device, in eval mode; heads on frozen encoders keep these.
    """
    untrained = ProLIP(model.config, model.tokenizer).init_weights(torch.Generator().manual_seed(seed))
    for new, old in ((untrained.image, model.image), (untrained.text, model.text)):
        if isinstance(new, FrozenTower) and isinstance(old, FrozenTower):
            new.attach_encoder(old.encoder)
    return untrained.to(model.device).eval()


def _require_count(count: int) -> None:
    """Raise ValueError unless `count` is a number of untrained models."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_MODELS:
        raise ValueError(
            f"the number of untrained models must be an integer from 0 to {MAX_MODELS}, not {count!r}"
        )
