"""Strategies to make one class out of many prompts. Each gives a row: its weights, pooled, scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation import paper_numbers
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.mixture import PooledVariance, inverse_uncertainty_weights, pool
from prolip.zeroshot import prompt_weights as rules
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, Prior, few_shot_config, few_shot_weights, zero_shot_weights
from prolip.zeroshot.few_shot import choose_shots

LARGEST = 5
"""Prompts of each class that the result names with their learned weight."""
NO_UNCERTAINTY = "this model has no uncertainty"
NO_SHOTS = "no class has images to spare for learning"


@dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """What is compared.

    single:   number of the template that stands alone. None: that of "a photo of a {c}." where it is known, else 0.
    spreads:  k of the filters by mean + k standard deviations.
    limits:   uncertainties, each for a filter of its own.
    lowest:   K of top-K; those below the number of templates are taken.
    few:      labelled images a class for BPRW; () needs no such images.
    nearest:  images that stand for a class where BPRW has no labels.
    prior:    of BPRW; see `prolip.zeroshot.bprw.Prior`.
    runs:     repetitions of all that is random (draws, choice of images), for mean and spread.
    by:       how the nearest class is found.
    variance: of pooled prompts; see `prolip.mixture.pool`.
    """

    single_template: int | None = None
    std_multiples: tuple[float, ...] = (0.0, 1.0, 2.0)
    max_uncertainties: tuple[float, ...] = ()
    top_k: tuple[int, ...] = (1, 5, 10, 20, 40)
    shots: tuple[int, ...] = (5, 9)
    nearest: int = 10
    prior: Prior = "initial"
    runs: int = 3
    by: SimilarityMetric = "csd"
    variance: PooledVariance = "average"
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive_int(self.runs, "runs")
        require_positive_int(self.nearest, "nearest")
        for name in ("few", "lowest"):
            for count in getattr(self, name):
                require_positive_int(count, f"each number of `{name}`")


class StrategyResult(NamedTuple):
    """The row of a strategy, and what figures need of the weights that it learned, if it is one that learns."""

    row: dict[str, Any]
    learned: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class StrategyInputs:
    """What every strategy is given."""

    prompts: Gaussian
    images: Gaussian
    labels: Tensor
    learn: Gaussian
    learn_labels: Tensor
    plan: StrategyConfig

    @cached_property
    def uncertain(self) -> bool:
        return bool((self.prompts.uncertainty > 0).all())

    def accuracy(self, classes: Gaussian) -> float:
        """Share of the scored images whose nearest class (C, D) is their own."""
        found = find_nearest(self.images, classes, 1, metric=self.plan.by)[1][:, 0]
        return (found == self.labels).double().mean().item()

    def generator(self, shots: int, run: int) -> torch.Generator:
        """The same for a strategy and its controls: they see the same images and the same noise."""
        return torch.Generator().manual_seed((self.plan.seed * 1009 + shots) * 1009 + run)

    def short(self, shots: int) -> int:
        """Classes with fewer images to learn from."""
        return int((torch.bincount(self.learn_labels, minlength=len(self.prompts)) < shots).sum())

    def row(
        self, name: str, family: str, runs: Sequence[Tensor], paper_row: str | None = None
    ) -> dict[str, Any]:
        """A row from the weights (C, T) of each run."""
        pooled = (pool(self.prompts, weights, variance=self.plan.variance) for weights in runs)
        values = [self.accuracy(classes) for classes in pooled]
        count = torch.stack([rules.effective_prompt_count(weights).mean() for weights in runs]).mean().item()
        return _row(name, family, values, paper_row) | {"effective_prompts": count}


def fixed_strategies(task: StrategyInputs) -> Iterator[StrategyResult]:
    """Strategies without anything random."""
    prompts, plan = task.prompts, task.plan
    single = rules.single_template_weights(prompts, plan.single_template or 0)
    yield StrategyResult(task.row("one prompt", "one", [single], "a photo of a {c}"))
    yield StrategyResult(task.row("all prompts", "ensemble", [rules.uniform_weights(prompts)], "80 prompts"))
    named = {"filter": "filtered by uncertainty", "top": "top-K by uncertainty"}
    for name, family, rule in _uncertainty_rules(prompts, plan):
        if task.uncertain:
            yield StrategyResult(task.row(name, family, [rule(prompts)], named.get(family)))
        else:
            yield StrategyResult(_row(name, family, (), named.get(family), left_out=NO_UNCERTAINTY))


def _uncertainty_rules(
    prompts: Gaussian, plan: StrategyConfig
) -> Iterator[tuple[str, str, Callable[[Gaussian], Tensor]]]:
    """Name, family and rule of what reads the prompts' uncertainty."""
    classes, count = prompts.shape[:2]
    yield "all prompts by 1/uncertainty", "ensemble", inverse_uncertainty_weights
    for k in plan.std_multiples:
        yield f"class mean + {k:g} std", "filter", partial(rules.class_std_filter, k=k)
    for k in plan.std_multiples:
        yield f"global mean + {k:g} std", "filter", partial(rules.global_std_filter, k=k)
    for limit in plan.max_uncertainties:
        yield f"uncertainty up to {limit:g}", "filter", partial(rules.threshold_filter, threshold=limit)
    half = max(1, classes * count // 2)
    yield "least uncertain half of all", "filter", partial(rules.global_top_k_filter, count=half)
    for number in plan.top_k:
        if number < count:
            yield f"top-{number} of each class", "top", partial(rules.top_k_filter, k=number)


def zero_shot_strategies(task: StrategyInputs) -> Iterator[StrategyResult]:
    """BPRW without labels: from the scored images themselves, as in the paper, and from others."""
    sources: list[tuple[str, Gaussian, str | None]] = [("BPRW, 0 images", task.images, "BPRW, 0 images")]
    if len(task.learn_labels):
        sources.append(("BPRW, 0 images, learned from others", task.learn, None))
    for name, images, paper_row in sources:
        if not task.uncertain:
            yield StrategyResult(_row(name, "bprw", (), paper_row, left_out=NO_UNCERTAINTY))
            continue
        settings = replace(ZERO_SHOT_CONFIG, nearest=task.plan.nearest, prior=task.plan.prior)
        runs = [
            zero_shot_weights(task.prompts, images, settings, task.generator(0, run), task.plan.by).weights
            for run in range(task.plan.runs)
        ]
        yield StrategyResult(task.row(name, "bprw", runs, paper_row), _learned(name, 0, runs[0]))


def few_shot_strategies(task: StrategyInputs) -> Iterator[StrategyResult]:
    """BPRW with labels; then its controls: the same without learned variances, the same images without prompts."""
    for shots in task.plan.shots:
        name = f"BPRW, {shots} images"
        paper_row = name if name in paper_numbers.PROMPTS.rows else None
        yield _bprw(task, shots, name, "bprw", task.prompts, task.learn, paper_row)
    for shots in task.plan.shots:
        name = f"BPRW, {shots} images, equal variances"
        control = _bprw(task, shots, name, "control", _flat(task.prompts), _flat(task.learn), None)
        yield StrategyResult(control.row)  # figures don't draw the weights of a control
        yield StrategyResult(_centroid_row(task, shots))


def _bprw(
    task: StrategyInputs, shots: int, name: str, family: str, prompts: Gaussian, learn: Gaussian, paper_row: str | None
) -> StrategyResult:
    if not len(task.learn_labels) or not task.uncertain:
        why = NO_SHOTS if task.uncertain else NO_UNCERTAINTY
        return StrategyResult(_row(name, family, (), paper_row, left_out=why))
    settings = replace(few_shot_config(shots), prior=task.plan.prior)
    found = [
        few_shot_weights(prompts, learn, task.learn_labels, shots, settings, task.generator(shots, run))
        for run in range(task.plan.runs)
    ]
    row = task.row(name, family, [run.weights for run in found], paper_row)
    learned = _learned(name, shots, found[0].weights, found[0].image_indices[:, 0] >= 0)
    return StrategyResult(row | {"short_classes": task.short(shots)}, learned)


def _centroid_row(task: StrategyInputs, shots: int) -> dict[str, Any]:
    """Each class pools its images, the ones that BPRW saw, instead of prompts (which stand in where it has none)."""
    name = f"centroid of {shots} images, no prompts"
    if not len(task.learn_labels):
        return _row(name, "control", (), None, left_out=NO_SHOTS)
    from_prompts, values = pool(task.prompts, variance=task.plan.variance), []
    for run in range(task.plan.runs):
        chosen = choose_shots(task.learn_labels, len(task.prompts), shots, task.generator(shots, run))
        centroids = pool(task.learn[chosen.clamp_min(0)], variance=task.plan.variance)
        known = (chosen[:, :1] >= 0).expand_as(centroids.mean)
        mean = torch.where(known, centroids.mean, from_prompts.mean)
        log_var = torch.where(known, centroids.log_var, from_prompts.log_var)
        values.append(task.accuracy(Gaussian(mean, log_var)))
    return _row(name, "control", values, None) | {"short_classes": task.short(shots)}


def _row(
    name: str,
    family: str,
    accuracies: Sequence[float],
    paper_row: str | None,
    left_out: str | None = None,
) -> dict[str, Any]:
    """accuracies: of each run; none if the strategy is left out, and left_out says why."""
    values = torch.tensor(accuracies, dtype=torch.float64)
    return {
        "name": name,
        "family": family,
        "accuracy": values.mean().item() if len(values) else None,
        "spread": values.std().item() if len(values) > 1 else None,
        "effective_prompts": None,
        "paper": None if paper_row is None else paper_numbers.PROMPTS.value(paper_row, "imagenet"),
        "left_out": left_out,
    }


def _learned(name: str, shots: int, weights: Tensor, seen: Tensor | None = None) -> dict[str, Any]:
    """What figures need of learned weights (C, T). seen: bool (C,), the classes that had images; None: all."""
    known = [True] * len(weights) if seen is None else seen.tolist()
    values, templates = (part.tolist() for part in weights.topk(min(LARGEST, weights.shape[1])))
    pairs = [list(map(list, zip(*both, strict=True))) for both in zip(templates, values, strict=True)]
    return {
        "name": name,
        "shots": shots,
        "max": _where(known, weights.amax(-1).tolist()),
        "entropy": _where(known, rules.entropy(weights).tolist()),
        "largest": _where(known, pairs),
    }


def _where(known: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [value if is_known else None for is_known, value in zip(known, values, strict=True)]


def _flat(z: Gaussian) -> Gaussian:
    """The same means; every variance is the mean of all."""
    return Gaussian(z.mean, z.var.mean().log().expand_as(z.log_var)) if len(z) else z
