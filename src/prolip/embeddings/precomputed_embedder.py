"""PrecomputedEmbedder: evaluators' images and texts from files that `prolip embed` wrote; the rest from its model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.source import Source, Subset
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages, ImageTransform, LogitParameters
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embedder import Embedder, finish_images
from prolip.embeddings.embedder_config import EmbedderConfig
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.identity import model_identity
from prolip.embeddings.inference_loop import EncodedPart, FileStamp, get_file_stamp
from prolip.embeddings.sample_metadata import collect_metadata
from prolip.embeddings.schema import parse_metadata, read_gaussians, read_mean_traces
from prolip.embeddings.tasks import SourceTasks
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.weights.load import load

log = logging.getLogger("prolip.embeddings")

IMAGE_COLUMNS = ("index", "mean", "uncertainty", "pixel_digest", "metadata")
TEXT_COLUMNS = ("caption", "mean", "uncertainty")


@dataclass(frozen=True, kw_only=True)
class PrecomputedEmbedder(BaseEmbedder):
    """Embeddings that are looked up in finished data sets, and embedded with their model if they are not there.

    An image is looked up if the source is what a data set was embedded from, or a subset of it, or has the same image
    files, or at every index the same image (with other captions). A text is looked up by its exact characters.

    Attributes:
        datasets: Complete data sets of one model, at least one; see `open`.
        config: Settings; `config.model` or `model` embeds what is not in the data sets.
        model: The model, if it is open already.
    """

    datasets: tuple[EmbeddingDataset, ...]
    config: EmbedderConfig = field(default_factory=EmbedderConfig)
    model: ProLIP | None = None

    @classmethod
    def open(
        cls,
        *locations: str | Path,
        model: str | Path | ProLIP | None = None,
        config: EmbedderConfig | None = None,
    ) -> PrecomputedEmbedder:
        """Open data sets of embeddings.

        Args:
            locations: Folders or addresses that `prolip embed` wrote, all with the same model.
            model: Embeds what is not in them; None: that of `config`, or the one that their header names, if it is
                found. It is loaded when it is first needed.
            config: Settings for what is not in them, and the limit of bad samples; its `embeddings` is ignored. None:
                the defaults.

        Returns:
            The embedder.

        Raises:
            FileNotFoundError: There is no data set.
            ValueError: A data set is incomplete, stores only traces of variances, or is of another model.
        """
        if not locations:
            raise ValueError("PrecomputedEmbedder.open needs at least one data set of embeddings")
        datasets = tuple(EmbeddingDataset.open(location) for location in locations)
        for dataset in datasets:
            _check_usable(dataset, datasets[0])
        settings = config or EmbedderConfig()
        if isinstance(model, str | Path):
            settings = EmbedderConfig(**{**vars(settings), "model": str(model)})
        return cls(datasets=datasets, config=settings, model=model if isinstance(model, ProLIP) else None)

    @property
    def header(self) -> DatasetHeader:
        """Header of the first data set. What it says of the model holds for all."""
        return self.datasets[0].header

    @property
    def identity(self) -> str:
        return self.header.identity

    @property
    def logit_parameters(self) -> LogitParameters:
        return self.header.logit_parameters

    @property
    def has_uncertainty(self) -> bool:
        return self.header.has_uncertainty

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def progress(self) -> bool | None:
        return self.config.progress

    def embed_images(self, source: Source, transform: ImageTransform | None = None) -> EncodedImages:
        """As `BaseEmbedder.embed_images`: from the first data set that has the images of the source, or the model."""
        name = None if transform is None else transform.name
        for dataset in self.datasets:
            if dataset.header.modality != "text" and dataset.header.transform == name:
                part = self._find_images(dataset, source)
                if part is not None:
                    return finish_images([part], source, self.config.max_bad_fraction)
        what = f"The images of {source.name}" + (f' with the transform "{name}"' if name else "")
        if transform is None:
            log.warning(
                "%s are not in %s: it is other data, or has changed since. They are embedded with the model.",
                what, self._describe(),
            )  # fmt: skip
        return self._get_model_embedder(f"{what} are not in {self._describe()}.").embed_images(
            source, transform
        )

    def embed_texts(self, texts: Sequence[str]) -> Gaussian:
        """As `BaseEmbedder.embed_texts`: texts that are not in the data sets are embedded with the model."""
        result = _empty_gaussian(len(texts), self.header.dim)
        remaining = list(range(len(texts)))  # positions of the texts that were not found yet
        for stored in self._texts:
            found = [position for position in remaining if texts[position] in stored.rows]
            rows = torch.tensor([stored.rows[texts[position]] for position in found], dtype=torch.int64)
            result.mean[found], result.log_var[found] = stored.z.mean[rows], stored.z.log_var[rows]
            found_set = set(found)
            remaining = [position for position in remaining if position not in found_set]
        if remaining:
            missing = [texts[position] for position in remaining]
            examples = join_names([repr(text) for text in dict.fromkeys(missing)])
            reason = f"{len(missing):,} of {len(texts):,} texts are not in {self._describe()}: {examples}."
            z = self._get_model_embedder(reason).embed_texts(missing)
            result.mean[remaining], result.log_var[remaining] = z.mean, z.log_var
        return result

    def require_model(self, purpose: str) -> ProLIP:
        return self._require_model(f"{purpose[:1].upper()}{purpose[1:]} needs the model itself.")

    def with_model(self, model: ProLIP) -> Embedder:
        return self._make_embedder(model, cache=None)

    def _get_model_embedder(self, reason: str) -> Embedder:
        """The embedder for what is not in the data sets; `reason` says what, if there is no model."""
        return self._make_embedder(self._require_model(reason), self.config.get_cache_folder())

    def _make_embedder(self, model: ProLIP, cache: Path | None) -> Embedder:
        """An embedder with a model and these settings."""
        return Embedder(
            model=model,
            cache=cache,
            batch_size=self.config.batch_size,
            text_batch_size=self.config.text_batch_size,
            max_bad_fraction=self.config.max_bad_fraction,
            progress=self.config.progress,
        )

    def _require_model(self, reason: str) -> ProLIP:
        """The model, after a check of its identity; `reason` says what needs it, if it can't be loaded."""
        if isinstance(self._model, ProLIP):
            return self._model
        raise ValueError(
            f"{reason} Their model {self.config.model or self.header.model} can't be loaded ({self._model}). Give it "
            "with --model; or embed the missing data with prolip embed, and add its folder to --embeddings."
        )

    @cached_property
    def _model(self) -> ProLIP | Exception:
        """The model, loaded at the first access; the error if it is not found."""
        name = self.config.model or self.header.model
        model = self.model
        if model is None:
            try:
                model = load(name, device=self.config.device).eval()
            except (ValueError, OSError) as error:
                return error
        if (identity := model_identity(model)) != self.identity:
            raise ValueError(
                f"The model {name if self.model is None else repr(model)} ({identity}) is not the one that "
                f"{self._describe()} was embedded with: {self.header.model} ({self.identity}). Embeddings of two "
                "models can't be compared. Give the same model with --model."
            )
        return model

    def _find_images(self, dataset: EmbeddingDataset, source: Source) -> EncodedPart | None:
        """The images of a source from a data set, with the source's indices; None if the data set has other images."""
        fingerprint = dataset.header.fingerprint
        if _get_fingerprint(source) == fingerprint:
            return self._get_images(dataset)
        if isinstance(source, Subset) and _get_fingerprint(source.source) == fingerprint:
            return _select(self._get_images(dataset), source.indices.tolist())
        stored = self._get_images(dataset)
        return _match_files(stored, source) or _match_images(dataset, stored, source)

    def _get_images(self, dataset: EmbeddingDataset) -> EncodedPart:
        """All images of one of the data sets, read once."""
        number = self.datasets.index(dataset)
        if number not in self._images:
            self._images[number] = _read_images(dataset)
        return self._images[number]

    @cached_property
    def _images(self) -> dict[int, EncodedPart]:
        """The images that were read so far, by the number of their data set."""
        return {}

    @cached_property
    def _texts(self) -> list[_StoredTexts]:
        """The texts of the data sets, read at the first access."""
        return [_read_texts(dataset) for dataset in self.datasets if dataset.header.modality != "image"]

    def _describe(self) -> str:
        """The addresses of the data sets, for messages."""
        return join_names([str(dataset.storage) for dataset in self.datasets])


@dataclass(frozen=True, eq=False)
class _StoredTexts:
    """The texts of a data set.

    Attributes:
        z: Gaussian (n, D) of the different texts.
        rows: The row of each text.
    """

    z: Gaussian
    rows: Mapping[str, int]


def open_embedder(config: EmbedderConfig) -> BaseEmbedder:
    """Open what evaluators get embeddings from.

    Args:
        config: With a model, embeddings or both.

    Returns:
        A `PrecomputedEmbedder` if `config.embeddings` names data sets, else an `Embedder` with the model.

    Raises:
        ValueError, OSError: There is neither, or it can't be loaded, or the embeddings are of another model.
    """
    if config.embeddings:
        embedder = PrecomputedEmbedder.open(*config.embeddings, config=config)
        if config.model is not None:
            # Even if nothing is missing in the embeddings: results record this model.
            embedder.require_model("the comparison of --model with --embeddings")
        return embedder
    if config.model is None:
        raise ValueError(
            "Give a model with --model, or with --embeddings what prolip embed wrote. For example: --model scenes-tiny"
        )
    return Embedder(
        model=load(config.model, device=config.device).eval(),
        cache=config.get_cache_folder(),
        batch_size=config.batch_size,
        text_batch_size=config.text_batch_size,
        max_bad_fraction=config.max_bad_fraction,
        progress=config.progress,
    )


def _check_usable(dataset: EmbeddingDataset, first: EmbeddingDataset) -> None:
    """Raise ValueError if a data set is of another model than the first, or lacks variances.

    Evaluators take Gaussians, and some of their measures need every variance, so traces are refused for all of them.
    """
    header = dataset.header
    if header.identity != first.header.identity:
        raise ValueError(
            f"{dataset.storage} is of the model {header.model} ({header.identity}), but {first.storage} of "
            f"{first.header.model} ({first.header.identity}). Embeddings of two models can't be compared."
        )
    if header.variances == "trace" and header.has_uncertainty:
        raise ValueError(
            f"{dataset.storage} stores only the trace of each covariance, but evaluations need all variances. "
            "Run `prolip embed` with --variances full into another folder."
        )
    if header.precision == "float16":
        log.warning(
            "%s stores means in float16: scores may differ in the third digit from those of the model.",
            dataset.storage,
        )
    if header.decode == "fast":
        log.warning(
            "%s has images that were decoded fast: scores may differ in the third digit from those of exact pixels.",
            dataset.storage,
        )


def _empty_gaussian(count: int, dim: int) -> Gaussian:
    """A Gaussian (count, dim), float32, whose values are not set."""
    return Gaussian(torch.empty(count, dim), torch.empty(count, dim))


def _read_rows(table: Any, header: DatasetHeader) -> Gaussian:
    """Gaussians (n, D) of the rows of a table; points if the model has no uncertainty and no variances are stored."""
    return (
        Gaussian.point(read_mean_traces(table).mean) if header.variances == "trace" else read_gaussians(table)
    )


def _select_columns(columns: Sequence[str], header: DatasetHeader) -> list[str]:
    """The columns, and log_var if the data set has it."""
    return [*columns, *(["log_var"] if header.variances == "full" else [])]


def _read_images(dataset: EmbeddingDataset) -> EncodedPart:
    """All images of a data set as one part."""
    whole = EncodedPart.empty()
    for index, rows in dataset.iter_parts("image", _select_columns(IMAGE_COLUMNS, dataset.header)):
        if len(rows):
            whole.gaussians.append(
                _read_rows(rows, dataset.header).check(f"part {index} of {dataset.storage}")
            )
        whole.indices.extend(rows["index"].to_pylist())
        digests = rows["pixel_digest"].to_pylist()
        for json_text, digest in zip(rows["metadata"].to_pylist(), digests, strict=True):
            metadata, stamp = parse_metadata(json_text, digest or "")
            whole.metadata.append(metadata)
            whole.file_stamps.append(stamp)
        whole.errors.update(dataset.footer(index).errors)
    return whole


def _read_texts(dataset: EmbeddingDataset) -> _StoredTexts:
    """The different texts of a data set; of equal ones the first."""
    rows: dict[str, int] = {}
    blocks = [_empty_gaussian(0, dataset.header.dim)]
    for index, table in dataset.iter_parts("text", _select_columns(TEXT_COLUMNS, dataset.header)):
        new = []
        for row, text in enumerate(table["caption"].to_pylist()):
            if text not in rows:
                rows[text] = len(rows)
                new.append(row)
        if new:
            z = _read_rows(table, dataset.header).check(f"part {index} of {dataset.storage}")
            blocks.append(z[torch.tensor(new)])
    return _StoredTexts(Gaussian.cat(blocks), rows)


def _get_fingerprint(source: Source) -> str:
    """Fingerprint of a source, as in the header of its embeddings. It does not depend on the size of the parts."""
    return SourceTasks(source, 1).fingerprint()


def _select(stored: EncodedPart, indices: Sequence[int]) -> EncodedPart | None:
    """The samples of a part with these indices, increasing, counted from 0; None if one is neither good nor bad."""
    rows = {index: row for row, index in enumerate(stored.indices)}
    matches: list[int | SampleError] = []
    for index in indices:
        match = rows.get(index, stored.errors.get(index))
        if match is None:
            return None
        matches.append(match)
    return _take(stored, matches)


def _take(stored: EncodedPart, matches: Sequence[int | SampleError]) -> EncodedPart:
    """A part made of rows of another.

    Args:
        stored: The other part.
        matches: For each sample its row in `stored`, or its error.
    """
    part = EncodedPart.empty()
    rows = [match for match in matches if isinstance(match, int)]
    for index, match in enumerate(matches):
        if isinstance(match, int):
            part.indices.append(index)
            part.metadata.append(stored.metadata[match])
            part.file_stamps.append(stored.file_stamps[match])
        else:
            part.errors[index] = match
    if rows:
        part.gaussians.append(Gaussian.cat(stored.gaussians)[torch.tensor(rows)])
    return part


def _match_files(stored: EncodedPart, source: Source) -> EncodedPart | None:
    """Find the images of a source by the path, size and modification time of their files.

    Returns:
        The images with the metadata of the source; None if one is not there or has no file of its own.
    """
    rows: dict[FileStamp, int] = {
        stamp: row for row, stamp in enumerate(stored.file_stamps) if stamp is not None
    }
    bad_locations = {error.location: error for error in stored.errors.values()}
    samples: list[Sample | SampleError] = []
    matches: list[int | SampleError] = []
    for index in range(len(source) if rows else 0):
        sample = _read_sample(source, index)
        match = (
            sample
            if isinstance(sample, SampleError)
            else rows.get(get_file_stamp(sample.image), bad_locations.get(sample.location))
        )
        if match is None:
            return None
        samples.append(sample)
        matches.append(match)
    return _take_with_metadata(stored, samples, matches) if matches else None


def _match_images(dataset: EmbeddingDataset, stored: EncodedPart, source: Source) -> EncodedPart | None:
    """Find the images of a source by index, if at each index it has the same encoded image as the embedded data.

    Returns:
        The images with the metadata of the source; None if the data is no longer there, or an image differs.
    """
    try:
        embedded = dataset.open_source()
    except (ValueError, OSError):  # a stream, or moved or changed data
        return None
    if len(embedded) != len(source):
        return None
    rows = {index: row for row, index in enumerate(stored.indices)}
    samples: list[Sample | SampleError] = []
    matches: list[int | SampleError] = []
    for index in range(len(source)):
        sample, original = _read_sample(source, index), _read_sample(embedded, index)
        samples.append(sample)
        if isinstance(sample, SampleError):
            matches.append(sample)
            continue
        match = rows.get(index, stored.errors.get(index))
        same = not isinstance(original, SampleError) and _is_same_image(sample.image, original.image)
        if match is None or not same:
            return None
        matches.append(match)
    return _take_with_metadata(stored, samples, matches)


def _take_with_metadata(
    stored: EncodedPart, samples: Sequence[Sample | SampleError], matches: Sequence[int | SampleError]
) -> EncodedPart:
    """As `_take`, with the metadata of `samples`: their captions may be other ones than those that were embedded."""
    checked: list[int | SampleError] = []
    metadata = []
    for sample, match in zip(samples, matches, strict=True):
        if isinstance(sample, Sample) and isinstance(match, int):
            try:
                digest = stored.metadata[match].pixel_digest
                metadata.append(collect_metadata(sample)._replace(pixel_digest=digest))
            except BadSampleError as error:
                checked.append(error.record)
                continue
        checked.append(match)
    part = _take(stored, checked)
    part.metadata[:] = metadata
    return part


def _read_sample(source: Source, index: int) -> Sample | SampleError:
    """A sample of a source, or its error."""
    try:
        return source.read(index)
    except BadSampleError as error:
        return error.record


def _is_same_image(image: object, other: object) -> bool:
    """Whether two values of `Sample.image` are the same encoded bytes, or the same file. Decoded images never are."""
    return isinstance(image, bytes | Path) and type(image) is type(other) and image == other
