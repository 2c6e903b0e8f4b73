"""The cost of [UNC]: time of a training step against deterministic and multi-head (PCME++) towers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.timing import time_interleaved
from prolip.losses.contrastive import ppcl, siglip
from prolip.model.config import Uncertainty
from prolip.model.prolip import ProLIP
from prolip.training.config import TrainConfig
from prolip.training.model_setup import make_model

TOWERS: dict[str, Uncertainty] = {"deterministic": "none", "unc": "token", "multihead": "multihead"}
"""By the source of log-variances."""
WARM_UP = 2
"""Untimed runs of each step."""


def measure_cost(config: TrainConfig, *, batch: int = 64, repeats: int = 30) -> dict[str, Any]:
    """Time a training step (forward, contrastive loss, backward, AdamW) of each tower, in turn.

    Args:
        config: Names the model.
        batch: Samples per step.
        repeats: Rounds.

    Returns:
        seconds: medians by tower. ratio: to the deterministic tower of the same round, {median, error (standard error
        of the mean)}. batch, repeats: as given.
    """
    steps = {name: _step(config, kind, batch) for name, kind in TOWERS.items()}
    for step in (*steps.values(),) * WARM_UP:
        step()
    seconds = time_interleaved(steps, repeats)
    return {
        "batch": batch,
        "repeats": repeats,
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "ratio": {
            name: _ratio(times, seconds["deterministic"])
            for name, times in seconds.items()
            if name != "deterministic"
        },
    }


def _ratio(times: list[float], reference: list[float]) -> dict[str, float]:
    by_round = [one / other for one, other in zip(times, reference, strict=True)]
    spread = statistics.stdev(by_round) if len(by_round) > 1 else 0.0
    return {"median": statistics.median(by_round), "error": spread / len(by_round) ** 0.5}


def _step(config: TrainConfig, kind: Uncertainty, batch: int) -> Callable[[], None]:
    model = make_model(replace(config.model, uncertainty=kind), config.seed).train()
    pixels, ids = _inputs(model, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loss = siglip if kind == "none" else ppcl

    def step() -> None:
        images, texts = model.encode_image(pixels), model.encode_text(ids)
        loss(images, texts, model.temperature).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _inputs(model: ProLIP, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs: their values don't matter for time."""
    generator = torch.Generator().manual_seed(0)
    size, tokens = model.config.image.preprocessing.size, model.config.text.tokenizer
    pixels = torch.randn(batch, 3, size, size, generator=generator)
    length = min(tokens.context_length, 24)
    ids = torch.randint(len(tokens.special_ids) + 1, tokens.vocab_size, (batch, length), generator=generator)
    return pixels, ids
