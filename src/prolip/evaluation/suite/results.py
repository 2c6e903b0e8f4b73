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
    found: dict[str, TaskResult] = {}
    for text in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if _is_result(line):
            subject = json.dumps([line[name] for name in SUBJECT_KEYS])
            found.pop(subject, None)  # the order is that of the newest results
            found[subject] = line
    return list(found.values())


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
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        text = (
            b"\n" * _ends_with_incomplete_line(descriptor)
            + json.dumps(result, ensure_ascii=False).encode()
            + b"\n"
        )
        if os.write(descriptor, text) < len(text):
            raise OSError(f"{path}: a result was written only in part; is the disk full?")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        fsync_folder(path.parent)


def find_result(results: Iterable[TaskResult], wanted: TaskResult) -> TaskResult | None:
    """Find a result that can be reused.

    Args:
        results: Results of `read_results`.
        wanted: A dict with all `IDENTITY_KEYS`.

    Returns:
        The first result whose `IDENTITY_KEYS` equal those of `wanted`; None if there is none.
    """
    return next((line for line in results if all(line[key] == wanted[key] for key in IDENTITY_KEYS)), None)


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
