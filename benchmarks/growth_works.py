"""Works of the benchmark of growth: what is timed at several sizes, and how its time and memory should grow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from benchmarks.data import make_photo
from benchmarks.measures import random_gaussians
from benchmarks.search import draw_clusters
from benchmarks.towers import TOKENS, image_flops, text_flops
from benchmarks.traverse import draw_gaussians, write_captions
from prolip.data.batch import Preprocessor
from prolip.data.loader import Loader
from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_format import write_tar
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.evaluation.positives import Positives
from prolip.evaluation.retrieval import find_hits
from prolip.gaussian import Gaussian
from prolip.losses.contrastive import LogitScaleBias, ppcl
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.model.sizes import get_config
from prolip.preprocessing.images import ImagePreprocessing
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.query import search_gaussians
from prolip.retrieval.traversal.traverse import traverse
from prolip.zeroshot.bprw import few_shot_config, fit_prompt_weights

DIM = 256
"""Dimensions of drawn embeddings."""
TOWER_SIZE, TOWER_BATCH = "small", 2
"""Model size of the towers that are timed, and inputs per batch where the batch is not what grows."""
FEW_TOKENS = replace(TOKENS, vocab_size=1000, mask_id=999)
"""A small vocabulary: the gradient of a large one takes more time and memory than a small batch."""
PROMPTS, SHOTS, IMAGES = 20, 5, 16
"""Prompts of a class and its labeled images; images of a traversal and of a loader's batch."""
SAMPLES_PER_SHARD, THUMBNAIL = 16, (64, 48)
"""Samples of a shard; width and height of their JPEGs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is timed at several sizes of one quantity.

    Attributes:
        quantity: What grows.
        name: What is done.
        sizes: The sizes, ascending, each a multiple of the first.
        prepare: (size, empty folder) -> the function that is timed.
        operations: How the mathematics lets time grow, at a size, in any unit.
        memory_exponent: How the peak of memory grows with the size, as a power.
    """

    quantity: str
    name: str
    sizes: tuple[int, ...]
    prepare: Callable[[int, Path], Callable[[], Any]]
    operations: Callable[[int], float]
    memory_exponent: float = 1.0


def list_works(scale: float = 1.0) -> list[Work]:
    """List the works, the sizes multiplied by `scale` (those of towers, which have few steps, stay)."""

    def sized(*sizes: int) -> tuple[int, ...]:
        first = max(8, round(scale * sizes[0]))
        return tuple(first * (size // sizes[0]) for size in sizes)

    config = get_config(TOWER_SIZE, FEW_TOKENS)
    image, text, dim = config.image_transformer, config.text_transformer, config.embed_dim

    def image_operations(side: int) -> float:
        pixels = replace(image.preprocessing, size=side)
        return image_flops(replace(image, preprocessing=pixels), dim)

    return [
        Work(
            quantity="batch", name="PPCL, forward and backward", sizes=sized(1024, 2048, 4096, 8192),
            prepare=_prepare_loss, operations=lambda size: size**2,
        ),
        Work(
            quantity="batch", name=f"both towers ({TOWER_SIZE}), forward and backward", sizes=(4, 8, 16, 32),
            prepare=_prepare_towers, operations=float,
        ),
        Work(
            quantity="context length", name=f"text tower ({TOWER_SIZE})", sizes=(64, 128, 256, 512, 1024),
            prepare=_prepare_text_tower, operations=lambda length: text_flops(text, dim, length),
        ),
        Work(
            quantity="image size", name=f"image tower ({TOWER_SIZE})", sizes=(112, 224, 448, 672),
            prepare=_prepare_image_tower, operations=image_operations, memory_exponent=2.0,
        ),
        Work(
            quantity="classes", name=f"BPRW, {SHOTS} images per class", sizes=sized(50, 100, 200, 400),
            prepare=_prepare_bprw, operations=float,
        ),
        Work(
            quantity="captions", name=f"traversal of {IMAGES} images", sizes=sized(4000, 8000, 16_000, 32_000),
            prepare=_prepare_traversal, operations=float,
        ),
        Work(
            quantity="captions", name="retrieval, as many images", sizes=sized(2000, 4000, 8000, 16_000),
            prepare=_prepare_retrieval, operations=lambda size: size**2,
        ),
        Work(
            quantity="rows of an index", name="index", sizes=sized(8000, 16_000, 32_000, 64_000),
            prepare=_prepare_indexing, operations=float,
        ),
        Work(
            quantity="rows of an index", name="exact query", sizes=sized(8000, 16_000, 32_000, 64_000),
            prepare=_prepare_search, operations=float,
        ),
        Work(
            quantity="shards", name="open, for the first time", sizes=sized(16, 32, 64, 128),
            prepare=_prepare_opening, operations=float,
        ),
        Work(
            quantity="shards", name="an epoch, shuffled", sizes=sized(16, 32, 64, 128),
            prepare=_prepare_epoch, operations=float, memory_exponent=0.0,
        ),
    ]  # fmt: skip


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _prepare_loss(batch: int, _: Path) -> Callable[[], Any]:
    """Gradients of PPCL with respect to both embeddings."""
    generator = _seeded()
    images, texts = (random_gaussians(batch, DIM, generator=generator) for _ in range(2))
    leaves = [leaf.requires_grad_() for z in (images, texts) for leaf in (z.mean, z.log_var)]
    temperature = LogitScaleBias()
    return lambda: torch.autograd.grad(ppcl(images, texts, temperature), leaves)


def _make_model() -> ProLIP:
    return ProLIP(get_config(TOWER_SIZE, FEW_TOKENS)).init_weights(_seeded()).eval()


def _draw_inputs(model: ProLIP, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels and token ids of a batch; the texts fill the context."""
    size, length = model.config.image.preprocessing.size, model.config.text.tokenizer.context_length
    pixels = torch.randn(batch, 3, size, size, generator=_seeded())
    return pixels, torch.randint(2, FEW_TOKENS.vocab_size, (batch, length), generator=_seeded())


def _prepare_towers(batch: int, _: Path) -> Callable[[], Any]:
    """Gradients of all weights."""
    model = _make_model()
    pixels, ids = _draw_inputs(model, batch)

    def step() -> None:
        images, texts = model(pixels, ids)
        (images.mean.sum() + texts.mean.sum()).backward()
        model.zero_grad()

    return step


def _prepare_text_tower(length: int, _: Path) -> Callable[[], Any]:
    """Encode texts that fill a context of this length."""
    model = resize_model(_make_model(), context_length=length)
    return torch.inference_mode()(partial(model.encode_text, _draw_inputs(model, TOWER_BATCH)[1]))


def _prepare_image_tower(side: int, _: Path) -> Callable[[], Any]:
    """Encode images of this side."""
    model = resize_model(_make_model(), image_size=side)
    return torch.inference_mode()(partial(model.encode_image, _draw_inputs(model, TOWER_BATCH)[0]))


def _prepare_bprw(classes: int, _: Path) -> Callable[[], Any]:
    """Weights of the prompts of each class."""
    generator = _seeded()
    prompts = random_gaussians(classes, PROMPTS, DIM, generator=generator)
    observed = random_gaussians(classes, SHOTS, DIM, generator=generator)
    return lambda: fit_prompt_weights(prompts, observed, few_shot_config(SHOTS), _seeded())


def _prepare_traversal(captions: int, _: Path) -> Callable[[], Any]:
    """Traverse captions in memory."""
    texts, images, null = draw_gaussians(captions, DIM, IMAGES)
    return partial(traverse, images, texts, null)


def _prepare_retrieval(size: int, _: Path) -> Callable[[], Any]:
    """Find the nearest captions of each image, one of which is its own."""
    texts, images, _null = draw_gaussians(size, DIM, size)
    own = Positives.from_pairs(torch.arange(size), torch.arange(size), size, size)
    return partial(find_hits, images, texts, own, 10)


def _write_embeddings(rows: int, folder: Path) -> tuple[EmbeddingDataset, torch.Tensor]:
    """Embeddings on disk, and a query (1, DIM) near some of them."""
    mean, trace, queries = draw_clusters(rows)
    log_var = torch.from_numpy(trace / mean.shape[1]).log()[:, None].expand(-1, DIM)
    items = Gaussian(normalize(torch.from_numpy(mean[:, :DIM]), dim=-1), log_var)
    query = normalize(torch.from_numpy(queries[:1, :DIM]), dim=-1)
    return write_captions(folder / "embeddings", items), query


def _prepare_indexing(rows: int, folder: Path) -> Callable[[], Any]:
    """Write a database of embeddings, each time a new one."""
    embeddings, _ = _write_embeddings(rows, folder)
    numbers = count()
    return lambda: index_embeddings(folder / f"database-{next(numbers)}", [embeddings], progress=False)


def _prepare_search(rows: int, folder: Path) -> Callable[[], Any]:
    """Search an open database, whose items are in memory after the first query."""
    embeddings, query = _write_embeddings(rows, folder)
    database = index_embeddings(folder / "database", [embeddings], progress=False)
    queries, config = Gaussian(query, torch.full_like(query, -9.0)), SearchConfig(k=10, exact=True)
    search_gaussians(database, queries, config)
    return lambda: search_gaussians(database, queries, config)


def _write_shards(shards: int, folder: Path) -> str:
    """Write tars of small JPEGs; returns their glob."""
    image = make_photo(*THUMBNAIL, 0)
    for shard in range(shards):
        samples = ((f"{i:04d}", {"jpg": image, "txt": b"a photo"}) for i in range(SAMPLES_PER_SHARD))
        write_tar(folder / f"{shard:05d}.tar", samples)
    return str(folder / "*.tar")


def _prepare_opening(shards: int, folder: Path) -> Callable[[], Any]:
    """Open shards whose indexes are not yet cached."""
    pattern, caches = _write_shards(shards, folder), count()

    def open_shards() -> None:
        with _cache_in(folder / f"cache-{next(caches)}"):
            TarShards(pattern)

    return open_shards


def _prepare_epoch(shards: int, folder: Path) -> Callable[[], Any]:
    """Read and decode all samples in a shuffled order."""
    with _cache_in(folder / "cache"):
        source = TarShards(_write_shards(shards, folder))
    preprocessor = Preprocessor(pixels=ImagePreprocessing(size=32), tokenizer=None)
    loader = Loader(source, preprocessor, global_batch_size=IMAGES)
    return lambda: sum(len(batch) for batch in loader)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Set the folder of caches."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before
