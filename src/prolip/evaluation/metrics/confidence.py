"""How sure a model is of its zero-shot answers: three rules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.metrics.calibration import pair_probabilities
from prolip.evaluation.metrics.fit import BLOCK_PAIRS
from prolip.gaussian import Gaussian

CONFIDENCES = ("uncertainty", "match", "max_softmax")


def confidence_labels(has_bias: bool) -> dict[str, str]:
    """What people read for each of `CONFIDENCES`. Without a bias a pair has no probability, only a similarity."""
    match = "match probability" if has_bias else "similarity"
    return dict(zip(CONFIDENCES, ("image uncertainty", match, "max softmax"), strict=True))


@dataclass(frozen=True, eq=False)
class Confidences:
    """How sure the model is of each of N images, by three rules.

    ranking: higher is surer; these don't saturate (a sigmoid or softmax soon is 1, and all ties). shown: the values
    for people. Without uncertainty, both lack that key.
    """

    ranking: dict[str, Tensor]
    shown: dict[str, Tensor]

    @classmethod
    def from_scores(cls, images: Gaussian, scores: Tensor, temperature: tuple[float, float | None]) -> Confidences:
        scale, bias = temperature
        best = scores.amax(1).double()
        odds = _log_odds(scores, scale)
        ranking = {"match": best, "max_softmax": odds}
        match = best if bias is None else pair_probabilities(best, scale, bias)
        shown = {"match": match, "max_softmax": odds.sigmoid()}
        uncertainty = images.uncertainty.double()
        if not bool(uncertainty.any()):
            return cls(ranking, shown)
        return cls({"uncertainty": -uncertainty} | ranking, {"uncertainty": uncertainty} | shown)


def max_softmax(scores: Tensor, scale: float) -> Tensor:
    """The largest of softmax(scale x scores), float64 (N,). scores: (N, C)."""
    return _log_odds(scores, scale).sigmoid()


def _log_odds(scores: Tensor, scale: float) -> Tensor:
    """log p / (1 - p) of the largest softmax probability, float64 (N,): finite where p is 1 to the last digit."""
    parts = []
    for block in scores.split(max(1, BLOCK_PAIRS // scores.shape[1])):
        logits = scale * block.double()
        best, where = logits.max(1, keepdim=True)
        parts.append(best[:, 0] - torch.logsumexp(logits.scatter(1, where, -torch.inf), 1))
    return torch.cat(parts)
