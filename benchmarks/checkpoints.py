"""Benchmark of checkpoints: how long a save stops training, in the background and blocking, against a plain copy."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.records import record_runs
from benchmarks.train import PackageStep, make_setup
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.progress import progress_bar
from prolip.training.checkpointer import Checkpointer
from prolip.training.checkpointing import CheckpointContent
from prolip.training.config import CheckpointConfig
from prolip.training.optimizer import get_optimizer_tensors

SIZE, BATCH = "small", 4
WORKS = ("copy", "async", "blocking", "step", "step_during_write")
"""What is timed. step_during_write: the step after an async save, while the thread writes."""


def run(
    *, size: str = SIZE, batch: int = BATCH, repeats: int = 15, folder: Path | None = None
) -> dict[str, float]:
    """Time saves of a model in training, in turn with a plain copy of its tensors and with steps.

    Args:
        size: Model size.
        batch: Samples per step.
        repeats: Interleaved runs of each workload.
        folder: Where checkpoints are written, to a temporary folder; None: the system's folder for those.

    Returns:
        threads, repeats, tensors, mebibytes of a checkpoint, and for each of WORKS the seconds (medians).
    """
    if batch < 2:
        raise ValueError(f"--batch must be at least 2, not {batch}")
    require_positive_int(repeats, "--repeats")
    config, model, batch_data, _ = make_setup(size, batch)
    step = PackageStep(config, model, batch_data)
    step()
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        progress_bar("measuring", repeats, "rounds") as advance,
    ):
        bench = SaveBench(step, Path(place))
        bench.measure_round(
            backwards=False
        )  # allocates the buffers, and reads in what is imported at the first save
        rounds = []
        for turn in range(repeats):
            rounds.append(bench.measure_round(backwards=turn % 2 == 1))
            advance(1)
    record_runs("checkpoint", {name: [times[name] for times in rounds] for name in WORKS})
    tensors = bench.get_tensors()
    return {
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "tensors": len(tensors),
        "mebibytes": sum(value.nbytes for value in tensors.values()) / 2**20,
        **{name: statistics.median(times[name] for times in rounds) for name in WORKS},
    }


class SaveBench:
    """A training step and three ways to keep its result: a plain copy, a save in the background, a blocking save.

    Args:
        step: The step.
        folder: For the checkpoints.
    """

    def __init__(self, step: PackageStep, folder: Path) -> None:
        self._step = step
        self._copies = {name: torch.empty_like(value) for name, value in self.get_tensors().items()}
        self._savers = {
            name: Checkpointer(folder / name, CheckpointConfig(keep_last=1, async_save=name == "async"))
            for name in ("async", "blocking")
        }

    def get_tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint, by name: weights and the optimizer's state."""
        tensors = {f"module.{name}": value for name, value in self._step.module.state_dict().items()}
        optimizer = get_optimizer_tensors(self._step.optimizer)
        return tensors | {f"optimizer.{name}": value for name, value in optimizer.items()}

    def measure_round(self, backwards: bool) -> dict[str, float]:
        """Time each of WORKS once.

        Args:
            backwards: Reverse the order, so that none always follows a heavy one.

        Returns:
            Seconds by name.
        """
        seconds: dict[str, float] = {}

        def measure_async() -> None:
            """Time the call, then a step; nothing else is timed before the thread has ended."""
            seconds["async"] = _time(lambda: self.save("async"))
            seconds["step_during_write"] = _time(self._step)
            self._savers["async"].wait()

        parts: list[Callable[[], object]] = [
            lambda: seconds.update(step=_time(self._step)),
            lambda: seconds.update(copy=_time(self.copy)),
            measure_async,
            lambda: seconds.update(blocking=_time(lambda: self.save("blocking"))),
        ]
        for part in reversed(parts) if backwards else parts:
            part()
        return seconds

    def copy(self) -> None:
        """Copy the tensors into memory that was allocated before: the least that a save in the background takes."""
        for name, value in self.get_tensors().items():
            self._copies[name].copy_(value)

    def save(self, name: str) -> None:
        """Save a checkpoint of the current step, as the trainer does.

        Args:
            name: async or blocking.
        """
        content = CheckpointContent(
            step=self._step.step,
            tensors=self.get_tensors(),
            rank_state={"batches": None},
            run_state={"best": None},
        )
        self._savers[name].save(content, lambda: None)


def _time(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def print_result(result: dict[str, float]) -> None:
    """Print the result of `run` as a table."""
    copy, step = result["copy"], result["step"]
    names = {
        "copy": "plain copy of the tensors",
        "async": "save in the background: until training continues",
        "blocking": "blocking save",
        "step": "a step",
        "step_during_write": "a step while the background writes",
    }
    rows = [
        (
            names[name],
            f"{1000 * result[name]:,.4g}",
            f"{result[name] / copy:,.3g}",
            f"{result[name] / step:,.3g}",
        )
        for name in WORKS
    ]
    title = (
        f"a checkpoint of {result['mebibytes']:,.0f} MiB in {result['tensors']:.0f} tensors, "
        f"{result['threads']:.0f} threads, medians of {result['repeats']:.0f}"
    )
    print_tables([make_table(title, ("",), ("ms", "times the copy", "times a step"), rows)])
