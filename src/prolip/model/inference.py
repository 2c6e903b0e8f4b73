"""Inference: any number of images or texts, in batches, to one Gaussian on the CPU."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.gaussian import Gaussian
from prolip.model.config import ModelConfig
from prolip.preprocessing.images import ImageSource, normalize, read_image, resize_and_crop
from prolip.preprocessing.tokenizer import as_text_list
from prolip.progress import progress_bar
from prolip.threads import BatchThreads

Items = TypeVar("Items", bound=Sequence[Any])
T = TypeVar("T")


class Encoder(Protocol):
    """What inference needs of a model."""

    config: ModelConfig

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def encode_image(self, pixels: Tensor) -> Gaussian: ...
    def encode_text(self, ids: Tensor) -> Gaussian: ...
    def tokenize(self, texts: Sequence[str]) -> Tensor: ...


_PIL_LOCK = threading.Lock()

PREFETCH_BATCHES = 2
"""Batches that are decoded while the network works on one."""
MEASURED = 8
"""Images or texts of a batch by which the number of threads is chosen."""


def as_image_list(images: ImageSource | Sequence[ImageSource]) -> list[ImageSource]:
    """One image or several as a list.

    Args:
        images: An array of up to three axes is one image, of four axes several.

    Returns:
        A list of images.

    Raises:
        TypeError: If it is neither an image nor iterable, or an open file.
    """
    if isinstance(images, np.ndarray | Tensor) and images.ndim == 4:
        return list(images)
    if isinstance(images, str | bytes | os.PathLike | Image.Image | np.ndarray | Tensor):
        return [images]
    if not isinstance(images, Iterable) or hasattr(images, "read"):
        raise TypeError(f"images must be an image or a sequence of images, not {type(images).__name__}")
    return list(images)


@torch.no_grad()
def encode_image_batches(
    model: Encoder,
    batches: Iterable[Items],
    read: Callable[[Any], T],
    get_pixels: Callable[[T], Tensor | None],
    *,
    threads: int,
    prefetch_batches: int = PREFETCH_BATCHES,
) -> Iterator[tuple[Items, list[T], Gaussian | None]]:
    """Read and encode images in batches: threads read and decode the next batches while the model encodes one.

    Threads suffice, since Pillow releases Python's lock while it decodes.

    Args:
        model: The model.
        batches: Batches of items, such as sample indices.
        read: Item -> what was read. Called by the threads; an error is raised in the order of the items.
        get_pixels: What was read -> uint8 (3, S, S); None: it has no image to encode.
        threads: Number of reading threads.
        prefetch_batches: Batches that are read in advance.

    Yields:
        (items, what was read of each, Gaussian of those with pixels), batch after batch. The Gaussian is on the model's
        device; None if no item has pixels.
    """
    preprocessing = model.config.image.preprocessing
    pool = ThreadPoolExecutor(threads)
    with ExitStack() as stack:
        # after an error or Ctrl-C, batches read in advance are dropped
        stack.callback(pool.shutdown, cancel_futures=True)
        choice = stack.enter_context(BatchThreads(model.device))
        for items, futures in prefetch(pool, batches, read, prefetch_batches):
            results = [future.result() for future in futures]
            pixels = [image for image in map(get_pixels, results) if image is not None]
            z = None
            if pixels:
                batch = normalize(torch.stack(pixels).to(model.device), preprocessing)
                choice.start_batch(partial(model.encode_image, batch[:MEASURED]))
                z = model.encode_image(batch)
            yield items, results, z


@torch.no_grad()
def embed_images(
    model: Encoder, sources: Sequence[ImageSource], batch_size: int, progress: bool | None
) -> Gaussian:
    """Embed images.

    Args:
        model: The model.
        sources: Images in any form that `read_image` takes.
        batch_size: Images per forward pass.
        progress: Whether to show a progress bar; None: for more than one batch, if stderr is a terminal.

    Returns:
        Gaussian (N, D), on the CPU.
    """
    preprocessing = model.config.image.preprocessing
    out = _allocate_result(model, len(sources), batch_size)

    def read(index: int) -> Tensor:
        """Pixels, uint8 (3, S, S), of the image at an index; its errors name the index."""
        with _name_image_in_errors(index):
            return resize_and_crop(_read_image(sources[index]), preprocessing)

    batches = [range(i, min(i + batch_size, len(sources))) for i in range(0, len(sources), batch_size)]
    threads = min(8, os.cpu_count() or 1)
    with _make_progress_bar(len(sources), "images", batch_size, progress) as advance:
        # what `read` returns are the pixels already
        for rows, pixels, z in encode_image_batches(model, batches, read, lambda x: x, threads=threads):
            assert z is not None  # every item has pixels
            _store_rows(out, slice(rows[0], rows[-1] + 1), z)
            advance(len(pixels))
    return out


@torch.no_grad()
def embed_texts(model: Encoder, texts: Sequence[str], batch_size: int, progress: bool | None) -> Gaussian:
    """Embed texts. Texts of similar length share a batch, so that little of it is padding.

    Args:
        model: The model.
        texts: N texts.
        batch_size: Texts per forward pass.
        progress: As for `embed_images`.

    Returns:
        Gaussian (N, D) on the CPU, in the order of `texts`.
    """
    out = _allocate_result(model, len(texts), batch_size)
    as_text_list(texts)  # before sorting, so that an error has the index in `texts`
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    progress_of_texts = _make_progress_bar(len(texts), "texts", batch_size, progress)
    with progress_of_texts as advance, BatchThreads(model.device) as choice:
        for first in range(0, len(texts), batch_size):
            rows = order[first : first + batch_size]
            ids = model.tokenize([texts[i] for i in rows]).to(model.device)
            choice.start_batch(partial(model.encode_text, ids[:MEASURED]))
            _store_rows(out, torch.tensor(rows), model.encode_text(ids))
            advance(len(rows))
    return out


def _allocate_result(model: Encoder, count: int, batch_size: int) -> Gaussian:
    """A Gaussian (count, D) on the CPU with undefined values, which `_store_rows` fills.

    Raises ValueError if `batch_size` is not positive, or if the model has no weights (it is on the device "meta").
    """
    require_positive_int(batch_size, "batch_size")
    if model.device.type == "meta":
        raise ValueError(
            "this model has no weights yet: init_weights(generator) draws new ones, prolip.load reads saved ones"
        )
    shape, dtype = (count, model.config.embed_dim), torch.promote_types(model.dtype, torch.float32)
    return Gaussian(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype))


def _make_progress_bar(
    count: int, unit: str, batch_size: int, progress: bool | None
) -> AbstractContextManager[Callable[[int], None]]:
    """The progress bar of `count` items; `progress` None: only if there is more than one batch, and on a terminal."""
    show = (
        False if progress is None and count <= batch_size else progress
    )  # None: `progress_bar` looks at stderr
    return progress_bar("embedding", count, unit, show)


def _read_image(source: ImageSource) -> Image.Image:
    """`read_image`; PIL images are read by one thread at a time."""
    if not isinstance(source, Image.Image):
        return read_image(source)
    with _PIL_LOCK:  # the list may hold the same lazily opened image twice, and loading is not thread-safe
        return read_image(source)


def _store_rows(out: Gaussian, rows: slice | Tensor, z: Gaussian) -> None:
    """Copy z to the given rows of `out`, in place."""
    out.mean[rows], out.log_var[rows] = z.mean.cpu(), z.log_var.cpu()


def prefetch(
    pool: ThreadPoolExecutor,
    batches: Iterable[Items],
    read: Callable[[Any], T],
    prefetch_batches: int = PREFETCH_BATCHES,
) -> Iterator[tuple[Items, list[Future[T]]]]:
    """Read batches in threads, ahead of their use.

    Args:
        pool: The threads.
        batches: Sequences of items.
        read: Called on each item.
        prefetch_batches: Number of batches that are read in advance; these and the one yielded are in memory.

    Yields:
        (items, futures of what was read), batch after batch in order.
    """
    submitted: deque[tuple[Items, list[Future[T]]]] = deque()
    for items in batches:
        submitted.append((items, [pool.submit(read, item) for item in items]))
        if len(submitted) > prefetch_batches:
            yield submitted.popleft()
    yield from submitted


@contextmanager
def _name_image_in_errors(index: int) -> Iterator[None]:
    """Context that adds the index of the image to the message of a ValueError, TypeError or OSError."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        # one of these, not type(error): a subclass such as UnicodeDecodeError takes other arguments than a message
        error_types = (FileNotFoundError, OSError, TypeError, ValueError)
        error_type = next(kind for kind in error_types if isinstance(error, kind))
        raise error_type(f"image {index}: {error}") from error
