"""The same work on Ray Data: actors that hold the model take tasks, and write their parts themselves.

Only numbers of tasks and counts go through Ray: no picture crosses from a process to another. A task goes through one
actor from reading to writing, and an actor reads no more than a few batches ahead, so that nothing piles up. A part is
whole or not there, so that a task that is done again, because its worker died, gives the same file.
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

from prolip.checks import require_count
from prolip.data.sample import Bad
from prolip.embeddings.header import Header
from prolip.embeddings.storage import Place
from prolip.embeddings.worker import Outcome
from prolip.embeddings.worker_config import Plan
from prolip.extras import require

IN_FLIGHT = 2
"""Tasks that lie at an actor: one is done, the other is there when it ends."""
TRIES = 5
"""How often a task may end its worker. (Ray itself gives a task out anew without end.)"""


TRIES_OF = ".tries-"


@dataclass(frozen=True)
class Cluster:
    """workers: actors; None: as many as there is room for. cpus, gpus: what each holds; None: a GPU if there are any.
    The cluster is that of RAY_ADDRESS, or this machine."""

    workers: int | None
    cpus: float
    gpus: float | None

    def run(
        self, plan: Plan, header: Header
    ) -> Callable[[Sequence[int], Callable[[int], None]], Iterator[Outcome]]:
        """What `Worker.run` is on one machine: numbers of tasks -> outcomes, in any order."""
        if self.workers is not None:
            require_count(self.workers, "workers")
        if not self.cpus > 0 or (self.gpus is not None and self.gpus < 0):
            raise ValueError(
                f"a worker needs more than 0 CPUs, and 0 GPUs or more, not {self.cpus} and {self.gpus}"
            )
        require("ray", "ray")
        return partial(self._outcomes, plan, header)

    def _outcomes(
        self, plan: Plan, header: Header, numbers: Sequence[int], advance: Callable[[int], None]
    ) -> Iterator[Outcome]:
        if not numbers:
            return
        for name in plan.place.names():
            if name.startswith(TRIES_OF):
                plan.place.remove(name)
        with _joined_cluster() as ray:
            for row in self._rows(ray, plan, header, numbers):
                outcome = _outcome(row)
                advance(outcome.tried)
                yield outcome

    def _rows(self, ray: Any, plan: Plan, header: Header, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        gpus = (1 if ray.cluster_resources().get("GPU") else 0) if self.gpus is None else self.gpus
        workers = min(self.workers or _room(ray.cluster_resources(), self.cpus, gpus), len(numbers))
        tasks = ray.data.from_items(
            [{"task": number} for number in numbers], override_num_blocks=len(numbers)
        )
        done = tasks.map(
            Actor,
            fn_constructor_args=(plan, header, Path.cwd(), max(1, round(self.cpus))),
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=IN_FLIGHT),
            num_cpus=self.cpus,
            num_gpus=gpus,
        )
        found: Iterator[dict[str, Any]] = done.iter_rows()
        return found


def _room(there: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Workers that fit into the cluster; one at least, which then waits for its place."""
    fit = [there.get("CPU", 0.0) / cpus, *([there.get("GPU", 0.0) / gpus] if gpus else [])]
    return max(1, int(min(fit)))


class Actor:
    """A worker in a process of the cluster."""

    def __init__(self, plan: Plan, header: Header, folder: Path, threads: int) -> None:
        if folder.is_dir():  # so that relative paths lead where the user meant
            os.chdir(folder)
        self._worker = plan.worker(header, threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, str]:
        """What `_outcome` reads. Errors that a user can mend travel as texts: Ray would wrap them several times."""
        task = int(row["task"])
        place = self._worker.place
        try:
            _count_try(place, task, f"part {task} of {self._worker.tasks.name}")
            (outcome,) = self._worker.run([task], lambda _: None)
        except (ValueError, OSError) as error:
            place.remove(_tries(task))
            return {"outcome": "null", "error": str(error)}
        place.remove(_tries(task))
        return {"outcome": json.dumps(outcome), "error": ""}


def _outcome(row: Mapping[str, str]) -> Outcome:
    if row["error"]:
        raise OSError(f"a worker failed: {row['error']}")
    task, rows, tried, bads = json.loads(row["outcome"])
    return Outcome(task, rows, tried, tuple(Bad(*bad) for bad in bads))


def _tries(task: int) -> str:
    return f"{TRIES_OF}{task:09d}"


def _count_try(place: Place, task: int, what: str) -> None:
    """A mark for each time that a task is begun; they are removed when it ends."""
    try:
        marks = place.read(_tries(task))
    except FileNotFoundError:
        marks = b""
    if len(marks) == TRIES:
        place.remove(_tries(task))
        raise OSError(
            f"{what} has ended its worker {TRIES} times, as a worker that lacks memory is ended; what is written "
            "stays, and another run goes on"
        )
    place.write(_tries(task), lambda file: file.write(marks + b"."))


@contextmanager
def _joined_cluster() -> Iterator[Any]:
    """ray, connected: as the caller has connected it, or for this run."""
    ray = require("ray", "ray")
    require("ray.data", "ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings are for those who build Ray
    ray.init(
        address=os.environ.get("RAY_ADDRESS"), include_dashboard=None if "RAY_ADDRESS" in os.environ else False,
        log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False  # we have our own
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()
