"""Calibration of match probabilities on fresh scenes, in batches as in training."""

from __future__ import annotations

from typing import Any

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.match_calibration import match_calibration
from reproduction.evaluation_data import EmbeddedScenes

BATCH_SIZE = 128
"""Batch size of the miniature recipe: the bias of the logits holds its prior."""


def measure_match(
    embedder: Embedder, embedded: EmbeddedScenes, batch_size: int = BATCH_SIZE
) -> dict[str, Any] | None:
    """Measure match probabilities of N scenes with random captions of all levels, one per scene in a batch.

    Returns:
        n (captions, each once), batch, and over all pairs of a batch ece, brier and log_loss; num_likely (pairs with a
        probability above 0.02) and, over these, ece_likely, which certain non-matches don't make small. None for a
        softmax model, and for fewer scenes than a batch.
    """
    found = match_calibration(
        embedded.images, embedded.texts, embedded.image_of, embedder.logit_parameters, batch_size
    )
    if found is None:
        return None
    return {
        "n": found.n,
        "batch": found.batch_size,
        "ece": found.pairs.ece,
        "brier": found.pairs.brier,
        "log_loss": found.pairs.log_loss,
        "num_likely": found.num_likely,
        "ece_likely": None if found.likely is None else found.likely.ece,
    }
