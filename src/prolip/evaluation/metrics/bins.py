"""Equal-mass bins: accuracy by decile of uncertainty, and their correlation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation.metrics.correlation import pearson, spearman
from prolip.evaluation.result import Proportion


@dataclass(frozen=True, kw_only=True)
class AccuracyBin:
    """Accuracy of the images in one bin of uncertainty."""

    index: int
    """Index of the bin, from 0 for the least uncertain images."""
    uncertainty: float
    """Mean uncertainty."""
    accuracy: Proportion
    """Fraction of the images that are classified correctly."""


@dataclass(frozen=True, kw_only=True)
class AccuracyCorrelations:
    """Correlations of accuracy with uncertainty. Each is None where a side is constant."""

    deciles: float | None
    """Pearson's correlation of (index of the decile, its accuracy), as the paper reports it. Its magnitude is large
    even for a weak relation, since means over many samples hide the variation within."""
    spearman: float | None
    """Spearman's correlation of (uncertainty, correct) over samples."""
    point_biserial: float | None
    """Pearson's correlation of (uncertainty, correct) over samples."""


def equal_mass_bins(values: Tensor, bins: int) -> Tensor:
    """Assign samples to bins of equal size by their values.

    Bins differ by at most one sample if all values differ. Equal values are in the bin of the first of them, so bins
    don't depend on the order of the samples; some are then larger and some may be empty.

    Args:
        values: Value of each sample, (N,), without NaN.
        bins: Number of bins, at least 1.

    Returns:
        The bin of each sample, int64 (N,), from 0 for the smallest values to bins - 1.
    """
    require_positive_int(bins, "bins")
    if values.ndim != 1 or bool(values.isnan().any()):
        raise ValueError(f"values {tuple(values.shape)} must be (N,) without NaN")
    num_smaller = torch.searchsorted(values.sort().values, values.contiguous())
    return num_smaller * bins // max(len(values), 1)


def accuracy_by_uncertainty(correct: Tensor, uncertainty: Tensor, bins: int = 10) -> tuple[AccuracyBin, ...]:
    """Accuracy in equal-mass bins of uncertainty. (The paper drops the last N mod 10 samples; here all count.)

    Args:
        correct: Whether each prediction is right, bool (N,).
        uncertainty: Uncertainty of each image, (N,).
        bins: Number of bins.

    Returns:
        The nonempty bins, from the least uncertain on.
    """
    if correct.shape != uncertainty.shape:
        raise ValueError(
            f"correct {tuple(correct.shape)} and uncertainty {tuple(uncertainty.shape)} must both be (N,)"
        )
    bin_of_sample = equal_mass_bins(uncertainty, bins)
    count = torch.bincount(bin_of_sample, minlength=bins)
    mean_uncertainty, accuracy = (
        torch.bincount(bin_of_sample, values.double(), minlength=bins) / count
        for values in (uncertainty, correct)
    )
    return tuple(
        AccuracyBin(
            index=int(i),
            uncertainty=mean_uncertainty[i].item(),
            accuracy=Proportion.from_mean(accuracy[i].item(), int(count[i])),
        )
        for i in count.nonzero()[:, 0]
    )


def accuracy_correlations(correct: Tensor, uncertainty: Tensor) -> AccuracyCorrelations:
    """Correlations of accuracy with uncertainty.

    Args:
        correct: Whether each prediction is right, bool (N,).
        uncertainty: Uncertainty of each image, (N,).

    Returns:
        Of deciles and of samples.
    """
    deciles = accuracy_by_uncertainty(correct, uncertainty)
    indices = torch.tensor([decile.index for decile in deciles], dtype=torch.float64)
    accuracy = torch.tensor([decile.accuracy.value for decile in deciles], dtype=torch.float64)
    return AccuracyCorrelations(
        deciles=pearson(indices, accuracy),
        spearman=spearman(uncertainty, correct),
        point_biserial=pearson(uncertainty, correct),
    )
