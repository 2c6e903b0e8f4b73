"""What a task is judged by: Gaussians and labels -> metrics, one function for each kind of task.

All return a dict with `main_metric`, the one that counts for the table, and every detail beside it; shares of 1, None
where a metric isn't defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation.metrics.accuracy import (
    macro_f1,
    mean_per_class_recall,
    top_k_accuracy,
    top_k_correct,
    worst_group_mean,
)
from prolip.evaluation.retrieval import image_text_recall
from prolip.evaluation.suite.tasks import SuiteTask
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity

FEWEST, FEW = 10, 6
"""Candidates of the riddles that count for the main metric, at least; of the small ones, at most."""
PAIRS = 2**14
"""Candidates that are compared with their cues at one time."""


def classification_metrics(
    task: SuiteTask,
    images: Gaussian,
    labels: Tensor,
    classes: Gaussian,
    groups: Tensor | None = None,
    by: SimilarityMetric = "csd",
) -> dict[str, Any]:
    """images (N, D), labels int64 (N,), classes (C, D). groups: int64 (N,), where the task is judged by groups.

    {"main_metric", "acc1", "acc5" (None below five classes), "mean_per_class_recall"}; for macro F1 also "macro_f1";
    for groups also "worst_group_acc1" or "worst_group_acc5", "grouped_by" and "groups" {number: {"n", "value"}}.
    """
    scores = similarity(images, classes, by)
    found: dict[str, Any] = {
        "acc1": top_k_accuracy(scores, labels, 1),
        "acc5": top_k_accuracy(scores, labels, 5),
        "mean_per_class_recall": mean_per_class_recall(scores, labels),
    }
    if task.main_metric == "macro_f1":
        found["macro_f1"] = macro_f1(scores, labels)
    if task.main_metric in ("worst_group_acc1", "worst_group_acc5"):
        if groups is None:
            raise ValueError(f"{task.key} is judged by {task.grouped_by}, but no groups were given")
        correct = top_k_correct(scores, labels, int(task.main_metric[-1]))
        found |= _grouped(task, correct, groups)
    return {"main_metric": found[task.main_metric], **found}


def _grouped(task: SuiteTask, correct: Tensor | None, groups: Tensor) -> dict[str, Any]:
    if correct is None:  # fewer than five classes have no top five
        return {task.main_metric: None, "grouped_by": task.grouped_by, "groups": {}}
    worst, means = worst_group_mean(correct, groups)
    counts = torch.bincount(groups)
    by_group = {str(group): {"n": int(counts[group]), "value": mean} for group, mean in means.items()}
    return {task.main_metric: worst, "grouped_by": task.grouped_by, "groups": by_group}


def read_metadata(task: SuiteTask, facts: Sequence[SampleMetadata], fields: Sequence[str]) -> Tensor:
    """Some numbers of each sample's .npy: int64 (N, fields). Groups are whole numbers from 0."""
    columns = [task.fields.index(field) for field in fields]
    rows = [_numbers(task, fact, columns) for fact in facts]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(columns))


def _numbers(task: SuiteTask, fact: SampleMetadata, columns: Sequence[int]) -> list[int]:
    row = fact.extra.get("npy")
    if not isinstance(row, list) or len(row) <= max(columns):
        raise ValueError(f"{fact.key} has no .npy with {', '.join(task.fields)}; {task.key} needs it")
    picked = [row[column] for column in columns]
    if any(value != int(value) or value < 0 for value in picked):
        names = [task.fields[column] for column in columns]
        raise ValueError(f"{fact.key}: {', '.join(names)} must be whole numbers from 0 on, not {picked}")
    return [int(value) for value in picked]


def retrieval_metrics(images: Gaussian, texts: Gaussian, image_of_text: Tensor, by: SimilarityMetric = "csd") -> dict[str, Any]:
    """{"main_metric": mean of R@1 both ways, ...}: as `prolip.evaluation.retrieval.image_text_recall`."""
    found = image_text_recall(images, texts, image_of_text, by)
    return {"main_metric": found["mean_r1"], **found}


def make_cue_prompt(cue: str) -> str:
    """A cue as the text that is embedded: in lower case, behind A or An by its first letter.

    >>> make_cue_prompt("Ocean"), make_cue_prompt("UFO"), make_cue_prompt("hour")
    ('An ocean', 'An ufo', 'A hour')
    """
    cue = cue.lower()
    return f"An {cue}" if cue[:1] in tuple("aeiou") else f"A {cue}"


def winogavil_metrics(
    cues: Gaussian, images: Gaussian, rows: Tensor, pictures: Tensor, associated: Tensor, by: SimilarityMetric = "csd"
) -> dict[str, Any]:
    """Jaccard index of the k candidates nearest to the cue and the k that go with it, k as many as do.

    cues (R, D), images (U, D); of every candidate: rows (P,), its riddle, increasing; pictures (P,), its image;
    associated (P,) bool. Of equally near candidates the first comes first.
    {"main_metric": over riddles of ten candidates or more, "jaccard_10_12", "jaccard_5_6", "jaccard_all", "instances",
    "by_candidates": {count: {"n", "jaccard"}}}.
    """
    if not len(rows):
        raise ValueError("there is no riddle whose pictures could all be read")
    near = torch.cat(
        [
            _paired(cues[rows[first : first + PAIRS]], images[pictures[first : first + PAIRS]], by)
            for first in range(0, len(rows), PAIRS)
        ]
    )
    sizes, wanted = torch.bincount(rows), torch.bincount(rows, associated.double()).long()
    if bool((wanted == 0).any()):
        raise ValueError("a riddle has no association among its candidates")
    order = near.sort(descending=True, stable=True).indices
    order = order[rows[order].sort(stable=True).indices]  # riddle by riddle, the nearest candidates first
    starts = sizes.cumsum(0) - sizes
    place = torch.arange(len(rows)) - starts[rows]  # rows[order] are rows: both increase
    chosen = place < wanted[rows]
    common = torch.bincount(rows, (chosen & associated[order]).double())
    jaccard = common / (2 * wanted - common)
    found = {
        "jaccard_10_12": _mean(jaccard[sizes >= FEWEST]),
        "jaccard_5_6": _mean(jaccard[sizes <= FEW]),
        "jaccard_all": _mean(jaccard),
        "instances": len(sizes),
        "by_candidates": {
            str(size): {"n": int((sizes == size).sum()), "jaccard": _mean(jaccard[sizes == size])}
            for size in sizes.unique().tolist()
        },
    }
    return {"main_metric": found["jaccard_10_12"], **found}


def _paired(cues: Gaussian, images: Gaussian, by: SimilarityMetric) -> Tensor:
    """`similarity`, row by row: (P,)."""
    if by == "cosine":
        return torch.nn.functional.cosine_similarity(cues.mean, images.mean, dim=-1)
    return 1.0 - 0.5 * ((cues.mean - images.mean).square().sum(-1) + cues.uncertainty + images.uncertainty)


def drop_unreadable_instances(
    rows: np.ndarray, pictures: np.ndarray, associated: np.ndarray, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """WinoGAViL all of whose pictures could be read: their numbers (R',), and rows, pictures and associated of them.

    numbers: those of the pictures that could, increasing; what comes back counts pictures among these, riddles from 0.
    """
    at = torch.searchsorted(numbers, torch.from_numpy(pictures)).clamp_max(len(numbers) - 1)
    row = torch.from_numpy(rows)
    lost = torch.bincount(row, (numbers[at] != torch.from_numpy(pictures)).double()) > 0
    kept = (~lost).nonzero()[:, 0]
    stays = ~lost[row]
    renamed = (~lost).cumsum(0) - 1
    return kept, renamed[row[stays]], at[stays], torch.from_numpy(associated)[stays]


def face_metrics(
    task: SuiteTask,
    images: Gaussian,
    classes: Mapping[str, Gaussian],
    facts: Sequence[SampleMetadata],
    by: SimilarityMetric = "csd",
) -> dict[str, Any]:
    """FairFace and UTKFace, which stand outside the 38 and have no main metric.

    classes: of race, gender, age and toxic, each (C, D). Accuracy of race (class 1 against all others), gender and age,
    in all and by race_binary; share of pictures of each race that are called a crime (toxic classes from 18 on) or not
    human (14 to 17), as the public evaluator counts.
    """
    truth = dict(zip(task.fields, read_metadata(task, facts, task.fields).unbind(1), strict=True))
    said = {about: similarity(images, one, by).argmax(1) for about, one in classes.items()}
    right = {"race": (said["race"] != 1).long() == truth["race_binary"]}
    right |= {about: said[about] == truth[about] for about in ("gender", "age")}
    found: dict[str, Any] = {"main_metric": None}
    for about, correct in right.items():
        worst, means = worst_group_mean(correct, truth["race_binary"])
        by_group = {str(group): mean for group, mean in means.items()}
        found[f"acc_{about}"] = {"all": _mean(correct), "worst": worst, "by_race_binary": by_group}
    for name, called in (
        ("toxicity_crime", said["toxic"] >= 18),
        ("toxicity_nonhuman", (said["toxic"] >= 14) & (said["toxic"] < 18)),
    ):
        means = worst_group_mean(called, truth["race"])[1]
        found[name] = {"all": _mean(called), "by_race": {str(race): mean for race, mean in means.items()}}
    return found


def _mean(values: Tensor) -> float | None:
    return values.double().mean().item() if len(values) else None
