"""Worker that embeds tasks and writes their parts: one in this process, or many on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from prolip.choices import Modality
from prolip.data.sample import SampleError
from prolip.embeddings.dataset import write_part
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.inference_loop import (
    EncodedPart,
    InferenceSample,
    encode_tasks,
    prepare_or_error,
    prepare_sample,
)
from prolip.embeddings.schema import make_part_table
from prolip.embeddings.tasks import EmbeddingTasks, open_tasks
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.storage.folders import Storage
from prolip.weights.load import load


class TaskResult(NamedTuple):
    """Result of a task.

    Attributes:
        task: Index of the task, which is that of its part.
        rows: Number of rows written, images and texts.
        num_samples: Samples that were read, good and bad.
        errors: The bad samples.
    """

    task: int
    rows: int
    num_samples: int
    errors: tuple[SampleError, ...]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A model, open data, and the storage that parts are written to.

    Attributes:
        model: The model.
        tasks: The data, split into tasks.
        header: Header of the data set.
        storage: Storage of the data set.
        batch_size, text_batch_size: Images and texts per forward pass. They affect the last bits of the result, so all
            workers of a data set must use the same.
        threads: Threads that read and decode; None: one per core.
    """

    model: ProLIP
    tasks: EmbeddingTasks
    header: DatasetHeader
    storage: Storage
    batch_size: int
    text_batch_size: int
    threads: int | None = None

    def run(self, indices: Iterable[int], advance: Callable[[int], None]) -> Iterator[TaskResult]:
        """Read, decode, encode and write tasks, one after the other.

        Args:
            indices: Indices of the tasks.
            advance: Called with the number of samples that were finished.

        Yields:
            The result of each task, after its part was written.
        """
        tasks = ((index, self.tasks.items(index)) for index in indices)
        pending: Future[TaskResult] | None = None
        # One part is written while the next one is encoded; never more than one waits in memory.
        with ThreadPoolExecutor(1) as writer:
            for index, part in encode_tasks(
                self.model, tasks, self._read_item, self.batch_size, advance, self.threads
            ):
                texts = self._embed_texts(part)
                if pending is not None:
                    yield pending.result()
                pending = writer.submit(self._write_part, index, part, texts)
            if pending is not None:
                yield pending.result()

    def _write_part(self, index: int, part: EncodedPart, texts: Gaussian | None) -> TaskResult:
        """Write the part of a task, and return the task's result. Runs in the writing thread.

        `texts` are the Gaussians (m, D) of the part's captions; None if only images are embedded.
        """
        table = make_part_table(self.header, index, part, texts)
        write_part(self.storage, index, table)
        return TaskResult(index, len(table), part.num_samples, tuple(part.errors.values()))

    def _read_item(self, item: object) -> tuple[int, InferenceSample | SampleError]:
        """Read an item of a task: index of its sample, and the prepared sample or its error. Called by threads."""
        preprocessing = None if self.header.modality == "text" else self.model.config.image.preprocessing
        return self.tasks.get_index(item), prepare_or_error(
            lambda: prepare_sample(self.tasks.read(item), preprocessing, self.header.decode)
        )

    def _embed_texts(self, part: EncodedPart) -> Gaussian | None:
        """Gaussians (m, D) of all captions of a part, sample by sample; None if only images are embedded."""
        if self.header.modality == "image":
            return None
        captions = [text for metadata in part.metadata for text in metadata.captions]
        return self.model.embed_texts(captions, batch_size=self.text_batch_size, progress=False)


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """The arguments of `embed` that a worker needs, as plain values that can be sent to another machine.

    Attributes:
        model, data, captions, image, modality, part_size, batch_size, text_batch_size, device: As for `embed`, with
            absolute paths.
        storage: Storage of the data set. All workers must reach it under this address.
    """

    model: str
    data: str
    captions: tuple[str, ...] | None
    image: str | None
    modality: Modality | None
    part_size: int
    batch_size: int
    text_batch_size: int
    device: str | None
    storage: Storage

    def open_worker(self, header: DatasetHeader, threads: int) -> Worker:
        """Load the model, open the data, and make a worker in this process.

        Args:
            header: Header of the data set.
            threads: Threads that read and decode.

        Returns:
            The worker.
        """
        tasks = open_tasks(self.data, self.captions, self.image, self.modality, self.part_size)
        return self.make_worker(load(self.model, device=self.device).eval(), tasks, header, threads)

    def make_worker(
        self, model: ProLIP, tasks: EmbeddingTasks, header: DatasetHeader, threads: int | None = None
    ) -> Worker:
        """Make a worker for a model and data that are open already.

        Args:
            model: The model.
            tasks: The data, split into tasks.
            header: Header of the data set.
            threads: Threads that read and decode; None: one per core.

        Returns:
            The worker.
        """
        return Worker(
            model=model,
            tasks=tasks,
            header=header,
            storage=self.storage,
            batch_size=self.batch_size,
            text_batch_size=self.text_batch_size,
            threads=threads,
        )
