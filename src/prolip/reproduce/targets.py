"""What the headline recipe is to reach: a threshold for each number, with every seed, and not without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prolip.reproduce.evidence import Evidence
from prolip.reproduce.readings import at
from prolip.reproduce.variants import HEADLINE, UNTRAINED


@dataclass(frozen=True)
class Target:
    name: str
    path: str
    above: float


TARGETS = (
    Target("zero-shot, 64 colour-shape classes", "zero_shot/colour_shape/one_prompt", 0.97),
    Target("zero-shot, pairs never seen in training", "zero_shot/unseen/one_prompt", 0.80),
    Target("retrieval R@1, complete captions, mean of both ways", "retrieval/csd/mean", 0.70),
    Target("Spearman, text uncertainty and true log-ambiguity", "truth/spearman", 0.90),
    *(
        Target(f"the same within level {level}", f"truth/by_level/{level}/spearman", 0.60)
        for level in (1, 2, 3)
    ),
    Target("the same within a length, mean", "truth/within_length/mean", 0.85),
    *(Target(f"chains, level {k} above level {k + 1}", f"chains/order/pairs/{k}", 0.90) for k in range(3)),
    Target("H(image in text) > 0", "matching/included", 0.95),
    Target("AUROC of log inclusion", "matching/matched/log_inclusion/auroc", 0.90),
    Target("AUROC of containment", "matching/matched/log_containment/auroc", 0.90),
)


def judge_targets(evidence: Evidence) -> list[dict[str, Any]]:
    """{target, above, by_seed, untrained (by seed), reached, scale}: reached, None if not run, if every seed is above
    and no untrained model is."""
    cells = evidence.largest(HEADLINE)
    scale = cells[0].scale if cells else None
    fresh = evidence.at_scale(UNTRAINED, scale)
    rows = []
    for target in TARGETS:
        ours, control = ([at(cell.numbers, target.path) for cell in some] for some in (cells, fresh))
        rows.append({
            "target": target.name,
            "above": target.above,
            "by_seed": ours,
            "untrained": control,
            "reached": _all_above(ours, target.above) and not _any_above(control, target.above) if ours else None,
            "scale": scale,
        })  # fmt: skip
    return rows


def _all_above(values: Sequence[float | None], limit: float) -> bool:
    return all(value is not None and value > limit for value in values)


def _any_above(values: Sequence[float | None], limit: float) -> bool:
    return any(value is not None and value > limit for value in values)
