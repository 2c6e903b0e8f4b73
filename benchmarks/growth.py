"""Benchmark of growth: time and memory at several sizes, against what the mathematics predicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.growth_works import Work, list_works
from benchmarks.timing import measure_peak_memory, require_scale_and_repeats, time_interleaved
from prolip.console import MISSING, make_table, print_tables
from prolip.progress import progress_bar

MIN_MEBIBYTES = 1.0
"""Less is noise of the allocator, and is not fitted."""
TOLERANCE = 0.25
"""By how much a fitted exponent may be larger than the predicted one before the table marks it."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Time and memory of one work at several sizes.

    Attributes:
        quantity: What grows.
        work: What is done.
        sizes: The sizes.
        seconds: Of the fastest run at each size, because noise only slows.
        mebibytes: Peak growth of memory in one call at each size; None where it is unknown (macOS).
        time_exponent: Slope of log seconds over log size.
        memory_exponent: The same of memory; None where it is unknown or too small to be measured.
        predicted_time_exponent: Slope of the number of operations.
        predicted_memory_exponent: Of the largest tensors that are needed.
    """

    quantity: str
    work: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    mebibytes: tuple[float, ...] | None
    time_exponent: float
    memory_exponent: float | None
    predicted_time_exponent: float
    predicted_memory_exponent: float


def run(*, scale: float = 1.0, repeats: int = 5) -> list[Growth]:
    """Time each work at its sizes, in turn.

    Args:
        scale: Factor of the sizes, except those of towers.
        repeats: Interleaved runs of each size.

    Returns:
        One `Growth` per work.
    """
    require_scale_and_repeats(scale, repeats, max_scale=4)
    works = list_works(scale)
    with progress_bar("measuring", len(works), "works") as advance:
        results = []
        for work in works:
            results.append(measure_growth(work, repeats))
            advance(1)
    return results


def measure_growth(work: Work, repeats: int) -> Growth:
    """Time a work and measure its memory at all of its sizes.

    Args:
        work: The work.
        repeats: Interleaved runs of each size.

    Returns:
        Time and memory, with the fitted and the predicted exponents.
    """
    with TemporaryDirectory() as folder:
        workloads: dict[str, Callable[[], Any]] = {}
        for size in work.sizes:
            own_folder = Path(folder, str(size))
            own_folder.mkdir()
            workloads[f"{size}"] = work.prepare(size, own_folder)
        for function in workloads.values():  # warm up
            function()
        memory = [measure_peak_memory(function) for function in workloads.values()]
        times = time_interleaved(workloads, repeats, group=f"{work.quantity}: {work.name}")
    seconds = tuple(min(values) for values in times.values())
    mebibytes = tuple(value for value in memory if value is not None)
    is_measurable = len(mebibytes) == len(work.sizes) and min(mebibytes) >= MIN_MEBIBYTES
    return Growth(
        quantity=work.quantity,
        work=work.name,
        sizes=work.sizes,
        seconds=seconds,
        mebibytes=mebibytes if len(mebibytes) == len(work.sizes) else None,
        time_exponent=fit_exponent(work.sizes, seconds),
        memory_exponent=fit_exponent(work.sizes, mebibytes) if is_measurable else None,
        predicted_time_exponent=fit_exponent(work.sizes, [work.operations(size) for size in work.sizes]),
        predicted_memory_exponent=work.memory_exponent,
    )


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values = c * size ** exponent by least squares of the logarithms.

    Args:
        sizes: Above 0, at least two different ones.
        values: Above 0, one per size.

    Returns:
        The exponent.
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def print_result(result: Sequence[Growth]) -> None:
    """Print what `run` returned as a table."""
    table = make_table(
        "fastest runs; exponents of the size, fitted and predicted",
        ("quantity", "work", "sizes"),
        ("seconds", "time", "predicted", "MiB", "memory", "predicted"),
        caption=f"*: grows faster than predicted by more than {TOLERANCE:g} in the exponent",
    )
    for growth in result:
        table.add_row(
            growth.quantity, growth.work, f"{growth.sizes[0]:,} to {growth.sizes[-1]:,}",
            f"{growth.seconds[0]:.3g} to {growth.seconds[-1]:.3g}",
            _format(growth.time_exponent, growth.predicted_time_exponent), f"{growth.predicted_time_exponent:.2f}",
            MISSING if growth.mebibytes is None else f"{growth.mebibytes[0]:.3g} to {growth.mebibytes[-1]:.3g}",
            _format(growth.memory_exponent, growth.predicted_memory_exponent),
            f"{growth.predicted_memory_exponent:.2f}",
        )  # fmt: skip
    print_tables([table], width=140)


def _format(exponent: float | None, predicted: float) -> str:
    if exponent is None:
        return MISSING
    return f"{exponent:.2f}" + ("*" if exponent > predicted + TOLERANCE else "")
