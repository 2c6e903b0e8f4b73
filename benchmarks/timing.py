"""Interleaved timing of two implementations: median seconds, peak memory, and their ratios."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.records import record_runs
from prolip.checks import require_positive_int

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
"""Linux only: memory of this process, and the file that resets its peak."""


def compare_implementations(
    reference: Callable[[], Any], ours: Callable[[], Any], repeats: int, group: str = ""
) -> dict[str, Any]:
    """Compare the time and memory of two implementations.

    Each runs once for memory and warm-up, then both are timed in interleaved runs.

    Args:
        reference: The straightforward implementation.
        ours: The implementation of the package.
        repeats: Timed runs of each.
        group: What is compared, for the records.

    Returns:
        reference_seconds, ours_seconds (medians), reference_mebibytes, ours_mebibytes (peaks; None where unknown),
        times_faster, and times_smaller where memory is known.
    """
    implementations = {"reference": reference, "ours": ours}
    result: dict[str, Any] = {
        f"{name}_mebibytes": measure_peak_memory(run) for name, run in implementations.items()
    }
    seconds = time_interleaved(implementations, repeats, group=group)
    result |= {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
    result["times_faster"] = result["reference_seconds"] / result["ours_seconds"]
    if result["ours_mebibytes"] is not None:
        # at least 0.1 MiB: ours may need no more memory than was free already
        result["times_smaller"] = result["reference_mebibytes"] / max(result["ours_mebibytes"], 0.1)
    return result


def time_interleaved(
    workloads: Mapping[str, Callable[[], Any]],
    repeats: int,
    advance: Callable[[int], None] = lambda _: None,
    group: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time functions in turn, so that all see the same noise of the machine, and keep the runs for the records.

    Args:
        workloads: Functions by name; each is called once per round. Records hold ratios to the first.
        repeats: Rounds. Every second round has the reverse order, so that no function always follows a heavy one.
        advance: Called with 1 after each run, for a progress bar.
        group: What is timed, for the records.
        clock: Seconds now; `time.process_time` is CPU time, which other processes disturb least.

    Returns:
        Seconds of each run, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in workloads}
    names = list(workloads)
    for turn in range(repeats):
        for name in names[::-1] if turn % 2 else names:
            start = clock()
            workloads[name]()
            seconds[name].append(clock() - start)
            advance(1)
    record_runs(group, seconds)
    return seconds


def measure_peak_memory(function: Callable[[], Any]) -> float | None:
    """Call a function; returns the peak growth of this process's memory in MiB, None where it is unknown (macOS)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed earlier would be reused unseen
        CLEAR.write_text("5")  # resets the peak
        before = _read_memory("VmRSS")
    except (OSError, AttributeError):
        before = None
    function()
    return None if before is None else (_read_memory("VmHWM") - before) / 1024


def require_scale_and_repeats(scale: float, repeats: int, max_scale: float) -> None:
    """Raise ValueError unless `scale` is above 0 and at most `max_scale`, and `repeats` is at least 1."""
    if not 0 < scale <= max_scale:
        raise ValueError(f"--scale must be above 0 and at most {max_scale:g}, not {scale}")
    require_positive_int(repeats, "--repeats")


def _read_memory(name: str) -> float:
    """A value of /proc/self/status in KiB: "VmRSS" is the memory in use, "VmHWM" its peak."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1])
