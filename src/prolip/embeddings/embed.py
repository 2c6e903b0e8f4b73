"""`prolip embed`: embed data into a Parquet data set, locally or on Ray; a stopped run can be resumed."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from prolip.configs import takes_config
from prolip.data.open import is_generated, is_stream
from prolip.data.sample import BadSampleError
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source
from prolip.data.sources.columns import DamagedFileError
from prolip.data.views import format_view, parse_view
from prolip.embeddings.config import EmbedConfig
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.extra_columns import infer_types
from prolip.embeddings.header import HEADER_FILE, DatasetHeader, check_same_header, has_embeddings
from prolip.embeddings.identity import model_identity
from prolip.embeddings.ray_workers import RayCluster
from prolip.embeddings.sample_metadata import SampleMetadata, collect_metadata
from prolip.embeddings.tasks import EmbeddingTasks, open_tasks
from prolip.embeddings.worker import TaskResult, WorkerConfig
from prolip.extras import import_extra
from prolip.files import escape_formula
from prolip.folder_kinds import require_folder_for
from prolip.model.prolip import ProLIP
from prolip.progress import progress_bar
from prolip.storage.addresses import redact_secrets
from prolip.storage.commands import record_commands
from prolip.storage.folders import LocalStorage, open_storage
from prolip.weights.load import load

log = logging.getLogger("prolip.embeddings")

ERRORS_FILE = "errors.csv"
"""File of a data set that lists the bad samples."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingSummary:
    """Counts and size of a data set of embeddings."""

    storage: str
    """The folder, or the address."""
    model: str
    """Name or path of the model."""
    identity: str
    """Hash of the model."""
    parts: int
    """Number of files."""
    rows: int
    """Number of embeddings, of images and texts."""
    samples: int
    """Number of samples that were read, good and bad."""
    bad: dict[str, int]
    """Number of bad samples by reason, the most frequent first."""
    megabytes: float
    """Size of the files."""

    def to_json(self) -> str:
        """The summary as JSON text."""
        return json.dumps(asdict(self))


def summarize(dataset: EmbeddingDataset) -> EmbeddingSummary:
    """Count the rows and bad samples of a data set. Reads the footers of its parts.

    Args:
        dataset: What `embed` returned.

    Returns:
        The counts.
    """
    errors = dataset.count_errors()
    return EmbeddingSummary(
        storage=str(dataset.storage), model=dataset.header.model, identity=dataset.header.identity,
        parts=len(dataset.part_indices), rows=len(dataset), samples=errors.tried,
        bad=dict(errors.reasons.most_common()), megabytes=dataset.size_in_bytes() / 1e6,
    )  # fmt: skip


@takes_config(EmbedConfig)
def embed(
    model: str | Path | ProLIP, data: str | Path | Source, out: str | Path, config: EmbedConfig
) -> EmbeddingDataset:
    """Embed all images and captions of data into a data set of Parquet parts.

    A run that was stopped resumes at the first missing part. The data set of another model, of other data or with other
    options is refused.

    Args:
        model: A model, or what `prolip.load` takes.
        data: A source, a path that `open_data` takes, or a stream; with modality "text" also a file of captions.
        out: A folder, or a URI of an object store (s3://, gs://, az://).
        config: How to embed; or its fields as keywords.

    Returns:
        The complete data set.

    Raises:
        ValueError: An argument is invalid, or `out` holds embeddings of another model, other data or other options.
        TooManyBadSamplesError: More than `max_bad_fraction` of the samples are bad.
        OSError: A Ray worker failed, or `out` is not the same folder on all machines.
    """
    import_extra("pyarrow", "data")
    if config.engine == "ray" and (isinstance(model, ProLIP) or isinstance(data, Source)):
        raise ValueError(
            "With engine ray, model and data must be names or paths, because every worker opens them itself."
        )
    worker_config = _make_worker_config(model, data, out, config)
    if isinstance(worker_config.storage, LocalStorage):
        require_folder_for("embeddings", worker_config.storage.path)
    loaded_model = model if isinstance(model, ProLIP) else load(model, device=config.device).eval()
    tasks = open_tasks(
        data if isinstance(data, Source) else worker_config.data, config.captions, config.image, config.modality,
        config.part_size,
    )  # fmt: skip
    record_commands([worker_config.data])
    header = _write_or_check_header(worker_config, loaded_model, tasks, config)
    if config.engine == "ray":
        cluster = RayCluster(config.ray_workers, config.ray_cpus, config.ray_gpus)
        run_tasks = cluster.make_runner(worker_config, header)
    else:
        run_tasks = worker_config.make_worker(loaded_model, tasks, header).run
    return _complete(EmbeddingDataset(worker_config.storage, header), run_tasks, tasks, config)


RunTasks = Callable[[Sequence[int], Callable[[int], None]], Iterable[TaskResult]]
"""Task indices and progress callback -> the result of each task, in any order."""


def _make_worker_config(
    model: str | Path | ProLIP, data: str | Path | Source, out: str | Path, config: EmbedConfig
) -> WorkerConfig:
    """What a worker opens; its paths are valid in any working directory."""
    image = config.image
    return WorkerConfig(
        model=_get_model_name(model), data=data.name if isinstance(data, Source) else _make_absolute(str(data)),
        captions=config.captions, modality=config.modality,
        image=_make_absolute(image) if image and _takes_image_folder(str(data)) else image,
        part_size=config.part_size, batch_size=config.batch_size, text_batch_size=config.text_batch_size,
        device=config.device, storage=open_storage(out),
    )  # fmt: skip


def _complete(
    dataset: EmbeddingDataset, run_tasks: RunTasks, tasks: EmbeddingTasks, config: EmbedConfig
) -> EmbeddingDataset:
    """Write the missing parts of a data set, and errors.csv; return the complete data set.

    Raises OSError if parts that were written on other machines are not visible on this one.
    """
    storage, header = dataset.storage, dataset.header
    try:
        _run_missing_tasks(run_tasks, tasks, dataset, config.max_bad_fraction, config.progress)
    except BaseException:
        with suppress(ValueError, OSError):  # the first error is the one to report
            _report_errors(EmbeddingDataset(storage, header))
        raise
    dataset = EmbeddingDataset(storage, header)  # opened again, because it lists its parts only once
    _report_errors(dataset)
    if dataset.missing_parts:
        raise OSError(
            f"{len(dataset.missing_parts)} parts were written, but are not visible on this machine. {storage} "
            "must be the same folder on all machines of the cluster."
        )
    return dataset


def _write_or_check_header(
    worker_config: WorkerConfig, model: ProLIP, tasks: EmbeddingTasks, config: EmbedConfig
) -> DatasetHeader:
    """The header of the data set: a new one, which is written, or the existing one, after a check.

    When a data set is resumed, temporary files of killed runs are removed from its local folder.

    Args:
        worker_config: What is embedded, and the storage.
        model: The open model; its weights are hashed.
        tasks: The open data; some samples are read to infer the types of extra columns.
        config: How images are decoded and Gaussians stored.

    Raises:
        ValueError: The storage holds embeddings of another model, data or options, or parts without a header.
    """
    model_config, storage = model.config, worker_config.storage
    has_uncertainty = "none" not in (model_config.image.uncertainty, model_config.text.uncertainty)
    logits = model.logit_parameters
    existing_header = DatasetHeader.read(storage) if has_embeddings(storage) else None
    header = DatasetHeader(
        model=worker_config.model, identity=model_identity(model), dim=model_config.embed_dim,
        has_uncertainty=has_uncertainty, scale=logits.scale, logit_bias=logits.bias, gamma=logits.gamma,
        reads_variances=logits.reads_variances,
        variances=config.variances or ("full" if has_uncertainty else "trace"), precision=config.precision,
        decode=config.decode, modality=config.modality, data=redact_secrets(worker_config.data),
        captions=config.captions, image=worker_config.image, fingerprint=tasks.fingerprint(),
        part_size=config.part_size, parts=len(tasks),
        columns=infer_types(_iter_example_metadata(tasks)) if existing_header is None else existing_header.columns,
    )  # fmt: skip
    if existing_header is None and any(name.startswith("part-") for name in storage.list_names()):
        raise ValueError(
            f"{storage} holds parts of embeddings, but no {HEADER_FILE}. Remove them, or choose another folder."
        )
    if existing_header is not None:
        check_same_header(existing_header, header, storage)
        if isinstance(storage, LocalStorage):
            storage.remove_temporary_files()
        return existing_header
    header.write(storage)
    return header


def _iter_example_metadata(tasks: EmbeddingTasks) -> Iterator[SampleMetadata]:
    """Iterate over the metadata of a few samples from all over the data; samples with bad metadata are skipped."""
    for sample in tasks.iter_examples():
        with suppress(BadSampleError):
            yield collect_metadata(sample)


def _run_missing_tasks(
    run_tasks: RunTasks,
    tasks: EmbeddingTasks,
    dataset: EmbeddingDataset,
    max_bad_fraction: float,
    progress: bool | None,
) -> None:
    """Run the tasks of missing and damaged parts. Broken shards are tried again: they may have been repaired.

    Args:
        run_tasks: Runs tasks and writes their parts, in this process or on Ray.
        tasks: The data, split into tasks; a part has the index of its task.
        dataset: The parts that exist.
        max_bad_fraction: Largest fraction of bad samples, over all parts.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Raises:
        TooManyBadSamplesError: Too many samples, or shards of a stream, are bad.
    """
    counts = ErrorCounts()  # of the parts that are not written again, then also of the results
    missing_tasks = dataset.missing_parts
    for part in dataset.part_indices:
        try:
            part_counts = dataset.footer(part).count_errors()
        except DamagedFileError as error:
            log.warning("A damaged part is computed again: %s", error)
            missing_tasks.append(part)
            continue
        if part_counts.broken_shards:
            missing_tasks.append(part)
        else:
            counts.merge(part_counts)
    missing_tasks.sort()
    # Only of a stream is a task a shard, so that the fraction of broken shards is known. inf: it is not checked.
    num_shards = len(tasks) if tasks.num_samples is None else math.inf
    num_samples = None if tasks.num_samples is None else sum(tasks.size(task) or 0 for task in missing_tasks)
    with progress_bar(f"embedding {tasks.name}", num_samples, "samples", progress) as advance:
        for result in run_tasks(missing_tasks, advance):
            counts.add(result.num_samples, result.errors)
            counts.check(max_bad_fraction, num_shards)
    counts.check(max_bad_fraction, num_shards, final=True)


def _report_errors(dataset: EmbeddingDataset) -> None:
    """Write errors.csv with the bad samples of all parts, and log a warning about invalid values of extra columns.

    Without bad samples there is no errors.csv, or only its heading, if an earlier run wrote one.
    """
    rows = [(part, sample, *map(escape_formula, error)) for part, sample, error in dataset.iter_errors()]
    if rows or ERRORS_FILE in dataset.storage.list_names():
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerows([("part", "index", "reason", "location", "detail"), *rows])
        dataset.storage.write(ERRORS_FILE, lambda file: file.write(text.getvalue().encode()))
    if invalid_counts := dataset.count_invalid_values():
        text_counts = ", ".join(f"{name} {count:,}" for name, count in invalid_counts.most_common())
        log.warning(
            "%s: some values of extra columns were not stored, because the column has another type or none of the "
            "samples from which columns are inferred has it: %s",
            dataset.storage,
            text_counts,
        )


def _get_model_name(model: str | Path | ProLIP) -> str:
    """The name under which `load` finds the model from any working directory; for a model in memory its repr."""
    if isinstance(model, ProLIP):
        return repr(model)
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else str(model)


def _takes_image_folder(data: str) -> bool:
    """Whether the argument `image` is a folder for this data, as for COCO's .json, and not a column or an extension."""
    return data.lower().endswith(".json")


def _make_absolute(data: str) -> str:
    """Make a path absolute, so that it is valid in any working directory; a stream or generated data is unchanged."""
    if (view := parse_view(data)) is not None:
        kind, seed, path = view
        return format_view(kind, seed, _make_absolute(path))
    return data if is_stream(data) or is_generated(data) else os.path.abspath(os.path.expanduser(data))
