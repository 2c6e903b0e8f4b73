"""The suite: task after task, each result a line of a file, what is finished left alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from prolip.checks import require_choice
from prolip.data.sample import SampleError
from prolip.data.source import compute_fingerprint
from prolip.data.sources.folder import iter_files
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder, EncodedImages
from prolip.evaluation.formatting import format_number
from prolip.evaluation.positives import flatten_captions
from prolip.evaluation.suite import score
from prolip.evaluation.suite.read import CaptionedImages, FaceImages, TaskData, open_task
from prolip.evaluation.suite.results import TaskResult, append_result, find_result, read_results
from prolip.evaluation.suite.tasks import SuiteTask, get_tasks
from prolip.evaluation.suite.winogavil import WinoGAViL
from prolip.measures.nearest import SimilarityMetric
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes

VERSION = 1
"""Of the scoring: results of another version are made again."""
RESULTS = "results.jsonl"


def evaluate_suite(
    model: ProLIP,
    data: str | Path,
    out: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    by: SimilarityMetric = "csd",
    templates: Sequence[str] | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[TaskResult]:
    """Evaluate a model on the tasks that lie below `data`, in the layout of the 38 (docs/evaluation.md).

    tasks:     ids, or names of groups (imagenet, shifts, vtab, retrieval); None: the 38.
    templates: for all classification, instead of each task's own.
    cache:     where embeddings are kept, so that another score costs no inference; None: nowhere.
    tell:      is told one line a task.

    Returns one dict a task, in order. A finished one is also a line of `out`/results.jsonl: key, dataset, metrics
    (main_metric and details), n, bad, seconds, and what it is a result of: model, by, templates, data, version. As long
    as these are the same, a second run leaves it alone. A task whose folder isn't there has "missing" instead of
    metrics, one that failed has "error"; the others go on.
    """
    require_choice(by, get_args(SimilarityMetric), "by")
    if not Path(data).is_dir():
        raise FileNotFoundError(f"{data}: there is no such folder; the tasks lie below it as wds_<task>_test")
    say, chosen, path = tell or (lambda _: None), get_tasks(tasks), Path(out) / RESULTS
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    worker = _Worker(embedder, by, templates)
    results: list[TaskResult] = []
    for place, task in enumerate(chosen, start=1):
        folder = task.find_folder(Path(data))
        line: TaskResult = {"key": task.key, "dataset": task.name}
        if folder is None:
            line["missing"] = str(Path(data) / task.folder)
        else:
            line |= {
                "model": embedder.identity, "by": by, "templates": None if templates is None else list(templates),
                "data": folder_identity(folder), "version": VERSION,
            }  # fmt: skip
            kept = find_result(read_results(path), line)
            line = worker.judge(task, folder, line) if kept is None else kept
            if kept is None and "metrics" in line:
                append_result(path, line)
        results.append(line)
        say(f"{place}/{len(chosen)} {describe_result(line)}")
    if all("missing" in line for line in results):
        raise FileNotFoundError(
            f"{data}: none of the {len(chosen)} tasks lies there, as in {chosen[0].folder}"
        )
    return results


def list_failures(results: Iterable[TaskResult]) -> list[str]:
    """A sentence for each task that failed; a command that has any ends with an error. Missing data is no failure."""
    return [f"{line['key']}: {line['error']}" for line in results if "error" in line]


def describe_result(line: Mapping[str, Any]) -> str:
    """A result in one line."""
    if "missing" in line:
        return f"{line['key']}: missing, {line['missing']} is not there"
    if "error" in line:
        return f"{line['key']}: failed: {line['error']}"
    main = line["metrics"]["main_metric"]
    bad = f", {line['bad']['count']:,} bad" if line["bad"]["count"] else ""
    return f"{line['key']}: {format_number(main, '.4f')} ({line['n']:,} samples{bad})"


@dataclass(frozen=True)
class _Worker:
    """A task's folder -> its line, or the line that says why not."""

    embedder: Embedder
    by: SimilarityMetric
    templates: Sequence[str] | None

    def judge(self, task: SuiteTask, folder: Path, line: TaskResult) -> TaskResult:
        begin = time.perf_counter()
        try:
            opened = open_task(task, folder, self.templates)
            metrics, encoded = self._metrics(task, opened)
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            return {**line, "error": " ".join(str(error).split())}
        return {
            **line,
            "metrics": metrics,
            "n": metrics["instances"] if isinstance(opened, WinoGAViL) else len(encoded),
            "bad": _bad(encoded.errors),
            "seconds": round(time.perf_counter() - begin, 3),
        }

    def _metrics(self, task: SuiteTask, opened: TaskData) -> tuple[dict[str, Any], EncodedImages]:
        encoded = self.embedder.embed_images(opened.source)
        images, facts = encoded.images, encoded.metadata
        if isinstance(opened, LabeledData):
            classes = embed_classes(self.embedder, opened.class_names, opened.templates)
            groups = score.read_metadata(task, facts, [task.grouped_by])[:, 0] if task.grouped_by else None
            metrics = score.classification_metrics(task, images, opened.labels(facts), classes, groups, self.by)
        elif isinstance(opened, CaptionedImages):
            captions, image_of_text = flatten_captions(encoded)
            metrics = score.retrieval_metrics(images, self.embedder.embed_texts(captions), image_of_text, self.by)
        elif isinstance(opened, FaceImages):
            classes_of = {
                about: embed_classes(self.embedder, *prompts) for about, prompts in opened.prompts.items()
            }
            metrics = score.face_metrics(task, images, classes_of, facts, self.by)
        else:
            metrics = self._riddles(opened, encoded)
        return metrics, encoded

    def _riddles(self, opened: WinoGAViL, encoded: EncodedImages) -> dict[str, Any]:
        kept, rows, pictures, associated = score.drop_unreadable_instances(
            opened.rows, opened.pictures, opened.associated, encoded.indices
        )
        cues = self.embedder.embed_texts([score.make_cue_prompt(cue) for cue in opened.cues])
        return score.winogavil_metrics(cues[kept], encoded.images, rows, pictures, associated, self.by)


def folder_identity(folder: Path) -> str:
    """Of all files below a folder: their names, sizes and times of change."""
    stamps = [(name, (folder / name).stat()) for name in sorted(iter_files(folder))]
    return compute_fingerprint(
        *(ascii((name, status.st_size, status.st_mtime_ns)) for name, status in stamps)
    )


def _bad(bads: Sequence[SampleError]) -> dict[str, Any]:
    return {
        "count": len(bads),
        "reasons": dict(Counter(bad.reason for bad in bads)),
        "examples": [str(bad) for bad in bads[:3]],
    }
