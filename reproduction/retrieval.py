"""Retrieval of fresh scenes by complete captions. An answer is right if the caption is true of the picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.positives import Positives
from prolip.evaluation.retrieval import recall_at_k
from prolip.gaussian import Gaussian
from prolip.measures.nearest import Score
from prolip.scenes.captions import Caption, complete
from prolip.scenes.meaning import holds
from prolip.scenes.random_draws import Draws
from prolip.scenes.world import Scene
from reproduction.evaluation_sets import Told

COMPLETE = 11
"""Of the numbers that draw wordings; smaller ones draw other things."""


def measure(embedder: Embedder, told: Told) -> dict[str, Any]:
    """{n, csd: {image_to_text, text_to_image, mean}, cosine: ...}: R@1 over N scenes with one complete caption each."""
    captions = [
        complete(scene, Draws(told.source.seed, index, COMPLETE), told.world)
        for index, scene in enumerate(told.scenes)
    ]
    texts = embedder.texts([caption.text for caption in captions])
    right = true_pairs(told.scenes, captions)
    scores: tuple[Score, ...] = ("csd", "cosine")
    return {"n": len(captions), **{by: _both_ways(told.images, texts, right, by) for by in scores}}


def true_pairs(scenes: Sequence[Scene], captions: Sequence[Caption]) -> Positives:
    """The captions that are true of each scene. Each caption names the shape, colour and size of its first thing in
    full, so that only scenes with such a thing need a look."""
    having: dict[tuple[str | None, ...], set[int]] = defaultdict(set)
    for number, scene in enumerate(scenes):
        for thing in scene.things:
            having[thing.shape, thing.colour, thing.size].add(number)
    pairs = [
        (image, text)
        for text, caption in enumerate(captions)
        for first in caption.meaning.things[:1]
        for image in having[first.shape, first.colour, first.size]
        if holds(caption.meaning, scenes[image])
    ]
    images, texts = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.of_pairs(images, texts, len(scenes), len(captions))


def _both_ways(images: Gaussian, texts: Gaussian, right: Positives, by: Score) -> dict[str, float | None]:
    to_text = recall_at_k(images, texts, right, ks=(1,), by=by)["r1"]
    to_image = recall_at_k(texts, images, right.turned(), ks=(1,), by=by)["r1"]
    mean = None if to_text is None or to_image is None else (to_text + to_image) / 2
    return {"image_to_text": to_text, "text_to_image": to_image, "mean": mean}
