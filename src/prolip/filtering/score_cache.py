"""Scores on disk, computed once per part of the embeddings and read again for every criterion.

Perplexities compare all items with all others, so that they are computed for the first filter that ranks by them. A
part then records the digest of the pool: all parts of the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.source import compute_fingerprint
from prolip.data.sources.columns import DamagedFileError, arrow_errors
from prolip.embeddings.dataset import EmbeddingDataset, get_part_name
from prolip.embeddings.schema import DIGEST
from prolip.extras import import_extra
from prolip.files import atomic_write, read_json, remove_temporary_files, write_json
from prolip.filtering.criteria import FilterScore
from prolip.filtering.pool_scores import POOLS, fill_perplexity
from prolip.filtering.scores import compute_scores, get_score_columns
from prolip.filtering.threshold import to_sort_keys
from prolip.progress import progress_bar

FILE = "_scores.json"
"""Says which embeddings the scores are of. Readers of Parquet folders skip names that begin with an underscore."""
VERSION = 6
"""Version of the cached tables: those of another version are refused."""


@dataclass(frozen=True)
class ScoreCache:
    """The scores of an embedding data set on disk.

    Attributes:
        folder: Folder with one Parquet file per part.
        parts: Indices of the parts.
        columns: Columns of each part.
    """

    folder: Path
    parts: tuple[int, ...]
    columns: tuple[str, ...]

    def read_part(self, part: int, columns: Sequence[str] | None = None) -> Any:
        """Read the scores of a part: one row per caption of each sample.

        Args:
            part: Index of the part.
            columns: Columns to read; None: all.

        Returns:
            A pyarrow table.

        Raises:
            DamagedFileError: The file is damaged.
        """
        path = self.folder / get_part_name(part)
        with arrow_errors(path):
            return import_extra("pyarrow.parquet", "data").read_table(path, columns=columns)

    def iter_best(self, criterion: FilterScore, columns: Sequence[str] = ()) -> Iterator[BestScores]:
        """Read the scores one part at a time, with one row per sample: that of its best caption.

        Args:
            criterion: What ranks captions.
            columns: Columns to read besides `index` and the criterion's.

        Returns:
            An iterator over parts, in order.
        """
        names = [*dict.fromkeys(["index", criterion.column, *columns])]
        return (select_best_captions(self.read_part(part, names), part, criterion) for part in self.parts)


@dataclass(frozen=True, eq=False)
class BestScores:
    """The row of the best caption of each of the n samples of a part, by sample index.

    Attributes:
        part: Index of the part.
        score: float32 (n,), larger is better; NaN: none.
        rows: A pyarrow table of the requested columns.
    """

    part: int
    score: np.ndarray
    rows: Any


def select_best_captions(table: Any, part: int, criterion: FilterScore) -> BestScores:
    """Select the best caption of each sample of a part; of equally good captions the first one.

    Args:
        table: Table of `ScoreCache.read_part`, with `index` and the criterion's column.
        part: Index of the part.
        criterion: What ranks captions.

    Returns:
        One row per sample.
    """
    values = table[criterion.column].to_numpy(zero_copy_only=False).astype(np.float32)
    score = criterion.sign * values
    best_rows = find_first_best(table["index"].to_numpy(), to_sort_keys(score))
    return BestScores(part, score[best_rows], table.take(best_rows))


def find_first_best(indices: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Find the first row with the largest key of each sample.

    Args:
        indices: (n,), sorted: the sample of each row.
        keys: (n,): what is compared, of any type that has an order.

    Returns:
        int64 (samples,): a row number per sample, increasing.
    """
    if not len(indices):
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 1))  # first row of each sample
    group = np.cumsum(np.diff(indices, prepend=indices[0]) != 0)  # number of each row's sample, from 0
    # all rows that have the best key of their sample, then the first one of each sample
    rows = np.flatnonzero(keys == np.maximum.reduceat(keys, starts)[group])
    return rows[np.unique(group[rows], return_index=True)[1]]


def cache_scores(
    embeddings: EmbeddingDataset,
    folder: Path,
    progress: bool | None = None,
    *,
    criterion: FilterScore | None = None,
) -> ScoreCache:
    """Compute the scores of all pairs, part by part; parts that are already cached are not computed again.

    Args:
        embeddings: What `prolip embed` wrote.
        folder: Folder of the cache, for one embedding data set.
        progress: Show a progress bar; None: if stderr is a terminal.
        criterion: What is read next: perplexities are computed for a criterion that is one. None: they are not.

    Returns:
        The cache, with all parts.

    Raises:
        ValueError: The folder holds the scores of other embeddings, or of another version.
    """
    _claim_folder(embeddings, folder)
    pool_digest = _compute_pool_digest(embeddings)
    with progress_bar("scoring", len(embeddings.part_indices), "parts", progress) as advance:
        for part in embeddings.part_indices:
            path, digest = folder / get_part_name(part), embeddings.footer(part).digest
            found = _read_metadata(path)
            pools = {found[key] for key in map(_pool_key, POOLS) if key in found}
            # missing, or of embeddings that were computed again since
            if found.get(DIGEST) != digest.encode() or pools - {pool_digest}:
                table = compute_scores(embeddings.read_part(part))
                _write_part(path, table.replace_schema_metadata({DIGEST: digest}))
            advance(1)
    cache = ScoreCache(folder, embeddings.part_indices, tuple(get_score_columns(embeddings.header)))
    if criterion is not None and criterion.column in POOLS:
        _cache_perplexity(embeddings, cache, criterion.column, pool_digest, progress)
    return cache


def _cache_perplexity(
    embeddings: EmbeddingDataset, cache: ScoreCache, column: str, pool_digest: bytes, progress: bool | None
) -> None:
    """Fill a perplexity column of all parts of a cache; parts that have it already are not read."""
    with progress_bar("perplexities", len(cache.parts), "parts", progress) as advance:
        for part in cache.parts:
            path = cache.folder / get_part_name(part)
            if _pool_key(column) not in _read_metadata(path):
                table = cache.read_part(part)
                filled = fill_perplexity(table, column, embeddings, part)
                metadata = {**table.schema.metadata, _pool_key(column): pool_digest}
                _write_part(path, filled.replace_schema_metadata(metadata))
            advance(1)


def _compute_pool_digest(embeddings: EmbeddingDataset) -> bytes:
    """Hash of all that perplexities depend on: every part, and the parameters of logits."""
    digests = (embeddings.footer(part).digest for part in embeddings.part_indices)
    return compute_fingerprint(repr(embeddings.header.logit_parameters), *digests).encode()


def _pool_key(column: str) -> bytes:
    """Key in the metadata of a part that says with which pool a perplexity column was filled."""
    return f"pool of {column}".encode()


def _write_part(path: Path, table: Any) -> None:
    """Write the scores of a part atomically."""
    atomic_write(path, partial(import_extra("pyarrow.parquet", "data").write_table, table))


def _read_metadata(path: Path) -> dict[bytes, bytes]:
    """What a part says of the embeddings that its scores were computed from; {} if it can't be read."""
    if not path.exists():
        return {}
    try:
        with arrow_errors(path):
            return import_extra("pyarrow.parquet", "data").read_schema(path).metadata or {}
    except DamagedFileError:
        return {}


def _claim_folder(embeddings: EmbeddingDataset, folder: Path) -> None:
    """Write into the folder which embeddings its scores belong to, so that it never gets the scores of two data sets.

    If the same is recorded there already, temporary files of killed processes are removed.

    Raises:
        ValueError: The folder belongs to other embeddings, or to another version.
    """
    header = embeddings.header
    expected = {
        "version": VERSION,
        "identity": header.identity,
        "fingerprint": header.fingerprint,
        "variances": header.variances,
        "precision": header.precision,
        "modality": header.modality,
        "part_size": header.part_size,
        "parts": header.parts,
        "columns": header.columns,
    }
    if not (folder / FILE).exists():
        write_json(folder / FILE, expected)
    elif (recorded := read_json(folder / FILE)) != expected:
        if recorded.get("version") != VERSION:
            raise ValueError(
                f"{folder} holds scores of version {recorded.get('version')}, not {VERSION}: remove that folder, and "
                "the scores are computed again"
            )
        differing = sorted(name for name in expected if recorded.get(name) != expected[name])
        raise ValueError(
            f"{folder} holds the scores of other embeddings ({', '.join(differing)} differ): pass another folder as "
            "out, or remove this one"
        )
    else:
        remove_temporary_files(folder)
