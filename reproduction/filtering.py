"""Filtering polluted pairs: of pictures with captions, some of them false, the best by a score are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.selective import auroc
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.scenes.caption_noise import Pollution
from prolip.scenes.captions import Caption
from prolip.scenes.world import Scene, World
from reproduction.evaluation_sets import POLLUTED, Ground, has_variances

FALSE, KEPT = 0.3, 0.7
"""Shares of the pairs: with a caption that is false, and that are kept."""


@dataclass(frozen=True)
class Polluted:
    """captions: of N pictures, one each. right: bool (N,), whether it is true."""

    captions: tuple[Caption, ...]
    right: Tensor


def measure(embedder: Embedder, ground: Ground) -> dict[str, Any]:
    """n, false, kept; by each score {precision (share of kept pairs that are right), auroc}; variances' scores are None
    for a deterministic model. Keeping at random gives a precision of 1 - false. Cosine is CSD with constant
    variances."""
    source = ground.scenes(POLLUTED, ground.samples.polluted)
    scenes = [ground.world.scene(source.seed, index) for index in range(len(source))]
    pairs = pollute(scenes, ground.world, source.seed)
    images = embedder.images(source).images
    texts = embedder.texts([told.text for told in pairs.captions])
    return {
        "n": len(source),
        "false": FALSE,
        "kept": KEPT,
        **{
            name: None if score is None else judge(pairs.right, score)
            for name, score in _scores(images, texts, source.seed).items()
        },
    }


def pollute(scenes: list[Scene], world: World, seed: int) -> Polluted:
    """Of each scene a caption, 30 % of them false."""
    pollution = Pollution(scenes, world, seed, FALSE)
    captions = tuple(pollution.caption(index) for index in range(len(scenes)))
    return Polluted(captions, torch.tensor([pollution.is_right(index) for index in range(len(scenes))]))


def judge(right: Tensor, score: Tensor) -> dict[str, float | None]:
    """right: bool (N,). score: (N,), larger is kept first."""
    kept = score.argsort(descending=True, stable=True)[: round(KEPT * len(score))]
    return {"precision": right[kept].double().mean().item(), "auroc": auroc(right, score.double())}


def _scores(images: Gaussian, texts: Gaussian, seed: int) -> dict[str, Tensor | None]:
    variances = has_variances(images) and has_variances(texts)
    generator = torch.Generator().manual_seed(seed % 2**63)
    return {
        "csd": -public.csd(images, texts),
        "cosine": (images.mean * texts.mean).sum(-1),
        "log_inclusion": public.log_inclusion(images, texts) if variances else None,
        "certain_text": -texts.uncertainty if variances else None,
        "random": torch.rand(len(images), generator=generator),
    }
