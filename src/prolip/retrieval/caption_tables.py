"""Captions that are kept with their Gaussians, as embeddings or in a database: all of them, block after block, and any
few by their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.header import Header
from prolip.embeddings.schema import gaussian_of, matrix, mean_trace_of
from prolip.extras import require
from prolip.gaussian import Gaussian, MeanTrace
from prolip.retrieval import hits
from prolip.retrieval.index.database import Database

IS_TEXT = "modality = 'text'"
PART = 2**32
"""Of embeddings, the place of a caption is its part times this and its row among the captions of the part."""
AT_ONCE = 1000
"""Rows that are asked of a database in one condition."""


@dataclass(frozen=True, eq=False)
class Captions:
    """n captions; what CSD sees of each, (n, D) and (n,); their log-variances (n, D) where they are kept."""

    texts: tuple[str, ...]
    z: MeanTrace
    log_var: Tensor | None

    def gaussian(self) -> Gaussian:
        if self.log_var is None:
            raise ValueError("of these captions only the trace of each covariance is known")
        return Gaussian(self.z.mean, self.log_var)


class CaptionTable(Protocol):
    """Places are int64 and tell the captions of one table apart; the same text may be there many times."""

    @property
    def name(self) -> str: ...
    @property
    def header(self) -> Header: ...
    def __len__(self) -> int:
        """Captions."""

    def mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        """Places (n,) and what CSD sees of captions (n, D), block after block."""

    def gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        """Places (n,) and captions (n, D), block after block."""

    def at(self, places: Tensor) -> Captions:
        """The captions at these places (n,), in this order."""


@dataclass(frozen=True)
class EmbeddingsTable:
    """The texts of what `prolip embed` wrote; a block is a part."""

    embeddings: Embeddings

    @property
    def name(self) -> str:
        return str(self.embeddings.place)

    @property
    def header(self) -> Header:
        return self.embeddings.header

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return sum(len(rows) for _, rows in self.embeddings.blocks("text", ["modality"]))

    def mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        for part, rows in self.embeddings.blocks("text", ["mean", "uncertainty"]):
            yield _places(part, len(rows)), mean_trace_of(rows)

    def gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        require_variances(self)
        for part, rows in self.embeddings.blocks("text", ["mean", "log_var"]):
            yield _places(part, len(rows)), gaussian_of(rows)

    def at(self, places: Tensor) -> Captions:
        unique = places.unique()
        found = [
            self._of_part(part, unique[unique // PART == part] % PART)
            for part in (unique // PART).unique().tolist()
        ]
        rows = _taken(found, unique, places)
        return _captions(rows, matrix(rows["mean"]))

    def _of_part(self, part: int, numbers: Tensor) -> Any:
        compute = require("pyarrow.compute", "data")
        rows = self.embeddings.part(part, ["modality", "mean", *_kept(self.header)])
        return rows.filter(compute.equal(rows["modality"], "text")).take(numbers.numpy())


@dataclass(frozen=True)
class DatabaseTable:
    """The texts of a database; the place of a caption is its row."""

    database: Database

    @property
    def name(self) -> str:
        return self.database.uri

    @property
    def header(self) -> Header:
        return self.database.header

    def __len__(self) -> int:
        return self.database.count(IS_TEXT)

    @cached_property
    def where(self) -> str | None:
        """SQL for texts; None if there is nothing else: to look at a condition takes longer than to look for a row."""
        return None if len(self) == self.database.count() else IS_TEXT

    def mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        for rows in self._rows(["row", "vector", "uncertainty"], self.where):
            yield places_of(rows), self.mean_trace_of(rows)

    def gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        require_variances(self)
        for rows in self._rows(["row", "vector", "log_var"], self.where):
            yield places_of(rows), self.gaussian_of(rows)

    def at(self, places: Tensor) -> Captions:
        arrow = require("pyarrow", "search")
        unique = places.unique()
        columns = ["row", "vector", *_kept(self.header)]
        names = [", ".join(map(str, some.tolist())) for some in unique.split(AT_ONCE)]
        found = [rows for some in names for rows in self._rows(columns, f"row IN ({some})")]
        rows = arrow.concat_tables(found).sort_by("row")
        rows = _taken([rows], unique, places)
        return _captions(rows, self._means(rows))

    def mean_trace_of(self, rows: Any) -> MeanTrace:
        """Rows with `vector` and `uncertainty`, a pyarrow table, as CSD sees them."""
        return MeanTrace(self._means(rows), _traces(rows))

    def gaussian_of(self, rows: Any) -> Gaussian:
        """Rows with `vector` and `log_var`, a pyarrow table, as Gaussians (n, D)."""
        return hits.gaussian_of(rows, self.header.dim)

    def _means(self, rows: Any) -> Tensor:
        return matrix(rows["vector"])[:, : self.header.dim]

    def _rows(self, columns: Sequence[str], where: str | None) -> Iterator[Any]:
        arrow = require("pyarrow", "search")
        for batch in self.database.rows(columns, where):
            if len(batch):
                yield arrow.Table.from_batches([batch])


def places_of(rows: Any) -> Tensor:
    """The places of a database's rows, (n,)."""
    return torch.from_numpy(rows["row"].to_numpy().copy())


def require_variances(table: CaptionTable) -> None:
    if table.header.variances != "full":
        raise ValueError(
            f"{table.name} holds the trace of each covariance alone, and inclusion needs every variance: embed with "
            'variances full, or ask for the root "null"'
        )


def _places(part: int, count: int) -> Tensor:
    return part * PART + torch.arange(count)


def _kept(header: Header) -> list[str]:
    return ["caption", "uncertainty", *(["log_var"] if header.variances == "full" else [])]


def _taken(found: Sequence[Any], there: Tensor, places: Tensor) -> Any:
    """Of rows whose places, sorted, are `there`: those at `places`, in their order."""
    rows = require("pyarrow", "data").concat_tables(found)
    if len(rows) != len(there):
        raise ValueError("captions that were just found are gone: is someone changing the table?")
    return rows.take(torch.searchsorted(there, places.contiguous()).numpy())


def _captions(rows: Any, mean: Tensor) -> Captions:
    log_var = matrix(rows["log_var"]) if "log_var" in rows.column_names else None
    return Captions(tuple(rows["caption"].to_pylist()), MeanTrace(mean, _traces(rows)), log_var)


def _traces(rows: Any) -> Tensor:
    return torch.from_numpy(rows["uncertainty"].to_numpy().copy())
