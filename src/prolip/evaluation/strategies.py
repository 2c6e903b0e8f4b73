"""Prompt strategies: how to weight the prompts of a class. Each gives a row with its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from prolip.evaluation import paper_numbers
from prolip.evaluation.configs import PromptsConfig
from prolip.evaluation.result import Proportion
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import RankingMetric, find_nearest
from prolip.measures.perplexity import log_perplexity
from prolip.mixture import inverse_uncertainty_weights, pool
from prolip.zeroshot import prompt_weights
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, few_shot_config, few_shot_weights, zero_shot_weights
from prolip.zeroshot.few_shot import choose_shots

NUM_TOP_TEMPLATES = 5
"""Templates with the largest learned weights that the result lists for each class."""
StrategyFamily = Literal["one", "ensemble", "filter", "top", "perplexity", "bprw", "control"]
"""One template alone; all of them; filters by uncertainty; top-K; top-K by perplexity; BPRW; controls of BPRW."""
NO_UNCERTAINTY = "the model has no uncertainty"
NO_SHOTS = "no class has training images"


@dataclass(frozen=True, kw_only=True)
class StrategyRow:
    """Accuracy of a prompt strategy."""

    name: str
    """Name of the strategy."""
    family: StrategyFamily
    """Kind of strategy."""
    accuracy: Proportion | None
    """Mean accuracy over runs, with the interval of one run; None if it was skipped."""
    std: float | None = None
    """Standard deviation over runs; None with fewer than two."""
    effective_prompts: float | None = None
    """e^entropy of the weights, mean over classes; None without weights."""
    paper: float | None = None
    """The paper's accuracy on ImageNet."""
    skipped: str | None = None
    """Why there is no accuracy."""
    short_classes: int | None = None
    """Number of classes with fewer distinct training images than asked for; None for a strategy without labels."""


@dataclass(frozen=True, kw_only=True)
class TemplateWeight:
    """A template and its learned weight."""

    template: int
    """Index of the template."""
    weight: float
    """Its weight, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class ClassWeights:
    """Summary of the learned weights of a class."""

    max: float
    """Largest weight."""
    entropy: float
    """Entropy of the weights, in nats."""
    top_templates: tuple[TemplateWeight, ...]
    """Templates of the largest weights, the largest first."""


@dataclass(frozen=True, kw_only=True)
class LearnedWeights:
    """Weights that BPRW learned in its first run."""

    name: str
    """Name of the strategy."""
    shots: int
    """Labeled images per class."""
    classes: tuple[ClassWeights | None, ...]
    """The weights of each class; None for one without images."""

    def sort_classes(self) -> list[tuple[int, ClassWeights]]:
        """Index and weights of the classes that have any, from the most peaked weights to the flattest."""
        with_weights = [(index, weights) for index, weights in enumerate(self.classes) if weights is not None]
        return sorted(with_weights, key=lambda entry: entry[1].entropy)


class StrategyResult(NamedTuple):
    """Result of a strategy.

    row:     Name, family, accuracy and so on.
    learned: Summary of the learned weights for figures; None for a strategy that learns none.
    """

    row: StrategyRow
    learned: LearnedWeights | None = None


@dataclass(frozen=True, eq=False)
class StrategyInputs:
    """What every strategy needs.

    prompts:                    The prompts of each class, (C, T, D).
    images, labels:             The tested images, (N, D), and their classes, int64 (N,).
    train_images, train_labels: The images to fit BPRW to, (M, D), and their classes, int64 (M,); M may be 0.
    config:                     Which strategies are compared.
    metric:                     Similarity that finds the nearest class, from the config's rank_by.
    logits:                     Of the model, for the perplexity of prompts over the tested images; None: unknown.
    """

    prompts: Gaussian
    images: Gaussian
    labels: Tensor
    train_images: Gaussian
    train_labels: Tensor
    config: PromptsConfig
    metric: RankingMetric
    logits: LogitParameters | None = None

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
        predicted = find_nearest(self.images, classes, 1, metric=self.metric)[1][:, 0]
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
        self, name: str, family: StrategyFamily, runs: Sequence[Tensor], paper_row: str | None = None
    ) -> StrategyRow:
        """Score a strategy and make its row.

        Args:
            name: Name of the strategy.
            family: Family of the strategy.
            runs: Prompt weights of each run, (C, T) each.
            paper_row: Row of the paper's table to compare with; None: there is none.

        Returns:
            The row, with effective_prompts.
        """
        pooled = (pool(self.prompts, weights, variance=self.config.variance) for weights in runs)
        accuracies = [self.accuracy(classes) for classes in pooled]
        num_effective = (
            torch.stack([prompt_weights.effective_prompt_count(weights).mean() for weights in runs])
            .mean()
            .item()
        )
        row = self.make_row_from_accuracies(name, family, accuracies, paper_row)
        return replace(row, effective_prompts=num_effective)

    def make_row_from_accuracies(
        self, name: str, family: StrategyFamily, accuracies: Sequence[float], paper_row: str | None = None
    ) -> StrategyRow:
        """Make the row of a strategy, without effective_prompts.

        Args:
            name: Name of the strategy.
            family: Family of the strategy.
            accuracies: Accuracy of each run, at least one.
            paper_row: Row of the paper's table to compare with; None: there is none.

        Returns:
            The row.
        """
        values = torch.tensor(accuracies, dtype=torch.float64)
        return StrategyRow(
            name=name,
            family=family,
            accuracy=Proportion.from_mean(values.mean().item(), len(self.labels)),
            std=values.std().item() if len(values) > 1 else None,
            paper=_get_paper_value(paper_row),
        )


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
    paper_rows: dict[StrategyFamily, str] = {
        "filter": "filtered by uncertainty",
        "top": "top-K by uncertainty",
    }
    for name, family, compute_weights in _iter_uncertainty_strategies(prompts, config):
        if inputs.has_uncertainty:
            yield StrategyResult(
                inputs.make_row(name, family, [compute_weights(prompts)], paper_rows.get(family))
            )
        else:
            yield StrategyResult(_make_skipped_row(name, family, NO_UNCERTAINTY, paper_rows.get(family)))


def perplexity_strategies(inputs: StrategyInputs) -> Iterator[StrategyResult]:
    """Top-K by perplexity: the prompts of each class that fit the fewest tested images, whose labels are not used.

    Args:
        inputs: Prompts and images, the config, and the logits.

    Yields:
        One result per K below the number of templates; none without logits.
    """
    if inputs.logits is None:
        return
    num_classes, num_templates, _ = inputs.prompts.shape
    flat = Gaussian(inputs.prompts.mean.flatten(0, 1), inputs.prompts.log_var.flatten(0, 1))
    scores = log_perplexity(flat, inputs.images, inputs.logits).reshape(num_classes, num_templates)
    for k in inputs.config.top_k:
        if k < num_templates:
            weights = prompt_weights.top_k_filter(inputs.prompts, k, scores=scores)
            name = f"top-{k} of each class by perplexity"
            yield StrategyResult(inputs.make_row(name, "perplexity", [weights]))


def _iter_uncertainty_strategies(
    prompts: Gaussian, config: PromptsConfig
) -> Iterator[tuple[str, StrategyFamily, Callable[[Gaussian], Tensor]]]:
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
            yield StrategyResult(_make_skipped_row(name, "bprw", NO_UNCERTAINTY, paper_row))
            continue
        settings = replace(
            ZERO_SHOT_CONFIG, nearest_images=inputs.config.nearest_images, prior=inputs.config.prior
        )
        runs = [
            zero_shot_weights(
                inputs.prompts, images, settings, inputs.make_generator(0, run), inputs.metric
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
    family: StrategyFamily,
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
        return StrategyResult(_make_skipped_row(name, family, reason, paper_row))
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
    return StrategyResult(replace(row, short_classes=inputs.count_short_classes(shots)), learned)


def _make_centroid_row(inputs: StrategyInputs, shots: int) -> StrategyRow:
    """Row of a control without prompts: a class is the pool of the training images that BPRW was fitted to.

    A class without training images is the pool of its prompts. The row is marked as skipped if there are no images.
    """
    name = f"centroid of {shots} images, no prompts"
    if not len(inputs.train_labels):
        return _make_skipped_row(name, "control", NO_SHOTS)
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
        # a centroid is an image: the match was trained on an image and a text, so that CSD replaces it here
        metric = inputs.metric if isinstance(inputs.metric, str) else "csd"
        accuracies.append(replace(inputs, metric=metric).accuracy(Gaussian(mean, log_var)))
    row = inputs.make_row_from_accuracies(name, "control", accuracies)
    return replace(row, short_classes=inputs.count_short_classes(shots))


def _make_skipped_row(
    name: str, family: StrategyFamily, reason: str, paper_row: str | None = None
) -> StrategyRow:
    """The row of a strategy without an accuracy, for that reason; `paper_row`: see `StrategyInputs.make_row`."""
    return StrategyRow(
        name=name, family=family, accuracy=None, paper=_get_paper_value(paper_row), skipped=reason
    )


def _get_paper_value(paper_row: str | None) -> float | None:
    """The paper's accuracy on ImageNet in a row of its table; None without such a row."""
    return None if paper_row is None else paper_numbers.PROMPTS.value(paper_row, "imagenet")


def _summarize_weights(
    name: str, shots: int, weights: Tensor, has_images: Tensor | None = None
) -> LearnedWeights:
    """Summary of learned weights (C, T) for figures.

    has_images: bool (C,), the classes that BPRW had images of; the others have no weights. None: all classes.
    """
    is_learned = [True] * len(weights) if has_images is None else has_images.tolist()
    top_weights, top_templates = weights.topk(min(NUM_TOP_TEMPLATES, weights.shape[1]))
    entropies = prompt_weights.entropy(weights)
    classes = tuple(
        ClassWeights(
            max=weights[i].amax().item(),
            entropy=entropies[i].item(),
            top_templates=tuple(
                TemplateWeight(template=template, weight=weight)
                for template, weight in zip(top_templates[i].tolist(), top_weights[i].tolist(), strict=True)
            ),
        )
        if is_learned[i]
        else None
        for i in range(len(weights))
    )
    return LearnedWeights(name=name, shots=shots, classes=classes)


def _equalize_variances(z: Gaussian) -> Gaussian:
    """The same means with every variance set to the mean variance over all rows and dimensions; z may be empty."""
    return Gaussian(z.mean, z.var.mean().log().expand_as(z.log_var)) if len(z) else z
