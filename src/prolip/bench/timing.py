"""Two ways to do the same thing, timed in turn: seconds (median) and peak memory of each, and their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def compare(reference: Callable[[], Any], ours: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Warm both up once, then run them in turn `repeats` times. Seconds are medians, memory is the largest growth."""
    seconds: dict[str, list[float]] = {"reference": [], "ours": []}
    mebibytes: dict[str, list[float]] = {"reference": [], "ours": []}
    for turn in range(repeats + 1):
        for name, work in (("reference", reference), ("ours", ours)):
            elapsed, grown = _measure(work)
            if turn > 0:
                seconds[name].append(elapsed)
            if grown is not None:
                mebibytes[name].append(grown)
    result: dict[str, Any] = {}
    for name, elapsed_times in seconds.items():
        result[f"{name}_seconds"] = statistics.median(elapsed_times)
        result[f"{name}_mebibytes"] = max(mebibytes[name], default=None)
    result["times_faster"] = result["reference_seconds"] / result["ours_seconds"]
    if result["ours_mebibytes"] is not None:
        result["times_smaller"] = result["reference_mebibytes"] / max(result["ours_mebibytes"], 0.1)
    return result


def _measure(work: Callable[[], Any]) -> tuple[float, float | None]:
    before = _reset_peak()
    start = time.perf_counter()
    work()
    elapsed = time.perf_counter() - start
    return elapsed, None if before is None else (_field("VmHWM") - before) / 1024


def _reset_peak() -> float | None:
    """Set the process's peak memory back to what it holds now (Linux), and say how much that is, in KiB."""
    try:
        CLEAR.write_text("5")
        return _field("VmRSS")
    except OSError:
        return None


def _field(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1])
