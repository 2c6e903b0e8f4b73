"""One worker: a model, opened data, and the place that parts go to. It runs here, or many of them on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from prolip.data.sample import Bad
from prolip.embeddings.cache import Part
from prolip.embeddings.dataset import write_part
from prolip.embeddings.header import Header
from prolip.embeddings.inference_loop import Good, encoded, good_or_bad, prepared
from prolip.embeddings.schema import table_of
from prolip.embeddings.storage import Place
from prolip.embeddings.tasks import Tasks
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP


class Outcome(NamedTuple):
    """Of a task: how many rows were written, how many samples were tried, and which of them were bad."""

    task: int
    rows: int
    tried: int
    bads: tuple[Bad, ...]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """batch_size, text_batch: pictures and texts that go through the network together; they are part of the result to
    the last bit, so that all workers must have the same. threads: that read and decode; None: as many as cores."""

    model: ProLIP
    tasks: Tasks
    header: Header
    place: Place
    batch_size: int
    text_batch: int
    threads: int | None = None

    def run(self, numbers: Iterable[int], advance: Callable[[int], None]) -> Iterator[Outcome]:
        """Task after task: read, decode, encode, write. The part is on disk when its outcome comes. One part is written
        while the next is encoded."""
        tasks = ((number, self.tasks.items(number)) for number in numbers)
        written: Future[Outcome] | None = None
        with ThreadPoolExecutor(1) as writer:
            for number, part in encoded(
                self.model, tasks, self._read, self.batch_size, advance, self.threads
            ):
                texts = self._texts(part)
                if written is not None:
                    yield written.result()
                written = writer.submit(self._write, number, part, texts)
            if written is not None:
                yield written.result()

    def _write(self, number: int, part: Part, texts: Gaussian | None) -> Outcome:
        rows = table_of(self.header, number, part, texts)
        write_part(self.place, number, rows)
        return Outcome(number, len(rows), len(part.numbers) + len(part.bads), tuple(part.bads.values()))

    def _read(self, item: object) -> tuple[int, Good | Bad]:
        pixels = None if self.header.what == "texts" else self.model.config.image.pixels
        return self.tasks.number(item), good_or_bad(lambda: prepared(self.tasks.read(item), pixels))

    def _texts(self, part: Part) -> Gaussian | None:
        if self.header.what == "images":
            return None
        captions = [text for facts in part.facts for text in facts.captions]
        return self.model.embed_texts(captions, batch_size=self.text_batch, progress=False)
