"""Embedding data set: Parquet parts in a folder or an object store, read one part at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from prolip.checks import join_names
from prolip.choices import Modality
from prolip.data.sample import SampleError
from prolip.data.sample_errors import ErrorCounts
from prolip.data.source import Source
from prolip.data.sources.columns import DamagedFileError, arrow_errors
from prolip.embeddings import schema
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.tasks import SourceTasks, open_source
from prolip.extras import import_extra
from prolip.gaussian import MeanTrace
from prolip.storage.folders import LocalStorage, Storage, open_storage

FOOTER_THREADS = 16
"""Footers read concurrently: an object store answers each request slowly, but many at once."""


class PartFooter(NamedTuple):
    """Metadata of a part, read without its rows.

    Attributes:
        rows: Number of rows, images and texts.
        size: Bytes.
        digest: Hash of ids, Gaussians, captions, metadata and errors.
        num_samples: Samples that were read, good and bad.
        errors: Bad samples, by sample index.
        invalid_values: By name, the number of extra values that were not stored: they had another type than their
            column, or the data set has no such column.
    """

    rows: int
    size: int
    digest: str
    num_samples: int
    errors: dict[int, SampleError]
    invalid_values: Counter[str]

    def count_errors(self) -> ErrorCounts:
        """Samples and bad samples of the part."""
        counts = ErrorCounts()
        counts.add(self.num_samples, self.errors.values())
        return counts


@dataclass(frozen=True)
class EmbeddingDataset:
    """Embeddings that `prolip embed` wrote.

    Attributes:
        storage: The folder or object store.
        header: Model, data and options.
    """

    storage: Storage
    header: DatasetHeader

    @classmethod
    def open(cls, location: str | Path, *, complete: bool = True) -> EmbeddingDataset:
        """Open a data set.

        Args:
            location: A folder, or a URI of an object store (s3://, gs://, az://).
            complete: Whether missing parts (the writing run was stopped, or is still running) are an error.

        Returns:
            The data set. Its parts are read on demand.

        Raises:
            FileNotFoundError: There is no data set.
            ValueError: Parts are missing, or the data set has another format version.
        """
        import_extra("pyarrow", "data")
        storage = open_storage(location)
        dataset = cls(storage, DatasetHeader.read(storage))
        present, parts = set(dataset.part_indices), dataset.header.parts
        if (
            complete and len(present) < parts
        ):  # without a list of what is missing: a damaged header can say any number
            first = next(index for index in range(parts) if index not in present)
            raise ValueError(
                f"{storage} is incomplete: {parts - len(present)} of {parts} parts are missing, the first is part "
                f"{first}. Run `prolip embed` with the same options again to resume."
            )
        return dataset

    @property
    def folder(self) -> Path:
        """The folder of a data set on this machine; raises ValueError if it is in an object store."""
        if not isinstance(self.storage, LocalStorage):
            raise ValueError(f"{self.storage} is not a local folder")
        return self.storage.path

    @cached_property
    def part_indices(self) -> tuple[int, ...]:
        """Indices of the parts that exist, increasing; listed once, when they are first requested."""
        matches = (PART_NAME.fullmatch(name) for name in self.storage.list_names())
        indices = sorted(int(match[1]) for match in matches if match)
        return tuple(index for index in indices if index < self.header.parts)

    @property
    def missing_parts(self) -> list[int]:
        """Indices of the parts that do not exist, increasing."""
        present = set(self.part_indices)
        return [index for index in range(self.header.parts) if index not in present]

    def read_part(self, index: int, columns: Sequence[str] | None = None) -> Any:
        """Read a part, with its page checksums verified.

        Args:
            index: Index of the part.
            columns: Columns to read; None: all.

        Returns:
            A pyarrow table.

        Raises:
            DamagedFileError: The file is damaged.
            ValueError: A column doesn't exist, or the file is not this part.
        """
        path = self._get_path(index)
        parquet = import_extra("pyarrow.parquet", "data")
        try:
            with arrow_errors(path), self.storage.open_input(get_part_name(index)) as file:
                parquet_file = parquet.ParquetFile(file, page_checksum_verification=True)
                table = parquet_file.read(columns=columns if columns is None else list(columns))
        except DamagedFileError as error:
            raise DamagedFileError(
                f"{error}. Remove it, and `prolip embed` with the same options writes it again."
            ) from None
        if columns is not None and (unknown := set(columns) - set(table.schema.names)):
            raise ValueError(
                f"{path} has no column {join_names(sorted(unknown))}; it has {join_names(self.columns, 30)}"
            )
        schema.check_part_metadata(table.schema, len(table), self.header, index, path)
        return table

    def iter_parts(
        self, modality: Modality | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Iterate over the parts that exist, in order.

        Args:
            modality: Rows to return; None: images and texts.
            columns: Columns to return; None: all.

        Yields:
            (part index, pyarrow table).
        """
        compute = import_extra("pyarrow.compute", "data")
        # to select rows by modality, that column must be read, even if it isn't returned
        columns_to_read = (
            columns if columns is None or modality is None else [*dict.fromkeys([*columns, "modality"])]
        )
        for index in self.part_indices:
            rows = self.read_part(index, columns_to_read)
            if modality is not None:
                rows = rows.filter(compute.equal(rows["modality"], modality))
            yield index, rows if columns is None else rows.select(list(columns))

    def iter_mean_traces(self, modality: Modality) -> Iterator[MeanTrace]:
        """Iterate over the means and traces of a modality, part by part: all that logits of a match need.

        Args:
            modality: Rows to return.

        Yields:
            (n, D) of each part, in order; n may be 0.
        """
        for _, rows in self.iter_parts(modality, ["mean", "uncertainty"]):
            yield schema.read_mean_traces(rows)

    def footer(self, index: int) -> PartFooter:
        """Metadata of a part. The first call reads the footers of all parts, and later calls return what it read.

        Args:
            index: Index of the part.

        Returns:
            The footer.

        Raises:
            DamagedFileError: The file is damaged.
        """
        footer = self._footers[index]
        if isinstance(footer, DamagedFileError):
            raise footer
        return footer

    def iter_errors(self) -> Iterator[tuple[int, int, SampleError]]:
        """Iterate over (part index, sample index, error) of all bad samples."""
        for part in self.part_indices:
            yield from ((part, sample, error) for sample, error in self.footer(part).errors.items())

    def count_invalid_values(self) -> Counter[str]:
        """Number of extra values that were not stored, by name, over all parts; see `PartFooter.invalid_values`."""
        return sum((self.footer(part).invalid_values for part in self.part_indices), Counter())

    def count_errors(self) -> ErrorCounts:
        """Samples and bad samples of all parts."""
        total = ErrorCounts()
        for part in self.part_indices:
            total.merge(self.footer(part).count_errors())
        return total

    def size_in_bytes(self) -> int:
        """Size of all parts, in bytes."""
        return sum(self.footer(part).size for part in self.part_indices)

    def __len__(self) -> int:
        """Number of rows, images and texts."""
        return sum(self.footer(part).rows for part in self.part_indices)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(schema.make_schema(self.header).names)

    def open_source(self) -> Source:
        """Open the data that was embedded, to read its samples again.

        Returns:
            The source.

        Raises:
            ValueError: It is a stream, or has changed since, so that a sample index may mean another sample.
        """
        header = self.header
        source = open_source(header.data, header.captions, header.image, header.modality)
        if SourceTasks(source, header.part_size).fingerprint() != header.fingerprint:
            raise ValueError(
                f"{source.name} has changed since it was embedded. Run `prolip embed` again into a new folder."
            )
        return source

    @cached_property
    def _footers(self) -> dict[int, PartFooter | DamagedFileError]:
        """Footer or, if it is damaged, error of each part that exists, by index; all are read at the first access."""
        return read_footers(self.storage, self.header, self.part_indices)

    def _get_path(self, index: int) -> str:
        """Address of a part, for error messages."""
        return f"{self.storage}/{get_part_name(index)}"


PART_NAME = re.compile(r"part-(\d{9,})\.parquet", re.ASCII)
"""What `get_part_name` returns."""


def get_part_name(index: int) -> str:
    """File name of a part.

    Args:
        index: Index of the part.

    Returns:
        The name, without a folder.
    """
    return f"part-{index:09d}.parquet"


def write_part(location: str | Path | Storage, index: int, table: Any) -> None:
    """Write a part atomically, with a checksum for every page.

    Args:
        location: Location of the data set.
        index: Index of the part.
        table: pyarrow table from `schema.make_part_table`.
    """
    parquet = import_extra("pyarrow.parquet", "data")
    options = {
        "compression": "zstd",
        "use_dictionary": False,  # values of vectors hardly repeat
        "write_page_checksum": True,
        "row_group_size": max(1, len(table)),
    }
    open_storage(location).write(
        get_part_name(index), lambda file: parquet.write_table(table, file, **options)
    )


def read_footers(
    storage: Storage, header: DatasetHeader, indices: Iterable[int]
) -> dict[int, PartFooter | DamagedFileError]:
    """Read the footers of parts concurrently.

    Args:
        storage: Storage of the data set.
        header: Header of the data set.
        indices: Indices of the parts.

    Returns:
        By index: the footer of each part, or the error where the file is damaged.

    Raises:
        ValueError: A file is not a part of this data set.
    """
    part_indices = list(indices)
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        footers = list(pool.map(lambda index: _read_footer(storage, header, index), part_indices))
    return dict(zip(part_indices, footers, strict=True))


def _read_footer(storage: Storage, header: DatasetHeader, index: int) -> PartFooter | DamagedFileError:
    """Read the footer of a part, without its rows. Called by threads.

    Returns:
        The footer, or the error if the file is damaged: the caller decides whether that part is needed.

    Raises:
        ValueError: The file is not this part of the data set.
    """
    path = f"{storage}/{get_part_name(index)}"
    try:
        with arrow_errors(path), storage.open_input(get_part_name(index)) as file:
            size = int(file.size())
            footer = import_extra("pyarrow.parquet", "data").read_metadata(file)
            part_schema = footer.schema.to_arrow_schema()
    except DamagedFileError as error:
        return error
    try:
        schema.check_part_metadata(part_schema, footer.num_rows, header, index, path)
    except DamagedFileError as error:
        return error
    return PartFooter(footer.num_rows, size, *schema.parse_part_metadata(part_schema.metadata))
