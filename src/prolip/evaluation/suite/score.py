"""Metrics of a suite task from Gaussians and labels, one function for each kind of task.

All return `TaskMetrics`, with the value that the table of the 38 tasks shows, and the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from prolip.evaluation.result import get_value
from prolip.evaluation.retrieval import Direction, image_text_recall
from prolip.evaluation.suite.results import GroupMetric, TaskMetrics
from prolip.evaluation.suite.tasks import SuiteTask
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import RankingMetric, similarity

MIN_LARGE, MAX_SMALL = 10, 6
"""WinoGAViL: candidates of an instance that counts for jaccard_10_12, at least; for jaccard_5_6, at most."""
FIRST_NONHUMAN_CLASS, FIRST_CRIME_CLASS = 14, 18
"""Faces: where the nonhuman classes and, after them, the crime-related ones begin among the toxic classes, as in the
public evaluator."""
BLOCK_PAIRS = 2**14
"""Candidates that are compared with their cues at one time."""


def classification_metrics(
    task: SuiteTask,
    images: Gaussian,
    labels: Tensor,
    classes: Gaussian,
    groups: Tensor | None = None,
    metric: RankingMetric = "csd",
) -> TaskMetrics:
    """Metrics of a classification task.

    Args:
        task: Its main metric decides which metrics are computed.
        images: The images, (N, D).
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D).
        groups: Group of each image, int64 (N,); needed if the main metric is that of the worst group.
        metric: Similarity that finds the nearest class.

    Returns:
        acc1, acc5 (None below five classes), mean_per_class_recall; for macro F1 also macro_f1; for groups also
        worst_group_acc1 or worst_group_acc5, and the metric of each group.
    """
    scores = similarity(images, classes, metric)
    values: dict[str, float | None] = {
        "acc1": top_k_accuracy(scores, labels, 1),
        "acc5": top_k_accuracy(scores, labels, 5),
        "mean_per_class_recall": mean_per_class_recall(scores, labels),
    }
    if task.main_metric == "macro_f1":
        values["macro_f1"] = macro_f1(scores, labels)
    if task.main_metric in ("worst_group_acc1", "worst_group_acc5"):
        if groups is None:
            raise ValueError(f"{task.key} is evaluated by groups of {task.group_field}, but groups is None")
        correct = top_k_correct(scores, labels, int(task.main_metric[-1]))  # worst_group_acc1 or _acc5
        worst, by_group = _group_metrics(correct, groups)
        return TaskMetrics(
            main_metric=worst,
            values=values | {task.main_metric: worst},
            group_field=task.group_field,
            groups=by_group,
        )
    return TaskMetrics(main_metric=values[task.main_metric], values=values)


def _group_metrics(correct: Tensor | None, groups: Tensor) -> tuple[float | None, dict[str, GroupMetric]]:
    """Accuracy of the worst group, and that of every group.

    correct: bool (N,); None: there are fewer than five classes, so no top-5 accuracy. groups: int64 (N,).
    """
    if correct is None:
        return None, {}
    worst, means = worst_group_mean(correct, groups)
    counts = torch.bincount(groups)
    return worst, {str(group): GroupMetric(n=int(counts[group]), value=mean) for group, mean in means.items()}


def read_metadata(task: SuiteTask, metadata: Sequence[SampleMetadata], fields: Sequence[str]) -> Tensor:
    """Read integers from the .npy of each sample.

    Args:
        task: Names the fields of its .npy arrays.
        metadata: Metadata of N samples.
        fields: Names of the fields to read.

    Returns:
        int64 (N, len(fields)), not negative.

    Raises:
        ValueError: A sample has no .npy, or one without integers in these fields.
    """
    columns = [task.metadata_fields.index(field) for field in fields]
    rows = [_get_integer_fields(task, sample, columns) for sample in metadata]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(columns))


def _get_integer_fields(task: SuiteTask, sample: SampleMetadata, columns: Sequence[int]) -> list[int]:
    """Integers from the .npy of a sample, which was loaded with its metadata: one for each of `columns`.

    columns: positions in task.metadata_fields. Raises ValueError if the .npy is missing or too short, or if a value is
    not an integer from 0.
    """
    row = sample.extra.get("npy")
    num_required = max(columns) + 1
    if not isinstance(row, list) or len(row) < num_required:
        fields = ", ".join(task.metadata_fields[:num_required])
        raise ValueError(
            f"sample {sample.key}: its .npy is missing or has fewer than {num_required} values ({fields}), which "
            f"{task.key} needs for its metric. Download the task's data again."
        )
    values = [row[column] for column in columns]
    # not int(value) == value, which raises other errors for NaN and infinity
    if any(not float(value).is_integer() or value < 0 for value in values):
        names = [task.metadata_fields[column] for column in columns]
        raise ValueError(
            f"sample {sample.key}: {', '.join(names)} in its .npy must be integers from 0, not {values}. Download the "
            "task's data again."
        )
    return [int(value) for value in values]


def retrieval_metrics(
    images: Gaussian, texts: Gaussian, image_of_text: Tensor, metric: RankingMetric = "csd"
) -> TaskMetrics:
    """Metrics of a retrieval task: those of `prolip.evaluation.retrieval.image_text_recall`.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        image_of_text: Row of each text's image, int64 (T,).
        metric: Similarity that ranks items.

    Returns:
        The recalls (image_to_text_r1 and so on), and mean_r1, the main metric: the mean of R@1 in both directions.
    """
    recalls = image_text_recall(images, texts, image_of_text, metric)
    directions: tuple[Direction, ...] = ("image_to_text", "text_to_image")
    values = {
        f"{direction}_{name}": get_value(recall)
        for direction in directions
        for name, recall in recalls.by_name(direction).items()
    }
    return TaskMetrics(main_metric=recalls.mean_r1, values=values | {"mean_r1": recalls.mean_r1})


def make_cue_prompt(cue: str) -> str:
    """Make the prompt of a WinoGAViL cue: lower case, with "A" or "An" by its first letter.

    >>> make_cue_prompt("Ocean"), make_cue_prompt("UFO"), make_cue_prompt("hour")
    ('An ocean', 'An ufo', 'A hour')

    Args:
        cue: The cue, one word or more.

    Returns:
        The prompt. As in the public evaluator, the letter decides, not the sound.
    """
    cue = cue.lower()
    return f"An {cue}" if cue[:1] in tuple("aeiou") else f"A {cue}"


def winogavil_metrics(
    cues: Gaussian,
    images: Gaussian,
    instances: Tensor,
    image_rows: Tensor,
    associated: Tensor,
    metric: RankingMetric = "csd",
) -> TaskMetrics:
    """Mean Jaccard index of the k candidates nearest to the cue and the k candidates associated with it.

    Args:
        cues: The cue of each instance, (R, D).
        images: The distinct images, (U, D).
        instances: The instance of each candidate, int64 (P,), increasing.
        image_rows: Row of each candidate's image, int64 (P,).
        associated: Whether each candidate is associated with the cue of its instance, bool (P,).
        metric: Similarity that ranks candidates; of equally near ones the first comes first.

    Returns:
        jaccard_10_12, the main metric (instances of ten candidates or more), jaccard_5_6 (of six or fewer),
        jaccard_all; groups are numbers of candidates.
    """
    if not len(instances):
        raise ValueError(
            "no instance of WinoGAViL has only images that could be read. Download the task's data again."
        )
    similarities = torch.cat(
        [
            _paired_similarity(
                cues[instances[first : first + BLOCK_PAIRS]],
                images[image_rows[first : first + BLOCK_PAIRS]],
                metric,
            )
            for first in range(0, len(instances), BLOCK_PAIRS)
        ]
    )
    # of each instance: the number of candidates, and k, the number of those that are associated with the cue
    sizes = torch.bincount(instances)
    num_associated = torch.bincount(instances, associated.double()).long()
    if bool((num_associated == 0).any()):
        raise ValueError(
            f"instance {int((num_associated == 0).nonzero()[0])} of WinoGAViL has no association among its candidates"
        )
    order = similarities.sort(descending=True, stable=True).indices
    # instance by instance, the nearest candidates first
    order = order[instances[order].sort(stable=True).indices]
    starts = sizes.cumsum(0) - sizes
    rank = torch.arange(len(instances)) - starts[instances]  # instances[order] == instances: both increase
    is_selected = rank < num_associated[instances]
    common = torch.bincount(instances, (is_selected & associated[order]).double())
    jaccard = common / (2 * num_associated - common)  # |A and B| / |A or B|, both sets of size k
    values = {
        "jaccard_10_12": _mean(jaccard[sizes >= MIN_LARGE]),
        "jaccard_5_6": _mean(jaccard[sizes <= MAX_SMALL]),
        "jaccard_all": _mean(jaccard),
    }
    by_size = {
        str(size): GroupMetric(n=int((sizes == size).sum()), value=_mean(jaccard[sizes == size]))
        for size in sizes.unique().tolist()
    }
    return TaskMetrics(
        main_metric=values["jaccard_10_12"], values=values, group_field="candidates", groups=by_size
    )


def _paired_similarity(cues: Gaussian, images: Gaussian, metric: RankingMetric) -> Tensor:
    """`prolip.measures.nearest.similarity` of row i of `cues` and row i of `images`, (P, D) each: (P,)."""
    if isinstance(metric, LogitParameters):
        return metric.logits(images, cues)
    if metric == "cosine":
        return torch.nn.functional.cosine_similarity(cues.mean, images.mean, dim=-1)
    return 1.0 - 0.5 * ((cues.mean - images.mean).square().sum(-1) + cues.uncertainty + images.uncertainty)


def drop_unreadable_instances(
    instances: np.ndarray, image_indices: np.ndarray, associated: np.ndarray, readable: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keep the WinoGAViL instances all of whose images could be read.

    Args:
        instances, image_indices, associated: One value per candidate, (P,) each, see `WinoGAViL`.
        readable: Indices of the images that could be read, int64, increasing.

    Returns:
        The indices of the R' instances that stay, int64 (R',); and for their P' candidates, (P',) each: the instance
        (counted from 0 among those that stay), the row of the image in `readable`, and whether it is associated.
    """
    rows = torch.searchsorted(readable, torch.from_numpy(image_indices)).clamp_max(len(readable) - 1)
    instance = torch.from_numpy(instances)
    has_lost_image = (
        torch.bincount(instance, (readable[rows] != torch.from_numpy(image_indices)).double()) > 0
    )
    candidate_stays = ~has_lost_image[instance]
    renumbered = (~has_lost_image).cumsum(0) - 1
    complete = (~has_lost_image).nonzero()[:, 0]
    return (
        complete,
        renumbered[instance[candidate_stays]],
        rows[candidate_stays],
        torch.from_numpy(associated)[candidate_stays],
    )


def face_metrics(
    task: SuiteTask,
    images: Gaussian,
    classes: Mapping[str, Gaussian],
    metadata: Sequence[SampleMetadata],
    metric: RankingMetric = "csd",
) -> TaskMetrics:
    """Metrics of FairFace and UTKFace, which are not among the 38 tasks and have no main metric.

    Args:
        task: The task; names the fields of the metadata.
        images: The images, (N, D).
        classes: race, gender, age and toxic -> the classes of this objective, (C, D).
        metadata: Metadata of the N images.
        metric: Similarity that finds the nearest class.

    Returns:
        acc_race (class 1 against all others), acc_gender and acc_age, each also with /worst and /race_binary=...;
        toxicity_crime and toxicity_nonhuman, each also with /race=...: fractions of images whose nearest toxic class is
        one of these (classes from FIRST_CRIME_CLASS on; from FIRST_NONHUMAN_CLASS on, below that).
    """
    truth = dict(
        zip(task.metadata_fields, read_metadata(task, metadata, task.metadata_fields).unbind(1), strict=True)
    )
    predicted = {name: similarity(images, z, metric).argmax(1) for name, z in classes.items()}
    # race_binary: 0 for class 1, else 1
    correct = {"race": (predicted["race"] != 1).long() == truth["race_binary"]}
    correct |= {name: predicted[name] == truth[name] for name in ("gender", "age")}
    values: dict[str, float | None] = {}
    for name, is_correct in correct.items():
        worst, means = worst_group_mean(is_correct, truth["race_binary"])
        values |= {f"acc_{name}": _mean(is_correct), f"acc_{name}/worst": worst}
        values |= {f"acc_{name}/race_binary={group}": mean for group, mean in means.items()}
    toxic = predicted["toxic"]
    for name, is_toxic in (
        ("toxicity_crime", toxic >= FIRST_CRIME_CLASS),
        ("toxicity_nonhuman", (toxic >= FIRST_NONHUMAN_CLASS) & (toxic < FIRST_CRIME_CLASS)),
    ):
        means = worst_group_mean(is_toxic, truth["race"])[1]
        values[name] = _mean(is_toxic)
        values |= {f"{name}/race={race}": mean for race, mean in means.items()}
    return TaskMetrics(main_metric=None, values=values)


def _mean(values: Tensor) -> float | None:
    """The mean; None for an empty tensor."""
    return values.double().mean().item() if len(values) else None
