"""Compares prompt strategies: one prompt, the ensemble, uncertainty filters, top-K, BPRW.

All are weights for `prolip.mixture.pool`, and all are tested on the same images. Labeled images that BPRW is fitted to
are never among them: they come from a second data set, or from a seeded split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import format_percent, make_table
from prolip.data.sources.labeled import DEFAULT_TEMPLATES, LabeledData, check_templates
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.embeddings.identity import data_identity
from prolip.evaluation.strategies import (
    StrategyConfig,
    StrategyInputs,
    few_shot_strategies,
    fixed_strategies,
    zero_shot_strategies,
)
from prolip.gaussian import Gaussian, check_gaussian
from prolip.zeroshot.class_names import imagenet_class_names, imagenet_templates
from prolip.zeroshot.few_shot import split_few_shot
from prolip.zeroshot.prompts import embed_prompts

EXAMPLES_PER_CLASS = 3
"""Samples of each class that the result lists, for figures."""


def evaluate_prompts(
    embedder: BaseEmbedder,
    data: LabeledData,
    *,
    train: LabeledData | None = None,
    templates: Sequence[str] | None = None,
    config: StrategyConfig | None = None,
) -> dict[str, Any]:
    """Compare prompt strategies for a model on labeled data.

    Args:
        embedder: The model, and how to embed with it.
        data: Images that are tested, labels, class names and templates.
        train: Data of the same classes to fit BPRW to; duplicates of tested images are removed from it. None: some of
            `data` are held out for that, and not tested.
        templates: Templates of the prompts; None: the data's own, or ImageNet's 80 if it has only one.
        config: Which strategies; None: the default.

    Returns:
        The dict of `compare_strategies`, and data (name), bad (number of samples skipped), duplicates (number of
        training images that are tested too, removed), class_names, templates, examples (for each class the data indices
        of some samples).
    """
    templates = check_templates(templates or _default_templates(data))
    config = config or StrategyConfig()
    if (
        config.single_template is None
    ):  # "a photo of a {c}", with or without a full stop; else the first template
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
        prompts, tested.images, labels, train=train_images, train_labels=train_labels, config=config
    )
    return {
        "data": tested.name,
        "bad": len(tested.errors),
        "duplicates": duplicates,
        "class_names": list(data.class_names),
        "templates": list(templates),
        "examples": _select_examples(labels, tested.indices, len(data.class_names)),
        **result,
    }


def _select_examples(labels: Tensor, indices: Tensor, num_classes: int) -> list[list[int]]:
    """The data indices of the first EXAMPLES_PER_CLASS samples of each class: a list for each class, maybe empty.

    labels, indices: int64 (N,), the class and the data index of each sample.
    num_classes:     number of classes.
    """
    order = labels.argsort(stable=True)
    ends = torch.bincount(labels, minlength=num_classes).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [
        indices[order[start : min(start + EXAMPLES_PER_CLASS, end)]].tolist()
        for start, end in zip(starts, ends, strict=True)
    ]


def compare_strategies(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    *,
    train: Gaussian | None = None,
    train_labels: Tensor | None = None,
    config: StrategyConfig | None = None,
) -> dict[str, Any]:
    """Measure the accuracy of each prompt strategy on the same images.

    Args:
        prompts: The prompts of each class, (C, T, D).
        images: Images to test on, (N, D).
        labels: Index of each image's class, int64 (N,).
        train, train_labels: Other images to fit BPRW to, (M, D) and (M,). None: of each class up to 2 max(shots)
            images, at most half of them, are held out of `images`, and nothing is tested on them.
        config: Which strategies; None: the default.

    Returns:
        classes, templates_per_class, images (tested), train_images: numbers;
        training_source ("train": `train`, "split": held out of `images`), metric, variance, seed, runs,
        single_template (index);
        rows: name, family ("one", "ensemble", "filter", "top", "bprw", "control"), accuracy, std (over runs, None
            without any), effective_prompts (e^entropy of the weights, mean over classes; None without weights), paper
            (on ImageNet), skipped (why there is no accuracy, else None), and for those with labels short_classes
            (number of classes with fewer distinct images than asked for);
        learned: for each BPRW that is not a control, of its first run: name, shots, and by class max and entropy (nats)
            of the weights and top_templates ([template, weight] of the largest); None for a class without images.
    """
    config = config or StrategyConfig()
    _check_embeddings(prompts, images, labels, train, train_labels)
    tested_rows, train_images, train_labels, training_source = _split_tested_and_training(
        images, labels, len(prompts), train, train_labels, config
    )
    inputs = StrategyInputs(
        prompts, images[tested_rows], labels[tested_rows], train_images, train_labels, config
    )
    results = [*fixed_strategies(inputs), *zero_shot_strategies(inputs), *few_shot_strategies(inputs)]
    return {
        "classes": len(prompts),
        "templates_per_class": prompts.shape[1],
        "images": len(tested_rows),
        "train_images": len(train_labels),
        "training_source": training_source,
        "metric": config.metric,
        "variance": config.variance,
        "seed": config.seed,
        "runs": config.runs,
        "single_template": config.single_template or 0,
        "rows": [strategy.row for strategy in results],
        "learned": [strategy.learned for strategy in results if strategy.learned is not None],
    }


def prompt_tables(result: dict[str, Any]) -> list[Table]:
    """Make the table of accuracies by strategy; with the paper's values for ImageNet's classes.

    Args:
        result: What `evaluate_prompts` or `compare_strategies` returned.

    Returns:
        One table.
    """
    origin = "images of other data" if result["training_source"] == "train" else "held-out images"
    title = (
        f"Prompts: {result['classes']} classes x {result['templates_per_class']} templates, "
        f"{result['images']} images tested by {result['metric']}; BPRW is fitted to {result['train_images']} {origin}"
    )
    note = (
        f"The standard error of an accuracy on {result['images']} images is about "
        f"{format_percent(_standard_error(result))}."
    )
    if num_short_classes := max((row.get("short_classes") or 0 for row in result["rows"]), default=0):
        note += f" {num_short_classes} classes have fewer images than the shots asked for, and repeat those they have."
    headings = ["accuracy %", f"std of {result['runs']} runs", "effective prompts"]
    headings += ["paper %"] if _is_imagenet(result) else []
    table = make_table(title, ["strategy"], headings, caption=note)
    previous_family = None
    for row in result["rows"]:
        name = row["name"]
        if row["family"] == "one" and "templates" in result:
            name = f"{name}: {result['templates'][result['single_template']]}"
        if previous_family not in (None, row["family"]):
            table.add_section()
        previous_family = row["family"]
        accuracy = f"{100 * row['accuracy']:.2f}" if row["accuracy"] is not None else row["skipped"]
        std = "" if row["std"] is None else f"±{100 * row['std']:.2f}"
        effective_prompts = "" if row["effective_prompts"] is None else f"{row['effective_prompts']:.1f}"
        paper = [format_percent(row["paper"])] if _is_imagenet(result) else []
        table.add_row(name, accuracy, std, effective_prompts, *paper)
    return [table]


def _is_imagenet(result: dict[str, Any]) -> bool:
    """Whether the classes are ImageNet's, for which the paper has values; judged by their number."""
    return bool(result["classes"] == len(imagenet_class_names()))


def _split_tested_and_training(
    images: Gaussian,
    labels: Tensor,
    num_classes: int,
    train: Gaussian | None,
    train_labels: Tensor | None,
    config: StrategyConfig,
) -> tuple[Tensor, Gaussian, Tensor, str]:
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


def _standard_error(result: dict[str, Any]) -> float:
    """Standard error sqrt(p (1 - p) / N) of the accuracy p of the ensemble of all prompts, for N tested images."""
    accuracy: float = next(row["accuracy"] for row in result["rows"] if row["family"] == "ensemble")
    return math.sqrt(accuracy * (1.0 - accuracy) / result["images"])
