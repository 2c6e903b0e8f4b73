"""How many threads torch uses on the CPU: measured on the work itself, so that other processes count.

OpenMP's threads wait for each other several times per layer. If another process takes one of the cores, even at low
priority, all of them wait for it, and one thread can be several times faster than one per core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from prolip.checks import join_names

ROUNDS = 3
"""How often each number of threads is timed. Numbers take turns, so that noise meets all of them."""
MIN_SECONDS = 0.2
"""Least duration of one timing: several steps, if they are short."""
TOLERANCE = 1.05
"""More threads must be faster by this factor: fewer leave cores to others, and small differences are noise."""
MEASURED_BATCH = 2
"""The batch (from 0) of inference at which threads are measured: fewer batches take no longer than the measurement."""
FIXED_BY = "OMP_NUM_THREADS"
"""The variable of the environment by which users choose the number of threads of all programs."""


@dataclass(frozen=True)
class ThreadChoice:
    """A number of threads, and why.

    Attributes:
        threads: The number.
        seconds: Mean seconds per step by number of threads; empty: not measured.
    """

    threads: int
    seconds: dict[int, float]

    def describe(self) -> str:
        """One line for a user."""
        times = [f"{seconds:.3g} s with {threads}" for threads, seconds in self.seconds.items()]
        return f"threads: {self.threads} (a step takes {join_names(times)})"


def list_thread_counts() -> list[int]:
    """Numbers of threads that are worth measuring: powers of two, and the number of cores of this process.

    Returns:
        Increasing; the present number alone if the user has chosen it (OMP_NUM_THREADS).
    """
    if FIXED_BY in os.environ:
        return [torch.get_num_threads()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores})


def choose_threads(
    counts: Sequence[int], run_step: Callable[[], object], max_steps: int = 2**62
) -> ThreadChoice:
    """Time steps with each number of threads, and choose the least number that is about as fast as the best.

    Args:
        counts: Numbers of threads, increasing.
        run_step: Takes one step. It is not called if there is only one number.
        max_steps: Largest number of steps, if that is at least one per timing and one before.

    Returns:
        The choice. The number of threads of the process is as before.
    """
    if len(counts) == 1:
        return ThreadChoice(counts[0], {})
    limit = max(1, (max_steps - 1) // (ROUNDS * len(counts)))
    elapsed, steps = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0)
    with use_threads(counts[-1]):
        run_step()  # memory, caches, worker processes
        for turn in range(ROUNDS):
            for count in counts if turn % 2 == 0 else reversed(counts):
                torch.set_num_threads(count)
                start, seconds, last = time.perf_counter(), 0.0, steps[count] + limit
                while seconds < MIN_SECONDS and steps[count] < last:
                    run_step()
                    steps[count] += 1
                    seconds = time.perf_counter() - start
                elapsed[count] += seconds
    means = {count: elapsed[count] / steps[count] for count in counts}
    best = min(means.values())
    return ThreadChoice(next(count for count in counts if means[count] <= TOLERANCE * best), means)


class BatchThreads(ExitStack):
    """The threads of inference on many batches: measured at one of the first, and as before after the block.

    Args:
        device: Only the CPU's threads are measured.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._next_batch = 0
        self._is_measured = device.type == "cpu"

    def start_batch(self, run_step: Callable[[], object]) -> None:
        """Call it before each batch.

        Args:
            run_step: Computes some of the batch, to be timed.
        """
        if self._is_measured and self._next_batch == MEASURED_BATCH:
            counts = list_thread_counts()
            choice = choose_threads(counts, run_step, 1 + ROUNDS * len(counts))
            self.enter_context(use_threads(choice.threads))
        self._next_batch += 1


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Use a number of threads inside the block, and as many as before after it.

    Args:
        count: Threads.

    Yields:
        None.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
