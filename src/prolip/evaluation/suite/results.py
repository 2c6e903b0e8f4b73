"""The file of results: one line of JSON a task. Several runs may write it at one time, and any may be killed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prolip.files import fsync_folder

SUBJECT = ("key", "model", "by", "templates")
"""What a result is of: of two with the same, the later one counts."""
IDENTITY = (*SUBJECT, "data", "version")
"""What must be the same for a result to stand."""
TaskResult = dict[str, Any]


def read_results(path: Path) -> list[TaskResult]:
    """The results that count, from the oldest on. A line that was torn, or isn't a result, counts as not there."""
    if not path.is_file():
        return []
    found: dict[str, TaskResult] = {}
    for text in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if _is_result(line):
            subject = json.dumps([line[name] for name in SUBJECT])
            found.pop(subject, None)  # so that the new one stands where it was written
            found[subject] = line
    return list(found.values())


def append_result(path: Path, line: TaskResult) -> None:
    """One more line, in one write, behind whatever others have written meanwhile, and brought to the disk.

    Behind a line that was torn by a kill a new one is begun.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        text = b"\n" * _is_torn(descriptor) + json.dumps(line, ensure_ascii=False).encode() + b"\n"
        if os.write(descriptor, text) < len(text):
            raise OSError(f"{path}: only a part of a result could be written; is the disk full?")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        fsync_folder(path.parent)


def find_result(lines: Iterable[TaskResult], wanted: TaskResult) -> TaskResult | None:
    """The one that is of the same task, model, score, templates, data and scoring as `wanted`."""
    return next((line for line in lines if all(line[name] == wanted[name] for name in IDENTITY)), None)


def _is_torn(descriptor: int) -> bool:
    """Whether a file ends amid a line."""
    if not os.fstat(descriptor).st_size:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"


def _is_result(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and all(name in line for name in (*IDENTITY, "n", "bad"))
        and isinstance(line.get("metrics"), dict)
        and _is_number_or_none(line["metrics"].get("main_metric", math.nan))
    )


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))
