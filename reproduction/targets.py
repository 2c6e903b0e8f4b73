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
    """A threshold that a number of a cell, or the mean of several, must exceed.

    Attributes:
        name: As the table prints it.
        paths: Paths of the numbers in a cell; of several, the mean counts.
        above: The threshold.
    """

    name: str
    paths: tuple[str, ...]
    above: float

    def value(self, numbers: Numbers) -> float | None:
        """The number, or the mean of the numbers, of a cell; None if one of them is None."""
        values = [get_value(numbers, path) for path in self.paths]
        return None if None in values else fmean(values)


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
    cells = evidence.at_largest_scale(HEADLINE)
    scale = cells[0].scale if cells else None
    untrained_cells = evidence.at_scale(UNTRAINED, scale)
    rows = []
    for target in TARGETS:
        by_seed = [target.value(cell.numbers) for cell in cells]
        untrained = [target.value(cell.numbers) for cell in untrained_cells]
        rows.append({
            "target": target.name,
            "above": target.above,
            "by_seed": by_seed,
            "untrained": untrained,
            "reached": _is_reached(by_seed, untrained, target.above),
            "scale": scale,
        })  # fmt: skip
    return rows


def _is_reached(
    by_seed: Sequence[float | None], untrained: Sequence[float | None], threshold: float
) -> bool | None:
    """Whether every seed is above the threshold and no untrained model is.

    None (unknown) without seeds, or if every seed is above it and there is no untrained model to compare with.
    """
    if not by_seed:
        return None
    if not all(_is_above(value, threshold) for value in by_seed):
        return False  # whatever the untrained models do
    return not any(_is_above(value, threshold) for value in untrained) if untrained else None


def _is_above(value: float | None, threshold: float) -> bool:
    """Whether a value is above the threshold; None, a number that the model lacks, is not."""
    return value is not None and value > threshold
