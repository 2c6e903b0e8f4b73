"""Random negatives, and how well a score separates true pairs from them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prolip.evaluation.metrics.selective import auroc
from prolip.scenes.random_draws import RandomDraws

MAX_TRIES = 100
"""Draws of a negative; what is true of nearly everything ("a thing") has none."""


def sample_negatives(
    count: int, candidates: int, is_negative: Callable[[int, int], bool], draws: RandomDraws
) -> tuple[Tensor, Tensor]:
    """Draw a random negative for each row.

    Args:
        count: Number of rows.
        candidates: Number of candidates.
        is_negative: Whether a candidate is false of a row: (row, candidate).
        draws: Random numbers.

    Returns:
        Rows and their negatives, int64 (K,). Rows without a negative after MAX_TRIES draws are left out.
    """
    rows, negatives = [], []
    for row in range(count):
        for _ in range(MAX_TRIES):
            negative = draws.randbelow(candidates)
            if is_negative(row, negative):
                rows.append(row)
                negatives.append(negative)
                break
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(negatives, dtype=torch.int64)


def compute_discrimination(true: Tensor, false: Tensor) -> dict[str, float | None]:
    """Compare the scores of true pairs with those of negatives, each (K,).

    Returns:
        auroc: Auroc of all true scores against all false ones. wins: fraction of rows whose true score is larger.
    """
    if not len(true):
        return {"auroc": None, "wins": None}
    is_true = torch.arange(2 * len(true)) < len(true)
    return {
        "auroc": auroc(is_true, torch.cat([true, false]).double()),
        "wins": (true > false).double().mean().item(),
    }
