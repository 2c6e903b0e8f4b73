"""Write embedding data sets into a database, part by part; a stopped run resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.source import compute_fingerprint
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import DatasetHeader, has_embeddings
from prolip.embeddings.schema import read_mean_traces
from prolip.extras import import_extra
from prolip.folder_kinds import require_folder_for
from prolip.progress import progress_bar
from prolip.retrieval.index.checksums import store_checksums, store_origin_checksum
from prolip.retrieval.index.database import (
    Database,
    has_database,
    lock_for_writing,
    make_item_schema,
    map_column_names,
)
from prolip.retrieval.index.sql import quote_text
from prolip.retrieval.index.vectors import make_item_vectors
from prolip.storage.addresses import parse_address

COMMIT_ROWS = 32_768
"""Rows of one commit, unless a part has more: some 200 MB. A billion rows are 30,000 commits."""


def index_embeddings(
    uri: str | Path, datasets: Sequence[EmbeddingDataset], *, progress: bool | None = None
) -> Database:
    """Write all rows of embedding data sets into a database, a new one or an existing one.

    Args:
        uri: A folder, or a URI in an object store (s3://, gs://, az://).
        datasets: What `prolip embed` wrote, all with one model.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The database.

    Raises:
        ValueError: The data sets can't be compared with each other or with the database, or another process writes.
    """
    if not datasets:
        raise ValueError(
            "there is no embedding data set to index: pass at least one that `prolip embed` wrote"
        )
    for first, second in combinations(datasets, 2):  # before anything is created
        _require_same_headers(first.header, first.storage, second)
    require_database_folder(uri)
    with lock_for_writing(uri):
        database = Database.open(uri) if has_database(uri) else Database.create(uri, datasets[0].header)
        for embeddings in datasets:
            require_compatible(database, embeddings)
        for embeddings in datasets:
            append_embeddings(database, embeddings, progress=progress)
    return database


def require_database_folder(uri: str | Path) -> None:
    """Raise ValueError if a folder or URI holds something else that prolip wrote, such as embeddings.

    Args:
        uri: Where a database is to be written.
    """
    address = parse_address(uri, "database")
    if address.scheme == "file":
        require_folder_for("a database", Path(address.path))
    elif has_embeddings(str(uri)):
        raise ValueError(
            f"{uri} holds embeddings, so a database can't be written there. Choose another address."
        )


def append_embeddings(
    database: Database, embeddings: EmbeddingDataset, *, progress: bool | None = None
) -> int:
    """Append the parts that the database lacks, or that were embedded again since they were indexed.

    Several parts are one commit, which is atomic: a run that was stopped resumes with the first part that is missing.
    There must be no other writer: `index_embeddings` locks the database.

    Args:
        database: The database; rows of parts that were embedded again are deleted first.
        embeddings: What `prolip embed` wrote, with the database's model.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The number of rows that were appended.
    """
    require_compatible(database, embeddings)
    origin = make_origin_name(embeddings.header)
    if origin not in database.origins:
        database.add_origin(origin, embeddings.header, str(embeddings.storage))
        store_origin_checksum(database, origin)
    _add_new_columns(database, embeddings.header)
    indexed = list_indexed_parts(database, origin)
    digests = {part: embeddings.footer(part).digest for part in embeddings.part_indices}
    missing = [part for part in embeddings.part_indices if indexed.get(part) != digests[part]]
    if changed_parts := [str(part) for part in missing if part in indexed]:
        database.delete_rows(f"origin = {quote_text(origin)} AND part IN ({', '.join(changed_parts)})")
    rows_before, next_row = database.count_rows(), _find_next_row(database)
    with progress_bar(f"indexing {embeddings.header.data}", len(missing), "parts", progress) as advance:
        for parts, tables in _iter_commits(embeddings, missing):
            if num_rows := sum(map(len, tables)):  # all samples of a part may have been bad
                part_digests = [digests[part] for part in parts]
                items = _make_items(embeddings.header, tables, origin, parts, part_digests, next_row)
                store_checksums(database, origin, items)
                database.append_rows(items)
                next_row += num_rows
            advance(len(parts))
    return database.count_rows() - rows_before


def make_origin_name(header: DatasetHeader) -> str:
    """Make a name for an embedding data set that no other one has.

    Args:
        header: Header of the embedding data set.

    Returns:
        The name of the data, and eight digits of a digest of the model, the data and what was embedded.
    """
    data = "".join(
        character if character.isalnum() or character in "-_.=" else "-"
        for character in Path(header.data).name
    )
    key = (header.identity, header.fingerprint, header.modality, header.captions, header.image)
    return f"{data[-40:]}-{compute_fingerprint(*key)[:8]}"


def list_indexed_parts(database: Database, origin: str) -> dict[int, str]:
    """List the parts of an embedding data set that are in a database.

    Args:
        database: The database.
        origin: Name of the embedding data set, of `make_origin_name`.

    Returns:
        The digest of each part, by the index of the part.
    """
    digests: dict[int, str] = {}
    for batch in database.iter_batches(["part", "digest"], f"origin = {quote_text(origin)}"):
        parts, first_rows = np.unique(batch["part"].to_numpy(), return_index=True)
        digests.update(zip(parts.tolist(), batch["digest"].take(first_rows).to_pylist(), strict=True))
    return digests


def _find_next_row(database: Database) -> int:
    """Find the value of the column `row` for the next item: one above the largest. Reads that column of all items."""
    return 1 + max(
        (int(batch["row"].to_numpy().max()) for batch in database.iter_batches(["row"]) if len(batch)),
        default=-1,
    )


def require_compatible(database: Database, embeddings: EmbeddingDataset) -> None:
    """Raise ValueError if embeddings can't be compared with those of a database, or have columns of other types.

    Args:
        database: The database to which they would be appended.
        embeddings: What `prolip embed` wrote.
    """
    new = embeddings.header
    _require_same_headers(database.header, f"the database {database.uri}", embeddings)
    origin = database.origins.get(make_origin_name(new))
    if origin is not None:
        old = DatasetHeader.from_json(origin["header"], database.uri)
        if old.part_size != new.part_size or old.columns != new.columns:
            raise ValueError(
                f"{database.uri} already holds {new.data}, embedded with other parts or columns, from "
                f"{origin['location']}: index those embeddings, or choose another database (--out)"
            )
    _require_same_types(database.columns, f"the database {database.uri}", embeddings)


def _require_same_headers(old: DatasetHeader, where: object, embeddings: EmbeddingDataset) -> None:
    """Raise a ValueError if embeddings differ in model, variances, precision or column types from a header.

    Args:
        old: The header.
        where: The data set or the database that has the header `old`, for messages.
        embeddings: What is compared with it.
    """
    new = embeddings.header
    if (old.identity, old.dim) != (new.identity, new.dim):
        raise ValueError(
            f"{embeddings.storage} holds embeddings of {new.model} ({new.identity}, {new.dim} dimensions), {where} "
            f"holds those of {old.model} ({old.identity}, {old.dim} dimensions): embeddings of two models can't be "
            "compared, so choose another database (--out)"
        )
    for name in ("variances", "precision"):
        if getattr(old, name) != getattr(new, name):
            raise ValueError(
                f"{embeddings.storage} was embedded with {name} {getattr(new, name)}, {where} holds "
                f"{getattr(old, name)}: embed again with --{name} {getattr(old, name)}, or choose another database "
                "(--out)"
            )
    _require_same_types({field.name: field.type for field in make_item_schema(old)}, where, embeddings)


def _require_same_types(column_types: Mapping[str, Any], where: object, embeddings: EmbeddingDataset) -> None:
    """Raise a ValueError if a column of the embeddings has another type than the column of the same name.

    Args:
        column_types: Arrow types of columns, by name.
        where: The data set or the database that has these columns, for messages.
        embeddings: What is compared with it.
    """
    for field in make_item_schema(embeddings.header):
        if column_types.get(field.name, field.type) != field.type:
            raise ValueError(
                f"the column {field.name} is {field.type} in {embeddings.storage} and "
                f"{column_types[field.name]} in {where}: rename the column in the data and embed it again, or choose "
                "another database (--out)"
            )


def _add_new_columns(database: Database, header: DatasetHeader) -> None:
    """Add the columns of an embedding data set that the database lacks; they are null in all present rows."""
    present = database.columns
    database.add_columns([field for field in make_item_schema(header) if field.name not in present])


def _iter_commits(
    embeddings: EmbeddingDataset, parts: Sequence[int]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Read parts, and yield the indices and the tables of those that are written in one commit.

    A commit has at least COMMIT_ROWS rows, except for the last.
    """
    commit_parts: list[int] = []
    tables: list[Any] = []
    for part in parts:
        commit_parts.append(part)
        tables.append(embeddings.read_part(part))
        if sum(map(len, tables)) >= COMMIT_ROWS:
            yield commit_parts, tables
            commit_parts, tables = [], []
    if commit_parts:
        yield commit_parts, tables


def _make_items(
    header: DatasetHeader,
    tables: Sequence[Any],
    origin: str,
    parts: Sequence[int],
    digests: Sequence[str],
    first_row: int,
) -> Any:
    """Convert rows of embeddings to items of the database, a pyarrow table.

    Args:
        header: Header of the embedding data set.
        tables: Tables of some parts.
        origin: Name of the embedding data set.
        parts: Index of each table's part.
        digests: Digest of each table's part.
        first_row: Value of the column `row` of the first item; the others count from there.
    """
    arrow = import_extra("pyarrow", "search")
    rows = arrow.concat_tables(tables)
    z = read_mean_traces(rows)
    vectors = make_item_vectors(z.mean.numpy(), z.uncertainty.numpy())
    table_of_row = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    database_columns = {
        "vector": arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1]),
        "row": arrow.array(np.arange(first_row, first_row + len(rows))),
        "origin": arrow.array([origin]).take(arrow.array(np.zeros(len(rows), dtype=np.int64))),
        "part": arrow.array(np.array(parts, dtype=np.int32)[table_of_row]),
        "digest": arrow.array(digests).take(arrow.array(table_of_row)),
    }
    return arrow.table(
        database_columns | {column: rows[name] for name, column in map_column_names(header).items()}
    )
