"""The inference loop over samples: read and decoded by threads, encoded batch by batch, task after task."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor

from prolip.data.batch import Preparation
from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.embeddings.cache import Part, Stamp, stamp_of
from prolip.embeddings.sample_metadata import Facts, digest_of, facts_of
from prolip.gaussian import Gaussian
from prolip.model.inference import read_ahead
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import PixelRules, normalise

Task = TypeVar("Task")
Item = TypeVar("Item")
AHEAD = 8
"""Batches that are decoded beforehand: they keep the network busy while texts are encoded between two tasks."""
MOST_THREADS = 32
Good = tuple[Tensor | None, Facts, Stamp]
"""Of a sample: pixels uint8 (3, S, S), if they are wanted; what is told of it; where its file stood."""


def prepared(sample: Sample, pixels: PixelRules | None) -> Good:
    """What the loop needs of a sample; BadSampleError if it can't be used. pixels: None: without its picture."""
    stamp = stamp_of(sample.image)  # before the picture is read: a change in between counts as one
    facts = facts_of(sample)
    if pixels is None:
        return None, facts, stamp
    image = Preparation(pixels=pixels, tokenizer=None, caption="first").item(sample, 0).pixels
    return image, facts._replace(pixels=digest_of(image)), stamp


def good_or_bad(read: Callable[[], Good]) -> Good | Bad:
    try:
        return read()
    except BadSampleError as error:
        return error.bad


def encoded(
    model: ProLIP,
    tasks: Iterable[tuple[Task, Iterable[Item]]],
    read: Callable[[Item], tuple[int, Good | Bad]],
    batch_size: int,
    advance: Callable[[int], None],
    threads: int | None = None,
) -> Iterator[tuple[Task, Part]]:
    """Task after task. A batch lies within one task, so that a resumed run, or another machine, computes the very same
    batches. read: an item -> its number in the data, and what became of it; called by `threads` threads."""
    pool = ThreadPoolExecutor(threads or min(MOST_THREADS, os.cpu_count() or 1))
    try:
        part = Part.empty()
        for batch, futures in read_ahead(pool, _batches(tasks, batch_size), read, AHEAD):
            answers = [future.result() for future in futures]
            part.bads.update((n, answer) for n, answer in answers if isinstance(answer, Bad))
            good = [(n, *answer) for n, answer in answers if not isinstance(answer, Bad)]
            if good:
                pixels = [image for _, image, _, _ in good if image is not None]
                part.add(_images(model, pixels) if pixels else None, good)
            advance(len(batch))
            if batch.last:
                yield batch.task, part
                part = Part.empty()
    finally:
        pool.shutdown(cancel_futures=True)


class _Batch(list[Item], Generic[Task, Item]):
    """Items of one task. last: no other batch of it comes."""

    def __init__(self, items: Iterable[Item], task: Task, last: bool) -> None:
        super().__init__(items)
        self.task, self.last = task, last


def _batches(tasks: Iterable[tuple[Task, Iterable[Item]]], size: int) -> Iterator[_Batch[Task, Item]]:
    for task, items in tasks:
        some: list[Item] = []
        for item in items:
            if len(some) == size:
                yield _Batch(some, task, last=False)
                some = []
            some.append(item)
        yield _Batch(some, task, last=True)


@torch.no_grad()
def _images(model: ProLIP, pixels: Sequence[Tensor]) -> Gaussian:
    rules = model.config.image.pixels
    return model.encode_image(normalise(torch.stack(list(pixels)).to(model.device), rules)).to("cpu")
