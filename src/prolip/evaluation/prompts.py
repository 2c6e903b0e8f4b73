"""Ways to make one class out of many prompts, compared: one prompt, the ensemble, filters, top-K, BPRW; and controls.

All are weights for `prolip.mixture.pool`, and all are scored on the same images. Labelled images that BPRW learns from
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

from prolip.data.sources.labeled import PLAIN_TEMPLATES, Labelled, checked_templates
from prolip.embeddings.embedder import Embedder, Encoded
from prolip.embeddings.identity import data_identity
from prolip.evaluation.formatting import percent, table
from prolip.evaluation.strategies import Plan, Task, few_shot_rows, fixed_rows, zero_shot_rows
from prolip.gaussian import Gaussian, checked
from prolip.model.prolip import ProLIP
from prolip.zeroshot.class_names import imagenet_class_names, imagenet_templates
from prolip.zeroshot.few_shot import keep_apart
from prolip.zeroshot.prompts import embed_prompts

EXAMPLES = 3
"""Samples of each class that the result names, for pictures."""


def evaluate(
    model: ProLIP,
    data: Labelled,
    *,
    train: Labelled | None = None,
    templates: Sequence[str] | None = None,
    plan: Plan | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    bad_limit: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """`compare` for a model and data; plus data (its name), bad (samples left out), copies (training
    pictures that are scored, left out), class_names, templates, and examples (numbers of samples of each class).

    train: data of the same classes to learn from, of which copies of scored pictures are left out; None: some of `data`
    are kept apart and not scored.
    templates: None: the data's own, or ImageNet's 80 if it has only one. plan: None: the default one.
    """
    chosen = checked_templates(templates or _own_templates(data))
    plan = plan or Plan()
    if plan.single is None:
        plain = [template.rstrip(".") == PLAIN_TEMPLATES[0].rstrip(".") for template in chosen]
        plan = replace(plan, single=plain.index(True) if any(plain) else 0)
    _check_train(data, train)
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, bad_limit=bad_limit, progress=progress
    )
    prompts = embed_prompts(embedder, data.class_names, chosen)
    tested = embedder.images(data.source)
    labels, others, other_labels, copies = data.labels(tested.facts), None, None, 0
    if train is not None:
        learnt = embedder.images(train.source)
        new = _not_scored(learnt, tested)
        others, other_labels, copies = learnt.images[new], train.labels(learnt.facts)[new], int((~new).sum())
    result = compare(prompts, tested.images, labels, train=others, train_labels=other_labels, plan=plan)
    names = {"class_names": list(data.class_names), "templates": list(chosen)}
    told = {"data": tested.name, "bad": len(tested.bads), "copies": copies}
    return {**told, **names, "examples": _examples(labels, tested.numbers, len(data.class_names)), **result}


def _examples(labels: Tensor, numbers: Tensor, classes: int) -> list[list[int]]:
    """The numbers of the first few samples of each class, for pictures."""
    order = labels.argsort(stable=True)
    ends = torch.bincount(labels, minlength=classes).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [numbers[order[a : min(a + EXAMPLES, b)]].tolist() for a, b in zip(starts, ends, strict=True)]


def compare(
    prompts: Gaussian,
    images: Gaussian,
    labels: Tensor,
    *,
    train: Gaussian | None = None,
    train_labels: Tensor | None = None,
    plan: Plan | None = None,
) -> dict[str, Any]:
    """Accuracy of each strategy. prompts: (C, T, D), images: (N, D), labels: int64 (N,), from 0.

    train, train_labels: other images to learn from. None: of each class
    up to 2 max(few) images, at most half of them, are kept apart, and nothing is scored on them.
    Returns plain values:
      classes, templates_per_class, images (scored), kept (to learn from), kept_from ("train" or "split"),
      by, variance, seed, runs, single;
      rows: name, family ("one", "ensemble", "filter", "top", "bprw", "control"), accuracy, spread (standard deviation
        over runs, None without any), effective_prompts (e^entropy of the weights, mean over classes; None: no weights),
        paper (of ImageNet), left_out (why there is no accuracy, else None), and for those with labels short_classes
        (how many have fewer different images than asked for);
      learned: of each BPRW without control, from its first run: name, shots, and by class max and entropy (nats) of the
        weights, largest ([template, weight] of the largest ones); None for a class without images to learn from.
    """
    plan = plan or Plan()
    _check(prompts, images, labels, train, train_labels)
    scored, learn, learn_labels, kept_from = _apart(images, labels, len(prompts), train, train_labels, plan)
    task = Task(prompts, images[scored], labels[scored], learn, learn_labels, plan)
    judged = [*fixed_rows(task), *zero_shot_rows(task), *few_shot_rows(task)]
    return {
        "classes": len(prompts),
        "templates_per_class": prompts.shape[1],
        "images": len(scored),
        "kept": len(learn_labels),
        "kept_from": kept_from,
        "by": plan.by,
        "variance": plan.variance,
        "seed": plan.seed,
        "runs": plan.runs,
        "single": plan.single or 0,
        "rows": [one.row for one in judged],
        "learned": [one.learned for one in judged if one.learned is not None],
    }


def tables(result: dict[str, Any]) -> list[Table]:
    """For people: accuracies in percent; on ImageNet's classes the paper's beside them."""
    origin = "of other data" if result["kept_from"] == "train" else "kept apart"
    title = (
        f"Prompts: {result['classes']} classes x {result['templates_per_class']} templates, "
        f"{result['images']} images scored by {result['by']}; BPRW learns from {result['kept']} {origin}"
    )
    note = (
        f"Chance alone moves an accuracy on {result['images']} images by about "
        f"{percent(_standard_error(result))} (one standard error)."
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
        beside = [percent(row["paper"])] if _is_imagenet(result) else []
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
    plan: Plan,
) -> tuple[Tensor, Gaussian, Tensor, str]:
    """Numbers of the images that are scored; images to learn from and their labels; where those come from."""
    if train is not None and train_labels is not None:
        return torch.arange(len(labels)), train, train_labels, "train"
    most = 2 * max(plan.few, default=0)
    scored, kept = keep_apart(labels, classes, most, torch.Generator().manual_seed(plan.seed))
    return scored, images[kept], labels[kept], "split"


def _not_scored(train: Encoded, tested: Encoded) -> Tensor:
    """Which training images are none of the scored ones, by what the model sees of them: bool (N,)."""
    scored = {fact.pixels for fact in tested.facts}
    return torch.tensor([fact.pixels not in scored for fact in train.facts], dtype=torch.bool)


def _own_templates(data: Labelled) -> tuple[str, ...]:
    return data.templates if len(data.templates) > 1 else imagenet_templates()


def _check_train(data: Labelled, train: Labelled | None) -> None:
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
    checked(prompts, "prompts")
    if prompts.mean.ndim != 3 or prompts.shape[1] < 2:
        raise ValueError(
            f"prompts {tuple(prompts.shape)} must be (C, T, D) with T, the templates, at least 2"
        )
    if (train is None) != (train_labels is None):
        raise ValueError("train and train_labels come together")
    for z, own, name in ((images, labels, "images"), (train, train_labels, "train")):
        if z is None or own is None:
            continue
        if checked(z, name).mean.ndim != 2 or own.shape != z.shape[:1] or not len(own):
            raise ValueError(
                f"{name} {tuple(z.shape)} must be (N, D) and their labels {tuple(own.shape)} (N,)"
            )
        if not 0 <= int(own.min()) <= int(own.max()) < len(prompts):
            raise ValueError(f"labels of {name} must be in 0..{len(prompts) - 1}, one for each class")


def _standard_error(result: dict[str, Any]) -> float:
    """Of the accuracy with all prompts."""
    share: float = next(row["accuracy"] for row in result["rows"] if row["family"] == "ensemble")
    return math.sqrt(share * (1.0 - share) / result["images"])
