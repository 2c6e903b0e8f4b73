"""Workers on Ray Data: actors hold the model, take tasks, and write their parts themselves.

Only task indices and counts pass through Ray; no image is sent between processes. One actor does a task from reading to
writing, and prefetches only a few batches, so memory stays bounded. Parts are written atomically, so a task that is
repeated because its worker died writes the same file.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prolip.data.sample import SampleError
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.worker import TaskResult, WorkerConfig
from prolip.extras import import_extra
from prolip.storage.folders import Storage

TASKS_IN_FLIGHT = 2
"""Tasks per actor: one is running, the next is waiting."""
MAX_ATTEMPTS = 3
"""How often a task may kill its worker. (Ray itself repeats a task without limit.)"""
ATTEMPTS_PREFIX = ".attempts-"
"""Prefix of the files in which the attempts of a task are counted."""


@dataclass(frozen=True)
class RayCluster:
    """Resources on the Ray cluster of RAY_ADDRESS, or on this machine.

    Attributes:
        num_workers: Number of actors; None: as many as fit.
        num_cpus: CPUs per actor.
        num_gpus: GPUs per actor; None: one, if the cluster has any.
    """

    num_workers: int | None
    num_cpus: float
    num_gpus: float | None

    def make_runner(
        self, config: WorkerConfig, header: DatasetHeader
    ) -> Callable[[Sequence[int], Callable[[int], None]], Iterator[TaskResult]]:
        """Make a function like `Worker.run` that runs tasks on the cluster.

        Args:
            config: What the workers open.
            header: Header of the data set.

        Returns:
            Task indices and progress callback -> iterator over the results of the tasks, in any order.

        Raises:
            MissingExtraError: The extra `ray` is not installed.
        """
        import_extra("ray", "ray")
        return partial(self._iter_results, config, header)

    def _iter_results(
        self,
        config: WorkerConfig,
        header: DatasetHeader,
        indices: Sequence[int],
        advance: Callable[[int], None],
    ) -> Iterator[TaskResult]:
        """Remove the attempt counts of earlier runs from the storage, then run tasks on the cluster.

        Args:
            config: What the workers open.
            header: Header of the data set.
            indices: Indices of the tasks.
            advance: Called with the number of samples of each finished task.

        Yields:
            The result of each task, in any order.

        Raises:
            OSError: A worker failed.
        """
        if not indices:
            return
        for name in config.storage.list_names():
            if name.startswith(ATTEMPTS_PREFIX):
                config.storage.remove(name)
        with _connect() as ray:
            for row in self._iter_rows(ray, config, header, indices):
                result = _parse_result(row)
                advance(result.num_samples)
                yield result

    def _iter_rows(
        self, ray: Any, config: WorkerConfig, header: DatasetHeader, indices: Sequence[int]
    ) -> Iterator[Mapping[str, str]]:
        """Start the actors, and iterate over the dicts that `RayActor` returns, in any order.

        `ray` is the connected module. There are as many actors as `num_workers` says, or as fit, but never more than
        tasks.
        """
        resources = ray.cluster_resources()
        num_gpus = (1 if resources.get("GPU") else 0) if self.num_gpus is None else self.num_gpus
        num_workers = self.num_workers or _count_fitting_workers(resources, self.num_cpus, num_gpus)
        # one block per task, so that each is scheduled by itself
        tasks = ray.data.from_items([{"task": index} for index in indices], override_num_blocks=len(indices))
        results = tasks.map(
            RayActor,
            fn_constructor_args=(config, header, Path.cwd(), max(1, round(self.num_cpus))),
            compute=ray.data.ActorPoolStrategy(
                size=min(num_workers, len(indices)), max_tasks_in_flight_per_actor=TASKS_IN_FLIGHT
            ),
            num_cpus=self.num_cpus,
            num_gpus=num_gpus,
        )
        rows: Iterator[Mapping[str, str]] = results.iter_rows()
        return rows


def _count_fitting_workers(resources: Mapping[str, float], num_cpus: float, num_gpus: float) -> int:
    """Number of workers with `num_cpus` and `num_gpus` each for which the cluster has resources.

    At least one: if the cluster is too small, it waits until there are resources.
    """
    workers_by_cpus = resources.get("CPU", 0.0) / num_cpus
    workers_by_gpus = resources.get("GPU", 0.0) / num_gpus if num_gpus else math.inf
    return max(1, int(min(workers_by_cpus, workers_by_gpus)))


class RayActor:
    """A worker in a process of the cluster.

    Args:
        config: What the worker opens.
        header: Header of the data set.
        folder: Working directory of the user, which the process changes to, if it exists on this machine.
        threads: Threads that read and decode.
    """

    def __init__(self, config: WorkerConfig, header: DatasetHeader, folder: Path, threads: int) -> None:
        if folder.is_dir():  # so that relative paths mean what they mean to the user
            os.chdir(folder)
        self._worker = config.open_worker(header, threads)

    def __call__(self, row: Mapping[str, int]) -> dict[str, str]:
        """Run a task, which writes its part, and count its attempts in a file of the storage meanwhile.

        Args:
            row: {"task": task index}.

        Returns:
            "result": JSON of the `TaskResult`, or null; "error": message of an error that a user can fix, or "". It is
            not raised, because Ray would wrap it several times. `_parse_result` reads this.
        """
        task = int(row["task"])
        storage = self._worker.storage
        try:
            _count_attempt(storage, task, f"part {task} of {self._worker.tasks.name}")
            (result,) = self._worker.run([task], lambda _: None)
        except (ValueError, OSError) as error:
            storage.remove(_get_attempts_file(task))
            return {"result": "null", "error": str(error)}
        storage.remove(_get_attempts_file(task))
        return {"result": json.dumps(result), "error": ""}


def _parse_result(row: Mapping[str, str]) -> TaskResult:
    """The result in a dict that `RayActor` returned; raises OSError with the worker's message if it failed."""
    if row["error"]:
        raise OSError(f"A worker failed: {row['error']}")
    task, rows, num_samples, errors = json.loads(row["result"])
    return TaskResult(task, rows, num_samples, tuple(SampleError(*error) for error in errors))


def _get_attempts_file(task: int) -> str:
    """Name of the file in which the attempts of a task are counted, one byte each."""
    return f"{ATTEMPTS_PREFIX}{task:09d}"


def _count_attempt(storage: Storage, task: int, name: str) -> None:
    """Add one to the attempts of a task, in a file that the caller removes when the task ends.

    If the task kills its process, the file stays, and the next attempt finds it.

    Args:
        storage: Storage of the data set.
        task: Index of the task.
        name: Name of the task, for the error.

    Raises:
        OSError: The task has killed its worker `MAX_ATTEMPTS` times.
    """
    try:
        attempts = storage.read(_get_attempts_file(task))
    except FileNotFoundError:
        attempts = b""
    if len(attempts) == MAX_ATTEMPTS:
        storage.remove(_get_attempts_file(task))
        raise OSError(
            f"{name} has killed its worker {MAX_ATTEMPTS} times, probably for lack of memory. Finished parts are kept: "
            "run the same command again to resume, if need be with fewer --workers."
        )
    storage.write(_get_attempts_file(task), lambda file: file.write(attempts + b"."))


@contextmanager
def _connect() -> Iterator[Any]:
    """Yield the module ray, connected to a cluster.

    If the program is connected already, that connection is used. Otherwise Ray is started, with most of its log and its
    progress bars hidden, and shut down at the end of the block.
    """
    ray = import_extra("ray", "ray")
    import_extra("ray.data", "ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings are for developers of Ray
    ray.init(
        address=os.environ.get("RAY_ADDRESS"), include_dashboard=None if "RAY_ADDRESS" in os.environ else False,
        log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False  # prolip shows its own
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()
