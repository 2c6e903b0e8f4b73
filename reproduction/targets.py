"""Targets of the headline recipe: thresholds that every seed must exceed, and no untrained model may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from reproduction.evidence import Evidence
from reproduction.observations import Numbers, get_value
from reproduction.variants import HEADLINE, UNTRAINED


@dataclass(frozen=True)
class Target:
    """A threshold for one number, or for the mean of several (`paths`)."""

    name: str
    paths: tuple[str, ...]
    above: float

    def value(self, numbers: Numbers) -> float | None:
        """The value in a cell; None if one of the numbers is None."""
        found = [get_value(numbers, path) for path in self.paths]
        return None if None in found else fmean(found)


WITHIN_LEVEL = tuple(f"ambiguity/by_level/{level}/spearman" for level in (1, 2, 3))


TARGETS = (
    Target("zero-shot, 64 color-shape classes", ("zero_shot/color_shape/one_prompt",), 0.97),
    Target("zero-shot, pairs never seen in training", ("zero_shot/unseen/one_prompt",), 0.80),
    Target("retrieval R@1, complete captions, mean of both ways", ("retrieval/csd/mean",), 0.70),
    Target("Spearman, text uncertainty and true log-ambiguity", ("ambiguity/spearman",), 0.90),
    *(Target(f"the same within level {k}", (path,), 0.60) for k, path in enumerate(WITHIN_LEVEL, start=1)),
    Target("the same within a level, mean of levels 1, 2 and 3", WITHIN_LEVEL, 0.60),
    Target("the same within a length, mean", ("ambiguity/within_length/mean",), 0.85),
    *(
        Target(f"chains, level {k} above level {k + 1}", (f"hierarcaps/order/pairs/{k}",), 0.90)
        for k in range(3)
    ),
    Target("H(image in text) > 0", ("matching/included",), 0.95),
    Target("AUROC of log inclusion", ("matching/matched/log_inclusion/auroc",), 0.90),
    Target("AUROC of containment", ("matching/matched/log_containment/auroc",), 0.90),
)


def evaluate_targets(evidence: Evidence) -> list[dict[str, Any]]:
    """Compare the cells with the targets.

    Returns:
        {target, above, by_seed, untrained (by seed), reached, scale} for each target. reached: every seed is above and
        no untrained model is; None if the headline or the untrained models are not run.
    """
    cells = evidence.largest(HEADLINE)
    scale = cells[0].scale if cells else None
    fresh = evidence.at_scale(UNTRAINED, scale)
    rows = []
    for target in TARGETS:
        ours, control = ([target.value(cell.numbers) for cell in some] for some in (cells, fresh))
        rows.append({
            "target": target.name,
            "above": target.above,
            "by_seed": ours,
            "untrained": control,
            "reached": _reached(ours, control, target.above),
            "scale": scale,
        })  # fmt: skip
    return rows


def _reached(ours: Sequence[float | None], control: Sequence[float | None], limit: float) -> bool | None:
    """Not reached below the limit, whatever the control; above it, unknown without a control."""
    if not ours:
        return None
    if not all(_is_above(value, limit) for value in ours):
        return False
    return not any(_is_above(value, limit) for value in control) if control else None


def _is_above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit
