"""Calibration of class and pair probabilities: ECE, Brier score, log loss, reliability bins.

The probability of a class among C is softmax(scale x similarity); that of a pair by itself is
sigmoid(scale x similarity + bias) (Eq. 2). `metrics.fit` fits both to data (post-hoc).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from prolip.checks import require_choice, require_positive_int
from prolip.evaluation.metrics.bins import equal_mass_bins

Binning = Literal["width", "mass"]
"""Bins of equal width of [0, 1], or of equally many samples (see `bins.equal_mass_bins`)."""

BINS = 15
"""Number of bins of confidence."""


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """The predictions in one bin of confidence."""

    n: int
    """Number of predictions, at least 1."""
    confidence: float
    """Mean confidence."""
    accuracy: float
    """Fraction of correct predictions."""


@dataclass(frozen=True, kw_only=True)
class CalibrationMetrics:
    """Calibration of the probability of each sample's prediction."""

    ece: float
    """Expected calibration error, with bins of equal width."""
    ece_mass: float
    """Expected calibration error, with bins of equal mass."""
    brier: float
    """Brier score: of a softmax the mean over samples of sum_c (p_c - y_c)^2, from 0 to 2; of a sigmoid that of
    (p - y)^2."""
    log_loss: float
    """Mean of -log p(truth), in nats."""
    bins: tuple[ReliabilityBin, ...]
    """The nonempty bins of equal width."""


@dataclass(frozen=True, kw_only=True)
class PairCalibration:
    """Calibration of the sigmoid over all pairs. Most are easy non-matches, so the values are small."""

    ece: float
    """Expected calibration error, with bins of equal width."""
    brier: float
    """Mean of (p - y)^2."""
    log_loss: float
    """Mean of -log p(y), in nats."""


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Sums over the predictions in each of B bins of confidence; float64 (B,) each.

    count:      Number of predictions.
    confidence: Sum of their confidences.
    correct:    Number of correct ones.
    """

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

    def to_rows(self) -> tuple[ReliabilityBin, ...]:
        """The nonempty bins, with means in place of sums."""
        return tuple(
            ReliabilityBin(n=int(n), confidence=(confidence / n).item(), accuracy=(num_correct / n).item())
            for n, confidence, num_correct in zip(self.count, self.confidence, self.correct, strict=True)
            if n > 0
        )


def bin_by_confidence(
    confidence: Tensor, correct: Tensor, bins: int = BINS, binning: Binning = "width"
) -> ReliabilityBins:
    """Sum confidences and correct predictions over bins of confidence.

    Args:
        confidence: Confidence of each prediction, a probability from 0 to 1, (N,); N at least 1.
        correct: Whether each prediction is right, bool (N,).
        bins: Number of bins.
        binning: Bins of equal width or of equal mass. A bin of equal width includes its upper edge, but not its lower
            one (except 0).

    Returns:
        Sums over the predictions in each bin.
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
    if binning == "width":
        bin_of_prediction = ((p * bins).ceil().long() - 1).clamp(0, bins - 1)
    else:
        bin_of_prediction = equal_mass_bins(p, bins)
    return ReliabilityBins(
        count=torch.bincount(bin_of_prediction, minlength=bins).double(),
        confidence=torch.bincount(bin_of_prediction, p, minlength=bins),
        correct=torch.bincount(bin_of_prediction, correct.double(), minlength=bins),
    )


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


def softmax_calibration(similarities: Tensor, labels: Tensor, scale: float) -> CalibrationMetrics:
    """Calibration of the softmax over classes.

    Args:
        similarities: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).
        scale: The scale of the logits, not its logarithm; not negative.

    Returns:
        Errors and bins are those of the most similar class; Brier score and log loss those of all classes.
    """
    rows = _num_rows_per_block(similarities)
    blocks = zip(similarities.split(rows), labels.split(rows), strict=True)
    losses = [_softmax_losses(x, label, scale) for x, label in blocks]
    confidence, brier, loss = (torch.cat(values) for values in zip(*losses, strict=True))  # (N,) each
    return _summarize(confidence, similarities.argmax(1) == labels, brier, loss)


def _softmax_losses(similarities: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Largest probability, Brier score sum_c (p_c - y_c)^2 and log loss -log p(true class), (N,) each."""
    log_p = torch.log_softmax(scale * similarities.double(), 1)
    p, log_p_true = log_p.exp(), log_p.gather(1, labels[:, None])[:, 0]
    # sum_c (p_c - y_c)^2 for a one-hot y is sum_c p_c^2 - 2 p_true + 1
    return p.amax(1), p.square().sum(1) - 2.0 * log_p_true.exp() + 1.0, -log_p_true


def sigmoid_calibration(
    similarities: Tensor, labels: Tensor, scale: float, bias: float
) -> tuple[CalibrationMetrics, PairCalibration]:
    """Calibration of the sigmoid of pairs (Eq. 2).

    Args:
        similarities: Similarities of samples and classes, (N, C).
        labels: Index of each sample's true class, int64 (N,).
        scale: The scale of the logits, not its logarithm.
        bias: The bias of the logits.

    Returns:
        Of the N pairs of a sample and its most similar class; of all N x C pairs.
    """
    best, predicted = similarities.max(1)
    correct = predicted == labels
    logit = scale * best.double() + bias
    brier, loss = _binary_losses(logit, correct)
    predicted_metrics = _summarize(torch.sigmoid(logit), correct, brier, loss)
    return predicted_metrics, _all_pairs_metrics(similarities, labels, scale, bias)


def _all_pairs_metrics(similarities: Tensor, labels: Tensor, scale: float, bias: float) -> PairCalibration:
    """Calibration of the sigmoid over all N x C pairs; a pair of a sample and its true class is a match."""
    rows, classes = _num_rows_per_block(similarities), torch.arange(similarities.shape[1])
    blocks = zip(similarities.split(rows), labels.split(rows), strict=True)
    return pair_calibration(
        (scale * block.double() + bias, classes == label[:, None]) for block, label in blocks
    )


def pair_calibration(blocks: Iterable[tuple[Tensor, Tensor]]) -> PairCalibration:
    """Calibration of match probabilities of pairs that come in blocks.

    Args:
        blocks: Logits of a match, of any shape, and whether the pairs match, bool of that shape; at least one block,
            none of them empty.

    Returns:
        Of all pairs of all blocks.
    """
    reliability, brier, loss = None, 0.0, 0.0
    for logits, matches in blocks:
        logit, match = logits.double().flatten(), matches.flatten()
        block_bins = bin_by_confidence(torch.sigmoid(logit), match)
        squares, losses = _binary_losses(logit, match)
        brier, loss = brier + squares.sum().item(), loss + losses.sum().item()
        reliability = block_bins if reliability is None else reliability + block_bins
    if reliability is None:
        raise ValueError("there are no pairs: calibration needs at least one block of them")
    count = reliability.count.sum().item()
    return PairCalibration(ece=reliability.error, brier=brier / count, log_loss=loss / count)


def _binary_losses(logit: Tensor, match: Tensor) -> tuple[Tensor, Tensor]:
    """(p - y)^2 and -log p(y) of each pair, for p = sigmoid(logit) and y = match; both in the shape of `logit`."""
    return (torch.sigmoid(logit) - match.double()).square(), -logsigmoid(torch.where(match, logit, -logit))


def _summarize(confidence: Tensor, correct: Tensor, brier: Tensor, loss: Tensor) -> CalibrationMetrics:
    """Metrics from confidence, whether the prediction is correct, Brier score and log loss of N samples: (N,) each."""
    equal_width = bin_by_confidence(confidence, correct)
    return CalibrationMetrics(
        ece=equal_width.error,
        ece_mass=expected_calibration_error(confidence, correct, binning="mass"),
        brier=brier.mean().item(),
        log_loss=loss.mean().item(),
        bins=equal_width.to_rows(),
    )


def _num_rows_per_block(similarities: Tensor) -> int:
    """How many rows of (N, C) are processed at a time: at most 2^20 pairs, 8 MB in float64.

    (All pairs of ImageNet's 50,000 images and 1000 classes would take 400 MB for each copy.)
    """
    return max(1, 2**20 // similarities.shape[1])
