"""`filter_pairs`: from embeddings or raw data to the best fraction of image-text pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from prolip.checks import join_names, require_choice, require_fraction, require_positive_int
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source, compute_fingerprint
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import BATCH_SIZE, ERRORS_FILE, MAX_BAD_FRACTION, embed
from prolip.embeddings.header import Precision, Variances, has_embeddings
from prolip.embeddings.storage import LocalStorage, open_storage
from prolip.files import remove_temporary_files, write_json
from prolip.filtering.criteria import CriterionName, FilterScore, get_criterion
from prolip.filtering.datacomp_ids import has_uids, write_datacomp_ids
from prolip.filtering.duplicates import DuplicateKind, find_near_duplicates
from prolip.filtering.kept_samples import require_readable
from prolip.filtering.parquet_writer import write_parquet
from prolip.filtering.score_cache import ScoreCache, cache_scores
from prolip.filtering.scores import get_score_columns
from prolip.filtering.selection import Selection
from prolip.filtering.shard_writer import claim_folder, write_shards
from prolip.filtering.summary import FilterSummary, summarize_selection
from prolip.filtering.threshold import Threshold, find_threshold
from prolip.model.prolip import ProLIP

Output = Literal["ids", "parquet", "shards"]
"""ids: the uids in DataComp's format. parquet: a table of the kept samples. shards: tars of them."""
SHARD_SIZE = 10_000
"""Samples per shard."""


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
    counts: FilterSummary
    errors: ErrorCounts
    summary: dict[str, Any]
    paths: list[Path]


def filter_pairs(
    source: str | Path | Source,
    out: str | Path,
    *,
    keep_fraction: float,
    rank_by: CriterionName = "csd",
    model: str | Path | ProLIP | None = None,
    captions: Sequence[str] | None = None,
    image: str | None = None,
    variances: Variances | None = None,
    precision: Precision | None = None,
    batch_size: int | None = None,
    max_bad_fraction: float | None = None,
    duplicates: DuplicateKind | None = None,
    duplicate_cosine: float = 0.97,
    outputs: Sequence[Output] | None = None,
    shard_size: int = SHARD_SIZE,
    ground_truth: str | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> FilterResult:
    """Keep the best fraction of image-text pairs by a criterion, exactly.

    Writes what is kept and filter.json. A run that was stopped resumes; another criterion reads the cached scores, not
    the embeddings. `out` is for one source.

    Args:
        source: An embedding data set; or data of any kind, which is embedded into `out`/embeddings first, by `model`.
        out: A folder of this machine.
        keep_fraction: Fraction of the samples to keep, above 0 and at most 1. Of several captions the best one counts.
        rank_by: The criterion (filtering/criteria.py).
        model: Model that embeds data that is not embedded yet.
        captions, image, variances, precision, batch_size, max_bad_fraction, device: As for `embed`, for data that is
            not embedded yet; None: the default of `embed`.
        duplicates: Which near-duplicates are dropped: of those that are similar the best is kept. None: they are not
            searched.
        duplicate_cosine: Smallest cosine of the means of near-duplicates.
        outputs: What to write; None: parquet, and ids if the samples have uids.
        shard_size: Samples per shard.
        ground_truth: An extra column that is true for matching pairs; precision and recall are computed against it.
        progress: Show progress bars; None: if stderr is a terminal.

    Returns:
        The selection, its counts and the paths that were written.

    Raises:
        ValueError: An argument is invalid, no sample has a score, or `out` belongs to another source or selection.
    """
    criterion, storage = get_criterion(rank_by), open_storage(out)
    if not isinstance(storage, LocalStorage):
        raise ValueError(f"{storage} is an object store, and out must be a folder of this machine")
    folder = storage.path
    _check_arguments(keep_fraction, duplicates, duplicate_cosine, outputs, shard_size)
    data = None if isinstance(source, Source) else str(source)
    if data is not None and has_embeddings(data):
        _refuse_options(
            data, model=model, captions=captions, image=image, variances=variances, precision=precision,
            batch_size=batch_size, max_bad_fraction=max_bad_fraction, device=device,
        )  # fmt: skip
        embeddings = EmbeddingDataset.open(data)
        data = embeddings.header.data
    else:
        if data is None and "shards" in (outputs or ()):
            raise ValueError(
                "a source in memory can't be opened again to write shards: pass the path of the data as source"
            )
        if rank_by == "inclusion" and variances == "trace":
            raise ValueError(
                f"rank_by inclusion needs {criterion.requirement}: leave out variances, or pass full"
            )
        embeddings = embed(
            _require_model(model, source), source, folder / "embeddings", captions=captions, image=image,
            variances=variances, precision=precision or "float32", batch_size=batch_size or BATCH_SIZE,
            max_bad_fraction=MAX_BAD_FRACTION if max_bad_fraction is None else max_bad_fraction,
            device=device, progress=progress,
        )  # fmt: skip
    _require_ground_truth_column(embeddings, ground_truth)
    if not embeddings.part_indices or not len(embeddings):
        raise ValueError(
            f"no sample of {embeddings.header.data} could be embedded: see {embeddings.storage}/{ERRORS_FILE}"
        )
    if "shards" in (outputs or ()):
        require_readable(data or embeddings.header.data)
    remove_temporary_files(folder)
    selection = _select(embeddings, folder, criterion, keep_fraction, duplicates, duplicate_cosine, progress)
    counts = summarize_selection(selection, ground_truth)
    settings = {
        "rank_by": rank_by,
        "keep_fraction": keep_fraction,
        "duplicates": duplicates,
        "duplicate_cosine": duplicate_cosine if duplicates else None,
        "identity": embeddings.header.identity,
        "fingerprint": embeddings.header.fingerprint,
    }
    if "shards" in (outputs or ()):  # before anything is written: the folder may be another selection's
        digest = compute_fingerprint(*(embeddings.footer(part).digest for part in embeddings.part_indices))
        claim_folder(
            folder / "shards", {**settings, "digest": digest, "shard_size": shard_size, "kept": counts.kept}
        )
    paths = list(
        _write_outputs(outputs, folder, selection, embeddings, data, counts.kept, shard_size, progress)
    )
    errors = embeddings.count_errors()
    summary = {
        **settings,
        "data": embeddings.header.data,
        "model": embeddings.header.model,
        **_summarize_outcomes(selection, counts, errors),
        "written": [path.name for path in paths],
    }
    paths.append(write_json(folder / "filter.json", summary))
    return FilterResult(embeddings, selection, counts, errors, summary, paths)


def _select(
    embeddings: EmbeddingDataset, folder: Path, criterion: FilterScore, keep_fraction: float,
    duplicates: DuplicateKind | None, duplicate_cosine: float, progress: bool | None,
) -> Selection:  # fmt: skip
    """Compute the scores, the threshold among them, and the near-duplicates above it.

    Scores are cached in `folder`/scores; `folder` also holds the temporary file of the means while duplicates are
    searched.
    """
    scores = cache_scores(embeddings, folder / "scores", progress)
    threshold = _find_threshold(scores, criterion, keep_fraction, embeddings)
    near_duplicates = None if duplicates is None else find_near_duplicates(
        embeddings, scores, criterion, threshold, kind=duplicates, min_cosine=duplicate_cosine, temp_folder=folder
    )  # fmt: skip
    return Selection(scores, criterion, threshold, near_duplicates)


def _check_arguments(
    keep_fraction: float,
    duplicates: str | None,
    duplicate_cosine: float,
    outputs: Sequence[str] | None,
    shard_size: int,
) -> None:
    """Raise a ValueError if an argument of `filter_pairs` is invalid: before hours of work, not after."""
    require_fraction(keep_fraction, "keep_fraction", exclude_zero=True)
    if not 0 < duplicate_cosine <= 1:
        raise ValueError(f"duplicate_cosine must be above 0 and at most 1, not {duplicate_cosine!r}")
    require_positive_int(shard_size, "shard_size")
    if duplicates is not None:
        require_choice(duplicates, get_args(DuplicateKind), "duplicates")
    for output in outputs or ():
        require_choice(output, get_args(Output), "outputs")


def _refuse_options(data: str, **options: object) -> None:
    """Raise a ValueError if an option of embedding is set: on data that is already embedded it has no effect."""
    if set_options := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"{data} is already embedded: leave out {', '.join(set_options)}")


def _require_model(model: str | Path | ProLIP | None, source: object) -> str | Path | ProLIP:
    """Return the model; raise a ValueError if it is None, since `source` is not embedded yet."""
    if model is None:
        raise ValueError(
            f"{source} is not an embedding data set, so a model is needed to embed it: pass model (--model)"
        )
    return model


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
    outputs: Sequence[Output] | None, folder: Path, selection: Selection, embeddings: EmbeddingDataset,
    data: str | None, num_kept: int, shard_size: int, progress: bool | None,
) -> Iterator[Path]:  # fmt: skip
    """Write each output into `folder`, and yield the path of each when it is complete.

    Args:
        outputs: What to write; None: parquet, and ids if the samples have uids.
        folder: Folder of the filter.
        selection: The outcome of every sample.
        embeddings: Embeddings of these samples.
        data: The data, for shards; None: as in the header of the embeddings.
        num_kept: Number of kept samples.
        shard_size: Samples per shard.
        progress: Show a progress bar; None: if stderr is a terminal.
    """
    chosen = outputs or (("parquet", "ids") if has_uids(selection) else ("parquet",))
    if "ids" in chosen:
        yield write_datacomp_ids(folder / "ids.npy", selection)
    if "parquet" in chosen:
        yield write_parquet(folder / "subset.parquet", selection)
    if "shards" in chosen:
        write_shards(
            folder / "shards", selection, embeddings, data=data or embeddings.header.data, num_kept=num_kept,
            shard_size=shard_size, progress=progress,
        )  # fmt: skip
        yield folder / "shards"


def _summarize_outcomes(selection: Selection, counts: FilterSummary, errors: ErrorCounts) -> dict[str, Any]:
    """Make the part of filter.json about the result: counts, threshold, quantiles of scores, errors, cluster recall.

    The threshold is the value of the criterion's column of the worst kept sample; None if nothing is kept, or if it is
    infinite.
    """
    score = selection.threshold.score
    # the score is sign * value; + 0.0 turns -0.0 into 0.0
    value = None if score is None or not np.isfinite(score) else selection.criterion.sign * score + 0.0
    return {
        "samples": counts.total,
        "kept": counts.kept,
        "threshold": value,
        **counts.to_dict(),
        "errors": dict(errors.reasons),
        "cluster_recall": None if selection.duplicates is None else selection.duplicates.recall,
    }
