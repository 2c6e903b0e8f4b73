"""Embedder: a model that embeds sources and texts in memory, with a cache on disk for evaluators.

The cache is keyed by (model, data, transform), so another score, other prompts or another metric need no inference, and
a run that was killed resumes at the first missing part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.data.sample import BadSampleError, SampleError
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source
from prolip.embeddings.embedder_cache import (
    read_image_part,
    read_text_part,
    write_image_part,
    write_text_part,
)
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
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.progress import progress_bar

log = logging.getLogger("prolip.embeddings")

PART_SIZE = 4096
"""Samples per cached file: what a killed run loses at most."""
TEXT_PART_SIZE = 16_384
"""Texts per cached file."""


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """The embedded images of a source.

    Attributes:
        images: Gaussian (N, D), on the CPU.
        indices: int64 (N,), increasing: index of each row's sample in its source.
        metadata: Metadata of each row's sample.
        errors: Bad samples, which have no row.
        name: Name of the source.
    """

    images: Gaussian
    indices: Tensor
    metadata: tuple[SampleMetadata, ...]
    errors: tuple[SampleError, ...]
    name: str

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class ImageTransform:
    """A transform of images before the model sees them.

    Attributes:
        name: Must identify the transform with all its settings, since the cache is keyed by it.
        apply: Preprocessed pixels, uint8 (3, S, S), and the sample index -> pixels of the same shape and type.
    """

    name: str
    apply: Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A model and its inference settings.

    Attributes:
        model: Its weights are hashed once, so they must not change while this object is used.
        cache: Folder of the cache; None: nothing is cached.
        batch_size, text_batch_size: Images and texts per forward pass.
        max_bad_fraction: Bad samples are skipped and reported; a larger fraction of them is an error.
        progress: Whether to show a progress bar on stderr; None: if that is a terminal.
    """

    model: ProLIP
    cache: Path | None = None
    batch_size: int = 64
    text_batch_size: int = 256
    max_bad_fraction: float = 0.01
    progress: bool | None = None

    @cached_property
    def identity(self) -> str:
        """Hash of the model's weights, config and tokenizer, see `model_identity`."""
        return model_identity(self.model)

    def embed_images(self, source: Source, transform: ImageTransform | None = None) -> EncodedImages:
        """Embed all images of a source.

        Args:
            source: The data.
            transform: Applied to every image; None: none.

        Returns:
            The Gaussians of all good samples, in the order of the source.

        Raises:
            TooManyBadSamplesError: More than `max_bad_fraction` of the samples are bad.
            ValueError: A shard is broken, or no image can be used.
        """
        require_positive_int(self.batch_size, "batch_size")
        length, reader = len(source), _SampleReader(self.model, source, transform)
        folder = None
        if self.cache is not None:
            data_folder = data_identity(source, None if transform is None else transform.name)
            folder = self.cache / self.identity / data_folder
        ranges = [range(first, min(first + PART_SIZE, length)) for first in range(0, length, PART_SIZE)]
        # by the index of a part's first sample: the cached parts, then also those that are computed
        parts = {} if folder is None else _read_cached_parts(folder, ranges, reader)
        counts = ErrorCounts()
        for cached in parts.values():
            counts.add(cached.num_samples, cached.errors.values())
        missing = [indices for indices in ranges if indices.start not in parts]
        with progress_bar(f"embedding {source.name}", length, "images", self.progress) as advance:
            advance(length - sum(map(len, missing)))
            tasks = ((indices, indices) for indices in missing)
            for indices, part in encode_tasks(self.model, tasks, reader, self.batch_size, advance):
                counts.add(len(indices), part.errors.values())
                _check_no_broken_shard(counts)
                counts.check(self.max_bad_fraction)
                parts[indices.start] = part
                if folder is not None and not _try_write_cache(
                    partial(write_image_part, folder, indices.start, part)
                ):
                    folder = None  # the other parts are not cached either
        _check_no_broken_shard(counts)
        counts.check(self.max_bad_fraction, final=True)
        _warn_about_multiline_captions(parts, source.name)
        return _concatenate_parts([parts[indices.start] for indices in ranges], source.name)

    def embed_texts(self, texts: Sequence[str]) -> Gaussian:
        """Embed texts. Equal texts are computed once, and blocks of `TEXT_PART_SIZE` texts are cached.

        Args:
            texts: N texts.

        Returns:
            Gaussian (N, D), in the order given, on the CPU.
        """
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        unique_texts = list(rows)
        # Without texts there is one empty part, which gives the result its dimension.
        starts = range(0, max(1, len(unique_texts)), TEXT_PART_SIZE)
        parts = [unique_texts[start : start + TEXT_PART_SIZE] for start in starts]
        folder = None if self.cache is None else self.cache / self.identity
        blocks = []
        for part in parts:
            identity = "" if folder is None else texts_identity(part)
            z = None if folder is None else read_text_part(folder, identity, len(part))
            if z is None:
                z = self.model.embed_texts(part, batch_size=self.text_batch_size, progress=self.progress)
                if (
                    folder is not None
                    and part
                    and not _try_write_cache(partial(write_text_part, folder, identity, z))
                ):
                    folder = None  # the other blocks are not cached either
            blocks.append(z)
        return Gaussian.cat(blocks)[torch.tensor([rows[text] for text in texts], dtype=torch.int64)]


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


def _try_write_cache(write: Callable[[], object]) -> bool:
    """Call `write`, which writes a file of the cache; return whether it succeeded.

    If not (a full disk, missing permissions), a warning is logged and work continues: the result is needed now, and
    the cache only avoids computing it again.
    """
    try:
        write()
    except OSError as error:
        log.warning("Embeddings can't be cached, so another run will compute them again: %s", error)
        return False
    return True


def _check_no_broken_shard(counts: ErrorCounts) -> None:
    """Raise ValueError if a shard is broken.

    A broken shard counts as one bad sample, but may lose many: a score of the rest would be a score of other data.
    """
    if counts.broken_shards:
        example = counts.examples["broken shard"][0]
        raise ValueError(
            f"A shard is broken, so an unknown part of the data is missing: {example}. Download the shard again."
        )


def _warn_about_multiline_captions(parts: Mapping[int, EncodedPart], name: str) -> None:
    """Log a warning if images have captions of several lines, which are most often several captions.

    Args:
        parts: Encoded parts, by the index of their first sample.
        name: Name of the data.
    """
    count = sum(
        any("\n" in text for text in metadata.captions)
        for part in parts.values()
        for metadata in part.metadata
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
    folder: Path, ranges: Sequence[range], reader: _SampleReader
) -> dict[int, EncodedPart]:
    """Read the parts that are in the cache and still valid, by the index of their first sample.

    `folder` is that of the model and the data; `ranges` has the sample indices of each part.
    """
    parts = {indices.start: read_image_part(folder, indices) for indices in ranges}
    return {start: part for start, part in parts.items() if part is not None and reader.is_current(part)}


def _concatenate_parts(parts: Sequence[EncodedPart], name: str) -> EncodedImages:
    """Concatenate the parts of the source `name`, given in order; raises ValueError if they have no good image."""
    blocks = [z for part in parts for z in part.gaussians]
    if not blocks:
        raise ValueError(f"{name}: no image can be used: it has no samples, or all of them are bad")
    return EncodedImages(
        images=Gaussian.cat(blocks),
        indices=torch.tensor([index for part in parts for index in part.indices], dtype=torch.int64),
        metadata=tuple(metadata for part in parts for metadata in part.metadata),
        errors=tuple(error for part in parts for error in part.errors.values()),
        name=name,
    )
