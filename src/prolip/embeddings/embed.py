"""`prolip embed`: embed data into a Parquet data set, locally or on Ray; a stopped run can be resumed."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from prolip.checks import require_choice, require_fraction, require_positive_int
from prolip.data.open import is_generated, is_stream
from prolip.data.sample import BadSampleError
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source
from prolip.data.sources.columns import DamagedFileError
from prolip.data.sources.tar_stream import redact_secrets
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.extra_columns import infer_types
from prolip.embeddings.header import (
    HEADER_FILE,
    DatasetHeader,
    Modality,
    Precision,
    Variances,
    check_same_header,
    has_embeddings,
)
from prolip.embeddings.identity import model_identity
from prolip.embeddings.ray_workers import RayCluster
from prolip.embeddings.sample_metadata import SampleMetadata, collect_metadata
from prolip.embeddings.storage import LocalStorage, open_storage
from prolip.embeddings.tasks import EmbeddingTasks, open_tasks
from prolip.embeddings.worker import TaskResult, WorkerConfig
from prolip.extras import import_extra
from prolip.model.prolip import ProLIP
from prolip.progress import progress_bar
from prolip.weights.load import load

log = logging.getLogger("prolip.embeddings")

Engine = Literal["local", "ray"]
PART_SIZE, BATCH_SIZE, TEXT_BATCH_SIZE = 4096, 64, 256
"""Samples per part, and images and texts per forward pass."""
MAX_BAD_FRACTION = 0.1
ERRORS_FILE = "errors.csv"
"""File of a data set that lists the bad samples."""


def embed(
    model: str | Path | ProLIP,
    data: str | Path | Source,
    out: str | Path,
    *,
    captions: Sequence[str] | None = None,
    image: str | None = None,
    modality: Modality | None = None,
    variances: Variances | None = None,
    precision: Precision = "float32",
    part_size: int = PART_SIZE,
    batch_size: int = BATCH_SIZE,
    text_batch_size: int = TEXT_BATCH_SIZE,
    max_bad_fraction: float = MAX_BAD_FRACTION,
    device: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    cpus: float = 1,
    gpus: float | None = None,
    progress: bool | None = None,
) -> EmbeddingDataset:
    """Embed all images and captions of data into a data set of Parquet parts.

    A run that was stopped resumes at the first missing part. The data set of another model, of other data or with other
    options is refused.

    Args:
        model: A model, or what `prolip.load` takes.
        data: A source, a path that `open_data` takes, or a stream; with modality "text" also a file of captions.
        out: A folder, or a URI of an object store (s3://, gs://, abfs://).
        captions, image: As for `open_data`.
        modality: Embed only images or only texts; None: both.
        variances: None: full, or trace for a model without uncertainty.
        precision: Data type of the means.
        part_size: Samples per part, which a killed run loses at most. A stream has one part per shard.
        batch_size, text_batch_size: Images and texts per forward pass.
        max_bad_fraction: Bad samples are skipped and listed in errors.csv; a larger fraction of them is an error.
        device: Device of the model; None: a GPU if there is one.
        engine: ray: on the cluster of RAY_ADDRESS, or on Ray on this machine.
        workers: On Ray: number of workers; None: as many as fit.
        cpus, gpus: On Ray: CPUs and GPUs per worker; gpus None: one, if there are any.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        The complete data set.

    Raises:
        ValueError: An argument is invalid, or `out` holds embeddings of another model, other data or other options.
        TooManyBadSamplesError: More than `max_bad_fraction` of the samples are bad.
        OSError: A Ray worker failed, or `out` is not the same folder on all machines.
    """
    import_extra("pyarrow", "data")
    require_choice(engine, get_args(Engine), "engine")
    sizes = {"part_size": part_size, "batch_size": batch_size, "text_batch_size": text_batch_size}
    for name, size in sizes.items():
        require_positive_int(size, name)
    require_fraction(max_bad_fraction, "max_bad_fraction")
    config = WorkerConfig(
        model=_get_model_name(model), data=data.name if isinstance(data, Source) else _make_absolute(str(data)),
        captions=None if captions is None else tuple(captions), modality=modality,
        image=_make_absolute(image) if image and _is_image_folder(str(data)) else image, part_size=part_size,
        batch_size=batch_size, text_batch_size=text_batch_size, device=device, storage=open_storage(out),
    )  # fmt: skip
    if engine == "ray" and (isinstance(model, ProLIP) or isinstance(data, Source)):
        raise ValueError(
            "With engine ray, model and data must be names or paths: every worker opens them itself."
        )
    opened = model if isinstance(model, ProLIP) else load(model, device=device).eval()
    tasks = open_tasks(
        data if isinstance(data, Source) else config.data, captions, image, modality, part_size
    )
    header = _write_or_check_header(config, opened, tasks, variances, precision)
    if engine == "ray":
        run = RayCluster(workers, cpus, gpus).run(config, header)
    else:
        run = config.make_worker(opened, tasks, header).run
    try:
        _run_missing_tasks(run, tasks, EmbeddingDataset(config.storage, header), max_bad_fraction, progress)
    except BaseException:
        with suppress(ValueError, OSError):  # the first error is the one to report
            _report_errors(EmbeddingDataset(config.storage, header))
        raise
    dataset = EmbeddingDataset(config.storage, header)
    _report_errors(dataset)
    if dataset.missing_parts:
        raise OSError(
            f"{len(dataset.missing_parts)} parts were written, but are not visible on this machine. {config.storage} "
            "must be the same folder on all machines of the cluster."
        )
    return dataset


RunTasks = Callable[[Sequence[int], Callable[[int], None]], Iterable[TaskResult]]
"""Task indices and progress callback -> the result of each task, in any order."""


def _write_or_check_header(
    config: WorkerConfig,
    model: ProLIP,
    tasks: EmbeddingTasks,
    variances: Variances | None,
    precision: Precision,
) -> DatasetHeader:
    """The header of the data set: written now, or the existing one, which may differ only in extra columns.

    Args:
        config: What is embedded, and the storage.
        model: The open model; its weights are hashed.
        tasks: The open data; some samples are read to infer the types of extra columns.
        variances: None: full, or trace for a model without uncertainty.
        precision: Data type of the means.

    Raises:
        ValueError: The storage holds embeddings of something else, or parts without a header.
    """
    towers, storage = model.config, config.storage
    has_uncertainty = "none" not in (towers.image.uncertainty, towers.text.uncertainty)
    temperature = None if model.logit_bias is None else model.temperature
    old = DatasetHeader.read(storage) if has_embeddings(storage) else None
    header = DatasetHeader(
        model=config.model, identity=model_identity(model), dim=towers.embed_dim,
        scale=None if temperature is None else temperature.scale.item(),
        logit_bias=None if temperature is None else temperature.logit_bias.item(),
        variances=variances or ("full" if has_uncertainty else "trace"), precision=precision,
        modality=config.modality, data=redact_secrets(config.data), captions=config.captions, image=config.image,
        fingerprint=tasks.fingerprint(), part_size=config.part_size, parts=len(tasks),
        columns=infer_types(_iter_example_metadata(tasks)) if old is None else old.columns,
    )  # fmt: skip
    if old is None and any(name.startswith("part-") for name in storage.list_names()):
        raise ValueError(
            f"{storage} holds parts of embeddings, but no {HEADER_FILE}. Remove them, or choose another folder."
        )
    if old is not None:
        check_same_header(old, header, storage)
        if isinstance(storage, LocalStorage):
            storage.remove_temporary_files()
        return old
    header.write(storage)
    return header


def _iter_example_metadata(tasks: EmbeddingTasks) -> Iterator[SampleMetadata]:
    """Metadata of a few samples from all over the data; those whose metadata is bad are skipped."""
    for sample in tasks.iter_examples():
        with suppress(BadSampleError):
            yield collect_metadata(sample)


def _run_missing_tasks(
    run: RunTasks,
    tasks: EmbeddingTasks,
    dataset: EmbeddingDataset,
    max_bad_fraction: float,
    progress: bool | None,
) -> None:
    """Run the tasks of missing and damaged parts. Broken shards are tried again: they may have been repaired.

    Args:
        run: Runs tasks, in this process or on Ray.
        tasks: The data, split into tasks; a part has the index of its task.
        dataset: The parts that exist.
        max_bad_fraction: Largest fraction of bad samples, over all parts.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Raises:
        TooManyBadSamplesError: Too many samples, or shards of a stream, are bad.
    """
    counts, missing = ErrorCounts(), dataset.missing_parts  # counts: of the parts that stay as they are
    for part in dataset.part_indices:
        try:
            part_counts = dataset.footer(part).count_errors()
        except DamagedFileError as error:
            log.warning("The part is computed again: %s", error)
            missing.append(part)
            continue
        if part_counts.broken_shards:
            missing.append(part)
        else:
            counts.merge(part_counts)
    missing.sort()
    # only of a stream is a task a shard, so that broken shards can be counted
    shards = len(tasks) if tasks.num_samples is None else math.inf
    total = None if tasks.num_samples is None else sum(tasks.size(task) or 0 for task in missing)
    with progress_bar(f"embedding {tasks.name}", total, "samples", progress) as advance:
        for result in run(missing, advance):
            counts.add(result.num_samples, result.errors)
            counts.check(max_bad_fraction, shards)
    counts.check(max_bad_fraction, shards, final=True)


def _report_errors(dataset: EmbeddingDataset) -> None:
    """Write errors.csv with the bad samples of all parts, and log a warning about invalid values of extra columns."""
    rows = [(part, sample, *error) for part, sample, error in dataset.iter_errors()]
    if rows or ERRORS_FILE in dataset.storage.list_names():
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerows([("part", "index", "reason", "location", "detail"), *rows])
        dataset.storage.write(ERRORS_FILE, lambda file: file.write(text.getvalue().encode()))
    if invalid := dataset.count_invalid_values():
        counts = ", ".join(f"{name} {count:,}" for name, count in invalid.most_common())
        log.warning(
            "%s: values with another type than their column were stored as null: %s", dataset.storage, counts
        )


def _get_model_name(model: str | Path | ProLIP) -> str:
    """The name under which `load` finds the model from any working directory; for a model in memory its repr."""
    if isinstance(model, ProLIP):
        return repr(model)
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else str(model)


def _is_image_folder(data: str) -> bool:
    """Whether `image` is a folder, as for COCO's captions, and not a column or an extension."""
    return data.lower().endswith(".json")


def _make_absolute(data: str) -> str:
    """The address of data, valid in any working directory."""
    return data if is_stream(data) or is_generated(data) else os.path.abspath(os.path.expanduser(data))
