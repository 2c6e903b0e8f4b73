"""Confidence in zero-shot predictions: image uncertainty, match probability, largest softmax, perplexities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from prolip.embeddings.base_embedder import LogitParameters
from prolip.evaluation.metrics.calibration import pair_probabilities
from prolip.evaluation.metrics.fit import BLOCK_PAIRS
from prolip.gaussian import Gaussian
from prolip.measures.perplexity import softmax_entropy

Confidence = Literal["uncertainty", "match", "max_softmax", "class_perplexity", "pool_perplexity"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)
"""Names of the ways to rank predictions by confidence."""


def confidence_labels(has_bias: bool) -> dict[Confidence, str]:
    """Get the display names of the confidences.

    Args:
        has_bias: Whether the model has a bias; without one a pair has a similarity, but no probability.

    Returns:
        The name of each of `CONFIDENCES`.
    """
    match = "match probability" if has_bias else "similarity"
    labels = (
        "image uncertainty",
        match,
        "max softmax",
        "perplexity over classes",
        "perplexity over the pool",
    )
    return dict(zip(CONFIDENCES, labels, strict=True))


@dataclass(frozen=True, eq=False)
class Confidences:
    """The confidence in the prediction for each of N images, by each of `CONFIDENCES`.

    ranking: Higher is more confident; unlike probabilities, which saturate at 1 and then tie, these don't saturate.
    display: The values to show: the uncertainty, the probabilities and the perplexities.
    Both lack the key "uncertainty" for a deterministic model, and "pool_perplexity" without a pool.
    """

    ranking: dict[Confidence, Tensor]
    display: dict[Confidence, Tensor]

    @classmethod
    def from_scores(
        cls, images: Gaussian, scores: Tensor, logits: LogitParameters, pool_perplexity: Tensor | None = None
    ) -> Confidences:
        """Compute the confidences of predictions.

        Args:
            images: The classified images, (N, D).
            scores: Similarities to the classes, (N, C).
            logits: Scale and bias that make logits of the scores (`Ranking.logits`).
            pool_perplexity: How many texts of a pool fit each image, (N,); None: there is no pool.

        Returns:
            The confidences, (N,) each; without "uncertainty" if the images are points.
        """
        scale, bias = logits.scale, logits.bias
        best = scores.amax(1).double()
        log_odds = _max_log_odds(scores, scale)
        entropy = _class_entropy(scores, scale)
        ranking: dict[Confidence, Tensor] = {
            "match": best,
            "max_softmax": log_odds,
            "class_perplexity": -entropy,
        }
        match = best if bias is None else pair_probabilities(best, scale, bias)
        display: dict[Confidence, Tensor] = {
            "match": match,
            "max_softmax": log_odds.sigmoid(),
            "class_perplexity": entropy.exp(),
        }
        if pool_perplexity is not None:
            ranking["pool_perplexity"], display["pool_perplexity"] = -pool_perplexity, pool_perplexity
        uncertainty = images.uncertainty.double()
        if not bool(uncertainty.any()):  # a deterministic model: all variances are 0
            return cls(ranking, display)
        return cls({"uncertainty": -uncertainty, **ranking}, {"uncertainty": uncertainty, **display})


def max_softmax(scores: Tensor, scale: float) -> Tensor:
    """The largest probability of softmax(scale x scores) in each row.

    Args:
        scores: Similarities to the classes, (N, C).
        scale: The scale of the logits, not its logarithm.

    Returns:
        float64 (N,).
    """
    return _max_log_odds(scores, scale).sigmoid()


def _class_entropy(scores: Tensor, scale: float) -> Tensor:
    """Entropy of the softmax over classes, in nats, float64 (N,)."""
    blocks = scores.split(max(1, BLOCK_PAIRS // scores.shape[1]))
    return torch.cat([softmax_entropy(scale * block.double()) for block in blocks])


def _max_log_odds(scores: Tensor, scale: float) -> Tensor:
    """log p / (1 - p) of the largest softmax probability, float64 (N,): finite where p rounds to 1."""
    log_odds = []
    for block in scores.split(max(1, BLOCK_PAIRS // scores.shape[1])):
        logits = scale * block.double()
        best, index = logits.max(1, keepdim=True)
        # p / (1 - p) is e^best / (sum over the other classes of e^logit)
        log_others = torch.logsumexp(logits.scatter(1, index, -torch.inf), 1)
        log_odds.append(best[:, 0] - log_others)
    return torch.cat(log_odds)
