"""Interleaved timing of two implementations: median seconds, peak memory, and their ratios."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def compare_implementations(
    reference: Callable[[], Any], ours: Callable[[], Any], repeats: int
) -> dict[str, Any]:
    """Compare a reference with ours: one run each for memory and warm-up, then interleaved runs for time.

    Args:
        reference: The straightforward implementation.
        ours: The implementation of the package.
        repeats: Timed runs of each.

    Returns:
        reference_seconds, ours_seconds (medians), reference_mebibytes, ours_mebibytes (peaks; None where unknown),
        times_faster, times_smaller.
    """
    works = {"reference": reference, "ours": ours}
    result: dict[str, Any] = {f"{name}_mebibytes": measure_peak_memory(work) for name, work in works.items()}
    seconds = time_interleaved(works, repeats)
    result |= {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
    result["times_faster"] = result["reference_seconds"] / result["ours_seconds"]
    if result["ours_mebibytes"] is not None:
        result["times_smaller"] = result["reference_mebibytes"] / max(result["ours_mebibytes"], 0.1)
    return result


def time_interleaved(
    works: Mapping[str, Callable[[], Any]], repeats: int, done: Callable[[int], None] = lambda _: None
) -> dict[str, list[float]]:
    """Time functions in turn, so that all see the same noise.

    Args:
        works: By name.
        repeats: Rounds. Every second one runs backwards, so that none always follows a heavy one.
        done: Called with 1 after each run.

    Returns:
        Seconds of each run, by name.
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


def measure_peak_memory(work: Callable[[], Any]) -> float | None:
    """Measure the peak growth of the process's memory during a call in MiB; None where it can't be read (not Linux)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed earlier would be reused unseen
        CLEAR.write_text("5")  # resets the peak
        before = _field("VmRSS")
    except (OSError, AttributeError):
        before = None
    work()
    return None if before is None else (_field("VmHWM") - before) / 1024


def _field(name: str) -> float:
    """A line of /proc/self/status, in KiB."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1])
