"""Samples in bins of equal size by some value: accuracy by decile of uncertainty, and what it is correlated with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation.metrics.correlation import pearson, spearman


def equal_mass_bins(values: Tensor, bins: int) -> Tensor:
    """Number of each sample's bin, int64 (N,), from 0 for the smallest values to bins - 1.

    Bins differ by one sample at most if all values differ. Equal values share the bin that the first of them falls
    into, so the bins don't depend on the order of the samples; some are then larger and some may be empty.
    """
    require_positive_int(bins, "bins")
    if values.ndim != 1 or bool(values.isnan().any()):
        raise ValueError(f"values {tuple(values.shape)} must be (N,) without NaN to be put into bins")
    below = torch.searchsorted(values.sort().values, values.contiguous())
    return below * bins // max(len(values), 1)


def accuracy_by_uncertainty(correct: Tensor, uncertainty: Tensor, bins: int = 10) -> list[dict[str, Any]]:
    """One row a bin, from the least uncertain samples to the most: n, their mean uncertainty, their accuracy.

    correct: bool (N,). uncertainty: (N,). Empty bins are left out. (The paper's analysis drops the last N mod 10
    samples; here they are spread over the bins.)
    """
    if correct.shape != uncertainty.shape:
        raise ValueError(
            f"correct {tuple(correct.shape)} and uncertainty {tuple(uncertainty.shape)} must both be (N,)"
        )
    place = equal_mass_bins(uncertainty, bins)
    count = torch.bincount(place, minlength=bins)
    level, right = (torch.bincount(place, v.double(), minlength=bins) / count for v in (uncertainty, correct))
    return [
        {
            "bin": int(i),
            "n": int(count[i]),
            "uncertainty": level[i].item(),
            "accuracy": right[i].item(),
        }
        for i in count.nonzero()[:, 0]
    ]


def accuracy_correlations(correct: Tensor, uncertainty: Tensor) -> dict[str, float | None]:
    """How accuracy goes with uncertainty, from -1 (falls) to 1 (rises); None where a side is constant.

    `bins` is Pearson's of (number of the bin, its accuracy), of ten bins, as the paper reports it: large in size also
    for a weak relation, since averages over many samples hide what varies within. `spearman` and `point_biserial`
    (Pearson's) are over the samples themselves.
    """
    rows = accuracy_by_uncertainty(correct, uncertainty)
    numbers, accuracy = (
        torch.tensor([row[key] for row in rows], dtype=torch.float64) for key in ("bin", "accuracy")
    )
    return {
        "deciles": pearson(numbers, accuracy),
        "spearman": spearman(uncertainty, correct),
        "point_biserial": pearson(uncertainty, correct),
    }
