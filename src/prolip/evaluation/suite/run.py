"""Runs DataComp's 38 tasks one by one; finished results are read from the results file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prolip.console import format_number
from prolip.data.source import compute_fingerprint
from prolip.data.sources.folder import iter_files
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.evaluation.configs import SuiteConfig
from prolip.evaluation.positives import flatten_captions
from prolip.evaluation.ranking import Ranking, resolve_ranking
from prolip.evaluation.suite import score
from prolip.evaluation.suite.results import (
    SuiteTaskResult,
    TaskMetrics,
    append_result,
    find_result,
    read_results,
)
from prolip.evaluation.suite.table import SuiteResult
from prolip.evaluation.suite.task_data import CaptionedImages, FaceImages, TaskData, open_task
from prolip.evaluation.suite.tasks import SuiteTask, get_tasks
from prolip.evaluation.suite.winogavil import WinoGAViL
from prolip.zeroshot.prompts import embed_classes

SCORING_VERSION = 3
"""Version of the metrics and of the lines in the results file; results of other versions are computed again."""
RESULTS_FILE = "results.jsonl"


def evaluate_suite(
    embedder: BaseEmbedder,
    data: str | Path,
    out: str | Path,
    config: SuiteConfig | None = None,
    *,
    templates: Sequence[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> SuiteResult:
    """Evaluate a model on DataComp's tasks (docs/evaluation.md describes the layout of the folder).

    Args:
        embedder: The model, and how to embed with it.
        data: The folder that holds the tasks as wds_<task>_test.
        out: The folder of results.jsonl. Results in it that have the same model, similarity, templates, data and
            version are not computed again.
        config: The options; None: the defaults.
        templates: Replace the templates of all classification tasks; None: those of each task.
        report: Called with one line of text per task.

    Returns:
        The result, with one entry per task, in order.

    Raises:
        FileNotFoundError: The folder doesn't exist, or holds none of the tasks.
    """
    config = config or SuiteConfig()
    if not Path(data).is_dir():
        raise FileNotFoundError(
            f"{data} is not a folder. Pass the folder that holds the tasks as wds_<task>_test (docs/evaluation.md "
            "describes the layout)"
        )
    selected, path = get_tasks(config.tasks), Path(out) / RESULTS_FILE
    if not any(task.find_folder(Path(data)) for task in selected):
        raise FileNotFoundError(
            f"{data} holds none of the {len(selected)} tasks; for example, {Path(data) / selected[0].folder} doesn't "
            "exist (docs/evaluation.md describes the layout)"
        )
    ranking = resolve_ranking(config.rank_by, embedder.logit_parameters)
    evaluator = _TaskEvaluator(embedder, ranking, None if templates is None else tuple(templates))
    results: list[SuiteTaskResult] = []
    for position, task in enumerate(selected, start=1):
        results.append(evaluator.evaluate_or_read(task, Path(data), path))
        if report is not None:
            report(f"{position}/{len(selected)} {describe_result(results[-1])}")
    return SuiteResult.from_tasks(str(data), results)


def describe_result(result: SuiteTaskResult) -> str:
    """Describe a result in one line of text.

    Args:
        result: Result of a task.

    Returns:
        The task's key with its main metric, its error, or the folder that is missing.
    """
    if result.missing is not None:
        return f"{result.key}: missing, {result.missing} does not exist"
    if result.error is not None:
        return f"{result.key}: failed: {result.error}"
    bad = f", {result.num_bad:,} bad" if result.num_bad else ""
    return f"{result.key}: {format_number(result.main_metric, '.4f')} ({result.n:,} samples{bad})"


@dataclass(frozen=True)
class _TaskEvaluator:
    """Evaluates tasks with one model, one similarity and, unless None, the same templates for all."""

    embedder: BaseEmbedder
    ranking: Ranking
    templates: tuple[str, ...] | None

    def evaluate_or_read(self, task: SuiteTask, data: Path, path: Path) -> SuiteTaskResult:
        """The result of a task in the folder `data`: from the file `path` if it is there, else computed and added."""
        folder = task.find_folder(data)
        if folder is None:
            return SuiteTaskResult(key=task.key, dataset=task.name, missing=str(data / task.folder))
        result = SuiteTaskResult(
            key=task.key, dataset=task.name, model=self.embedder.identity, rank_by=self.ranking.rank_by,
            templates=self.templates, data=fingerprint_folder(folder), version=SCORING_VERSION,
        )  # fmt: skip
        finished = find_result(read_results(path), result)
        if finished is not None:
            return finished
        result = self.evaluate(task, folder, result)
        if result.metrics is not None:
            append_result(path, result)
        return result

    def evaluate(self, task: SuiteTask, folder: Path, result: SuiteTaskResult) -> SuiteTaskResult:
        """Evaluate a task: `result` with metrics, n, bad samples and seconds, or with the error that prevented them.

        result: what identifies the result (model, data and so on); it is not changed.
        Errors of data and of the model are caught, so that one bad task doesn't end the suite.
        """
        begin = time.perf_counter()
        try:
            data = open_task(task, folder, self.templates)
            metrics, encoded = self._compute_metrics(task, data)
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            return replace(result, error=" ".join(str(error).split()))
        is_winogavil = isinstance(data, WinoGAViL)  # its samples are instances with several images
        errors = encoded.errors
        return replace(
            result,
            metrics=metrics,
            n=sum(group.n for group in metrics.groups.values()) if is_winogavil else len(encoded),
            num_bad=len(errors),
            bad_reasons=dict(Counter(error.reason for error in errors)),
            bad_examples=tuple(str(error) for error in errors[:3]),
            seconds=round(time.perf_counter() - begin, 3),
        )

    def _compute_metrics(self, task: SuiteTask, data: TaskData) -> tuple[TaskMetrics, EncodedImages]:
        """Embed the data of a task; returns its metrics (by `score`) and the encoded images."""
        encoded = self.embedder.embed_images(data.source)
        images, metadata = encoded.images, encoded.metadata
        if isinstance(data, LabeledData):
            classes = embed_classes(self.embedder, data.class_names, data.templates)
            groups = (
                score.read_metadata(task, metadata, [task.group_field])[:, 0] if task.group_field else None
            )
            labels = data.labels(metadata)
            metrics = score.classification_metrics(task, images, labels, classes, groups, self.ranking.metric)
        elif isinstance(data, CaptionedImages):
            captions, image_of_text = flatten_captions(encoded)
            texts = self.embedder.embed_texts(captions)
            metrics = score.retrieval_metrics(images, texts, image_of_text, self.ranking.metric)
        elif isinstance(data, FaceImages):
            classes_by_objective = {
                objective: embed_classes(self.embedder, *prompts)
                for objective, prompts in data.prompts.items()
            }
            metrics = score.face_metrics(task, images, classes_by_objective, metadata, self.ranking.metric)
        else:
            metrics = self._winogavil_metrics(data, encoded)
        return metrics, encoded

    def _winogavil_metrics(self, data: WinoGAViL, encoded: EncodedImages) -> TaskMetrics:
        """`score.winogavil_metrics` of the instances all of whose images could be read."""
        complete, instances, image_rows, associated = score.drop_unreadable_instances(
            data.instances, data.image_indices, data.associated, encoded.indices
        )
        cues = self.embedder.embed_texts([score.make_cue_prompt(cue) for cue in data.cues])
        return score.winogavil_metrics(
            cues[complete], encoded.images, instances, image_rows, associated, self.ranking.metric
        )


def fingerprint_folder(folder: Path) -> str:
    """Fingerprint all files below a folder by their names, sizes and modification times.

    Args:
        folder: Folder of a task.

    Returns:
        A hash, equal while no file changes.
    """
    stats = [(name, (folder / name).stat()) for name in sorted(iter_files(folder))]
    return compute_fingerprint(*(ascii((name, stat.st_size, stat.st_mtime_ns)) for name, stat in stats))
