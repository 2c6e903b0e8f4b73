"""Runs DataComp's 38 tasks one by one; finished results are read from the results file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from prolip.checks import require_choice
from prolip.console import format_number
from prolip.data.sample import SampleError
from prolip.data.source import compute_fingerprint
from prolip.data.sources.folder import iter_files
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.evaluation.positives import flatten_captions
from prolip.evaluation.suite import score
from prolip.evaluation.suite.results import TaskResult, append_result, find_result, read_results
from prolip.evaluation.suite.task_data import CaptionedImages, FaceImages, TaskData, open_task
from prolip.evaluation.suite.tasks import SuiteTask, get_tasks
from prolip.evaluation.suite.winogavil import WinoGAViL
from prolip.measures.nearest import SimilarityMetric
from prolip.zeroshot.prompts import embed_classes

SCORING_VERSION = 2
"""Version of the metrics and of the lines in the results file; results of other versions are computed again."""
RESULTS_FILE = "results.jsonl"


def evaluate_suite(
    embedder: BaseEmbedder,
    data: str | Path,
    out: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    metric: SimilarityMetric = "csd",
    templates: Sequence[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> list[TaskResult]:
    """Evaluate a model on DataComp's tasks (docs/evaluation.md describes the layout of the folder).

    Args:
        embedder: The model, and how to embed with it.
        data: The folder that holds the tasks as wds_<task>_test.
        out: The folder of results.jsonl. Results in it that have the same model, metric, templates, data and version
            are not computed again.
        tasks: Task ids or groups (imagenet, shifts, vtab, retrieval); None: the 38.
        metric: Similarity that finds the nearest class or item.
        templates: Replace the templates of all classification tasks; None: those of each task.
        report: Called with one line of text per task.

    Returns:
        One dict per task, in order: key, dataset, metrics (main_metric and details), n, bad {count, reasons, examples},
        seconds, and model, metric, templates, data, version. A task whose folder doesn't exist has "missing" instead of
        metrics, a task that failed has "error".

    Raises:
        FileNotFoundError: The folder doesn't exist, or holds none of the tasks.
    """
    require_choice(metric, get_args(SimilarityMetric), "metric")
    if not Path(data).is_dir():
        raise FileNotFoundError(
            f"{data} is not a folder. Pass the folder that holds the tasks as wds_<task>_test (docs/evaluation.md "
            "describes the layout)"
        )
    selected, path = get_tasks(tasks), Path(out) / RESULTS_FILE
    evaluator = _TaskEvaluator(embedder, metric, templates)
    results: list[TaskResult] = []
    for position, task in enumerate(selected, start=1):
        folder = task.find_folder(Path(data))
        result: TaskResult = {"key": task.key, "dataset": task.name}
        if folder is None:
            result["missing"] = str(Path(data) / task.folder)
        else:
            result |= {
                "model": embedder.identity, "metric": metric,
                "templates": None if templates is None else list(templates),
                "data": fingerprint_folder(folder), "version": SCORING_VERSION,
            }  # fmt: skip
            finished = find_result(read_results(path), result)
            result = evaluator.evaluate(task, folder, result) if finished is None else finished
            if finished is None and "metrics" in result:
                append_result(path, result)
        results.append(result)
        if report is not None:
            report(f"{position}/{len(selected)} {describe_result(result)}")
    if all("missing" in result for result in results):
        raise FileNotFoundError(
            f"{data} holds none of the {len(selected)} tasks; for example, {Path(data) / selected[0].folder} doesn't "
            "exist (docs/evaluation.md describes the layout)"
        )
    return results


def list_failures(results: Iterable[TaskResult]) -> list[str]:
    """List the tasks that failed; missing data is not a failure.

    Args:
        results: Results of `evaluate_suite`.

    Returns:
        One message per failed task.
    """
    return [f"{result['key']}: {result['error']}" for result in results if "error" in result]


def describe_result(result: Mapping[str, Any]) -> str:
    """Describe a result in one line of text.

    Args:
        result: One of those of `evaluate_suite`.

    Returns:
        The task's key with its main metric, its error, or the folder that is missing.
    """
    if "missing" in result:
        return f"{result['key']}: missing, {result['missing']} does not exist"
    if "error" in result:
        return f"{result['key']}: failed: {result['error']}"
    bad = f", {result['bad']['count']:,} bad" if result["bad"]["count"] else ""
    value = format_number(result["metrics"]["main_metric"], ".4f")
    return f"{result['key']}: {value} ({result['n']:,} samples{bad})"


@dataclass(frozen=True)
class _TaskEvaluator:
    """Evaluates tasks with one model, one similarity and, unless None, the same templates for all."""

    embedder: BaseEmbedder
    metric: SimilarityMetric
    templates: Sequence[str] | None

    def evaluate(self, task: SuiteTask, folder: Path, result: TaskResult) -> TaskResult:
        """Evaluate a task: `result` with metrics, n, bad and seconds added, or with the error that prevented them.

        result: what identifies the result (model, data and so on); it is not changed.
        Errors of data and of the model are caught, so that one bad task doesn't end the suite.
        """
        begin = time.perf_counter()
        try:
            data = open_task(task, folder, self.templates)
            metrics, encoded = self._compute_metrics(task, data)
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            return {**result, "error": " ".join(str(error).split())}
        return {
            **result,
            "metrics": metrics,
            "n": metrics["instances"] if isinstance(data, WinoGAViL) else len(encoded),
            "bad": _summarize_errors(encoded.errors),
            "seconds": round(time.perf_counter() - begin, 3),
        }

    def _compute_metrics(self, task: SuiteTask, data: TaskData) -> tuple[dict[str, Any], EncodedImages]:
        """Embed the data of a task; returns its metrics (by `score`) and the encoded images."""
        encoded = self.embedder.embed_images(data.source)
        images, metadata = encoded.images, encoded.metadata
        if isinstance(data, LabeledData):
            classes = embed_classes(self.embedder, data.class_names, data.templates)
            groups = (
                score.read_metadata(task, metadata, [task.group_field])[:, 0] if task.group_field else None
            )
            labels = data.labels(metadata)
            metrics = score.classification_metrics(task, images, labels, classes, groups, self.metric)
        elif isinstance(data, CaptionedImages):
            captions, image_of_text = flatten_captions(encoded)
            texts = self.embedder.embed_texts(captions)
            metrics = score.retrieval_metrics(images, texts, image_of_text, self.metric)
        elif isinstance(data, FaceImages):
            classes_by_objective = {
                objective: embed_classes(self.embedder, *prompts)
                for objective, prompts in data.prompts.items()
            }
            metrics = score.face_metrics(task, images, classes_by_objective, metadata, self.metric)
        else:
            metrics = self._winogavil_metrics(data, encoded)
        return metrics, encoded

    def _winogavil_metrics(self, data: WinoGAViL, encoded: EncodedImages) -> dict[str, Any]:
        """`score.winogavil_metrics` of the instances all of whose images could be read."""
        complete, instances, image_rows, associated = score.drop_unreadable_instances(
            data.instances, data.image_indices, data.associated, encoded.indices
        )
        cues = self.embedder.embed_texts([score.make_cue_prompt(cue) for cue in data.cues])
        return score.winogavil_metrics(
            cues[complete], encoded.images, instances, image_rows, associated, self.metric
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


def _summarize_errors(errors: Sequence[SampleError]) -> dict[str, Any]:
    """`bad` of a result: count, number of samples by reason, and the first three errors as text."""
    return {
        "count": len(errors),
        "reasons": dict(Counter(error.reason for error in errors)),
        "examples": [str(error) for error in errors[:3]],
    }
