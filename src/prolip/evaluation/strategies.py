"""Prompt strategies: how to weight the prompts of a class. Each gives a row with its accuracy."""

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
from prolip.zeroshot import prompt_weights
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, Prior, few_shot_config, few_shot_weights, zero_shot_weights
from prolip.zeroshot.few_shot import choose_shots

NUM_TOP_TEMPLATES = 5
"""Templates with the largest learned weights that the result lists for each class."""
NO_UNCERTAINTY = "the model has no uncertainty"
NO_SHOTS = "no class has training images"


@dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """Which prompt strategies are compared.

    single_template:   Index of the template that is used alone. None: "a photo of a {c}." if present, else 0.
    std_multiples:     k of the filters by mean + k standard deviations of uncertainty.
    max_uncertainties: Fixed limits, each for a filter of its own.
    top_k:             K of top-K; those below the number of templates are used.
    shots:             Labeled images per class for BPRW; () needs none.
    nearest_images:    Images that stand for a class where BPRW has no labels.
    prior:             Prior of BPRW, see `prolip.zeroshot.bprw.Prior`.
    runs:              Repetitions of what is random (draws, choice of images), for mean and standard deviation.
    metric:            Similarity that finds the nearest class.
    variance:          Variance of pooled prompts, see `prolip.mixture.pool`.
    seed:              Seed of what is random.
    """

    single_template: int | None = None
    std_multiples: tuple[float, ...] = (0.0, 1.0, 2.0)
    max_uncertainties: tuple[float, ...] = ()
    top_k: tuple[int, ...] = (1, 5, 10, 20, 40)
    shots: tuple[int, ...] = (5, 9)
    nearest_images: int = 10
    prior: Prior = "initial"
    runs: int = 3
    metric: SimilarityMetric = "csd"
    variance: PooledVariance = "average"
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError unless all counts are positive integers."""
        require_positive_int(self.runs, "runs")
        require_positive_int(self.nearest_images, "nearest_images")
        for name in ("shots", "top_k"):
            for count in getattr(self, name):
                require_positive_int(count, f"each of {name}")


class StrategyResult(NamedTuple):
    """Result of a strategy.

    row:     Name, family, accuracy and so on, see `rows` of `compare_strategies`.
    learned: Summary of the learned weights for figures; None for a strategy that learns none.
    """

    row: dict[str, Any]
    learned: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class StrategyInputs:
    """What every strategy needs.

    prompts:                    The prompts of each class, (C, T, D).
    images, labels:             The tested images, (N, D), and their classes, int64 (N,).
    train_images, train_labels: The images to fit BPRW to, (M, D), and their classes, int64 (M,); M may be 0.
    config:                     Which strategies are compared.
    """

    prompts: Gaussian
    images: Gaussian
    labels: Tensor
    train_images: Gaussian
    train_labels: Tensor
    config: StrategyConfig

    @cached_property
    def has_uncertainty(self) -> bool:
        """Whether every prompt has a positive variance, as those of a probabilistic model do."""
        return bool((self.prompts.uncertainty > 0).all())

    def accuracy(self, classes: Gaussian) -> float:
        """Accuracy on the tested images if each is assigned to its nearest class.

        Args:
            classes: The classes, (C, D).

        Returns:
            The accuracy, 0 to 1.
        """
        predicted = find_nearest(self.images, classes, 1, metric=self.config.metric)[1][:, 0]
        return (predicted == self.labels).double().mean().item()

    def make_generator(self, shots: int, run: int) -> torch.Generator:
        """Make the random generator of a run. A strategy and its controls see the same images and the same noise.

        Args:
            shots: Labeled images per class.
            run: Index of the repetition.

        Returns:
            A freshly seeded generator.
        """
        # 1009 is above any usual number of shots or runs, so that each (seed, shots, run) has a seed of its own
        return torch.Generator().manual_seed((self.config.seed * 1009 + shots) * 1009 + run)

    def count_short_classes(self, shots: int) -> int:
        """Count the classes with fewer training images than `shots`."""
        return int((torch.bincount(self.train_labels, minlength=len(self.prompts)) < shots).sum())

    def make_row(
        self, name: str, family: str, runs: Sequence[Tensor], paper_row: str | None = None
    ) -> dict[str, Any]:
        """Score a strategy and make its row.

        Args:
            name: Name of the strategy.
            family: Family of the strategy, such as "filter"; see `compare_strategies`.
            runs: Prompt weights of each run, (C, T) each.
            paper_row: Row of the paper's table to compare with; None: there is none.

        Returns:
            The row of `compare_strategies`, with effective_prompts.
        """
        pooled = (pool(self.prompts, weights, variance=self.config.variance) for weights in runs)
        accuracies = [self.accuracy(classes) for classes in pooled]
        num_effective = (
            torch.stack([prompt_weights.effective_prompt_count(weights).mean() for weights in runs])
            .mean()
            .item()
        )
        return _make_strategy_row(name, family, accuracies, paper_row) | {"effective_prompts": num_effective}


def fixed_strategies(inputs: StrategyInputs) -> Iterator[StrategyResult]:
    """Deterministic strategies: one prompt, the ensemble, filters, top-K.

    Args:
        inputs: Prompts, images and labels, and the config.

    Yields:
        One result per strategy.
    """
    prompts, config = inputs.prompts, inputs.config
    single = prompt_weights.single_template_weights(prompts, config.single_template or 0)
    yield StrategyResult(inputs.make_row("one prompt", "one", [single], "a photo of a {c}"))
    yield StrategyResult(
        inputs.make_row("all prompts", "ensemble", [prompt_weights.uniform_weights(prompts)], "80 prompts")
    )
    paper_rows = {"filter": "filtered by uncertainty", "top": "top-K by uncertainty"}
    for name, family, compute_weights in _iter_uncertainty_strategies(prompts, config):
        if inputs.has_uncertainty:
            yield StrategyResult(
                inputs.make_row(name, family, [compute_weights(prompts)], paper_rows.get(family))
            )
        else:
            yield StrategyResult(
                _make_strategy_row(name, family, (), paper_rows.get(family), skipped=NO_UNCERTAINTY)
            )


def _iter_uncertainty_strategies(
    prompts: Gaussian, config: StrategyConfig
) -> Iterator[tuple[str, str, Callable[[Gaussian], Tensor]]]:
    """Yield name, family and weight function (prompts -> weights (C, T)) of the strategies that use uncertainty."""
    num_classes, num_templates = prompts.shape[:2]
    yield "all prompts by 1/uncertainty", "ensemble", inverse_uncertainty_weights
    for k in config.std_multiples:
        yield f"class mean + {k:g} std", "filter", partial(prompt_weights.class_std_filter, k=k)
    for k in config.std_multiples:
        yield f"global mean + {k:g} std", "filter", partial(prompt_weights.global_std_filter, k=k)
    for limit in config.max_uncertainties:
        yield (
            f"uncertainty up to {limit:g}",
            "filter",
            partial(prompt_weights.threshold_filter, threshold=limit),
        )
    half = max(1, num_classes * num_templates // 2)
    yield (
        "least uncertain half of all prompts",
        "filter",
        partial(prompt_weights.global_top_k_filter, count=half),
    )
    for k in config.top_k:
        if k < num_templates:
            yield f"top-{k} of each class", "top", partial(prompt_weights.top_k_filter, k=k)


def zero_shot_strategies(inputs: StrategyInputs) -> Iterator[StrategyResult]:
    """BPRW without labels: fitted to the tested images, as in the paper, and, if there are any, to training images.

    Args:
        inputs: Prompts, images and labels, and the config.

    Yields:
        One result per strategy.
    """
    # name of the strategy, images to fit to, row of the paper's table
    sources: list[tuple[str, Gaussian, str | None]] = [("BPRW, 0 images", inputs.images, "BPRW, 0 images")]
    if len(inputs.train_labels):
        sources.append(("BPRW, 0 images, fitted to others", inputs.train_images, None))
    for name, images, paper_row in sources:
        if not inputs.has_uncertainty:
            yield StrategyResult(_make_strategy_row(name, "bprw", (), paper_row, skipped=NO_UNCERTAINTY))
            continue
        settings = replace(
            ZERO_SHOT_CONFIG, nearest_images=inputs.config.nearest_images, prior=inputs.config.prior
        )
        runs = [
            zero_shot_weights(
                inputs.prompts, images, settings, inputs.make_generator(0, run), inputs.config.metric
            ).weights
            for run in range(inputs.config.runs)
        ]
        yield StrategyResult(
            inputs.make_row(name, "bprw", runs, paper_row), _summarize_weights(name, 0, runs[0])
        )


def few_shot_strategies(inputs: StrategyInputs) -> Iterator[StrategyResult]:
    """BPRW with labels; then its controls: equal variances, and the centroid of the same images without prompts.

    Args:
        inputs: Prompts, images and labels, and the config.

    Yields:
        One result per strategy.
    """
    for shots in inputs.config.shots:
        name = f"BPRW, {shots} images"
        paper_row = name if name in paper_numbers.PROMPTS.rows else None
        yield _evaluate_bprw(inputs, shots, name, "bprw", inputs.prompts, inputs.train_images, paper_row)
    for shots in inputs.config.shots:
        name = f"BPRW, {shots} images, equal variances"
        control = _evaluate_bprw(
            inputs,
            shots,
            name,
            "control",
            _equalize_variances(inputs.prompts),
            _equalize_variances(inputs.train_images),
            None,
        )
        yield StrategyResult(control.row)  # figures don't draw the weights of a control
        yield StrategyResult(_make_centroid_row(inputs, shots))


def _evaluate_bprw(
    inputs: StrategyInputs,
    shots: int,
    name: str,
    family: str,
    prompts: Gaussian,
    train_images: Gaussian,
    paper_row: str | None,
) -> StrategyResult:
    """BPRW with `shots` labeled images per class: its row, and the weights of the first run.

    prompts, train_images: what the weights are fitted to; a control changes their variances. The accuracy is always
                           that of `inputs.prompts` pooled with these weights.
    paper_row:             row of the paper's table to compare with; None: there is none.
    The row is marked as skipped if there are no training images or the model has no uncertainty.
    """
    if not len(inputs.train_labels) or not inputs.has_uncertainty:
        reason = NO_SHOTS if inputs.has_uncertainty else NO_UNCERTAINTY
        return StrategyResult(_make_strategy_row(name, family, (), paper_row, skipped=reason))
    settings = replace(few_shot_config(shots), prior=inputs.config.prior)
    fits = [
        few_shot_weights(
            prompts, train_images, inputs.train_labels, shots, settings, inputs.make_generator(shots, run)
        )
        for run in range(inputs.config.runs)
    ]
    row = inputs.make_row(name, family, [fit.weights for fit in fits], paper_row)
    has_images = fits[0].image_indices[:, 0] >= 0  # -1: the class has none
    learned = _summarize_weights(name, shots, fits[0].weights, has_images)
    return StrategyResult(row | {"short_classes": inputs.count_short_classes(shots)}, learned)


def _make_centroid_row(inputs: StrategyInputs, shots: int) -> dict[str, Any]:
    """Row of a control without prompts: a class is the pool of the training images that BPRW was fitted to.

    A class without training images is the pool of its prompts. The row is marked as skipped if there are no images.
    """
    name = f"centroid of {shots} images, no prompts"
    if not len(inputs.train_labels):
        return _make_strategy_row(name, "control", (), None, skipped=NO_SHOTS)
    from_prompts = pool(inputs.prompts, variance=inputs.config.variance)
    accuracies = []
    for run in range(inputs.config.runs):
        # (C, shots): rows of training images, -1 for a class without any
        shot_rows = choose_shots(
            inputs.train_labels, len(inputs.prompts), shots, inputs.make_generator(shots, run)
        )
        centroids = pool(inputs.train_images[shot_rows.clamp_min(0)], variance=inputs.config.variance)
        has_images = (shot_rows[:, :1] >= 0).expand_as(centroids.mean)
        mean = torch.where(has_images, centroids.mean, from_prompts.mean)
        log_var = torch.where(has_images, centroids.log_var, from_prompts.log_var)
        accuracies.append(inputs.accuracy(Gaussian(mean, log_var)))
    return _make_strategy_row(name, "control", accuracies, None) | {
        "short_classes": inputs.count_short_classes(shots)
    }


def _make_strategy_row(
    name: str,
    family: str,
    accuracies: Sequence[float],
    paper_row: str | None,
    skipped: str | None = None,
) -> dict[str, Any]:
    """The row of a strategy, as `compare_strategies` lists it, without effective_prompts.

    accuracies: accuracy of each run; empty if the strategy is skipped, for the reason `skipped`.
    paper_row:  row of the paper's table to compare with; None: there is none.
    """
    values = torch.tensor(accuracies, dtype=torch.float64)
    return {
        "name": name,
        "family": family,
        "accuracy": values.mean().item() if len(values) else None,
        "std": values.std().item() if len(values) > 1 else None,
        "effective_prompts": None,
        "paper": None if paper_row is None else paper_numbers.PROMPTS.value(paper_row, "imagenet"),
        "skipped": skipped,
    }


def _summarize_weights(
    name: str, shots: int, weights: Tensor, has_images: Tensor | None = None
) -> dict[str, Any]:
    """Summary of learned weights (C, T) for figures: an entry of `learned` in `compare_strategies`.

    has_images: bool (C,), the classes that BPRW had images of; the values of the others are None. None: all classes.
    """
    is_learned = [True] * len(weights) if has_images is None else has_images.tolist()
    top_weights, top_templates = (
        tensor.tolist() for tensor in weights.topk(min(NUM_TOP_TEMPLATES, weights.shape[1]))
    )
    # for each class a list of [template, weight]; lists, since the result is written as JSON
    pairs = [
        [list(pair) for pair in zip(templates_of_class, weights_of_class, strict=True)]
        for templates_of_class, weights_of_class in zip(top_templates, top_weights, strict=True)
    ]
    return {
        "name": name,
        "shots": shots,
        "max": _none_unless(is_learned, weights.amax(-1).tolist()),
        "entropy": _none_unless(is_learned, prompt_weights.entropy(weights).tolist()),
        "top_templates": _none_unless(is_learned, pairs),
    }


def _none_unless(conditions: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """The values, each replaced by None where its condition is False."""
    return [value if condition else None for condition, value in zip(conditions, values, strict=True)]


def _equalize_variances(z: Gaussian) -> Gaussian:
    """The same means with every variance set to the mean variance over all rows and dimensions; z may be empty."""
    return Gaussian(z.mean, z.var.mean().log().expand_as(z.log_var)) if len(z) else z
