"""The inference loop: any number of pictures or texts, batch by batch, into one Gaussian on the CPU."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.checks import require_count
from prolip.gaussian import Gaussian
from prolip.model.config import ModelConfig
from prolip.preprocessing.images import ImageSource, normalise, read_image, to_pixels
from prolip.preprocessing.tokenizer import checked_texts
from prolip.progress import bar

Items = TypeVar("Items", bound=Sequence[Any])
T = TypeVar("T")


class Encoder(Protocol):
    """What the loop asks of a model."""

    config: ModelConfig

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def encode_image(self, pixels: Tensor) -> Gaussian: ...
    def encode_text(self, ids: Tensor) -> Gaussian: ...
    def tokenize(self, texts: Sequence[str]) -> Tensor: ...


_ONE_AT_A_TIME = threading.Lock()

AHEAD = 2
"""Batches that are decoded while the network works on one."""


def several(images: ImageSource | Sequence[ImageSource]) -> list[ImageSource]:
    """A list of pictures. Arrays are one picture up to three axes, several with four."""
    if isinstance(images, np.ndarray | Tensor) and images.ndim == 4:
        return list(images)
    if isinstance(images, str | bytes | os.PathLike | Image.Image | np.ndarray | Tensor):
        return [images]
    if not isinstance(images, Iterable) or hasattr(images, "read"):
        raise TypeError(f"images must be a picture or several, not {type(images).__name__}")
    return list(images)


@torch.no_grad()
def embed_images(
    model: Encoder, sources: Sequence[ImageSource], batch_size: int, progress: bool | None
) -> Gaussian:
    """Pictures are read and resized by threads (Pillow lets go of Python's lock) while the network works."""
    rules = model.config.image.pixels
    out = _room(model, len(sources), batch_size)
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        with _bar(len(sources), "images", batch_size, progress) as advance:
            batches = [
                range(i, min(i + batch_size, len(sources))) for i in range(0, len(sources), batch_size)
            ]
            for rows, futures in read_ahead(pool, batches, lambda i: to_pixels(_read(sources[i]), rules)):
                pixels = [_result(future, i) for i, future in zip(rows, futures, strict=True)]
                batch = normalise(torch.stack(pixels).to(model.device), rules)
                _put(out, slice(rows[0], rows[-1] + 1), model.encode_image(batch))
                advance(len(pixels))
    finally:
        pool.shutdown(cancel_futures=True)  # an error, or Ctrl-C, doesn't wait for what was to be read
    return out


@torch.no_grad()
def embed_texts(model: Encoder, texts: Sequence[str], batch_size: int, progress: bool | None) -> Gaussian:
    """Texts of like length share a batch, so that little of it is padding; the result is in the order given."""
    out = _room(model, len(texts), batch_size)
    checked_texts(texts)  # now: after sorting, an index would be another one's
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    with _bar(len(texts), "texts", batch_size, progress) as advance:
        for first in range(0, len(texts), batch_size):
            rows = order[first : first + batch_size]
            ids = model.tokenize([texts[i] for i in rows])
            _put(out, torch.tensor(rows), model.encode_text(ids.to(model.device)))
            advance(len(rows))
    return out


def _room(model: Encoder, count: int, batch_size: int) -> Gaussian:
    """Where the result goes: (N, D), on the CPU."""
    require_count(batch_size, "batch_size")
    if model.device.type == "meta":
        raise ValueError(
            "this model has no weights yet: start(generator) draws fresh ones, prolip.load reads them"
        )
    shape, dtype = (count, model.config.embed_dim), torch.promote_types(model.dtype, torch.float32)
    return Gaussian(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype))


def _bar(
    count: int, unit: str, batch_size: int, progress: bool | None
) -> AbstractContextManager[Callable[[int], None]]:
    """Unless told, only for more than one batch."""
    return bar("embedding", count, unit, progress if progress is not None or count > batch_size else False)


def _read(source: ImageSource) -> Image.Image:
    if not isinstance(source, Image.Image):
        return read_image(source)
    with _ONE_AT_A_TIME:  # the same lazily opened picture may stand in the list twice
        return read_image(source)


def _put(out: Gaussian, rows: slice | Tensor, z: Gaussian) -> None:
    out.mean[rows], out.log_var[rows] = z.mean.cpu(), z.log_var.cpu()


def read_ahead(
    pool: ThreadPoolExecutor, batches: Iterable[Items], read: Callable[[Any], T], ahead: int = AHEAD
) -> Iterator[tuple[Items, list[Future[T]]]]:
    """(items, what is read of each), batch after batch in order; never more than `ahead` and one in memory."""
    waiting: deque[tuple[Items, list[Future[T]]]] = deque()
    for items in batches:
        waiting.append((items, [pool.submit(read, item) for item in items]))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def _result(future: Future[Tensor], index: int) -> Tensor:
    try:
        return future.result()
    except (ValueError, TypeError, OSError) as error:
        kinds = (FileNotFoundError, OSError, TypeError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))  # subclasses may want other arguments
        raise kind(f"image {index}: {error}") from error
