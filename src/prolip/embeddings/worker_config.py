"""What is to be embedded, in words and numbers alone, so that it can be sent to another machine."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.embeddings.header import Header, What
from prolip.embeddings.storage import Place
from prolip.embeddings.tasks import Tasks, open_tasks
from prolip.embeddings.worker import Worker
from prolip.model.prolip import ProLIP
from prolip.weights.load import load


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arguments of `embed` that a worker needs. place: all workers must reach it by this name."""

    model: str
    data: str
    captions: tuple[str, ...] | None
    image: str | None
    what: What
    part_size: int
    batch_size: int
    text_batch: int
    device: str | None
    place: Place

    def open(self) -> Tasks:
        return open_tasks(self.data, self.captions, self.image, self.what, self.part_size)

    def worker(self, header: Header, threads: int) -> Worker:
        """A worker in this process, which opens all by itself."""
        return self.worker_of(load(self.model, device=self.device).eval(), self.open(), header, threads)

    def worker_of(self, model: ProLIP, tasks: Tasks, header: Header, threads: int | None = None) -> Worker:
        return Worker(
            model=model,
            tasks=tasks,
            header=header,
            place=self.place,
            batch_size=self.batch_size,
            text_batch=self.text_batch,
            threads=threads,
        )
