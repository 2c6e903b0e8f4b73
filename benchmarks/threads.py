"""Benchmark of the choice of threads for training or embedding: alone, and beside a process that keeps a core busy."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch

from benchmarks.timing import time_interleaved
from benchmarks.train import SIZES_WITH_RECIPE, PackageStep, make_setup
from prolip.checks import require_choice, require_positive_int
from prolip.console import make_table, print_tables
from prolip.model.inference import MEASURED
from prolip.preprocessing.images import normalize
from prolip.threads import choose_threads, list_thread_counts, use_threads

BUSY = "import os\nos.nice(19)\nwhile True: pass"
CONDITIONS = {"alone": False, "beside a busy process at nice 19": True}
Work = Literal["training", "embedding"]
"""training: steps of the size's recipe. embedding: batches of images, of which a few choose the threads."""
STEPS = 1
"""Steps of each timed run. Beside a busy process one takes seconds."""


@dataclass(frozen=True, kw_only=True)
class ThreadRates:
    """Steps per second by number of threads, and how the choice compares.

    Attributes:
        rates: Steps per second by number of threads.
        chosen: The number that was chosen by measuring.
        of_best: Rate of the chosen number as a fraction of the best.
        of_one: Rate of the chosen number as a multiple of that of one thread.
    """

    rates: dict[int, float]
    chosen: int
    of_best: float
    of_one: float


def run(*, size: str = "miniature", work: Work = "training", repeats: int = 8) -> dict[str, ThreadRates]:
    """Choose a number of threads and time all numbers, under each condition.

    Args:
        size: A size with a recipe.
        work: What is timed.
        repeats: Interleaved runs of each number.

    Returns:
        The rates, by condition.
    """
    require_choice(size, SIZES_WITH_RECIPE, "--size")
    require_choice(work, get_args(Work), "--work")
    require_positive_int(repeats, "--repeats")
    step, probe = make_steps(size, work)
    counts = list_thread_counts()
    results = {}
    for condition, is_busy in CONDITIONS.items():
        with _busy_process(is_busy):
            chosen = choose_threads(counts, probe).threads
            times = time_interleaved(
                {str(count): partial(_run_steps, step, count) for count in counts}, repeats, group=condition
            )
        rates = {count: STEPS / statistics.mean(times[str(count)]) for count in counts}
        results[condition] = ThreadRates(
            rates=rates, chosen=chosen, of_best=rates[chosen] / max(rates.values()), of_one=rates[chosen] / rates[1]
            if 1 in rates else 1.0,
        )  # fmt: skip
    return results


def make_steps(size: str, work: Work) -> tuple[Callable[[], object], Callable[[], object]]:
    """Make the step that is timed, and the one that the package times to choose a number of threads.

    Args:
        size: A size with a recipe.
        work: "training": both are a training step. "embedding": a batch of images, and a few images of it.

    Returns:
        Two functions without arguments.
    """
    config, model, batch, _ = make_setup(size, None)
    if work == "training":
        step = PackageStep(config, model, batch)
        return step, step
    model.eval()
    pixels = normalize(batch.pixels, model.config.image.preprocessing)
    encode = torch.no_grad()(model.encode_image)
    return partial(encode, pixels), partial(encode, pixels[:MEASURED])


def print_result(results: dict[str, ThreadRates]) -> None:
    """Print what `run` returned as a table."""
    counts = list(next(iter(results.values())).rates)
    table = make_table(
        "steps per second, means",
        ("condition",),
        (
            *(f"{count} thread{'s' * (count > 1)}" for count in counts),
            "chosen",
            "of the best",
            "of one thread's",
        ),
    )
    for condition, result in results.items():
        rates = [f"{rate:.2f}" for rate in result.rates.values()]
        table.add_row(condition, *rates, str(result.chosen), f"{result.of_best:.2f}", f"{result.of_one:.2f}")
    print_tables([table])


def _run_steps(step: Callable[[], object], count: int) -> None:
    """Take STEPS steps with a number of threads."""
    with use_threads(count):
        for _ in range(STEPS):
            step()


@contextmanager
def _busy_process(is_busy: bool) -> Iterator[None]:
    """Keep a core busy with a process of the lowest priority during the block, if `is_busy`."""
    if not is_busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            yield
        finally:
            process.kill()
