"""From the choice of data to what training reads: a loader a stage, the held-out samples, and what the data was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prolip.data.base_loader import Epochs
from prolip.data.batch import Item, Preparation
from prolip.data.combined_loader import Together
from prolip.data.loader import Loader
from prolip.data.open import is_stream, open_data
from prolip.data.order import by_largest_remainder, shares
from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources.tar import CAPTIONS, IMAGES
from prolip.data.sources.tar_stream import Stream, without_secrets
from prolip.data.stream_loader import StreamLoader
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.training.config import DataChoice, TrainConfig


def make_loader(
    config: TrainConfig,
    source: tuple[str, ...],
    model: ProLIP,
    *,
    steps: int,
    rank: int,
    world_size: int,
) -> Epochs | Together:
    """The loader of a stage of `steps` steps. source: the stage's own; empty: that of the run.

    Files are mixed sample by sample. As soon as one source is a stream, each has its fixed share of every batch. The
    weights of the run are for its own data: another source of a stage is mixed by sizes, streams evenly.
    """
    specs = source or config.data.source
    if not specs:
        raise ValueError(
            "there is no data to train on: set data.source, for example data.source='shards/{00000..00999}.tar', "
            "data.source=pairs.csv or data.source=scenes:simple (docs/data.md)"
        )
    if config.batch % world_size:
        raise ValueError(
            f"batch {config.batch} can't be shared evenly by {world_size} ranks: make it a multiple of {world_size}"
        )
    weights = config.data.weights if specs == config.data.source else None
    preparation = _preparation(config.data, model)
    part = _Part(config, preparation, steps, rank, world_size)
    if not any(map(is_stream, specs)):
        sources = [_opened(spec, config.data) for spec in specs]
        _require_batch(config.batch, sources)
        return part.of_files(sources, weights)
    counts = _shares(specs, weights, config.batch // world_size)
    workers = max(config.data.workers // len(specs), min(config.data.workers, 1))
    loaders = [part.of_one(spec, count, workers) for spec, count in zip(specs, counts, strict=True)]
    return loaders[0] if len(loaders) == 1 else Together(loaders, pad_id=_tokenizer(model).rules.pad_id)


def held_out_samples(config: TrainConfig, model: ProLIP) -> tuple[Tensor, list[str]] | None:
    """Pixels uint8 (n, 3, S, S) and the longest caption of each, which says most; None if there is no held-out data.

    The first `held_out.samples` good ones, in the order of their source, as for evaluation. Bad ones are left out.
    """
    spec = config.held_out.source
    if spec is None:
        return None
    if is_stream(spec):
        raise ValueError(f"held_out.source {without_secrets(spec)} is a stream: give data on disk, or scenes")
    source = _opened(spec, config.data)
    preparation = Preparation(
        pixels=model.config.image.pixels, tokenizer=_tokenizer(model), caption="longest",
        max_pixels=config.data.max_pixels,
    )  # fmt: skip
    items: list[Item] = []
    for number in range(len(source)):
        if len(items) == config.held_out.samples:
            break
        try:
            items.append(preparation.item(source.read(number), 0))  # nothing is drawn, so any seed will do
        except BadSampleError:
            continue
    if len(items) < 2:
        raise ValueError(
            f"held_out.source {spec} has {len(items)} good samples; retrieval needs at least 2 (see prolip data check)"
        )
    return torch.stack([item.pixels for item in items]), [item.caption for item in items]


def describe_data(config: TrainConfig) -> list[dict[str, Any]]:
    """Of each source of each stage, for the run folder: what was asked for (without secrets), how many samples it has
    (None: a stream) and its fingerprint."""
    specs = dict.fromkeys(spec for stage in config.stages for spec in stage.source or config.data.source)
    found = []
    for spec in specs:
        if is_stream(spec):
            samples, fingerprint = None, _stream(spec, config.data).fingerprint()
        else:
            source = _opened(spec, config.data)
            samples, fingerprint = len(source), source.fingerprint()
        found.append({"source": without_secrets(spec), "samples": samples, "fingerprint": fingerprint})
    return found


class _Part:
    """Loaders of one run and stage; they differ in what they read, and how much of it."""

    def __init__(
        self, config: TrainConfig, preparation: Preparation, steps: int, rank: int, world_size: int
    ) -> None:
        self.config, self.preparation, self.steps = config, preparation, steps
        self.rank, self.world_size = rank, world_size

    def of_files(self, sources: Sequence[Source], weights: Sequence[float] | None) -> Loader:
        """The whole batch; an epoch is one pass."""
        return self._files(sources, self.config.batch, weights, None, self.config.data.workers)

    def of_one(self, spec: str, count: int, workers: int) -> Epochs:
        """`count` samples of a rank's batch; an epoch is the whole stage, so that all parts end together."""
        data, samples = self.config.data, self.steps * count * self.world_size
        if not is_stream(spec):
            return self._files([_opened(spec, data)], count * self.world_size, None, samples, workers)
        return StreamLoader(
            _stream(spec, data), self.preparation, batch=count, samples_per_epoch=samples, seed=self.config.seed,
            workers=workers, rank=self.rank, world_size=self.world_size, bad_limit=data.bad_limit,
        )  # fmt: skip

    def _files(
        self,
        sources: Sequence[Source],
        global_batch: int,
        weights: Sequence[float] | None,
        samples: int | None,
        workers: int,
    ) -> Loader:
        data = self.config.data
        return Loader(
            sources, self.preparation, global_batch=global_batch, weights=weights, samples_per_epoch=samples,
            seed=self.config.seed, window=data.window, workers=workers, rank=self.rank, world_size=self.world_size,
            on_bad="replace", bad_limit=data.bad_limit,
        )  # fmt: skip


def _require_batch(batch: int, sources: Sequence[Source]) -> None:
    samples = sum(map(len, sources))
    if samples < batch:
        raise ValueError(
            f"batch {batch} is more than the {samples} samples of the data: make batch smaller, or give more data"
        )


def _preparation(data: DataChoice, model: ProLIP) -> Preparation:
    return Preparation(
        pixels=model.config.image.pixels,
        tokenizer=_tokenizer(model),
        augmentation=data.augmentation if data.augment else None,
        caption=data.caption,
        max_pixels=data.max_pixels,
        drop_words=data.drop_words,
    )


def _tokenizer(model: ProLIP) -> Tokenizer:
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer to train with: set model.tokenizer")
    return model.tokenizer


def _opened(spec: str, data: DataChoice) -> Source:
    return open_data(spec, captions=data.captions, image=data.image)


def _stream(spec: str, data: DataChoice) -> Stream:
    captions = CAPTIONS if data.captions is None else data.captions
    return Stream(spec, captions, IMAGES if data.image is None else (data.image,))


def _shares(specs: Sequence[str], weights: Sequence[float] | None, batch: int) -> list[int]:
    """How many of a rank's `batch` samples each source gives, by largest remainder; without weights: equally many."""
    names = [without_secrets(spec) for spec in specs]
    checked = shares([1.0] * len(specs) if weights is None else weights, names)
    counts = by_largest_remainder(checked.tolist(), batch)
    for count, name in zip(counts.tolist(), names, strict=True):
        if count == 0:
            raise ValueError(
                f"{name}: its share of a rank's batch of {batch} is less than one sample; raise its weight or the batch"
            )
    found: list[int] = counts.tolist()
    return found
