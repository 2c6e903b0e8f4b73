"""Retrieval of fresh scenes by complete captions; a caption is a positive if it is true of the image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.positives import Positives
from prolip.evaluation.result import get_value
from prolip.evaluation.retrieval import recall_at_k
from prolip.gaussian import Gaussian
from prolip.measures.nearest import RankingMetric
from prolip.scenes.captions import Caption, make_complete_caption
from prolip.scenes.meaning import is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import Scene
from reproduction.evaluation_data import EmbeddedScenes

COMPLETE_STREAM = 11
"""Last number of the seeds of `RandomDraws` for complete captions."""


def measure_retrieval(embedder: Embedder, embedded: EmbeddedScenes) -> dict[str, Any]:
    """Measure recall@1 among N scenes with one complete caption each.

    Returns:
        n, and for csd, cosine and match (the logit that was trained, in whose order PPCL's equals csd; None for a
        softmax model) {image_to_text, text_to_image, mean (of both directions)}.
    """
    captions = [
        make_complete_caption(
            scene, RandomDraws(embedded.source.seed, index, COMPLETE_STREAM), embedded.world
        )
        for index, scene in enumerate(embedded.scenes)
    ]
    texts = embedder.embed_texts([caption.text for caption in captions])
    positives = find_true_pairs(embedded.scenes, captions)
    logits = embedder.logit_parameters
    metrics: dict[str, RankingMetric] = {"csd": "csd", "cosine": "cosine"}
    recalls: dict[str, Any] = {
        name: _compute_recalls(embedded.images, texts, positives, metric) for name, metric in metrics.items()
    }
    if logits.gamma is None:  # the order of csd
        recalls["match"] = None if logits.bias is None else recalls["csd"]
    else:
        recalls["match"] = _compute_recalls(embedded.images, texts, positives, logits)
    return {"n": len(captions), **recalls}


def find_true_pairs(scenes: Sequence[Scene], captions: Sequence[Caption]) -> Positives:
    """Find all pairs of a scene and a caption that is true of it.

    Each caption states the shape, color and size of its first object, so that only scenes with such an object are
    checked.
    """
    scenes_with: dict[tuple[str | None, ...], set[int]] = defaultdict(set)
    for index, scene in enumerate(scenes):
        for obj in scene.objects:
            scenes_with[obj.shape, obj.color, obj.size].add(index)
    pairs = [
        (image, text)
        for text, caption in enumerate(captions)
        for described in caption.meaning.objects[:1]
        for image in scenes_with[described.shape, described.color, described.size]
        if is_true(caption.meaning, scenes[image])
    ]
    images, texts = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.from_pairs(images, texts, len(scenes), len(captions))


def _compute_recalls(
    images: Gaussian, texts: Gaussian, positives: Positives, metric: RankingMetric
) -> dict[str, float | None]:
    """Recall@1 in both directions and their mean, by one metric; None where it is undefined."""
    to_text = get_value(recall_at_k(images, texts, positives, ks=(1,), metric=metric)["r1"])
    to_image = get_value(recall_at_k(texts, images, positives.transpose(), ks=(1,), metric=metric)["r1"])
    mean = None if to_text is None or to_image is None else (to_text + to_image) / 2
    return {"image_to_text": to_text, "text_to_image": to_image, "mean": mean}
