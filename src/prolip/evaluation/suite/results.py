"""The results file of the suite: JSON Lines, safe for concurrent writers and for killed ones."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prolip.files import fsync_folder

SUBJECT_KEYS = ("key", "model", "metric", "templates")
"""The subject of a result. Of two results with the same subject the later one counts."""
IDENTITY_KEYS = (*SUBJECT_KEYS, "data", "version")
"""What must be equal for a result to be reused instead of computed again."""
TaskResult = dict[str, Any]
"""One line of the file, see `prolip.evaluation.suite.run.evaluate_suite`."""


def read_results(path: Path) -> list[TaskResult]:
    """Read the results of a file.

    Args:
        path: The JSON Lines file; it need not exist.

    Returns:
        The last result of each subject, oldest first. Incomplete lines and lines that are not results are skipped.
    """
    if not path.is_file():
        return []
    result_of_subject: dict[str, TaskResult] = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            result = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_result(result):
            subject = json.dumps([result[name] for name in SUBJECT_KEYS])
            result_of_subject.pop(subject, None)  # so that the newest result is also the last one of the dict
            result_of_subject[subject] = result
    return list(result_of_subject.values())


def append_result(path: Path, result: TaskResult) -> None:
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
            + json.dumps(result, ensure_ascii=False).encode()
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


def find_result(results: Iterable[TaskResult], identity: TaskResult) -> TaskResult | None:
    """Find a result that can be reused.

    Args:
        results: Results of `read_results`.
        identity: A dict with all `IDENTITY_KEYS`; other keys are not compared.

    Returns:
        The first result whose `IDENTITY_KEYS` equal those of `identity`; None if there is none.
    """
    return next(
        (result for result in results if all(result[key] == identity[key] for key in IDENTITY_KEYS)), None
    )


def _ends_with_incomplete_line(descriptor: int) -> bool:
    """Whether the last line of an open file lacks its newline; moves the read position."""
    if not os.fstat(descriptor).st_size:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"


def _is_result(line: Any) -> bool:
    """Whether a parsed line is a dict with all keys of a result and a valid main metric (a finite number or None)."""
    return (
        isinstance(line, dict)
        and all(name in line for name in (*IDENTITY_KEYS, "n", "bad"))
        and isinstance(line.get("metrics"), dict)
        and _is_number_or_none(line["metrics"].get("main_metric", math.nan))
    )


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))
