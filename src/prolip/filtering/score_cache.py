"""Scores on disk: a part for each part of the embeddings, written once; another criterion reads them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.sources.columns import DamagedError, reading
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.footers import part_name
from prolip.embeddings.schema import DIGEST
from prolip.extras import require
from prolip.files import read_json, remove_leftovers, write_json, write_whole
from prolip.filtering.criteria import Criterion
from prolip.filtering.scores import columns_of, scored
from prolip.filtering.threshold import keys_of
from prolip.progress import bar

FILE = "_scores.json"
"""Readers of Parquet folders leave out what begins with a line."""
VERSION = 3


@dataclass(frozen=True)
class Scores:
    """folder: of the parts. parts: their numbers. columns: of each."""

    folder: Path
    parts: tuple[int, ...]
    columns: tuple[str, ...]

    def part(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """The pyarrow table of a part: a row for each caption of each sample."""
        path = self.folder / part_name(number)
        with reading(path):
            return require("pyarrow.parquet", "data").read_table(path, columns=columns)

    def best(self, criterion: Criterion, columns: Sequence[str] = ()) -> Iterator[Best]:
        """Part after part, a row for each sample."""
        asked = [*dict.fromkeys(["number", criterion.column, *columns])]
        return (best_of(self.part(number, asked), number, criterion) for number in self.parts)


@dataclass(frozen=True, eq=False)
class Best:
    """Of each sample of a part the row whose caption fits best, in the order of their numbers.

    score: float32 (n,), larger is better; NaN: none. rows: the columns that were asked for.
    """

    part: int
    score: np.ndarray
    rows: Any


def best_of(table: Any, part: int, criterion: Criterion) -> Best:
    """Of equally good captions of a sample the first counts."""
    values = table[criterion.column].to_numpy(zero_copy_only=False).astype(np.float32)
    score = criterion.sign * values
    chosen = first_best(table["number"].to_numpy(), keys_of(score))
    return Best(part, score[chosen], table.take(chosen))


def first_best(numbers: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Rows, one for each different number of (n,) sorted numbers: the first that has the largest key of its number."""
    if not len(numbers):
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    group = np.cumsum(np.diff(numbers, prepend=numbers[0]) != 0)
    rows = np.flatnonzero(keys == np.maximum.reduceat(keys, starts)[group])
    return rows[np.unique(group[rows], return_index=True)[1]]


def make_scores(embeddings: Embeddings, folder: Path, progress: bool | None = None) -> Scores:
    """Score all pairs, part by part; parts that are there are not made again."""
    _claim(embeddings, folder)
    parquet = require("pyarrow.parquet", "data")
    with bar("scoring", len(embeddings.numbers), "parts", progress) as advance:
        for number in embeddings.numbers:
            path, digest = folder / part_name(number), embeddings.footer(number).digest
            if _digest_of(path) != digest:  # not there, or of a part that was made anew since
                table = scored(embeddings.part(number)).replace_schema_metadata({DIGEST: digest})
                write_whole(path, partial(parquet.write_table, table))
            advance(1)
    return Scores(folder, embeddings.numbers, tuple(columns_of(embeddings.header)))


def _digest_of(path: Path) -> str | None:
    """Of the part of embeddings that scores were made of; None: there are none that can be read."""
    if not path.exists():
        return None
    try:
        with reading(path):
            metadata = require("pyarrow.parquet", "data").read_schema(path).metadata or {}
    except DamagedError:
        return None
    return str(metadata.get(DIGEST, b"").decode())


def _claim(embeddings: Embeddings, folder: Path) -> None:
    """The folder says from the start of which embeddings its scores are, so that it is never filled from two."""
    header = embeddings.header
    told = {
        "version": VERSION,
        "identity": header.identity,
        "fingerprint": header.fingerprint,
        "variances": header.variances,
        "precision": header.precision,
        "what": header.what,
        "part_size": header.part_size,
        "parts": header.parts,
        "columns": header.columns,
    }
    if not (folder / FILE).exists():
        write_json(folder / FILE, told)
    elif (found := read_json(folder / FILE)) != told:
        differing = sorted(name for name in told if found.get(name) != told[name])
        raise ValueError(
            f"{folder} holds the scores of other embeddings ({', '.join(differing)} differ); choose another folder"
        )
    else:
        remove_leftovers(folder)
