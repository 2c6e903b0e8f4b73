"""Two ways to do the same thing, timed in turn: seconds (median) and peak memory of each, and their ratios."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def compare(reference: Callable[[], Any], ours: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Run both once for memory and to warm up, then in turn `repeats` times for the median time."""
    works = {"reference": reference, "ours": ours}
    result: dict[str, Any] = {f"{name}_mebibytes": peak_growth(work) for name, work in works.items()}
    seconds = in_turn(works, repeats)
    result |= {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
    result["times_faster"] = result["reference_seconds"] / result["ours_seconds"]
    if result["ours_mebibytes"] is not None:
        result["times_smaller"] = result["reference_mebibytes"] / max(result["ours_mebibytes"], 0.1)
    return result


def in_turn(
    works: Mapping[str, Callable[[], Any]], repeats: int, done: Callable[[int], None] = lambda _: None
) -> dict[str, list[float]]:
    """Seconds of each work, `repeats` times, in turn, so that all see the same noise. `done(1)` after each.

    Every second round runs backwards: whoever comes after a heavy work would else always come after it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(repeats):
        for name in names[::-1] if turn % 2 else names:
            start = time.perf_counter()
            works[name]()
            seconds[name].append(time.perf_counter() - start)
            done(1)
    return seconds


def peak_growth(work: Callable[[], Any]) -> float | None:
    """MiB by which the process's memory rises at most while it works; None where that can't be read (not Linux)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else memory freed earlier would be used again, unseen
        CLEAR.write_text("5")  # the peak starts anew
        before = _field("VmRSS")
    except (OSError, AttributeError):
        before = None
    work()
    return None if before is None else (_field("VmHWM") - before) / 1024


def _field(name: str) -> float:
    """A line of /proc/self/status, in KiB."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1])
