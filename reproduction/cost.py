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
"""Towers that are compared, by the source of their log-variances."""
WARM_UP = 2
"""Untimed runs of each step."""


def measure_cost(config: TrainConfig, *, batch: int = 64, repeats: int = 30) -> dict[str, Any]:
    """Time a training step (forward, contrastive loss, backward, AdamW) of each tower, in turn.

    Args:
        config: Config of the run whose model is timed.
        batch: Samples per step.
        repeats: Rounds, in each of which every tower runs one step.

    Returns:
        seconds: medians by tower. ratio: to the deterministic tower of the same round, {median, error (standard error
        of the mean)}. batch, repeats: as given.
    """
    steps = {name: _make_step(config, kind, batch) for name, kind in TOWERS.items()}
    for step in (*steps.values(),) * WARM_UP:
        step()
    seconds = time_interleaved(steps, repeats)
    return {
        "batch": batch,
        "repeats": repeats,
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "ratio": {
            name: _compute_ratio(times, seconds["deterministic"])
            for name, times in seconds.items()
            if name != "deterministic"
        },
    }


def _compute_ratio(times: list[float], reference: list[float]) -> dict[str, float]:
    """Ratio of two times of the same round: {median over rounds, error (standard error of the mean)}."""
    by_round = [seconds / base for seconds, base in zip(times, reference, strict=True)]
    deviation = statistics.stdev(by_round) if len(by_round) > 1 else 0.0
    return {"median": statistics.median(by_round), "error": deviation / len(by_round) ** 0.5}


def _make_step(config: TrainConfig, kind: Uncertainty, batch: int) -> Callable[[], None]:
    """Make a function that runs a training step of a new model, with random inputs that are always the same."""
    model = make_model(replace(config.model, uncertainty=kind), config.seed).train()
    pixels, ids = _draw_inputs(model, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loss = siglip if kind == "none" else ppcl  # PPCL needs variances

    def step() -> None:
        """Run one step on the same inputs; changes the model and the optimizer."""
        images, texts = model.encode_image(pixels), model.encode_text(ids)
        loss(images, texts, model.temperature).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _draw_inputs(model: ProLIP, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw pixels (batch, 3, S, S) and token ids (batch, length); their values don't matter for time."""
    generator = torch.Generator().manual_seed(0)
    size, tokens = model.config.image.preprocessing.size, model.config.text.tokenizer
    pixels = torch.randn(batch, 3, size, size, generator=generator)
    length = min(tokens.context_length, 24)
    ids = torch.randint(len(tokens.special_ids) + 1, tokens.vocab_size, (batch, length), generator=generator)
    return pixels, ids
