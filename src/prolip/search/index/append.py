"""Embeddings into a database: part after part, nothing twice, and on where a stopped run stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.source import fingerprint_of
from prolip.embed.header import Header
from prolip.embed.stored import Embeddings
from prolip.embed.table import mean_trace_of
from prolip.extras import require
from prolip.progress import bar
from prolip.search.index.database import Database, exists, named, quoted, schema_of
from prolip.search.index.vectors import stored

COMMIT = 32_768
"""Rows that are written together, unless a part has more: some 200 MB. A billion rows are 30,000 commits."""


def fill(uri: str | Path, folders: Sequence[Embeddings], *, progress: bool | None = None) -> Database:
    """A database with all rows of these embeddings: a new one, or added to the one that is there."""
    if not folders:
        raise ValueError("there are no embeddings to put into a database")
    database = Database.open(uri) if exists(uri) else Database.create(uri, folders[0].header)
    for embeddings in folders:
        require_same_kind(database, embeddings)
    for embeddings in folders:
        add(database, embeddings, progress=progress)
    return database


def add(database: Database, embeddings: Embeddings, *, progress: bool | None = None) -> int:
    """Add the parts that are not there yet; the number of rows that were added.

    Several parts are one commit: it is there or not. So whoever is stopped goes on with the first that is missing.
    """
    require_same_kind(database, embeddings)
    origin = origin_of(embeddings.header)
    if origin not in database.origins:
        database.add_origin(origin, embeddings.header, str(embeddings.place))
    _add_new_columns(database, embeddings.header)
    there = parts_of(database, origin)
    missing = [number for number in embeddings.numbers if number not in there]
    before = database.count()
    with bar(f"indexing {embeddings.header.data}", len(missing), "parts", progress) as advance:
        for numbers, tables in _commits(embeddings, missing):
            if any(map(len, tables)):  # all samples of a part may have been bad
                database.append(_items(tables, origin, numbers, database.count()))
            advance(len(numbers))
    return database.count() - before


def origin_of(header: Header) -> str:
    """A name for embeddings: the data's, and eight digits of all that the header says."""
    data = "".join(
        letter if letter.isalnum() or letter in "-_.=" else "-" for letter in Path(header.data).name
    )
    return f"{data[-40:]}-{fingerprint_of(header.to_json())[:8]}"


def parts_of(database: Database, origin: str) -> set[int]:
    """Numbers of the parts of these embeddings that are in the database."""
    found: set[int] = set()
    for batch in database.rows(["part"], f"origin = {quoted(origin)}"):
        found.update(np.unique(batch["part"].to_numpy()).tolist())
    return found


def require_same_kind(database: Database, embeddings: Embeddings) -> None:
    """An error if these embeddings can't be compared with those of the database, or have columns of other types."""
    old, new = database.header, embeddings.header
    if (old.identity, old.dim) != (new.identity, new.dim):
        raise ValueError(
            f"{embeddings.place} holds embeddings of {new.model} ({new.identity}, {new.dim} dimensions), the database "
            f"{database.uri} those of {old.model} ({old.identity}, {old.dim} dimensions): two models can't be "
            "compared, so choose another database"
        )
    if old.variances != new.variances:
        raise ValueError(
            f"{embeddings.place} was embedded with variances {new.variances}, the database {database.uri} holds "
            f"{old.variances}: embed with the same"
        )
    known = database.columns
    for field in schema_of(new):
        if known.get(field.name, field.type) != field.type:
            raise ValueError(
                f"the column {field.name} is {field.type} in {embeddings.place} and {known[field.name]} in the "
                f"database {database.uri}: use another database, or another name"
            )


def _add_new_columns(database: Database, header: Header) -> None:
    known = database.columns
    database.add_columns([field for field in schema_of(header) if field.name not in known])


def _commits(embeddings: Embeddings, numbers: Sequence[int]) -> Iterator[tuple[list[int], list[Any]]]:
    """Numbers of parts, and their tables, that are written together."""
    waiting: list[int] = []
    tables: list[Any] = []
    for number in numbers:
        waiting.append(number)
        tables.append(embeddings.part(number))
        if sum(map(len, tables)) >= COMMIT:
            yield waiting, tables
            waiting, tables = [], []
    if waiting:
        yield waiting, tables


def _items(tables: Sequence[Any], origin: str, numbers: Sequence[int], first: int) -> Any:
    """Rows of embeddings as items, numbered from `first` on."""
    arrow = require("pyarrow", "search")
    rows = arrow.concat_tables(tables)
    z = mean_trace_of(rows)
    vectors = stored(z.mean.numpy(), z.uncertainty.numpy())
    own = {
        "vector": arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1]),
        "row": arrow.array(np.arange(first, first + len(rows))),
        "origin": arrow.array([origin]).take(arrow.array(np.zeros(len(rows), dtype=np.int64))),
        "part": arrow.array(np.repeat(np.array(numbers, dtype=np.int32), [len(table) for table in tables])),
    }
    kept = [(named(rows.schema.field(name)).name, rows[name]) for name in rows.column_names if name != "mean"]
    return arrow.table(own | dict(kept))
