"""Workers on Ray Data: actors hold the model, take tasks, and write their parts themselves.

Only task indices and counts pass through Ray; no image is sent between processes. One actor does a task from reading to
writing, and prefetches only a few batches, so memory stays bounded. Parts are written atomically, so a task that is
repeated because its worker died writes the same file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prolip.checks import require_positive_int
from prolip.data.sample import SampleError
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.storage import Storage
from prolip.embeddings.worker import TaskResult, WorkerConfig
from prolip.extras import import_extra

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
        workers: Number of actors; None: as many as fit.
        cpus: CPUs per actor.
        gpus: GPUs per actor; None: one, if the cluster has any.
    """

    workers: int | None
    cpus: float
    gpus: float | None

    def run(
        self, config: WorkerConfig, header: DatasetHeader
    ) -> Callable[[Sequence[int], Callable[[int], None]], Iterator[TaskResult]]:
        """Make a function like `Worker.run` that runs tasks on the cluster.

        Args:
            config: What the workers open.
            header: Header of the data set.

        Returns:
            Task indices and progress callback -> results, in any order.

        Raises:
            ValueError: The resources per actor are invalid.
        """
        if self.workers is not None:
            require_positive_int(self.workers, "workers")
        if not self.cpus > 0 or (self.gpus is not None and self.gpus < 0):
            raise ValueError(
                f"A worker needs more than 0 CPUs and at least 0 GPUs, not {self.cpus} and {self.gpus}"
            )
        import_extra("ray", "ray")
        return partial(self._iter_results, config, header)

    def _iter_results(
        self,
        config: WorkerConfig,
        header: DatasetHeader,
        indices: Sequence[int],
        advance: Callable[[int], None],
    ) -> Iterator[TaskResult]:
        """Run tasks on the cluster, after old attempt counts were removed.

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
    ) -> Iterator[dict[str, Any]]:
        """Start the actors, and iterate over the dicts that `RayActor` returns, in any order.

        `ray`: the connected module. There are as many actors as `workers` says, or as fit, but never more than tasks.
        """
        gpus = (1 if ray.cluster_resources().get("GPU") else 0) if self.gpus is None else self.gpus
        workers = min(self.workers or _count_workers(ray.cluster_resources(), self.cpus, gpus), len(indices))
        # one block per task, so that each is scheduled by itself
        tasks = ray.data.from_items([{"task": index} for index in indices], override_num_blocks=len(indices))
        done = tasks.map(
            RayActor,
            fn_constructor_args=(config, header, Path.cwd(), max(1, round(self.cpus))),
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=TASKS_IN_FLIGHT),
            num_cpus=self.cpus,
            num_gpus=gpus,
        )
        rows: Iterator[dict[str, Any]] = done.iter_rows()
        return rows


def _count_workers(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Workers that fit into the cluster; at least one, which then waits for resources."""
    fit = [resources.get("CPU", 0.0) / cpus, *([resources.get("GPU", 0.0) / gpus] if gpus else [])]
    return max(1, int(min(fit)))


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

    def __call__(self, row: dict[str, Any]) -> dict[str, str]:
        """Run a task.

        Args:
            row: {"task": task index}.

        Returns:
            What `_parse_result` reads. Errors that a user can fix are strings: Ray would wrap exceptions several times.
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
    """The result in a dict that `RayActor` returned; an OSError if the worker failed."""
    if row["error"]:
        raise OSError(f"A worker failed: {row['error']}")
    task, rows, num_samples, errors = json.loads(row["result"])
    return TaskResult(task, rows, num_samples, tuple(SampleError(*error) for error in errors))


def _get_attempts_file(task: int) -> str:
    """Name of the file in which the attempts of a task are counted, one byte each."""
    return f"{ATTEMPTS_PREFIX}{task:09d}"


def _count_attempt(storage: Storage, task: int, name: str) -> None:
    """Count the attempts of a task in a file, which is removed when the task ends without killing its worker.

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
            f"{name} has killed its worker {MAX_ATTEMPTS} times, probably for lack of memory. Finished parts are kept; "
            "run the same command again to resume."
        )
    storage.write(_get_attempts_file(task), lambda file: file.write(attempts + b"."))


@contextmanager
def _connect() -> Iterator[Any]:
    """Yield the module ray, connected to a cluster: as the caller has connected it, or else for this run only.

    Sets Ray's log levels and hides its progress bars.
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
