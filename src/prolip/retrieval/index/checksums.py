"""Checksums of the rows of each part of a database, which LanceDB lacks: stored before the rows, then verified."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prolip.checks import join_names
from prolip.embeddings.header import DatasetHeader
from prolip.extras import import_extra
from prolip.progress import progress_bar
from prolip.retrieval.index.database import Database, map_column_names, open_database

ORIGIN_PART = -1
"""Number of a part in the table of checksums that stands for the origin itself: its header and location."""
Key = tuple[str, int]
"""Origin and number of the part."""


class Checksum(NamedTuple):
    """Checksum of the rows of a part, which doesn't depend on their order.

    Attributes:
        rows: Number of rows.
        total: Sum of the hashes of the rows, modulo 2^64.
    """

    rows: int
    total: int

    def add(self, other: Checksum) -> Checksum:
        """The checksum of both sets of rows together."""
        return Checksum(self.rows + other.rows, (self.total + other.total) % 2**64)


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """What `verify_database` found.

    Attributes:
        database: Folder or URI.
        rows: Rows that were read.
        differences: What differs from what was written, a sentence each; empty: nothing.
        unverified_parts: Parts without a checksum, which an earlier version of prolip has written.
    """

    database: str
    rows: int
    differences: tuple[str, ...]
    unverified_parts: int

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(asdict(self))


def store_checksums(database: Database, origin: str, items: Any) -> None:
    """Store the checksums of rows that are about to be appended. If a part has several, the last one counts.

    Before the rows, not after: a run that is killed in between then writes both again, instead of rows without
    checksum.

    Args:
        database: The database.
        origin: Origin of the rows.
        items: pyarrow table of the rows, whole parts.
    """
    checksums = _compute_checksums(items, items.column_names)
    database.add_checksums(
        [(name, part, value.rows, f"{value.total:016x}") for (name, part), value in checksums.items()]
    )


def store_origin_checksum(database: Database, origin: str) -> None:
    """Store the checksum of an origin's header and location.

    Args:
        database: The database, which has the origin.
        origin: Its name.
    """
    database.add_checksums([(origin, ORIGIN_PART, 0, _hash_origin(database.origins[origin]))])


def verify_database(database: str | Path | Database, *, progress: bool | None = None) -> VerificationResult:
    """Read all rows of a database, and compare them with the checksums that were computed before they were written.

    Args:
        database: A database, its folder or its URI.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        What differs.

    Raises:
        FileNotFoundError: There is no database.
        ValueError: It can't be opened at all.
    """
    opened = open_database(database)
    stored = {(origin, part): (rows, digest) for origin, part, rows, digest in opened.read_checksums()}
    differences = [
        f"the header or location of {origin} differs from what was written"
        for origin, values in opened.origins.items()
        if stored.get((origin, ORIGIN_PART), (0, _hash_origin(values)))[1] != _hash_origin(values)
    ]
    if opened.origins and all(
        opened.header.to_json() != values["header"] for values in opened.origins.values()
    ):
        differences.append("the header of the items is that of no embedding data set")
    found: dict[Key, Checksum] = {}
    try:
        found = _read_checksums_of_rows(opened, progress)
    except ValueError as error:
        differences.append(str(error))
    else:
        differences += _list_differences(stored, found)
    return VerificationResult(
        database=opened.uri, rows=sum(value.rows for value in found.values()), differences=tuple(differences),
        unverified_parts=len(found.keys() - stored.keys()),
    )  # fmt: skip


def _list_differences(stored: Mapping[Key, tuple[int, str]], found: Mapping[Key, Checksum]) -> list[str]:
    """A sentence for each part whose rows differ in number or content from what was written."""
    sentences: list[str] = []
    for (origin, part), (rows, digest) in sorted(stored.items()):
        actual = found.get((origin, part), Checksum(0, 0))
        if part == ORIGIN_PART or (actual.rows, f"{actual.total:016x}") == (rows, digest):
            continue
        problem = "a row differs" if actual.rows == rows else f"{actual.rows:,} of {rows:,} rows are there"
        sentences.append(f"part {part} of {origin}: {problem}")
    written_origins = {origin for origin, _ in stored}
    for origin, part in sorted(found.keys() - stored.keys()):
        if origin in written_origins:  # else it is of an earlier version, without checksums
            sentences.append(f"part {part} of {origin}: {found[origin, part].rows:,} rows were never written")
    return sentences


def _read_checksums_of_rows(database: Database, progress: bool | None) -> dict[Key, Checksum]:
    """The checksum of each part, of the rows as they are now; a ValueError if they can't be read."""
    columns = {
        origin: _list_columns(DatasetHeader.from_json(values["header"], database.uri))
        for origin, values in database.origins.items()
    }
    arrow, compute = import_extra("pyarrow", "search"), import_extra("pyarrow.compute", "search")
    all_columns = sorted(database.columns)
    if missing := sorted({name for names in columns.values() for name in names} - set(all_columns)):
        raise ValueError(f"{database.uri} lacks the columns {join_names(missing)}")
    checksums: dict[Key, Checksum] = {}
    with progress_bar("verifying", database.count_rows(), "rows", progress) as advance:
        for batch in database.iter_batches(all_columns):
            table = arrow.Table.from_batches([batch])
            for origin in table["origin"].unique().to_pylist():
                rows = table.filter(compute.equal(table["origin"], origin))
                # another data set may have added columns, which are null here
                for key, value in _compute_checksums(rows, columns.get(origin, all_columns)).items():
                    checksums[key] = checksums.get(key, Checksum(0, 0)).add(value)
            advance(len(table))
    return checksums


def _list_columns(header: DatasetHeader) -> list[str]:
    """The columns that the rows of an embedding data set have in a database."""
    return ["vector", "row", "origin", "part", "digest", *map_column_names(header).values()]


def _compute_checksums(rows: Any, columns: Sequence[str]) -> dict[Key, Checksum]:
    """The checksum of each part in a pyarrow table of rows, over some columns."""
    hashes = _hash_rows(rows.select(sorted(columns)))
    # damage may have made a null of either
    parts = rows["part"].fill_null(ORIGIN_PART - 1).to_pylist()
    keys = list(zip(rows["origin"].fill_null("").to_pylist(), parts, strict=True))
    totals: Counter[Key] = Counter()
    for key, value in zip(keys, hashes, strict=True):
        totals[key] += value
    return {key: Checksum(count, totals[key] % 2**64) for key, count in Counter(keys).items()}


def _hash_rows(rows: Any) -> list[int]:
    """64-bit hashes of the rows of a pyarrow table, of all their values, to the bit."""
    types = import_extra("pyarrow", "search").types
    vectors = [field.name for field in rows.schema if types.is_fixed_size_list(field.type)]
    scalars = [rows[name].to_pylist() for name in rows.column_names if name not in vectors]
    blocks = [_view_bytes(rows[name]) for name in vectors]
    hashes: list[int] = []
    for number, values in enumerate(zip(*scalars, strict=True)):
        digest = hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8)
        for block in blocks:
            digest.update(block[number])
        hashes.append(int.from_bytes(digest.digest(), "little"))
    return hashes


def _view_bytes(column: Any) -> np.ndarray:
    """The bytes (n, W) of a pyarrow column of fixed-size lists of numbers; zeros, and a last column of 1, for null."""
    width = column.type.list_size
    filled = column.combine_chunks()
    values = np.zeros((len(filled), width), dtype=column.type.value_type.to_pandas_dtype())
    is_null = np.asarray(filled.is_null(), dtype=np.uint8)
    values[is_null == 0] = np.asarray(filled.drop_null().flatten()).reshape(-1, width)
    return np.concatenate([values.view(np.uint8), is_null[:, None]], axis=1)


def _hash_origin(values: Mapping[str, str]) -> str:
    """16 hexadecimal digits: hash of the header and location of an origin."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()
