"""The results file of the suite: JSON Lines, safe for concurrent writers and for killed ones."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from prolip.choices import RankBy
from prolip.configs import build_dataclass
from prolip.evaluation.result import check_field_types
from prolip.files import fsync_folder

SUBJECT_FIELDS = ("key", "model", "rank_by", "templates")
"""The subject of a result. Of two results with the same subject the later one counts."""
IDENTITY_FIELDS = (*SUBJECT_FIELDS, "data", "version")
"""What must be equal for a result to be reused instead of computed again."""


@dataclass(frozen=True, kw_only=True)
class GroupMetric:
    """Metric of a group of samples."""

    n: int
    """Number of samples, or of instances."""
    value: float | None
    """The metric; None: undefined."""


@dataclass(frozen=True, kw_only=True)
class TaskMetrics:
    """Metrics of a task. Values are fractions of 1, None where a metric is undefined."""

    main_metric: float | None
    """The value that the table of the 38 tasks shows."""
    values: dict[str, float | None]
    """Name -> value: the main metric under its own name, and the others."""
    group_field: str | None = None
    """What the groups differ in; None: there are no groups."""
    groups: dict[str, GroupMetric] = field(default_factory=dict)
    """Group -> its metric."""


@dataclass(frozen=True, kw_only=True)
class SuiteTaskResult:
    """Result of one task: its metrics, or why there are none. One line of the file."""

    key: str
    """Id of the task."""
    dataset: str
    """Name of the task."""
    model: str | None = None
    """Identity of the model; None if the data is missing."""
    rank_by: RankBy = "csd"
    """Similarity that finds the nearest class or item."""
    templates: tuple[str, ...] | None = None
    """Templates that replaced those of the task."""
    data: str | None = None
    """Fingerprint of the data; None if it is missing."""
    version: int = 0
    """Version of the metrics."""
    metrics: TaskMetrics | None = None
    """The metrics; None if the task was not finished."""
    n: int = 0
    """Number of samples (of WinoGAViL: instances) that were measured."""
    num_bad: int = 0
    """Bad samples, which were skipped."""
    bad_reasons: dict[str, int] = field(default_factory=dict)
    """Number of bad samples by reason."""
    bad_examples: tuple[str, ...] = ()
    """The first bad samples, as text."""
    seconds: float = 0.0
    """Time that the evaluation took."""
    missing: str | None = None
    """Folder that does not exist; None: it does."""
    error: str | None = None
    """Why the task failed; None: it didn't."""

    @property
    def main_metric(self) -> float | None:
        """The main metric; None if it is undefined, or the task is not finished."""
        return None if self.metrics is None else self.metrics.main_metric


def read_results(path: Path) -> list[SuiteTaskResult]:
    """Read the results of a file.

    Args:
        path: The JSON Lines file; it need not exist.

    Returns:
        The last result of each subject, oldest first. Incomplete lines and lines that are not results are skipped.
    """
    if not path.is_file():
        return []
    result_of_subject: dict[tuple[object, ...], SuiteTaskResult] = {}
    for line in path.read_bytes().split(b"\n"):
        result = _parse_result(line)
        if result is not None:
            subject = tuple(getattr(result, name) for name in SUBJECT_FIELDS)
            result_of_subject.pop(subject, None)  # so that the newest result is also the last one of the dict
            result_of_subject[subject] = result
    return list(result_of_subject.values())


def append_result(path: Path, result: SuiteTaskResult) -> None:
    """Append a result to a file, durably.

    The line is one O_APPEND write, so that concurrent writers don't interleave. After a line that a killed writer left
    incomplete, a new line is started.

    Args:
        path: The JSON Lines file; it is created with its folder if it doesn't exist.
        result: One task's result.

    Raises:
        OSError: The line could not be written completely.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        line = (
            b"\n" * _ends_with_incomplete_line(descriptor)
            + json.dumps(asdict(result), ensure_ascii=False).encode()
            + b"\n"
        )
        if os.write(descriptor, line) < len(line):
            raise OSError(
                f"{path}: only a part of a result was written; is the disk full? Free some space, then run the suite "
                "again"
            )
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        fsync_folder(path.parent)


def find_result(results: Iterable[SuiteTaskResult], identity: SuiteTaskResult) -> SuiteTaskResult | None:
    """Find a result that can be reused.

    Args:
        results: Results of `read_results`.
        identity: A result without metrics; only its `IDENTITY_FIELDS` are compared.

    Returns:
        The first result whose `IDENTITY_FIELDS` equal those of `identity`; None if there is none.
    """
    return next(
        (
            result
            for result in results
            if all(getattr(result, name) == getattr(identity, name) for name in IDENTITY_FIELDS)
        ),
        None,
    )


def _ends_with_incomplete_line(descriptor: int) -> bool:
    """Whether the last line of an open file lacks its newline; moves the read position."""
    if not os.fstat(descriptor).st_size:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"


def _parse_result(line: bytes) -> SuiteTaskResult | None:
    """Parse a line; None unless it is the result of a finished task with a valid main metric (finite or None)."""
    try:
        result: SuiteTaskResult = build_dataclass(SuiteTaskResult, json.loads(line), "line")
        check_field_types(result)
    except (ValueError, RecursionError):
        return None
    if result.metrics is None:
        return None
    main_metric = result.metrics.main_metric
    return result if main_metric is None or math.isfinite(main_metric) else None
