"""Open the data of a run: the loader of a stage, the held-out samples, and a description of the data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prolip.data.base_loader import BaseLoader
from prolip.data.batch import Preprocessor, TrainingSample
from prolip.data.combined_loader import CombinedLoader
from prolip.data.feature_pairs import FeatureLoader, FeaturePairs, ViewFractions, is_feature_address
from prolip.data.loader import Loader
from prolip.data.open import is_stream, open_data
from prolip.data.order import apportion, count_per_block
from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader
from prolip.model.prolip import ProLIP
from prolip.preprocessing.image_views import ImageViews
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.storage.addresses import redact_secrets
from prolip.training.config import DataConfig, TrainConfig
from prolip.training.run_folder import DataDescription


def make_loader(
    config: TrainConfig,
    source: tuple[str, ...],
    model: ProLIP,
    *,
    steps: int,
    rank: int,
    world_size: int,
) -> BaseLoader | CombinedLoader:
    """Make the loader of a stage.

    Files are mixed sample by sample. If one source is a stream, each source has a fixed part of every batch. The
    weights of the run apply to its own data only: other sources of a stage are mixed by size, or evenly if one is a
    stream.

    Args:
        config: The run.
        source: Sources of the stage; empty: those of the run.
        model: For its preprocessing and tokenizer.
        steps: Steps of the stage.
        rank: Rank of this process.
        world_size: Number of ranks; batch_size must be a multiple of it.

    Returns:
        A loader of this rank's batches; a combined one if there are several sources and one is a stream.

    Raises:
        ValueError: There is no data, or less than a batch, or batch_size can't be divided among ranks or sources.
    """
    specs = source or config.data.source
    if not specs:
        raise ValueError(
            "there is no data to train on: set --data.source, for example to 'shards/{00000..00999}.tar', "
            "pairs.csv or scenes:simple (docs/data.md)"
        )
    if config.batch_size % world_size:
        raise ValueError(
            f"batch_size {config.batch_size} is not a multiple of the number of ranks, {world_size}: choose "
            "a multiple, so that each rank has equally many samples"
        )
    if any(map(is_feature_address, specs)):
        return _make_feature_loader(config, specs, rank, world_size)
    weights = config.data.weights if specs == config.data.source else None
    preprocessor = _make_preprocessor(config.data, model)
    factory = _LoaderFactory(config, preprocessor, steps, rank, world_size)
    if not any(map(is_stream, specs)):
        sources = [open_source(spec, config.data) for spec in specs]
        _require_enough_samples(config.batch_size, sources)
        return factory.make_file_loader(sources, weights)
    counts = _count_samples_per_source(specs, weights, config.batch_size // world_size)
    # each source has a loader of its own: they share the worker processes, at least one each unless workers is 0
    workers = max(config.data.workers // len(specs), min(config.data.workers, 1))
    loaders = [
        factory.make_source_loader(spec, count, workers) for spec, count in zip(specs, counts, strict=True)
    ]
    return (
        loaders[0]
        if len(loaders) == 1
        else CombinedLoader(loaders, pad_id=_get_tokenizer(model).config.pad_id)
    )


def _make_feature_loader(
    config: TrainConfig, specs: tuple[str, ...], rank: int, world_size: int
) -> FeatureLoader:
    """A loader of feature pairs; ValueError if there are other sources, too."""
    if len(specs) > 1:
        raise ValueError("features can't be mixed with other data: give one address, features:FOLDER")
    pairs = FeaturePairs.from_address(specs[0])
    fractions = make_view_fractions(config.data)
    return FeatureLoader(pairs, config.batch_size, fractions, config.seed, rank, world_size)


def make_view_fractions(data: DataConfig) -> ViewFractions:
    """Fractions of views in batches of features.

    Args:
        data: Its fractions of crops and masks.

    Returns:
        The fractions.
    """
    return ViewFractions(images=data.image_crops + data.image_masks, texts=data.text_crops)


class HeldOutSamples(NamedTuple):
    """Held-out samples, ready for the towers.

    Attributes:
        images: Pixels, uint8 (n, 3, S, S), or components of features, float32 (n, K).
        texts: Ids, int64 (n, T), or components of features, float32 (n, G): of one caption of each sample.
        captions: These captions.
    """

    images: Tensor
    texts: Tensor
    captions: list[str]


def read_held_out_samples(config: TrainConfig, model: ProLIP) -> HeldOutSamples | None:
    """Read the first `held_out.samples` samples of the held-out data that aren't bad, preprocessed as for evaluation.

    Args:
        config: `held_out` names the data; `data` defines how to read it.
        model: For its preprocessing and tokenizer.

    Returns:
        Images and the longest caption of each sample; None if there is no held-out data.

    Raises:
        ValueError: The data is a stream, or has fewer than 2 samples that aren't bad.
    """
    spec = config.held_out.source
    if spec is None:
        return None
    if is_feature_address(spec):
        return _read_held_out_features(FeaturePairs.from_address(spec), config.held_out.samples)
    require_files(spec, "held_out.source")
    source = open_source(spec, config.data)
    return stack_samples(source, config.held_out.samples, model, config.data, "held_out.source")


def require_files(spec: str, name: str) -> None:
    """Raise a ValueError if data for evaluation is a stream or features.

    Args:
        spec: Address of the data.
        name: Key of the config that names it.
    """
    kind = "a stream" if is_stream(spec) else "a folder of features" if is_feature_address(spec) else None
    if kind is not None:
        raise ValueError(
            f"{name} {redact_secrets(spec)} is {kind}, but held-out data must be files or generated data"
        )


def stack_samples(source: Source, limit: int, model: ProLIP, data: DataConfig, name: str) -> HeldOutSamples:
    """Preprocess the first samples of a source that aren't bad, as for evaluation.

    Args:
        source: The samples.
        limit: Largest number of samples.
        model: For its preprocessing and tokenizer.
        data: For the largest number of pixels.
        name: Key of the config that names the data, for messages.

    Returns:
        Images and the longest caption of each sample.

    Raises:
        ValueError: Fewer than 2 samples can be used.
    """
    preprocessor = Preprocessor(
        pixels=model.config.image.preprocessing, tokenizer=_get_tokenizer(model), caption="longest",
        max_pixels=data.max_pixels,
    )  # fmt: skip
    samples: list[TrainingSample] = []
    for index in range(len(source)):
        if len(samples) == limit:
            break
        try:
            # nothing is drawn without augmentation, so any seed will do
            samples.append(preprocessor.process(source.read(index), 0))
        except BadSampleError:
            continue
    if len(samples) < 2:
        raise ValueError(
            f"{name} {source.name}: {len(samples)} of its {len(source)} samples can be used, but retrieval needs at "
            f"least 2. `prolip data check {shlex.quote(source.name)}` reports its bad samples"
        )
    captions = [sample.caption for sample in samples]
    return HeldOutSamples(
        torch.stack([sample.pixels for sample in samples]), model.tokenize(captions), captions
    )


def _read_held_out_features(pairs: FeaturePairs, limit: int) -> HeldOutSamples:
    """The first images of feature pairs with their longest captions; ValueError if there are fewer than 2."""
    if len(pairs) < 2:
        raise ValueError(f"{pairs.folder} has {len(pairs)} held-out images, but retrieval needs at least 2")
    count = min(limit, len(pairs))
    rows = [
        max(range(start, end), key=lambda row: len(pairs.captions[row]))
        for start, end in pairwise(pairs.offsets[: count + 1].tolist())
    ]
    return HeldOutSamples(
        torch.from_numpy(pairs.images[:count, 0].astype(np.float32)),
        torch.from_numpy(pairs.texts[rows, 0].astype(np.float32)),
        [pairs.captions[row] for row in rows],
    )


def describe_data(config: TrainConfig) -> list[DataDescription]:
    """Describe each source of each stage, for config.json of the run folder. Opens the data, which indexes shards.

    Args:
        config: The run.

    Returns:
        A description per source.
    """
    specs = dict.fromkeys(spec for stage in config.stages for spec in stage.source or config.data.source)
    descriptions: list[DataDescription] = []
    for spec in specs:
        samples: int | None
        if is_feature_address(spec):
            pairs = FeaturePairs.from_address(spec)
            samples, fingerprint = len(pairs), pairs.digest
        elif is_stream(spec):
            samples, fingerprint = None, open_stream(spec, config.data).fingerprint()
        else:
            source = open_source(spec, config.data)
            samples, fingerprint = len(source), source.fingerprint()
        descriptions.append({"source": redact_secrets(spec), "samples": samples, "fingerprint": fingerprint})
    return descriptions


class _LoaderFactory:
    """Makes the loaders of a stage, which differ in their source and number of samples.

    Args:
        config: The run.
        preprocessor: From a sample to pixels and token ids.
        steps: Steps of the stage.
        rank: Rank of this process.
        world_size: Number of ranks.
    """

    def __init__(
        self, config: TrainConfig, preprocessor: Preprocessor, steps: int, rank: int, world_size: int
    ) -> None:
        self.config, self.preprocessor, self.steps = config, preprocessor, steps
        self.rank, self.world_size = rank, world_size

    def make_file_loader(self, sources: Sequence[Source], weights: Sequence[float] | None) -> Loader:
        """A loader of whole batches from files; an epoch is one pass.

        Args:
            sources: Files that are mixed sample by sample.
            weights: Fraction of samples from each source; None: in proportion to their sizes.
        """
        return self._make_random_access_loader(
            sources, self.config.batch_size, weights, None, self.config.data.workers
        )

    def make_source_loader(self, spec: str, count: int, workers: int) -> BaseLoader:
        """A loader of one source's part of each batch; an epoch is the whole stage, so that all sources end together.

        Args:
            spec: Files or a stream, as in `DataConfig.source`.
            count: Samples of this source in each rank's batch.
            workers: Worker processes of this loader.
        """
        data, samples_per_epoch = self.config.data, self.steps * count * self.world_size
        if not is_stream(spec):
            return self._make_random_access_loader(
                [open_source(spec, data)], count * self.world_size, None, samples_per_epoch, workers
            )
        return StreamLoader(
            open_stream(spec, data), self.preprocessor, batch_size=count, samples_per_epoch=samples_per_epoch,
            seed=self.config.seed, num_workers=workers, rank=self.rank, world_size=self.world_size,
            max_bad_fraction=data.max_bad_fraction,
        )  # fmt: skip

    def _make_random_access_loader(
        self,
        sources: Sequence[Source],
        global_batch_size: int,
        weights: Sequence[float] | None,
        samples_per_epoch: int | None,
        workers: int,
    ) -> Loader:
        """A loader of sources that can be read at any index; other samples of theirs replace bad ones.

        Args:
            sources: Sources that are mixed sample by sample.
            global_batch_size: Samples per batch over all ranks.
            weights: Fraction of samples from each source; None: in proportion to their sizes.
            samples_per_epoch: Samples per epoch over all ranks; None: one pass over the sources.
            workers: Worker processes.
        """
        data = self.config.data
        return Loader(
            sources, self.preprocessor, global_batch_size=global_batch_size, weights=weights,
            samples_per_epoch=samples_per_epoch,
            seed=self.config.seed, window=data.shuffle_window, num_workers=workers, rank=self.rank,
            world_size=self.world_size, on_bad="replace", max_bad_fraction=data.max_bad_fraction,
        )  # fmt: skip


def _require_enough_samples(batch_size: int, sources: Sequence[Source]) -> None:
    """Raise a ValueError if all sources together have fewer samples than one global batch."""
    samples = sum(map(len, sources))
    if samples < batch_size:
        raise ValueError(
            f"batch_size {batch_size} is more than the {samples} samples of data.source: reduce it, or add data"
        )


def _make_preprocessor(data: DataConfig, model: ProLIP) -> Preprocessor:
    """The preprocessor of training samples: augmentation, choice of the caption, token dropout, crops and masks."""
    return Preprocessor(
        pixels=model.config.image.preprocessing,
        tokenizer=_get_tokenizer(model),
        augmentation=data.augmentation if data.augment else None,
        caption=data.caption_choice,
        max_pixels=data.max_pixels,
        drop_words=data.token_dropout,
        text_crops=data.text_crops,
        image_views=_make_image_views(data),
    )


def _make_image_views(data: DataConfig) -> ImageViews | None:
    """The image views of the run; None if all images are shown whole."""
    if not data.image_crops and not data.image_masks:
        return None
    return ImageViews(crop_fraction=data.image_crops, mask_fraction=data.image_masks)


def _get_tokenizer(model: ProLIP) -> Tokenizer:
    """The model's tokenizer; a ValueError if it has none."""
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer to train with: set --model.tokenizer")
    return model.tokenizer


def open_source(spec: str, data: DataConfig) -> Source:
    """Open files or generated data for random access.

    Args:
        spec: Address of the data.
        data: For the names of the image and caption columns.

    Returns:
        The source.
    """
    return open_data(spec, captions=data.captions, image=data.image)


def open_stream(spec: str, data: DataConfig) -> TarStream:
    """Open shards that are read in order.

    Args:
        spec: Address of the shards.
        data: For the extensions of images and captions.

    Returns:
        The stream.
    """
    captions = DEFAULT_CAPTIONS if data.captions is None else data.captions
    return TarStream(spec, captions, DEFAULT_IMAGES if data.image is None else (data.image,))


def _count_samples_per_source(
    specs: Sequence[str], weights: Sequence[float] | None, batch_size: int
) -> list[int]:
    """Divide the samples of a rank's batch among the sources in proportion to their weights, by largest remainder.

    Args:
        specs: S sources.
        weights: S positive numbers; None: equal ones.
        batch_size: Samples of a rank's batch.

    Returns:
        The number of samples of each source in a rank's batch: S numbers, which add up to `batch_size`.

    Raises:
        ValueError: A weight is not positive, or a source would give no sample.
    """
    names = [redact_secrets(spec) for spec in specs]
    # in 65536ths, as for files: it also checks the weights
    shares = count_per_block([1.0] * len(specs) if weights is None else weights, names)
    counts: list[int] = apportion(shares.tolist(), batch_size).tolist()
    for count, name in zip(counts, names, strict=True):
        if count == 0:
            raise ValueError(
                f"{name}: its part of a rank's batch of {batch_size} is less than one sample; raise its weight in "
                "data.weights, or batch_size"
            )
    return counts
