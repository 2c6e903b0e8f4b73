"""Benchmark of all-pairs inclusion in CPU time per triple, on one thread: compiled, by dimension, by pair."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.measures import broadcast_inclusion, random_gaussians
from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.gaussian import Gaussian
from prolip.measures import inclusion_kernel, inclusion_matrix
from prolip.threads import use_threads

COMPILED, OURS, BY_PAIR = "torch.compile of the definition", "inclusion_matrix", "its kernel for few pairs"
LOG_VARS = (-10.0, -8.0)
"""Means of the log-variances of the two sides; their standard deviation is 1."""

TILE, CALLS = (64, 1024), 100
"""A tile of pairs whose buffers fit into the cache, and calls of a pass that are timed together."""
PASSES = {"outer sum": 2, "squared difference": 1, "add quotient": 2, "multiply": 1, "divide": 1}
"""The passes of a dimension, and how often each is made."""


@dataclass(frozen=True, kw_only=True)
class InclusionTimes:
    """CPU time by implementation.

    Attributes:
        rows, columns, dimensions: Of the problem; a triple is a row, a column and a dimension.
        instructions: The vector instructions that torch uses: AVX2, AVX512.
        nanoseconds: Per triple, medians.
        times_faster: Than the first.
        passes: Nanoseconds per triple of each kind of pass over a tile in cache (PASSES), one kind at a time.
    """

    rows: int
    columns: int
    dimensions: int
    instructions: str
    nanoseconds: dict[str, float]
    times_faster: dict[str, float]
    passes: dict[str, float]


def run(*, rows: int = 64, columns: int = 4000, dimensions: int = 768, repeats: int = 5) -> InclusionTimes:
    """Time all-pairs inclusion on one thread by the processor's clock, which other processes disturb least.

    Compilation is not timed. ATEN_CPU_CAPABILITY=avx2 in the environment restricts both to AVX2.

    Args:
        rows: Gaussians on one side.
        columns: Gaussians on the other side.
        dimensions: D.
        repeats: Interleaved runs of each.

    Returns:
        The times.

    Raises:
        ValueError: A value is out of range, or there is no C++ compiler for the reference.
    """
    sizes = {"--rows": rows, "--columns": columns, "--dimensions": dimensions, "--repeats": repeats}
    for option, value in sizes.items():
        require_positive_int(value, option)
    if not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        raise ValueError("the reference needs a C++ compiler (c++, g++ or clang++), and none is on the PATH")
    with use_threads(1):
        works = make_works(rows, columns, dimensions)
        for work in works.values():
            work()
        times = time_interleaved(works, repeats, clock=time.process_time)
        passes = time_passes(repeats)
    seconds = {name: statistics.median(runs) for name, runs in times.items()}
    return InclusionTimes(
        rows=rows, columns=columns, dimensions=dimensions,
        instructions=torch.backends.cpu.get_cpu_capability(),
        nanoseconds={name: 1e9 * value / (rows * columns * dimensions) for name, value in seconds.items()},
        times_faster={name: seconds[COMPILED] / value for name, value in seconds.items()},
        passes=passes,
    )  # fmt: skip


def make_works(rows: int, columns: int, dimensions: int) -> dict[str, Callable[[], Tensor]]:
    """The implementations, on the same random Gaussians as `measures`; each returns H (rows, columns)."""
    import torch._inductor.config as inductor

    generator = torch.Generator().manual_seed(0)
    a, b = (
        random_gaussians(count, dimensions, generator=generator, log_var=log_var)
        for count, log_var in zip((rows, columns), LOG_VARS, strict=True)
    )
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        inductor.cpp.simdlen = 256  # it looks at the processor, not at ATEN_CPU_CAPABILITY
    compiled: Callable[[Gaussian, Gaussian], Tensor] = torch.compile(broadcast_inclusion, fullgraph=True)
    return {
        COMPILED: partial(compiled, a, b),
        OURS: partial(inclusion_matrix, a, b),
        BY_PAIR: partial(_sum_by_pair, a, b),
    }


def time_passes(repeats: int) -> dict[str, float]:
    """Time each pass of `_sum_by_dimension` alone: nanoseconds per triple, for as many passes as a dimension has."""
    column, row = torch.rand(TILE[0], 1) + 0.5, torch.rand(TILE[1]) + 0.5
    out, other, total = (torch.ones(TILE) for _ in range(3))
    square_difference = torch.ops.aten.mse_loss.out
    calls: dict[str, Callable[[], object]] = {
        "outer sum": lambda: torch.add(row, column, alpha=2, out=out),
        "squared difference": lambda: square_difference(row, column, 0, out=out),
        "add quotient": lambda: total.addcdiv_(out, other),
        "multiply": lambda: total.mul_(other),
        "divide": lambda: total.div_(other),
    }

    def call_often(call: Callable[[], object]) -> None:
        for _ in range(CALLS):
            call()

    works = {name: partial(call_often, call) for name, call in calls.items()}
    times = time_interleaved(works, 1 + repeats, clock=time.process_time)
    triples = CALLS * TILE[0] * TILE[1]
    return {name: 1e9 * PASSES[name] * statistics.median(runs[1:]) / triples for name, runs in times.items()}


def print_result(result: InclusionTimes) -> None:
    """Print what `run` returned as a table."""
    size = f"{result.rows} x {result.columns} x {result.dimensions}"
    title = f"{size}, one thread, {result.instructions}: CPU time, medians"
    rows = [
        (name, f"{value:.2f}", f"{result.times_faster[name]:.2f}")
        for name, value in result.nanoseconds.items()
    ]
    passes = [(f"{name} x {PASSES[name]}", f"{value:.3f}") for name, value in result.passes.items()]
    passes.append(("all", f"{sum(result.passes.values()):.3f}"))
    tables = [
        make_table(title, ["what"], ["ns per triple", "times faster"], rows),
        make_table(f"passes over a tile of {TILE[0]} x {TILE[1]}", ["passes"], ["ns per triple"], passes),
    ]
    print_tables(tables)


def _sum_by_pair(a: Gaussian, b: Gaussian) -> Tensor:
    """H by the kernel that `inclusion_matrix` uses for few pairs."""
    most = inclusion_kernel.MIN_PAIRS
    try:
        inclusion_kernel.MIN_PAIRS = len(a) * len(b) + 1
        return inclusion_matrix(a, b)
    finally:
        inclusion_kernel.MIN_PAIRS = most
