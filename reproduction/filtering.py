"""Filtering of pairs of which some captions are false: precision of the pairs selected by a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.selective import auroc
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.scenes.caption_noise import NoisyCaptions
from prolip.scenes.captions import Caption
from prolip.scenes.world import Scene, World
from reproduction.evaluation_data import NOISY_SPLIT, EvaluationData, has_variances

FALSE_FRACTION, KEPT_FRACTION = 0.3, 0.7
"""Fractions of the pairs: those with a false caption, and those that the filter keeps."""


@dataclass(frozen=True)
class NoisyPairs:
    """Captions of N images, one each, and whether each is true of its image, bool (N,)."""

    captions: tuple[Caption, ...]
    correct: Tensor


def measure_filtering(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Measure how well each score filters pairs with false captions.

    Returns:
        n, false_fraction, kept_fraction; and by score (csd, cosine, log_inclusion, certain_text, random) {precision
        (fraction of kept pairs that are correct), auroc}, None for scores of variances if the model is deterministic.
        Random choice has a precision of 1 - false_fraction. Cosine is CSD with constant variances.
    """
    source = evaluation_data.scenes(NOISY_SPLIT, evaluation_data.sizes.noisy)
    scenes = [evaluation_data.world.draw_scene(source.seed, index) for index in range(len(source))]
    pairs = make_noisy_pairs(scenes, evaluation_data.world, source.seed)
    images = embedder.embed_images(source).images
    texts = embedder.embed_texts([caption.text for caption in pairs.captions])
    return {
        "n": len(source),
        "false_fraction": FALSE_FRACTION,
        "kept_fraction": KEPT_FRACTION,
        **{
            name: None if score is None else evaluate_score(pairs.correct, score)
            for name, score in _compute_scores(images, texts, source.seed).items()
        },
    }


def make_noisy_pairs(scenes: list[Scene], world: World, seed: int) -> NoisyPairs:
    """Draw a caption of each scene, of which FALSE_FRACTION are false."""
    noisy = NoisyCaptions(scenes, world, seed, FALSE_FRACTION)
    captions = tuple(noisy.get_caption(index) for index in range(len(scenes)))
    return NoisyPairs(captions, torch.tensor([noisy.is_correct(index) for index in range(len(scenes))]))


def evaluate_score(correct: Tensor, score: Tensor) -> dict[str, float | None]:
    """Precision of the KEPT_FRACTION of pairs with the largest score (N,), and AUROC; correct: bool (N,)."""
    kept = score.argsort(descending=True, stable=True)[: round(KEPT_FRACTION * len(score))]
    return {"precision": correct[kept].double().mean().item(), "auroc": auroc(correct, score.double())}


def _compute_scores(images: Gaussian, texts: Gaussian, seed: int) -> dict[str, Tensor | None]:
    """Scores (N,) of the pairs by name, larger for a better pair; None where the model lacks variances."""
    is_probabilistic = has_variances(images) and has_variances(texts)
    generator = torch.Generator().manual_seed(seed % 2**63)
    return {
        "csd": -public.csd(images, texts),
        "cosine": (images.mean * texts.mean).sum(-1),
        "log_inclusion": public.log_inclusion(images, texts) if is_probabilistic else None,
        "certain_text": -texts.uncertainty if is_probabilistic else None,
        "random": torch.rand(len(images), generator=generator),
    }
