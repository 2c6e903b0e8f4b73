"""Telling the true from the false: partners that don't fit, and how well a score finds those that do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prolip.evaluation.metrics.selective import auroc
from prolip.scenes.random_draws import Draws

TRIES = 100
"""Draws of a false partner; what fits nearly everything ("a thing") has none."""


def false_partners(
    count: int, candidates: int, is_false: Callable[[int, int], bool], draws: Draws
) -> tuple[Tensor, Tensor]:
    """For each of `count` rows a random candidate that doesn't fit it: rows and candidates, int64 (K,).

    Rows for which none of a hundred draws is false are left out.
    """
    rows, partners = [], []
    for row in range(count):
        for _ in range(TRIES):
            partner = draws.below(candidates)
            if is_false(row, partner):
                rows.append(row)
                partners.append(partner)
                break
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(partners, dtype=torch.int64)


def told_apart(true: Tensor, false: Tensor) -> dict[str, float | None]:
    """auroc: of all true scores (K,) against all false ones; wins: share of rows whose true one is the larger."""
    if not len(true):
        return {"auroc": None, "wins": None}
    is_true = torch.arange(2 * len(true)) < len(true)
    return {
        "auroc": auroc(is_true, torch.cat([true, false]).double()),
        "wins": (true > false).double().mean().item(),
    }
