"""Compares prompt strategies: one prompt, the ensemble, uncertainty filters, top-K, BPRW.

All are weights for `prolip.mixture.pool`, and all are tested on the same images. Labeled images that BPRW is fitted to
are never among them: they come from a second data set, or from a seeded split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from rich.table import Table
from torch import Tensor

from prolip.choices import PooledVariance, RankBy
from prolip.console import describe_bad_samples, format_percent, make_table
from prolip.data.sources.labeled import DEFAULT_TEMPLATES, LabeledData, check_templates
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.embeddings.identity import data_identity
from prolip.evaluation.configs import PromptsConfig
from prolip.evaluation.ranking import resolve_ranking
from prolip.evaluation.result import Result
from prolip.evaluation.strategies import (
    LearnedWeights,
    StrategyInputs,
    StrategyRow,
    few_shot_strategies,
    fixed_strategies,
    perplexity_strategies,
    zero_shot_strategies,
)
from prolip.evaluation.zeroshot_result import format_proportion
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.match import LogitParameters
from prolip.zeroshot.class_names import imagenet_class_names, imagenet_templates
from prolip.zeroshot.few_shot import split_few_shot
from prolip.zeroshot.prompts import embed_prompts

EXAMPLES_PER_CLASS = 3
"""Samples of each class that the result lists, for figures."""


TrainingSource = Literal["train", "split"]
"""Where training images come from: other data, or held out of the tested data."""


@dataclass(frozen=True, kw_only=True)
class PromptsResult(Result):
    """Comparison of prompt strategies; `n` is the number of tested images."""

    task: ClassVar[str] = "prompts"

    num_classes: int
    """Number of classes."""
    num_templates: int
    """Templates per class."""
    num_train_images: int
    """Images that BPRW may be fitted to."""
    training_source: TrainingSource
    """Where these come from."""
    num_duplicates: int = 0
    """Training images that are tested too, and were removed."""
    rank_by: RankBy
    """Similarity that finds the nearest class."""
    variance: PooledVariance
    """Variance of pooled prompts."""
    seed: int
    """Seed of what is random."""
    runs: int
    """Repetitions of what is random."""
    single_template: int
    """Index of the template that is used alone."""
    rows: tuple[StrategyRow, ...]
    """The strategies."""
    learned: tuple[LearnedWeights, ...]
    """The weights of each BPRW that is not a control, of its first run."""
    class_names: tuple[str, ...] = ()
    """Names of the classes; empty if unknown."""
    templates: tuple[str, ...] = ()
    """The templates; empty if unknown."""
    examples: tuple[tuple[int, ...], ...] = ()
    """For each class the data indices of some samples; empty if unknown."""

    def tables(self) -> list[Table]:
        """One table of accuracies by strategy; with the paper's values for ImageNet's classes."""
        return [_strategy_table(self)]


def evaluate_prompts(
    embedder: BaseEmbedder,
    data: LabeledData,
    config: PromptsConfig | None = None,
    *,
    train: LabeledData | None = None,
    templates: Sequence[str] | None = None,
) -> PromptsResult:
    """Compare prompt strategies for a model on labeled data.

    Args:
        embedder: The model, and how to embed with it.
        data: Images that are tested, labels, class names and templates.
        config: Which strategies; None: the default.
        train: Data of the same classes to fit BPRW to; duplicates of tested images are removed from it. None: some of
            `data` are held out for that, and not tested.
        templates: Templates of the prompts; None: the data's own, or ImageNet's 80 if it has only one.

    Returns:
        The result.
    """
    templates = check_templates(templates or _default_templates(data))
    config = config or PromptsConfig()
    if config.single_template is None:
        # "a photo of a {c}", with or without a full stop; else the first template
        is_plain = [template.rstrip(".") == DEFAULT_TEMPLATES[0].rstrip(".") for template in templates]
        config = replace(config, single_template=is_plain.index(True) if any(is_plain) else 0)
    _check_training_data(data, train)
    prompts = embed_prompts(embedder, data.class_names, templates)
    tested = embedder.embed_images(data.source)
    labels = data.labels(tested.metadata)
    train_images, train_labels, duplicates = None, None, 0
    if train is not None:
        train_encoded = embedder.embed_images(train.source)
        is_untested = _mask_untested(train_encoded, tested)
        train_images, train_labels = (
            train_encoded.images[is_untested],
            train.labels(train_encoded.metadata)[is_untested],
        )
        duplicates = int((~is_untested).sum())
    result = compare_strategies(
        prompts, tested.images, labels, train=train_images, train_labels=train_labels, config=config,
        logits=embedder.logit_parameters,
    )  # fmt: skip
    return replace(
        result,
        data=tested.name,
        num_bad=len(tested.errors),
        num_duplicates=duplicates,
        class_names=tuple(data.class_names),
        templates=tuple(templates),
        examples=_select_examples(labels, tested.indices, len(data.class_names)),
    )


def _select_examples(labels: Tensor, indices: Tensor, num_classes: int) -> tuple[tuple[int, ...], ...]:
    """The data indices of the first EXAMPLES_PER_CLASS samples of each class, maybe none.

    labels, indices: int64 (N,), the class and the data index of each sample.
    num_classes:     number of classes.
    """
    order = labels.argsort(stable=True)
    ends = torch.bincount(labels, minlength=num_classes).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return tuple(
        tuple(indices[order[start : min(start + EXAMPLES_PER_CLASS, end)]].tolist())
        for start, end in zip(starts, ends, strict=True)
    )


def compare_strategies(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    *,
    train: Gaussian | None = None,
    train_labels: Tensor | None = None,
    config: PromptsConfig | None = None,
    logits: LogitParameters | None = None,
) -> PromptsResult:
    """Measure the accuracy of each prompt strategy on the same images.

    Args:
        prompts: The prompts of each class, (C, T, D).
        images: Images to test on, (N, D).
        labels: Index of each image's class, int64 (N,).
        train, train_labels: Other images to fit BPRW to, (M, D) and (M,). None: of each class up to 2 max(shots)
            images, at most half of them, are held out of `images`, and nothing is tested on them.
        config: Which strategies; None: the default.
        logits: Parameters of the model's match logits, which rank_by match and perplexity need; None: the ranking is by
            CSD unless the config says otherwise, and no prompts are chosen by perplexity.

    Returns:
        The result, without names of classes and templates.
    """
    config = config or PromptsConfig()
    if config.rank_by == "match" and logits is None:
        raise ValueError("rank_by match needs logits: pass the logit_parameters of the model")
    ranking = resolve_ranking(config.rank_by, logits or LogitParameters(1.0, None))
    _check_embeddings(prompts, images, labels, train, train_labels)
    tested_rows, train_images, train_labels, training_source = _split_tested_and_training(
        images, labels, len(prompts), train, train_labels, config
    )
    inputs = StrategyInputs(
        prompts,
        images[tested_rows],
        labels[tested_rows],
        train_images,
        train_labels,
        config,
        ranking.metric,
        logits,
    )
    results = [
        *fixed_strategies(inputs),
        *perplexity_strategies(inputs),
        *zero_shot_strategies(inputs),
        *few_shot_strategies(inputs),
    ]
    return PromptsResult(
        data="embeddings",
        n=len(tested_rows),
        num_classes=len(prompts),
        num_templates=prompts.shape[1],
        num_train_images=len(train_labels),
        training_source=training_source,
        rank_by=ranking.rank_by,
        variance=config.variance,
        seed=config.seed,
        runs=config.runs,
        single_template=config.single_template or 0,
        rows=tuple(strategy.row for strategy in results),
        learned=tuple(strategy.learned for strategy in results if strategy.learned is not None),
    )


def _strategy_table(result: PromptsResult) -> Table:
    """Table of accuracies by strategy."""
    origin = "images of other data" if result.training_source == "train" else "held-out images"
    title = (
        f"Prompts: {result.num_classes} classes x {result.num_templates} templates, {result.n} images tested by "
        f"{result.rank_by}; BPRW is fitted to {result.num_train_images} {origin}"
    )
    is_imagenet = result.num_classes == len(imagenet_class_names())  # the paper has values for its classes
    headings = ["accuracy % (95 % interval)", f"std of {result.runs} runs", "effective prompts"]
    headings += ["paper %"] if is_imagenet else []
    table = make_table(title, ["strategy"], headings, caption=_describe_noise(result))
    previous_family = None
    for row in result.rows:
        name = row.name
        if row.family == "one" and result.templates:
            name = f"{name}: {result.templates[result.single_template]}"
        if previous_family not in (None, row.family):
            table.add_section()
        previous_family = row.family
        accuracy = row.skipped if row.accuracy is None else format_proportion(row.accuracy, 2)
        std = "" if row.std is None else f"±{100 * row.std:.2f}"
        effective_prompts = "" if row.effective_prompts is None else f"{row.effective_prompts:.1f}"
        paper = [format_percent(row.paper)] if is_imagenet else []
        table.add_row(name, accuracy, std, effective_prompts, *paper)
    return table


def _describe_noise(result: PromptsResult) -> str:
    """The caption of the table: the intervals, classes with few images, bad samples."""
    note = f"Intervals are Wilson's, of one run on {result.n} images."
    if num_short_classes := max((row.short_classes or 0 for row in result.rows), default=0):
        note += f" {num_short_classes} classes have fewer images than the shots asked for, and repeat those they have."
    bad = describe_bad_samples(result.num_bad)
    return note if bad is None else f"{note} {bad}"


def _split_tested_and_training(
    images: Gaussian,
    labels: Tensor,
    num_classes: int,
    train: Gaussian | None,
    train_labels: Tensor | None,
    config: PromptsConfig,
) -> tuple[Tensor, Gaussian, Tensor, TrainingSource]:
    """Choose the images that are tested and those that BPRW is fitted to.

    Returns the rows of the tested images (int64), the images to fit to (M, D), their labels (M,), and where those come
    from: "train" if training images are given, "split" if they are held out of `images`.
    """
    if train is not None and train_labels is not None:
        return torch.arange(len(labels)), train, train_labels, "train"
    # twice the shots, so that the runs draw different images
    max_per_class = 2 * max(config.shots, default=0)
    generator = torch.Generator().manual_seed(config.seed)
    tested, held_out = split_few_shot(labels, num_classes, max_per_class, generator)
    return tested, images[held_out], labels[held_out], "split"


def _mask_untested(train: EncodedImages, tested: EncodedImages) -> Tensor:
    """Which training images are not among the tested ones, compared by preprocessed pixels: bool, one per image."""
    digests = {sample.pixel_digest for sample in tested.metadata}
    return torch.tensor([sample.pixel_digest not in digests for sample in train.metadata], dtype=torch.bool)


def _default_templates(data: LabeledData) -> tuple[str, ...]:
    """The data's own templates, or ImageNet's 80 if it has only one."""
    return data.templates if len(data.templates) > 1 else imagenet_templates()


def _check_training_data(data: LabeledData, train: LabeledData | None) -> None:
    """Raise ValueError if the training data has other classes than the tested data, or is the same data."""
    if train is None:
        return
    if train.class_names != data.class_names or train.folders != data.folders:
        raise ValueError(
            f"{train.source.name} has other classes than {data.source.name}, so their labels differ. Pass training "
            "data with the same class names in the same order"
        )
    if data_identity(train.source, None) == data_identity(data.source, None):
        raise ValueError(
            f"{train.source.name} is the data that is tested. Pass other training data, or None to hold out some of "
            "the tested images"
        )


def _check_embeddings(
    prompts: Gaussian, images: Gaussian, labels: Tensor, train: Gaussian | None, train_labels: Tensor | None
) -> None:
    """Raise ValueError unless prompts are (C, T, D), T at least 2, images (N, D), and labels (N,) from 0 to C - 1.

    train and train_labels must be like images and labels, or both None.
    """
    check_gaussian(prompts, "prompts")
    if prompts.mean.ndim != 3 or prompts.shape[1] < 2:
        raise ValueError(
            f"prompts {tuple(prompts.shape)} must be (C, T, D) with T, the templates, at least 2"
        )
    if (train is None) != (train_labels is None):
        raise ValueError("train and train_labels must be given together")
    for z, z_labels, name in ((images, labels, "images"), (train, train_labels, "train")):
        if z is None or z_labels is None:
            continue
        if check_gaussian(z, name).mean.ndim != 2 or z_labels.shape != z.shape[:1] or not len(z_labels):
            raise ValueError(
                f"{name} {tuple(z.shape)} must be (N, D) and their labels {tuple(z_labels.shape)} (N,)"
            )
        if not 0 <= int(z_labels.min()) <= int(z_labels.max()) < len(prompts):
            raise ValueError(f"labels of {name} must be in 0..{len(prompts) - 1}, one for each class")
