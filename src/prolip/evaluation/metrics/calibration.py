"""Calibration of class and pair probabilities: ECE, Brier score, log loss, reliability bins.

The probability of a class among C is softmax(scale x similarity); that of a pair by itself is
sigmoid(scale x similarity + bias) (Eq. 2). `metrics.fit` fits both to data (post-hoc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from prolip.checks import require_choice, require_positive_int
from prolip.evaluation.metrics.bins import equal_mass_bins

Binning = Literal["width", "mass"]
"""Bins of equal width of [0, 1], or of equally many samples (see `bins.equal_mass_bins`)."""

BINS = 15


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """B bins of confidence: number of predictions, sum of confidences, number of correct predictions; (B,) each."""

    count: Tensor
    confidence: Tensor
    correct: Tensor

    def __add__(self, other: ReliabilityBins) -> ReliabilityBins:
        """The bins of both sets of predictions together. (For equal width only: bins of equal mass differ.)"""
        return ReliabilityBins(
            self.count + other.count, self.confidence + other.confidence, self.correct + other.correct
        )

    @property
    def error(self) -> float:
        """Expected calibration error: the mean over predictions of |accuracy - mean confidence| of their bin."""
        return ((self.correct - self.confidence).abs().sum() / self.count.sum()).item()

    def to_rows(self) -> list[dict[str, Any]]:
        """Nonempty bins as JSON-serializable dicts: n, confidence (mean), accuracy."""
        return [
            {"n": int(n), "confidence": (confidence / n).item(), "accuracy": (hits / n).item()}
            for n, confidence, hits in zip(self.count, self.confidence, self.correct, strict=True)
            if n > 0
        ]


def bin_by_confidence(
    confidence: Tensor, correct: Tensor, bins: int = BINS, binning: Binning = "width"
) -> ReliabilityBins:
    """Put predictions into bins of confidence.

    Args:
        confidence: (N,), probabilities.
        correct: bool (N,).
        bins: Number of bins.
        binning: Equal width or equal mass. A bin of equal width excludes its lower edge (except 0) and includes its
            upper one.

    Returns:
        The bins.
    """
    require_choice(binning, get_args(Binning), "binning")
    require_positive_int(bins, "bins")
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(correct) == 0:
        raise ValueError(
            f"confidence {tuple(confidence.shape)} and correct {tuple(correct.shape)} must both be (N,), N at least 1"
        )
    p = confidence.double()
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError("confidence must be a probability, from 0 to 1")
    equal_width = ((p * bins).ceil().long() - 1).clamp(0, bins - 1)
    index = equal_width if binning == "width" else equal_mass_bins(p, bins)
    count = torch.bincount(index, minlength=bins).double()
    sums = (torch.bincount(index, v.double(), minlength=bins) for v in (p, correct))
    return ReliabilityBins(count, *sums)


def expected_calibration_error(
    confidence: Tensor, correct: Tensor, bins: int = BINS, binning: Binning = "width"
) -> float:
    """Mean over predictions of |accuracy - mean confidence| of their bin.

    Args:
        confidence: Confidence of each prediction, 0 to 1, (N,).
        correct: Whether each prediction is right, bool (N,).
        bins: Number of bins.
        binning: How the bins are cut, see `bin_by_confidence`.

    Returns:
        The error, 0 to 1.
    """
    return bin_by_confidence(confidence, correct, bins, binning).error


def pair_probabilities(similarities: Tensor, scale: float, bias: float) -> Tensor:
    """Match probabilities of pairs: sigmoid(scale x similarity + bias) (Eq. 2).

    Args:
        similarities: Similarities of the pairs, any shape.
        scale: The scale of the logits, not its logarithm.
        bias: The bias of the logits.

    Returns:
        Probabilities, float64, of the same shape.
    """
    return torch.sigmoid(scale * similarities.double() + bias)


def softmax_calibration(similarities: Tensor, labels: Tensor, scale: float) -> dict[str, Any]:
    """Calibration of the softmax over classes.

    Args:
        similarities: (N, C).
        labels: int64 (N,).
        scale: Not negative.

    Returns:
        ece, ece_mass: of the most similar class, with bins of equal width and of equal mass. brier: mean over samples
        of sum_c (p_c - y_c)^2, from 0 to 2. log_loss: mean -log p(true class), in nats. bins: rows of equal width.
    """
    blocks = zip(*(values.split(_block_rows(similarities)) for values in (similarities, labels)), strict=True)
    parts = [_softmax_losses(x, label, scale) for x, label in blocks]
    confidence, brier, loss = (torch.cat(part) for part in zip(*parts, strict=True))
    return _summarize_reliability(confidence, similarities.argmax(1) == labels) | {
        "brier": brier.mean().item(),
        "log_loss": loss.mean().item(),
    }


def _softmax_losses(similarities: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Largest probability, sum_c (p_c - y_c)^2 and -log p(true class): each (N,)."""
    log_p = torch.log_softmax(scale * similarities.double(), 1)
    p, own = log_p.exp(), log_p.gather(1, labels[:, None])[:, 0]
    return p.amax(1), p.square().sum(1) - 2.0 * own.exp() + 1.0, -own


def sigmoid_calibration(similarities: Tensor, labels: Tensor, scale: float, bias: float) -> dict[str, Any]:
    """Calibration of the sigmoid of pairs (Eq. 2).

    Args:
        similarities: (N, C).
        labels: int64 (N,).
        scale, bias: Of the logits.

    Returns:
        predicted: of the pair of each sample with its most similar class (ece, ece_mass, bins, brier, log_loss).
        pairs: Pairs of all N x C pairs (ece, brier, log_loss), most of which are easy, so its values are small.
    """
    best, predicted = similarities.max(1)
    correct = predicted == labels
    logit = scale * best.double() + bias
    brier, loss = _binary_losses(logit, correct)
    chosen = _summarize_reliability(torch.sigmoid(logit), correct) | {
        "brier": brier.mean().item(),
        "log_loss": loss.mean().item(),
    }
    return {"predicted": chosen, "pairs": _all_pairs(similarities, labels, scale, bias)}


def _all_pairs(similarities: Tensor, labels: Tensor, scale: float, bias: float) -> dict[str, float]:
    rows, classes = _block_rows(similarities), torch.arange(similarities.shape[1])
    total, brier, loss = None, 0.0, 0.0
    for block, label in zip(similarities.split(rows), labels.split(rows), strict=True):
        logit = (scale * block.double() + bias).flatten()
        match = (classes == label[:, None]).flatten()
        part = bin_by_confidence(torch.sigmoid(logit), match)
        squares, losses = _binary_losses(logit, match)
        brier, loss = brier + squares.sum().item(), loss + losses.sum().item()
        total = part if total is None else total + part
    if total is None:
        raise ValueError("there are no pairs")
    count = similarities.numel()
    return {"ece": total.error, "brier": brier / count, "log_loss": loss / count}


def _binary_losses(logit: Tensor, match: Tensor) -> tuple[Tensor, Tensor]:
    """(p - y)^2 and -log p(y) of each pair, for p = sigmoid(logit)."""
    return (torch.sigmoid(logit) - match.double()).square(), -logsigmoid(torch.where(match, logit, -logit))


def _summarize_reliability(confidence: Tensor, correct: Tensor) -> dict[str, Any]:
    width = bin_by_confidence(confidence, correct)
    return {
        "ece": width.error,
        "ece_mass": expected_calibration_error(confidence, correct, binning="mass"),
        "bins": width.to_rows(),
    }


def _block_rows(similarities: Tensor) -> int:
    """Rows per block: float64 copies of all pairs of ImageNet would take gigabytes."""
    return max(1, 2**20 // similarities.shape[1])
