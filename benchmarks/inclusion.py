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
SPREADS = (-10.0, -8.0)
"""Means of the log-variances of the two sides; their standard deviation is 1."""


@dataclass(frozen=True, kw_only=True)
class InclusionTimes:
    """CPU time by implementation.

    Attributes:
        rows, columns, dimensions: Of the problem; a triple is a row, a column and a dimension.
        instructions: The vector instructions that torch uses: AVX2, AVX512.
        nanoseconds: Per triple, medians.
        times_faster: Than the first.
    """

    rows: int
    columns: int
    dimensions: int
    instructions: str
    nanoseconds: dict[str, float]
    times_faster: dict[str, float]


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
    seconds = {name: statistics.median(runs) for name, runs in times.items()}
    return InclusionTimes(
        rows=rows, columns=columns, dimensions=dimensions,
        instructions=torch.backends.cpu.get_cpu_capability(),
        nanoseconds={name: 1e9 * value / (rows * columns * dimensions) for name, value in seconds.items()},
        times_faster={name: seconds[COMPILED] / value for name, value in seconds.items()},
    )  # fmt: skip


def make_works(rows: int, columns: int, dimensions: int) -> dict[str, Callable[[], Tensor]]:
    """The implementations, on the same random Gaussians as `measures`; each returns H (rows, columns)."""
    import torch._inductor.config as inductor

    generator = torch.Generator().manual_seed(0)
    a, b = (
        random_gaussians(count, dimensions, generator=generator, log_var=log_var)
        for count, log_var in zip((rows, columns), SPREADS, strict=True)
    )
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        inductor.cpp.simdlen = 256  # it looks at the processor, not at ATEN_CPU_CAPABILITY
    compiled: Callable[[Gaussian, Gaussian], Tensor] = torch.compile(broadcast_inclusion, fullgraph=True)
    return {
        COMPILED: partial(compiled, a, b),
        OURS: partial(inclusion_matrix, a, b),
        BY_PAIR: partial(_sum_by_pair, a, b),
    }


def print_result(result: InclusionTimes) -> None:
    """Print what `run` returned as a table."""
    size = f"{result.rows} x {result.columns} x {result.dimensions}"
    title = f"{size}, one thread, {result.instructions}: CPU time, medians"
    rows = [
        (name, f"{value:.2f}", f"{result.times_faster[name]:.2f}")
        for name, value in result.nanoseconds.items()
    ]
    print_tables([make_table(title, ["what"], ["ns per triple", "times faster"], rows)])


def _sum_by_pair(a: Gaussian, b: Gaussian) -> Tensor:
    """H by the kernel that `inclusion_matrix` uses for few pairs."""
    most = inclusion_kernel.MIN_PAIRS
    try:
        inclusion_kernel.MIN_PAIRS = len(a) * len(b) + 1
        return inclusion_matrix(a, b)
    finally:
        inclusion_kernel.MIN_PAIRS = most
