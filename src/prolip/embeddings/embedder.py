"""Embedder: a model that embeds sources and texts in memory, with a cache on disk for evaluators.

The cache is keyed by (model, data, transform), so another score, other prompts or another metric need no inference, and
a run that was killed resumes at the first missing part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from prolip.checks import require_positive_int
from prolip.choices import Modality
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source
from prolip.embeddings.base_embedder import (
    BaseEmbedder,
    EncodedImages,
    ImageTransform,
    LogitParameters,
    has_uncertainty,
)
from prolip.embeddings.cache import CachedDataset, EmbeddingCache
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.identity import data_identity, model_identity, texts_identity
from prolip.embeddings.inference_loop import (
    EncodedPart,
    FileStamp,
    InferenceSample,
    encode_tasks,
    get_file_stamp,
    prepare_or_error,
    prepare_sample,
)
from prolip.embeddings.sample_metadata import SampleMetadata, collect_metadata
from prolip.embeddings.tasks import SourceTasks
from prolip.extras import make_install_advice, missing_modules
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.progress import progress_bar

log = logging.getLogger("prolip.embeddings")

PART_SIZE = 4096
"""Samples per cached file: what a killed run loses at most."""
TEXT_PART_SIZE = 16_384
"""Texts per cached file."""


@dataclass(frozen=True, kw_only=True)
class Embedder(BaseEmbedder):
    """A model and its inference settings.

    Attributes:
        model: Its weights are hashed once, so they must not change while this object is used.
        cache: Folder of the cache; None: nothing is cached. The cache needs pyarrow (extra data); without it a warning
            is logged and nothing is cached.
        cache_size: Bytes that the cache may have, see `EmbeddingCache`; None: PROLIP_CACHE_SIZE, or 20 GB.
        batch_size, text_batch_size: Images and texts per forward pass.
        max_bad_fraction: Bad samples are skipped and reported; a larger fraction of them is an error.
        progress: Whether to show a progress bar on stderr; None: if that is a terminal.
    """

    model: ProLIP
    cache: Path | None = None
    cache_size: int | None = None
    batch_size: int = 64
    text_batch_size: int = 256
    max_bad_fraction: float = 0.01
    progress: bool | None = None

    @cached_property
    def identity(self) -> str:
        """Hash of the model's weights, config and tokenizer, see `model_identity`."""
        return model_identity(self.model)

    @property
    def logit_parameters(self) -> LogitParameters:
        return self.model.logit_parameters

    @property
    def has_uncertainty(self) -> bool:
        return has_uncertainty(self.model)

    def require_model(self, purpose: str) -> ProLIP:
        return self.model

    def with_model(self, model: ProLIP) -> Embedder:
        return replace(self, model=model, cache=None)

    def embed_images(self, source: Source, transform: ImageTransform | None = None) -> EncodedImages:
        """As `BaseEmbedder.embed_images`. Parts that are in the cache are read, the others computed and cached."""
        require_positive_int(self.batch_size, "batch_size")
        length, reader = len(source), _SampleReader(self.model, source, transform)
        ranges = [range(first, min(first + PART_SIZE, length)) for first in range(0, length, PART_SIZE)]
        counts = ErrorCounts()
        with self._open_cached_images(source, transform) as cached:
            # by the index of a part: the cached parts, then also those that are computed
            parts = {} if cached is None else _read_cached_parts(cached, ranges, reader)
            for part in parts.values():
                counts.add(part.num_samples, part.errors.values())
            missing = [(index, indices) for index, indices in enumerate(ranges) if index not in parts]
            with progress_bar(f"embedding {source.name}", length, "images", self.progress) as advance:
                advance(length - sum(len(indices) for _, indices in missing))
                for index, part in encode_tasks(self.model, missing, reader, self.batch_size, advance):
                    counts.add(part.num_samples, part.errors.values())
                    check_no_broken_shard(counts)
                    counts.check(self.max_bad_fraction)
                    parts[index] = part
                    if cached is not None and not _try_write(cached.write_images, index, part):
                        cached = None  # the other parts are not cached either
        return finish_images([parts[index] for index in range(len(ranges))], source, self.max_bad_fraction)

    def embed_texts(self, texts: Sequence[str]) -> Gaussian:
        """As `BaseEmbedder.embed_texts`. Equal texts are computed once, and all are cached."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        unique_texts = list(rows)
        # Without texts there is one empty part, which gives the result its dimension.
        starts = range(0, max(1, len(unique_texts)), TEXT_PART_SIZE)
        blocks = []
        with self._open_cached_texts(unique_texts) as cached:
            for index, start in enumerate(starts):
                part = unique_texts[start : start + TEXT_PART_SIZE]
                z = None if cached is None else cached.read_texts(index, part)
                if z is None:
                    z = self.model.embed_texts(part, batch_size=self.text_batch_size, progress=self.progress)
                    if cached is not None and not _try_write(cached.write_texts, index, part, z):
                        cached = None  # the other parts are not cached either
                blocks.append(z)
        return Gaussian.cat(blocks)[torch.tensor([rows[text] for text in texts], dtype=torch.int64)]

    @contextmanager
    def _open_cached_images(
        self, source: Source, transform: ImageTransform | None
    ) -> Iterator[CachedDataset | None]:
        """The data set of a source in the cache, open; None if nothing is cached."""
        name = None if transform is None else transform.name
        if not self._can_cache:
            yield None
            return
        header = self._make_header(
            "image", source.name, SourceTasks(source, PART_SIZE).fingerprint(), PART_SIZE, len(source)
        )
        with self._open_cached(data_identity(source, name), replace(header, transform=name)) as cached:
            yield cached

    @contextmanager
    def _open_cached_texts(self, texts: Sequence[str]) -> Iterator[CachedDataset | None]:
        """The data set of texts in the cache, open; None if nothing is cached, or there are no texts."""
        if not texts or not self._can_cache:
            yield None
            return
        identity = texts_identity(texts)
        header = self._make_header("text", f"{len(texts)} texts", identity, TEXT_PART_SIZE, len(texts))
        with self._open_cached(f"texts-{identity}", header) as cached:
            yield cached

    @contextmanager
    def _open_cached(self, name: str, header: DatasetHeader) -> Iterator[CachedDataset | None]:
        """A data set of the cache, open; None, with a warning, if it can't be created."""
        assert self.cache is not None  # `_can_cache`
        cached: CachedDataset | None = None
        with ExitStack() as stack:
            try:
                cached = stack.enter_context(
                    EmbeddingCache(folder=self.cache, max_size=self.cache_size).open(name, header)
                )
            except OSError as error:
                _warn_not_cached(error)
            yield cached

    @cached_property
    def _can_cache(self) -> bool:
        """Whether there is a cache that can hold these embeddings. Logs a warning, once, if it can't."""
        if self.cache is None:
            return False
        if self.model.dtype == torch.float64:
            log.warning(
                "Embeddings are not cached, because the model has float64 weights: the cache is float32."
            )
            return False
        if missing := missing_modules("data"):
            log.warning(
                "Embeddings are not cached, because %s is not installed. %s",
                missing[0], make_install_advice("data"),
            )  # fmt: skip
            return False
        return True

    def _make_header(
        self, modality: Modality, data: str, fingerprint: str, part_size: int, length: int
    ) -> DatasetHeader:
        """The header of a data set of the cache; `length` is the number of samples or texts."""
        logits = self.logit_parameters
        return DatasetHeader(
            model=repr(self.model), identity=self.identity, dim=self.model.config.embed_dim,
            has_uncertainty=self.has_uncertainty, scale=logits.scale, logit_bias=logits.bias, gamma=logits.gamma,
            reads_variances=logits.reads_variances,
            variances="full", precision="float32", modality=modality, data=data, captions=None, image=None,
            fingerprint=fingerprint, part_size=part_size, parts=-(-length // part_size),
        )  # fmt: skip


def encode_images(
    model: ProLIP,
    source: Source,
    *,
    transform: ImageTransform | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> EncodedImages:
    """Embed all images of a source; `Embedder.embed_images` for a model that is used once.

    Args:
        model: The model.
        source: The data.
        transform: Applied to every image; None: none.
        cache: Folder of the cache; None: nothing is cached.
        batch_size: Images per forward pass.
        max_bad_fraction: Bad samples are skipped and reported; a larger fraction of them is an error.
        progress: Whether to show a progress bar on stderr; None: if that is a terminal.

    Returns:
        The Gaussians of all good samples, in the order of the source.
    """
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    return embedder.embed_images(source, transform)


def encode_texts(
    model: ProLIP,
    texts: Sequence[str],
    *,
    cache: Path | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Gaussian:
    """Embed texts; `Embedder.embed_texts` for a model that is used once.

    Args:
        model: The model.
        texts: N texts.
        cache: Folder of the cache; None: nothing is cached.
        batch_size: Texts per forward pass.
        progress: Whether to show a progress bar on stderr; None: if that is a terminal.

    Returns:
        Gaussian (N, D), on the CPU.
    """
    return Embedder(model=model, cache=cache, text_batch_size=batch_size, progress=progress).embed_texts(
        texts
    )


def _try_write(write: Callable[..., None], *values: object) -> bool:
    """Call `write(*values)`, which writes a part of the cache; return whether it succeeded.

    If not (a full disk, missing permissions), a warning is logged and work continues: the result is needed now, and
    the cache only avoids computing it again.
    """
    try:
        write(*values)
    except OSError as error:
        _warn_not_cached(error)
        return False
    return True


def _warn_not_cached(error: OSError) -> None:
    """Log that the cache can't be written."""
    log.warning("Embeddings can't be cached, so another run will compute them again: %s", error)


def check_no_broken_shard(counts: ErrorCounts) -> None:
    """Raise ValueError if a shard is broken.

    A broken shard counts as one bad sample, but may lose many: a score of the rest would be a score of other data.

    Args:
        counts: Samples that were tried so far.
    """
    if counts.broken_shards:
        example = counts.examples["broken shard"][0]
        raise ValueError(
            f"A shard is broken, so an unknown part of the data is missing: {example}. Download the shard again."
        )


def _warn_about_multiline_captions(parts: Iterable[EncodedPart], name: str) -> None:
    """Log a warning if images have captions of several lines, which are most often several captions."""
    count = sum(
        any("\n" in text for text in metadata.captions) for part in parts for metadata in part.metadata
    )
    if count:
        log.warning(
            "%s: the captions of %d images have several lines. If each line is a caption, use --captions txt:lines.",
            name, count,
        )  # fmt: skip


class _SampleReader:
    """Callable that reads a sample: index -> (index, prepared sample or its error). Called by threads.

    Args:
        model: For its preprocessing.
        source: The data.
        transform: Applied to the preprocessed pixels; None: none.
    """

    def __init__(self, model: ProLIP, source: Source, transform: ImageTransform | None) -> None:
        self._source, self._transform = source, transform
        self._preprocessing = model.config.image.preprocessing

    def __call__(self, index: int) -> tuple[int, InferenceSample | SampleError]:
        return index, prepare_or_error(lambda: self._read_sample(index))

    def _read_sample(self, index: int) -> InferenceSample:
        """Read and preprocess a sample, and apply the transform; raises BadSampleError if it can't be used."""
        sample = prepare_sample(self._source.read(index), self._preprocessing)
        if self._transform is None:
            return sample
        assert sample.pixels is not None  # prepare_sample was given the preprocessing
        return sample._replace(pixels=self._transform.apply(sample.pixels, index))

    def is_current(self, part: EncodedPart) -> bool:
        """Whether a cached part is still valid. Reads its bad samples and those with image files again.

        Image files and the metadata of their samples must be unchanged, and bad samples must still be bad. (Shards and
        tables need no check: their modification times are part of the cache's key.)
        """
        for index, metadata, stamp in zip(part.indices, part.metadata, part.file_stamps, strict=True):
            if stamp is not None and not self._is_unchanged(index, metadata, stamp):
                return False
        return all(isinstance(self(index)[1], SampleError) for index in part.errors)

    def _is_unchanged(self, index: int, metadata: SampleMetadata, stamp: FileStamp) -> bool:
        """Whether a sample still has the metadata and the file stamp that were cached. Its pixels are not decoded."""
        try:
            sample = self._source.read(index)
            # the digest needs decoded pixels: the file's stamp stands for it
            current = collect_metadata(sample)._replace(pixel_digest=metadata.pixel_digest)
        except BadSampleError:
            return False
        return get_file_stamp(sample.image) == stamp and current == metadata


def _read_cached_parts(
    cached: CachedDataset, ranges: Sequence[range], reader: _SampleReader
) -> dict[int, EncodedPart]:
    """Read the parts that are in the cache and still valid, by index; `ranges` has the sample indices of each part."""
    parts = {index: cached.read_images(index, indices) for index, indices in enumerate(ranges)}
    return {index: part for index, part in parts.items() if part is not None and reader.is_current(part)}


def finish_images(parts: Sequence[EncodedPart], source: Source, max_bad_fraction: float) -> EncodedImages:
    """Concatenate the parts of a source, after checks of its bad samples.

    Args:
        parts: All parts, in order.
        source: For its name.
        max_bad_fraction: Largest fraction of bad samples.

    Returns:
        The embedded images.

    Raises:
        TooManyBadSamplesError: More than `max_bad_fraction` of the samples are bad.
        ValueError: A shard is broken, or no image can be used.
    """
    counts = ErrorCounts()
    for part in parts:
        counts.add(part.num_samples, part.errors.values())
    check_no_broken_shard(counts)
    counts.check(max_bad_fraction, final=True)
    _warn_about_multiline_captions(parts, source.name)
    blocks = [z for part in parts for z in part.gaussians]
    if not blocks:
        raise ValueError(f"{source.name}: no image can be used: it has no samples, or all of them are bad")
    return EncodedImages(
        images=Gaussian.cat(blocks),
        indices=torch.tensor([index for part in parts for index in part.indices], dtype=torch.int64),
        metadata=tuple(metadata for part in parts for metadata in part.metadata),
        errors=tuple(error for part in parts for error in part.errors.values()),
        name=source.name,
    )
