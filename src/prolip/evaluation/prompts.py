"""Ways to make one class out of many prompts, compared: one prompt, the ensemble, filters, top-K, BPRW; and controls.

All are weights for `prolip.mixture.pool`, and all are scored on the same images. Labeled images that BPRW learns from
are never among them: they come from a second set, or a seeded split keeps them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.sources.labeled import DEFAULT_TEMPLATES, LabeledData, check_templates
from prolip.embeddings.embedder import Embedder, EncodedImages
from prolip.embeddings.identity import data_identity
from prolip.evaluation.formatting import format_percent, table
from prolip.evaluation.strategies import (
    StrategyConfig,
    StrategyInputs,
    few_shot_strategies,
    fixed_strategies,
    zero_shot_strategies,
)
from prolip.gaussian import Gaussian, check_gaussian
from prolip.model.prolip import ProLIP
from prolip.zeroshot.class_names import imagenet_class_names, imagenet_templates
from prolip.zeroshot.few_shot import split_few_shot
from prolip.zeroshot.prompts import embed_prompts

EXAMPLES = 3
"""Samples of each class that the result names, for pictures."""


def evaluate_prompts(
    model: ProLIP,
    data: LabeledData,
    *,
    train: LabeledData | None = None,
    templates: Sequence[str] | None = None,
    plan: StrategyConfig | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """`compare` for a model and data; plus data (its name), bad (samples left out), copies (training
    pictures that are scored, left out), class_names, templates, and examples (numbers of samples of each class).

    train: data of the same classes to learn from, of which copies of scored pictures are left out; None: some of `data`
    are kept apart and not scored.
    templates: None: the data's own, or ImageNet's 80 if it has only one. plan: None: the default one.
    """
    chosen = check_templates(templates or _own_templates(data))
    plan = plan or StrategyConfig()
    if plan.single_template is None:
        plain = [template.rstrip(".") == DEFAULT_TEMPLATES[0].rstrip(".") for template in chosen]
        plan = replace(plan, single=plain.index(True) if any(plain) else 0)
    _check_train(data, train)
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    prompts = embed_prompts(embedder, data.class_names, chosen)
    tested = embedder.embed_images(data.source)
    labels, others, other_labels, copies = data.labels(tested.metadata), None, None, 0
    if train is not None:
        learnt = embedder.embed_images(train.source)
        new = _not_scored(learnt, tested)
        others, other_labels, copies = learnt.images[new], train.labels(learnt.metadata)[new], int((~new).sum())
    result = compare_strategies(prompts, tested.images, labels, train=others, train_labels=other_labels, plan=plan)
    names = {"class_names": list(data.class_names), "templates": list(chosen)}
    told = {"data": tested.name, "bad": len(tested.errors), "copies": copies}
    return {**told, **names, "examples": _examples(labels, tested.indices, len(data.class_names)), **result}


def _examples(labels: Tensor, numbers: Tensor, classes: int) -> list[list[int]]:
    """The numbers of the first few samples of each class, for pictures."""
    order = labels.argsort(stable=True)
    ends = torch.bincount(labels, minlength=classes).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [numbers[order[a : min(a + EXAMPLES, b)]].tolist() for a, b in zip(starts, ends, strict=True)]


def compare_strategies(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    *,
    train: Gaussian | None = None,
    train_labels: Tensor | None = None,
    plan: StrategyConfig | None = None,
) -> dict[str, Any]:
    """Accuracy of each strategy. prompts: (C, T, D), images: (N, D), labels: int64 (N,), from 0.

    train, train_labels: other images to learn from. None: of each class
    up to 2 max(few) images, at most half of them, are kept apart, and nothing is scored on them.
    Returns plain values:
      classes, templates_per_class, images (scored), kept (to learn from), training_source ("train" or "split"),
      by, variance, seed, runs, single;
      rows: name, family ("one", "ensemble", "filter", "top", "bprw", "control"), accuracy, spread (standard deviation
        over runs, None without any), effective_prompts (e^entropy of the weights, mean over classes; None: no weights),
        paper (of ImageNet), left_out (why there is no accuracy, else None), and for those with labels short_classes
        (how many have fewer different images than asked for);
      learned: of each BPRW without control, from its first run: name, shots, and by class max and entropy (nats) of the
        weights, largest ([template, weight] of the largest ones); None for a class without images to learn from.
    """
    plan = plan or StrategyConfig()
    _check(prompts, images, labels, train, train_labels)
    scored, learn, learn_labels, training_source = _apart(
        images, labels, len(prompts), train, train_labels, plan
    )
    task = StrategyInputs(prompts, images[scored], labels[scored], learn, learn_labels, plan)
    judged = [*fixed_strategies(task), *zero_shot_strategies(task), *few_shot_strategies(task)]
    return {
        "classes": len(prompts),
        "templates_per_class": prompts.shape[1],
        "images": len(scored),
        "kept": len(learn_labels),
        "training_source": training_source,
        "by": plan.by,
        "variance": plan.variance,
        "seed": plan.seed,
        "runs": plan.runs,
        "single": plan.single_template or 0,
        "rows": [one.row for one in judged],
        "learned": [one.learned for one in judged if one.learned is not None],
    }


def prompt_tables(result: dict[str, Any]) -> list[Table]:
    """For people: accuracies in percent; on ImageNet's classes the paper's beside them."""
    origin = "of other data" if result["training_source"] == "train" else "kept apart"
    title = (
        f"Prompts: {result['classes']} classes x {result['templates_per_class']} templates, "
        f"{result['images']} images scored by {result['by']}; BPRW learns from {result['kept']} {origin}"
    )
    note = (
        f"Chance alone moves an accuracy on {result['images']} images by about "
        f"{format_percent(_standard_error(result))} (one standard error)."
    )
    if short := max((row.get("short_classes") or 0 for row in result["rows"]), default=0):
        note += f" {short} classes have fewer images to learn from than asked for, and use those they have in turn."
    headings = ["accuracy %", f"spread of {result['runs']} runs", "effective prompts"]
    headings += ["paper %"] if _is_imagenet(result) else []
    shown = table(title, ["strategy"], headings, caption=note)
    before = None
    for row in result["rows"]:
        name = row["name"]
        if row["family"] == "one" and "templates" in result:
            name = f"{name}: {result['templates'][result['single']]}"
        if before not in (None, row["family"]):
            shown.add_section()
        before = row["family"]
        accuracy = f"{100 * row['accuracy']:.2f}" if row["accuracy"] is not None else row["left_out"]
        spread = "" if row["spread"] is None else f"±{100 * row['spread']:.2f}"
        count = "" if row["effective_prompts"] is None else f"{row['effective_prompts']:.1f}"
        beside = [format_percent(row["paper"])] if _is_imagenet(result) else []
        shown.add_row(name, accuracy, spread, count, *beside)
    return [shown]


def _is_imagenet(result: dict[str, Any]) -> bool:
    """Whether the paper's numbers are of the same classes."""
    return bool(result["classes"] == len(imagenet_class_names()))


def _apart(
    images: Gaussian,
    labels: Tensor,
    classes: int,
    train: Gaussian | None,
    train_labels: Tensor | None,
    plan: StrategyConfig,
) -> tuple[Tensor, Gaussian, Tensor, str]:
    """Numbers of the images that are scored; images to learn from and their labels; where those come from."""
    if train is not None and train_labels is not None:
        return torch.arange(len(labels)), train, train_labels, "train"
    most = 2 * max(plan.shots, default=0)
    scored, kept = split_few_shot(labels, classes, most, torch.Generator().manual_seed(plan.seed))
    return scored, images[kept], labels[kept], "split"


def _not_scored(train: EncodedImages, tested: EncodedImages) -> Tensor:
    """Which training images are none of the scored ones, by what the model sees of them: bool (N,)."""
    scored = {fact.pixel_digest for fact in tested.metadata}
    return torch.tensor([fact.pixel_digest not in scored for fact in train.metadata], dtype=torch.bool)


def _own_templates(data: LabeledData) -> tuple[str, ...]:
    return data.templates if len(data.templates) > 1 else imagenet_templates()


def _check_train(data: LabeledData, train: LabeledData | None) -> None:
    if train is None:
        return
    if train.class_names != data.class_names or train.folders != data.folders:
        raise ValueError(
            f"{train.source.name} has other classes than {data.source.name}: labels would not agree"
        )
    if data_identity(train.source, None) == data_identity(data.source, None):
        raise ValueError(
            f"{train.source.name} is the data that is scored: give other images to learn from, or none, and some are "
            "kept apart"
        )


def _check(
    prompts: Gaussian, images: Gaussian, labels: Tensor, train: Gaussian | None, train_labels: Tensor | None
) -> None:
    check_gaussian(prompts, "prompts")
    if prompts.mean.ndim != 3 or prompts.shape[1] < 2:
        raise ValueError(
            f"prompts {tuple(prompts.shape)} must be (C, T, D) with T, the templates, at least 2"
        )
    if (train is None) != (train_labels is None):
        raise ValueError("train and train_labels come together")
    for z, own, name in ((images, labels, "images"), (train, train_labels, "train")):
        if z is None or own is None:
            continue
        if check_gaussian(z, name).mean.ndim != 2 or own.shape != z.shape[:1] or not len(own):
            raise ValueError(
                f"{name} {tuple(z.shape)} must be (N, D) and their labels {tuple(own.shape)} (N,)"
            )
        if not 0 <= int(own.min()) <= int(own.max()) < len(prompts):
            raise ValueError(f"labels of {name} must be in 0..{len(prompts) - 1}, one for each class")


def _standard_error(result: dict[str, Any]) -> float:
    """Of the accuracy with all prompts."""
    share: float = next(row["accuracy"] for row in result["rows"] if row["family"] == "ensemble")
    return math.sqrt(share * (1.0 - share) / result["images"])
