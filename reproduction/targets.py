"""Targets: thresholds that every seed, or the mean of seeds, must exceed, and no untrained model may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from reproduction.evidence import Evidence
from reproduction.observations import Numbers, get_value
from reproduction.variants import HEADLINE, LIKELIHOOD, UNTRAINED, VARIED, VEILED


@dataclass(frozen=True)
class Target:
    """A threshold that a number of a cell, or the mean of several, must reach.

    Attributes:
        name: As the table prints it.
        paths: Paths of the numbers in a cell; of several, the mean counts.
        above: The threshold.
        variant: Variant that should reach it.
        untrained: Variant of untrained models, evaluated on the same data; None: they don't count. (An untrained model
            whose probabilities are all the prior is calibrated.)
        of: Whether every seed must be above the threshold, or the mean of all seeds.
        below: Whether the number must be below the threshold instead: an error.
    """

    name: str
    paths: tuple[str, ...]
    above: float
    variant: str = HEADLINE
    untrained: str | None = UNTRAINED
    of: Literal["every seed", "mean"] = "every seed"
    below: bool = False

    def value(self, numbers: Numbers) -> float | None:
        """The number, or the mean of the numbers, of a cell; None if one of them is None."""
        values = [get_value(numbers, path) for path in self.paths]
        return None if None in values else fmean(values)

    def is_met(self, value: float | None) -> bool:
        """Whether a value is on the right side of the threshold; None, a number that the model lacks, is not."""
        return value is not None and (value < self.above if self.below else value > self.above)


LEVELS = (1, 2, 3)
WITHIN_LEVEL = {level: f"ambiguity/by_level/{level}/spearman" for level in LEVELS}
ZERO_SHOT, UNSEEN = "zero-shot, 64 color-shape classes", "zero-shot, pairs never seen in training"
RETRIEVAL = "retrieval R@1, complete captions, mean of both ways"
TEXTS = "Spearman, text uncertainty and true log-ambiguity"

LEXICON_TARGETS = (
    Target(ZERO_SHOT, ("zero_shot/color_shape/one_prompt",), 0.97),
    Target(UNSEEN, ("zero_shot/unseen/one_prompt",), 0.80),
    Target(RETRIEVAL, ("retrieval/csd/mean",), 0.70),
    Target(TEXTS, ("ambiguity/spearman",), 0.90),
    *(Target(f"the same within level {level}", (path,), 0.60) for level, path in WITHIN_LEVEL.items()),
    Target("the same within a level, mean of levels 1, 2 and 3", tuple(WITHIN_LEVEL.values()), 0.60),
    Target("the same within a length, mean", ("ambiguity/within_length/mean",), 0.85),
    *(
        Target(f"chains, level {k} above level {k + 1}", (f"hierarcaps/order/pairs/{k}",), 0.90)
        for k in range(3)
    ),
    Target("H(image in text) > 0", ("matching/included",), 0.95),
    Target("AUROC of log inclusion", ("matching/matched/log_inclusion/auroc",), 0.90),
    Target("AUROC of containment", ("matching/matched/log_containment/auroc",), 0.90),
)
"""Targets of the variant `prolip`, whose masked texts come from a lexicon."""


def _make_mean_target(name: str, path: str, above: float, variant: str = LIKELIHOOD) -> Target:
    """A target of the mean over seeds of a variant with the likelihood."""
    untrained = f"{UNTRAINED}-{VARIED}" if variant.endswith(VARIED) else UNTRAINED
    return Target(name, (path,), above, variant, untrained, "mean")


LIKELIHOOD_TARGETS = (
    _make_mean_target(TEXTS, "ambiguity/spearman", 0.975),
    _make_mean_target("the same within a length, mean", "ambiguity/within_length/mean", 0.955),
    _make_mean_target(
        "the same within level 1, world varied", WITHIN_LEVEL[1], 0.60, f"{LIKELIHOOD}-{VARIED}"
    ),
    _make_mean_target("the same within level 2", WITHIN_LEVEL[2], 0.88),
    _make_mean_target("the same within level 3", WITHIN_LEVEL[3], 0.80),
    *(
        _make_mean_target(f"chains, level {k} above level {k + 1}", f"hierarcaps/order/pairs/{k}", 0.995)
        for k in range(3)
    ),
    _make_mean_target(
        "Spearman, image uncertainty and true log-ambiguity (veils)", "veils/spearman", 0.80, VEILED
    ),
    _make_mean_target(
        "AUROC of image uncertainty for wrong answers (veils)", "veils/errors/auroc", 0.80, VEILED
    ),
    *(
        target
        for name, path, mean, least in (
            (ZERO_SHOT, "zero_shot/color_shape/one_prompt_match", 0.98, 0.97),
            (UNSEEN, "zero_shot/unseen/one_prompt_match", 0.92, 0.88),
            (RETRIEVAL, "retrieval/match/mean", 0.85, 0.83),
        )
        for target in (
            _make_mean_target(f"{name}, by the match", path, mean),
            Target("the same, every seed", (path,), least, LIKELIHOOD),
        )
    ),
    _make_mean_target("AUROC of log inclusion", "matching/matched/log_inclusion/auroc", 0.98),
    _make_mean_target("AUROC of containment", "matching/matched/log_containment/auroc", 0.97),
    Target(
        "ECE of match probabilities above 0.02: below",
        ("match/ece_likely",),
        0.01,
        LIKELIHOOD,
        None,
        "mean",
        below=True,
    ),
    _make_mean_target(
        "traversals that end at a true caption of level 0 or 1",
        "hierarcaps/ends/general-match/true_and_general",
        0.90,
    ),
)
"""Targets of the variants with the likelihood, which need no lexicon."""
TARGETS = (*LEXICON_TARGETS, *LIKELIHOOD_TARGETS)


def evaluate_targets(evidence: Evidence) -> list[dict[str, Any]]:
    """Compare the cells with the targets.

    Returns:
        {target, above, of, variant, by_seed, untrained (by seed), reached, scale} for each target. reached: every seed,
        or the mean of all, meets it and no untrained model does; None if the variant or untrained models are not run.
    """
    return [_evaluate_target(target, evidence) for target in TARGETS]


def _evaluate_target(target: Target, evidence: Evidence) -> dict[str, Any]:
    """The entry of one target, as of `evaluate_targets`."""
    cells = evidence.at_largest_scale(target.variant)
    scale = cells[0].scale if cells else None
    by_seed = [cell.observe(target.value) for cell in cells]
    untrained_cells = [] if target.untrained is None else evidence.at_scale(target.untrained, scale)
    untrained = [cell.observe(target.value) for cell in untrained_cells]
    return {
        "target": target.name,
        "above": target.above,
        "of": target.of,
        "variant": target.variant,
        "by_seed": by_seed,
        "untrained": untrained,
        "reached": _is_reached(target, by_seed, untrained),
        "scale": scale,
    }


def _is_reached(
    target: Target, by_seed: Sequence[float | None], untrained: Sequence[float | None]
) -> bool | None:
    """Whether the seeds meet the target and no untrained model does.

    None (unknown) without seeds, or if the seeds meet it and there is no untrained model to compare with.
    """
    if not by_seed:
        return None
    values = [value for value in by_seed if value is not None]
    if len(values) < len(by_seed):
        return False
    if not all(map(target.is_met, values if target.of == "every seed" else [fmean(values)])):
        return False  # whatever the untrained models do
    if target.untrained is None:
        return True
    return not any(map(target.is_met, untrained)) if untrained else None
