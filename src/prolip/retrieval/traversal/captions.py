"""Sets of embedded captions to search: in memory, as an embedding data set, or in a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.schema import column_to_tensor, read_gaussians, read_mean_traces
from prolip.extras import import_extra
from prolip.gaussian import Gaussian, MeanTrace, compute_dtype
from prolip.retrieval.hits import rows_to_gaussian
from prolip.retrieval.index.database import Database

IS_TEXT = "modality = 'text'"
"""SQL for the texts of a database."""
PART_STRIDE = 2**32
"""The position of a caption in an embedding data set is part * PART_STRIDE + its row among the texts of the part."""
ROWS_PER_QUERY = 1000
"""Rows that one SQL condition asks a database for."""


@dataclass(frozen=True, eq=False)
class CaptionRows:
    """Some captions of a table.

    Attributes:
        texts: n texts; empty if the table holds none.
        z: mean (n, D) and uncertainty (n,).
        log_var: (n, D); None if the table holds only the trace of each covariance.
    """

    texts: tuple[str, ...]
    z: MeanTrace
    log_var: Tensor | None

    def to_gaussian(self) -> Gaussian:
        """Convert the captions to Gaussians (n, D); a ValueError if only traces are stored."""
        if self.log_var is None:
            raise ValueError(
                "the embedded captions hold only the trace of each covariance, and this root needs every variance: "
                "embed them again with --variances full (and index them again), or use --root null"
            )
        return Gaussian(self.z.mean, self.log_var)


class CaptionTable(Protocol):
    """Embedded captions, addressed by int64 positions. The same text may have several positions.

    Iteration gives blocks, so that a table may be larger than memory; captions in memory are one block.
    """

    @property
    def name(self) -> str:
        """Name of the captions, for messages."""

    @property
    def dim(self) -> int:
        """D, the embedding dimension."""

    def __len__(self) -> int:
        """The number of captions."""

    def iter_mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        """Yield blocks of positions (n,) with means (n, D) and uncertainties (n,): what CSD needs."""

    def iter_gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        """Yield blocks of positions (n,) with Gaussians (n, D). Raises as `require_variances`."""

    def take(self, positions: Tensor) -> CaptionRows:
        """Read the captions at these positions (n,), in this order."""

    def require_variances(self) -> None:
        """Raise a ValueError if log inclusion can't be computed from what the table holds."""


@dataclass(frozen=True, eq=False)
class CaptionsInMemory:
    """Captions in memory, as one block. A position is an index.

    Attributes:
        z: Gaussian (M, D).
        texts: M texts, or none.
        name: For messages.
    """

    z: Gaussian
    texts: tuple[str, ...] = ()
    name: str = "the captions"

    @property
    def dim(self) -> int:
        return self.z.dim

    def __len__(self) -> int:
        return len(self.z)

    def iter_mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        yield self._positions, MeanTrace(self._mean, self.z.uncertainty)

    def iter_gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        self.require_variances()
        yield self._positions, self.z

    def take(self, positions: Tensor) -> CaptionRows:
        z = self.z[positions]
        texts = tuple(self.texts[position] for position in positions.tolist()) if self.texts else ()
        return CaptionRows(texts, MeanTrace(self._mean[positions], z.uncertainty), z.log_var)

    def require_variances(self) -> None:
        """Raise a ValueError if all captions are points, as those of a deterministic model."""
        if not bool(self.z.uncertainty.any()):
            raise ValueError(
                f'{self.name} have no uncertainty, so inclusion is not defined: use the root "null" for a '
                "deterministic model"
            )

    @cached_property
    def _positions(self) -> Tensor:
        """int64 (M,): all positions."""
        return torch.arange(len(self.z), device=self.z.device)

    @cached_property
    def _mean(self) -> Tensor:
        """(M, D): the means, in float32 at least."""
        return self.z.mean.to(compute_dtype(self.z.mean))


@dataclass(frozen=True)
class EmbeddedCaptions:
    """The texts of an embedding data set that `prolip embed` wrote. A block is a part."""

    embeddings: EmbeddingDataset

    @property
    def name(self) -> str:
        return str(self.embeddings.storage)

    @property
    def header(self) -> DatasetHeader:
        return self.embeddings.header

    @property
    def dim(self) -> int:
        return self.header.dim

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        """Number of texts of all parts; one column is read, once."""
        return sum(len(rows) for _, rows in self.embeddings.iter_parts("text", ["modality"]))

    def iter_mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        for part, rows in self.embeddings.iter_parts("text", ["mean", "uncertainty"]):
            yield part * PART_STRIDE + torch.arange(len(rows)), read_mean_traces(rows)

    def iter_gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        self.require_variances()
        for part, rows in self.embeddings.iter_parts("text", ["mean", "log_var"]):
            yield part * PART_STRIDE + torch.arange(len(rows)), read_gaussians(rows)

    def take(self, positions: Tensor) -> CaptionRows:
        """Read the captions at these positions (n,), in this order. Each part that holds some is read once."""
        unique = positions.unique()
        tables = [
            self._read_texts(part, unique[unique // PART_STRIDE == part] % PART_STRIDE)
            for part in (unique // PART_STRIDE).unique().tolist()
        ]
        rows = _select_rows(tables, unique, positions)
        return _make_caption_rows(rows, column_to_tensor(rows["mean"]))

    def require_variances(self) -> None:
        _require_full_variances(self.header, self.name)

    def _read_texts(self, part: int, rows: Tensor) -> Any:
        """Read some texts of a part, by their rows (n,) among its texts, as a pyarrow table.

        Its columns are modality, mean and `_value_columns`.
        """
        compute = import_extra("pyarrow.compute", "data")
        table = self.embeddings.read_part(part, ["modality", "mean", *_value_columns(self.header)])
        return table.filter(compute.equal(table["modality"], "text")).take(rows.numpy())


@dataclass(frozen=True)
class DatabaseCaptions:
    """The texts of a database that `prolip index` wrote. A position is the column `row`."""

    database: Database

    @property
    def name(self) -> str:
        return self.database.uri

    @property
    def header(self) -> DatasetHeader:
        return self.database.header

    @property
    def dim(self) -> int:
        return self.header.dim

    def __len__(self) -> int:
        return self.database.count_rows(IS_TEXT)

    @cached_property
    def where(self) -> str | None:
        """SQL that selects texts. None if all rows are texts: evaluating the condition costs more than the search."""
        return None if len(self) == self.database.count_rows() else IS_TEXT

    def iter_mean_traces(self) -> Iterator[tuple[Tensor, MeanTrace]]:
        for rows in self._iter_tables(["row", "vector", "uncertainty"], self.where):
            yield read_positions(rows), self.read_mean_traces(rows)

    def iter_gaussians(self) -> Iterator[tuple[Tensor, Gaussian]]:
        self.require_variances()
        for rows in self._iter_tables(["row", "vector", "log_var"], self.where):
            yield read_positions(rows), self.read_gaussians(rows)

    def take(self, positions: Tensor) -> CaptionRows:
        """Read the captions at these positions (n,), in this order, found by their column `row`."""
        arrow = import_extra("pyarrow", "search")
        unique = positions.unique()
        columns = ["row", "vector", *_value_columns(self.header)]
        row_lists = [", ".join(map(str, chunk.tolist())) for chunk in unique.split(ROWS_PER_QUERY)]
        tables = [
            rows for row_list in row_lists for rows in self._iter_tables(columns, f"row IN ({row_list})")
        ]
        rows = arrow.concat_tables(tables).sort_by("row")
        rows = _select_rows([rows], unique, positions)
        return _make_caption_rows(rows, self._read_means(rows))

    def require_variances(self) -> None:
        _require_full_variances(self.header, self.name)

    def read_mean_traces(self, rows: Any) -> MeanTrace:
        """Means (n, D) and uncertainties (n,) of a pyarrow table with `vector` and `uncertainty`."""
        return MeanTrace(self._read_means(rows), _read_traces(rows))

    def read_gaussians(self, rows: Any) -> Gaussian:
        """Gaussians (n, D) of a pyarrow table with `vector` and `log_var`."""
        return rows_to_gaussian(rows, self.dim)

    def _read_means(self, rows: Any) -> Tensor:
        """The means (n, D) in the column `vector` of a pyarrow table."""
        return column_to_tensor(rows["vector"])[:, : self.dim]

    def _iter_tables(self, columns: Sequence[str], where: str | None) -> Iterator[Any]:
        """Read the rows that pass a condition (None: all), as pyarrow tables that are not empty."""
        arrow = import_extra("pyarrow", "search")
        for batch in self.database.iter_batches(columns, where):
            if len(batch):
                yield arrow.Table.from_batches([batch])


def read_positions(rows: Any) -> Tensor:
    """Read the positions of captions in a database.

    Args:
        rows: A pyarrow table of n rows with the column `row`.

    Returns:
        int64 (n,).
    """
    return torch.from_numpy(rows["row"].to_numpy().copy())


def _require_full_variances(header: DatasetHeader, name: str) -> None:
    """Raise a ValueError if embeddings hold only the trace of each covariance. `name`: for the message."""
    if header.variances != "full":
        raise ValueError(
            f"{name} holds only the trace of each covariance, and inclusion needs every variance: embed again "
            'with --variances full, or use the root "null"'
        )


def _value_columns(header: DatasetHeader) -> list[str]:
    """Columns of a caption besides its mean: caption, uncertainty, and log_var with full variances."""
    return ["caption", "uncertainty", *(["log_var"] if header.variances == "full" else [])]


def _select_rows(tables: Sequence[Any], table_positions: Tensor, positions: Tensor) -> Any:
    """Select the rows at `positions` (n,), in that order, as one pyarrow table.

    `table_positions` (m,), increasing, are the positions of all rows of the tables.

    Raises:
        ValueError: The tables have fewer rows than positions.
    """
    rows = import_extra("pyarrow", "data").concat_tables(tables)
    if len(rows) != len(table_positions):
        raise ValueError(
            f"only {len(rows)} of {len(table_positions)} captions that a search found can be read: "
            "another process changed them meanwhile; search again"
        )
    return rows.take(torch.searchsorted(table_positions, positions.contiguous()).numpy())


def _make_caption_rows(rows: Any, mean: Tensor) -> CaptionRows:
    """Make captions of a pyarrow table with `_value_columns`, and of their means (n, D)."""
    log_var = column_to_tensor(rows["log_var"]) if "log_var" in rows.column_names else None
    return CaptionRows(tuple(rows["caption"].to_pylist()), MeanTrace(mean, _read_traces(rows)), log_var)


def _read_traces(rows: Any) -> Tensor:
    """Read the column `uncertainty` of a pyarrow table: float32 (n,)."""
    return torch.from_numpy(rows["uncertainty"].to_numpy().copy())
