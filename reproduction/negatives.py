"""Random negatives, and how well a score separates true pairs from them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prolip.evaluation.metrics.selective import auroc
from prolip.scenes.random_draws import RandomDraws

MAX_TRIES = 100
"""Draws after which a row counts as one without a negative, such as a caption that is always true ("a thing")."""


def sample_negatives(
    num_rows: int, num_candidates: int, is_negative: Callable[[int, int], bool], draws: RandomDraws
) -> tuple[Tensor, Tensor]:
    """Draw a random negative for each row.

    Args:
        num_rows: Number of rows.
        num_candidates: Number of candidates among which negatives are drawn.
        is_negative: is_negative(row, candidate) says whether a candidate is a negative of a row.
        draws: Random numbers; its state advances.

    Returns:
        Rows and their negatives, int64 (K,). Rows without a negative after MAX_TRIES draws are left out.
    """
    rows, negatives = [], []
    for row in range(num_rows):
        for _ in range(MAX_TRIES):
            negative = draws.randbelow(num_candidates)
            if is_negative(row, negative):
                rows.append(row)
                negatives.append(negative)
                break
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(negatives, dtype=torch.int64)


def compute_discrimination(true: Tensor, false: Tensor) -> dict[str, float | None]:
    """Compare the scores of true pairs with those of their negatives, each (K,).

    Returns:
        auroc: AUROC of all true scores against all false ones. wins: fraction of rows whose true score is larger. Both
        are None if K is 0.
    """
    if not len(true):
        return {"auroc": None, "wins": None}
    is_true = torch.arange(2 * len(true)) < len(true)
    return {
        "auroc": auroc(is_true, torch.cat([true, false]).double()),
        "wins": (true > false).double().mean().item(),
    }
