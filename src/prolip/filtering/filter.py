"""`filter_pairs`: from embeddings or raw data to the best fraction of image-text pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from prolip.checks import join_names
from prolip.configs import takes_config
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source, compute_fingerprint
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import ERRORS_FILE, embed
from prolip.embeddings.header import HEADER_FILE, has_embeddings
from prolip.files import remove_temporary_files, write_json
from prolip.filtering.config import FilterConfig
from prolip.filtering.criteria import FilterScore, get_criterion
from prolip.filtering.datacomp_ids import has_uids, write_datacomp_ids
from prolip.filtering.duplicates import find_near_duplicates
from prolip.filtering.kept_samples import require_readable
from prolip.filtering.parquet_writer import write_dropped, write_parquet
from prolip.filtering.score_cache import ScoreCache, cache_scores
from prolip.filtering.scores import get_score_columns
from prolip.filtering.selection import Selection
from prolip.filtering.shard_writer import claim_folder, write_shards
from prolip.filtering.summary import FilterSummary, SelectionCounts, summarize_selection
from prolip.filtering.threshold import Threshold, find_threshold
from prolip.folder_kinds import require_folder_for
from prolip.storage.commands import require_known_commands
from prolip.storage.folders import LocalStorage, open_storage


@dataclass(frozen=True, eq=False)
class FilterResult:
    """What was decided, and what was written.

    Attributes:
        embeddings: Embeddings of the samples.
        selection: The outcome of every sample.
        counts: Number of samples by outcome, and the distribution of scores.
        errors: Samples that could not be embedded, by reason.
        summary: The content of filter.json.
        paths: The files and folders that were written.
    """

    embeddings: EmbeddingDataset
    selection: Selection
    counts: SelectionCounts
    errors: ErrorCounts
    summary: FilterSummary
    paths: list[Path]


@takes_config(FilterConfig)
def filter_pairs(
    data: str | Path | Source | EmbeddingDataset, out: str | Path, config: FilterConfig
) -> FilterResult:
    """Keep the best fraction of image-text pairs by a criterion, exactly.

    Writes what is kept, what is dropped, and filter.json. A run that was stopped resumes; another criterion reads the
    cached scores, not the embeddings. `out` is for one data set.

    Args:
        data: An embedding data set; or data of any kind, which is embedded into `out`/embeddings first, by the model
            of the config.
        out: A folder of this machine.
        config: What to keep; or its fields as keywords.

    Returns:
        The selection, its counts and the paths that were written.

    Raises:
        ValueError: An argument is invalid, no sample has a score, or `out` belongs to another source or selection.
    """
    storage = open_storage(out)
    if not isinstance(storage, LocalStorage):
        raise ValueError(f"{storage} is an object store, and out must be a folder of this machine")
    folder = storage.path
    require_folder_for("the output of a filter", folder)
    embeddings, data_path = _open_embeddings(data, folder, config)
    if config.rank_by is None:
        config = replace(config, rank_by="csd" if embeddings.header.reads_variances else "cosine")
    _require_ground_truth_column(embeddings, config.ground_truth)
    if not embeddings.part_indices or not len(embeddings):
        raise ValueError(
            f"no sample of {embeddings.header.data} could be embedded: see {embeddings.storage}/{ERRORS_FILE}"
        )
    remove_temporary_files(folder)
    selection = _select(embeddings, folder, config)
    counts = summarize_selection(selection, config.ground_truth)
    if config.writes("shards"):  # before anything is written: the folder may be another selection's
        claim_folder(folder / "shards", _identify_selection(embeddings, counts, config))
    paths = list(_write_outputs(folder, selection, counts, data_path, embeddings, config))
    errors = embeddings.count_errors()
    summary = _summarize(selection, counts, embeddings, errors, [path.name for path in paths], config)
    paths.append(write_json(folder / "filter.json", asdict(summary)))
    return FilterResult(embeddings, selection, counts, errors, summary, paths)


def _open_embeddings(
    data: str | Path | Source | EmbeddingDataset, folder: Path, config: FilterConfig
) -> tuple[EmbeddingDataset, str]:
    """Open the embeddings, or embed the data into `folder`/embeddings.

    Returns:
        The embeddings, and the path of their data.
    """
    if isinstance(data, str | Path) and has_embeddings(str(data)):
        data = EmbeddingDataset.open(data)
    if isinstance(data, EmbeddingDataset):
        if options := config.embedding_options:
            raise ValueError(f"{data.storage} is already embedded: leave out {', '.join(options)}")
        if config.writes("shards"):
            _require_trusted_data(data, config.trust_pipe)
        return data, data.header.data
    if isinstance(data, Source) and config.writes("shards"):
        raise ValueError(
            "a source in memory can't be opened again to write shards: pass the path of the data as data"
        )
    if config.rank_by == "inclusion" and config.variances == "trace":
        requirement = get_criterion(config.rank_by).requirement
        raise ValueError(f"rank_by inclusion needs {requirement}: leave out variances, or pass full")
    if config.model is None:
        raise ValueError(
            f"{data} is not an embedding data set, so a model is needed to embed it: pass model (--model)"
        )
    embeddings = embed(config.model, data, folder / "embeddings", config.embedding)
    return embeddings, embeddings.header.data if isinstance(data, Source) else str(data)


def _require_trusted_data(embeddings: EmbeddingDataset, trust_pipe: bool) -> None:
    """Raise ValueError if shards would need a password that is not stored, or a command that only the header names."""
    data = embeddings.header.data
    require_readable(data)
    if not trust_pipe:
        header = f"{embeddings.storage}/{HEADER_FILE}"
        require_known_commands([data], header, "add --trust-pipe (in Python trust_pipe=True)")


def _select(embeddings: EmbeddingDataset, folder: Path, config: FilterConfig) -> Selection:
    """Compute the scores, the threshold among them, and the near-duplicates above it.

    Scores are cached in `folder`/scores; `folder` also holds the temporary file of the means while duplicates are
    searched.
    """
    assert config.rank_by is not None
    criterion = get_criterion(config.rank_by)
    scores = cache_scores(embeddings, folder / "scores", config.progress, criterion=criterion)
    threshold = _find_threshold(scores, criterion, config.keep_fraction, embeddings)
    near_duplicates = None if config.duplicates is None else find_near_duplicates(
        embeddings, scores, criterion, threshold, kind=config.duplicates, min_cosine=config.duplicate_cosine,
        temp_folder=folder,
    )  # fmt: skip
    return Selection(scores, criterion, threshold, near_duplicates)


def _identify_selection(
    embeddings: EmbeddingDataset, counts: SelectionCounts, config: FilterConfig
) -> dict[str, str | float | None]:
    """What distinguishes the shards of this selection from those of another one."""
    return {
        "rank_by": config.rank_by,
        "keep_fraction": config.keep_fraction,
        "duplicates": config.duplicates,
        "duplicate_cosine": config.duplicate_cosine if config.duplicates else None,
        "identity": embeddings.header.identity,
        "fingerprint": embeddings.header.fingerprint,
        "digest": compute_fingerprint(*(embeddings.footer(part).digest for part in embeddings.part_indices)),
        "shard_size": config.shard_size,
        "kept": counts.kept,
    }


def _require_ground_truth_column(embeddings: EmbeddingDataset, column: str | None) -> None:
    """Raise a ValueError if `column`, that of the ground truth, is not a column of the scores. None passes."""
    if column is not None and column not in (columns := get_score_columns(embeddings.header)):
        raise ValueError(
            f"there is no column {column!r} for ground_truth; the columns are {join_names(columns, 30)}"
        )


def _find_threshold(
    scores: ScoreCache, criterion: FilterScore, keep_fraction: float, embeddings: EmbeddingDataset
) -> Threshold:
    """Find the threshold that keeps a fraction of the samples; a ValueError if no sample has a score."""
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), keep_fraction)
    if threshold.nan_count == threshold.total:
        raise ValueError(
            f"none of the {threshold.total:,} samples of {embeddings.storage} has a score by {criterion.name}: "
            f"it needs {criterion.requirement}"
        )
    return threshold


def _write_outputs(
    folder: Path,
    selection: Selection,
    counts: SelectionCounts,
    data: str,
    embeddings: EmbeddingDataset,
    config: FilterConfig,
) -> Iterator[Path]:
    """Write each output into `folder`, and yield the path of each when it is complete.

    Args:
        folder: Folder of the filter.
        selection: The outcome of every sample.
        counts: The number of kept samples.
        data: The data, for shards.
        embeddings: Embeddings of these samples.
        config: What to write.
    """
    chosen = config.outputs or ("parquet", "dropped", *(("ids",) if has_uids(selection) else ()))
    if "ids" in chosen:
        yield write_datacomp_ids(folder / "ids.npy", selection)
    if "parquet" in chosen:
        yield write_parquet(folder / "subset.parquet", selection)
    if "dropped" in chosen:
        yield write_dropped(folder / "dropped.parquet", selection)
    if "shards" in chosen:
        write_shards(
            folder / "shards", selection, embeddings, data=data, num_kept=counts.kept, shard_size=config.shard_size,
            progress=config.progress,
        )  # fmt: skip
        yield folder / "shards"


def _summarize(
    selection: Selection,
    counts: SelectionCounts,
    embeddings: EmbeddingDataset,
    errors: ErrorCounts,
    written: Sequence[str],
    config: FilterConfig,
) -> FilterSummary:
    """Make the content of filter.json.

    Args:
        selection: The outcome of every sample.
        counts: Number of samples by outcome.
        embeddings: Embeddings of these samples.
        errors: Samples that could not be embedded.
        written: Names of the outputs.
        config: How they were selected.
    """
    score, header = selection.threshold.score, embeddings.header
    # the score is sign * value; + 0.0 turns -0.0 into 0.0
    value = None if score is None or not np.isfinite(score) else float(selection.criterion.sign * score + 0.0)
    return FilterSummary(
        rank_by=selection.criterion.name, keep_fraction=config.keep_fraction, duplicates=config.duplicates,
        duplicate_cosine=config.duplicate_cosine if config.duplicates else None, identity=header.identity,
        fingerprint=header.fingerprint, data=header.data, model=header.model, samples=counts.total, kept=counts.kept,
        threshold=value, outcomes=counts.name_outcomes(), quantiles=counts.compute_quantiles(),
        ground_truth=counts.ground_truth, errors={str(reason): count for reason, count in errors.reasons.items()},
        cluster_recall=None if selection.duplicates is None else selection.duplicates.recall, written=tuple(written),
    )  # fmt: skip
