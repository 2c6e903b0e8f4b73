"""Embeddings into a database: part after part, nothing twice, and on where a stopped run stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from prolip.data.source import fingerprint_of
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.header import Header
from prolip.embeddings.schema import mean_trace_of
from prolip.extras import require
from prolip.progress import bar
from prolip.retrieval.index.database import Database, exists, names_of, schema_of, writing
from prolip.retrieval.index.sql import quoted
from prolip.retrieval.index.vectors import stored

COMMIT = 32_768
"""Rows that are written together, unless a part has more: some 200 MB. A billion rows are 30,000 commits."""


def fill(uri: str | Path, folders: Sequence[Embeddings], *, progress: bool | None = None) -> Database:
    """A database with all rows of these embeddings: a new one, or added to the one that is there."""
    if not folders:
        raise ValueError("there are no embeddings to put into a database")
    for one, other in combinations(folders, 2):  # before anything is made
        _require_same_headers(one.header, one.place, other)
    with writing(uri):
        database = Database.open(uri) if exists(uri) else Database.create(uri, folders[0].header)
        for embeddings in folders:
            require_same_kind(database, embeddings)
        for embeddings in folders:
            add(database, embeddings, progress=progress)
    return database


def add(database: Database, embeddings: Embeddings, *, progress: bool | None = None) -> int:
    """Add the parts that are not there yet, or were made anew since; the number of rows that were added.

    Several parts are one commit: it is there or not. So whoever is stopped goes on with the first that is missing.
    Nobody else may write meanwhile: `fill` sees to it.
    """
    require_same_kind(database, embeddings)
    origin = origin_of(embeddings.header)
    if origin not in database.origins:
        database.add_origin(origin, embeddings.header, str(embeddings.place))
    _add_new_columns(database, embeddings.header)
    there = parts_of(database, origin)
    digests = {number: embeddings.footer(number).digest for number in embeddings.numbers}
    missing = [number for number in embeddings.numbers if there.get(number) != digests[number]]
    if changed := [str(number) for number in missing if number in there]:
        database.remove(f"origin = {quoted(origin)} AND part IN ({', '.join(changed)})")
    before, first = database.count(), _next_row(database)
    with bar(f"indexing {embeddings.header.data}", len(missing), "parts", progress) as advance:
        for numbers, tables in _commits(embeddings, missing):
            if rows := sum(map(len, tables)):  # all samples of a part may have been bad
                own = [digests[number] for number in numbers]
                database.append(_items(embeddings.header, tables, origin, numbers, own, first))
                first += rows
            advance(len(numbers))
    return database.count() - before


def origin_of(header: Header) -> str:
    """A name for what was embedded: the data's, and eight digits of the model, the data and what of it."""
    data = "".join(
        letter if letter.isalnum() or letter in "-_.=" else "-" for letter in Path(header.data).name
    )
    facts = (header.identity, header.fingerprint, header.what, header.captions, header.image)
    return f"{data[-40:]}-{fingerprint_of(*facts)[:8]}"


def parts_of(database: Database, origin: str) -> dict[int, str]:
    """Numbers of the parts of these embeddings that are in the database, and their digests."""
    found: dict[int, str] = {}
    for batch in database.rows(["part", "digest"], f"origin = {quoted(origin)}"):
        numbers, places = np.unique(batch["part"].to_numpy(), return_index=True)
        found.update(zip(numbers.tolist(), batch["digest"].take(places).to_pylist(), strict=True))
    return found


def _next_row(database: Database) -> int:
    """A number that no row has, nor any after it."""
    return 1 + max(
        (int(batch["row"].to_numpy().max()) for batch in database.rows(["row"]) if len(batch)), default=-1
    )


def require_same_kind(database: Database, embeddings: Embeddings) -> None:
    """An error if these embeddings can't be compared with those of the database, or have columns of other types."""
    new = embeddings.header
    _require_same_headers(database.header, f"the database {database.uri}", embeddings)
    origin = database.origins.get(origin_of(new))
    if origin is not None:
        old = Header.from_json(origin["header"], database.uri)
        if old.part_size != new.part_size or old.columns != new.columns:
            raise ValueError(
                f"{database.uri} holds {new.data} already, embedded with other parts or columns, from "
                f"{origin['place']}: take those embeddings, or another database"
            )
    _require_same_types(database.columns, f"the database {database.uri}", embeddings)


def _require_same_headers(old: Header, where: object, embeddings: Embeddings) -> None:
    """where: the embeddings or the database that has the header `old`."""
    new = embeddings.header
    if (old.identity, old.dim) != (new.identity, new.dim):
        raise ValueError(
            f"{embeddings.place} holds embeddings of {new.model} ({new.identity}, {new.dim} dimensions), {where} "
            f"those of {old.model} ({old.identity}, {old.dim} dimensions): two models can't be compared, so choose "
            "another database"
        )
    for name in ("variances", "precision"):
        if getattr(old, name) != getattr(new, name):
            raise ValueError(
                f"{embeddings.place} was embedded with {name} {getattr(new, name)}, {where} holds "
                f"{getattr(old, name)}: embed with the same"
            )
    _require_same_types({field.name: field.type for field in schema_of(old)}, where, embeddings)


def _require_same_types(known: Mapping[str, Any], where: object, embeddings: Embeddings) -> None:
    """known: the Arrow types of columns, by name."""
    for field in schema_of(embeddings.header):
        if known.get(field.name, field.type) != field.type:
            raise ValueError(
                f"the column {field.name} is {field.type} in {embeddings.place} and {known[field.name]} in {where}: "
                "use another database, or another name"
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


def _items(
    header: Header,
    tables: Sequence[Any],
    origin: str,
    numbers: Sequence[int],
    digests: Sequence[str],
    first: int,
) -> Any:
    """Rows of embeddings as items, numbered from `first` on."""
    arrow = require("pyarrow", "search")
    rows = arrow.concat_tables(tables)
    z = mean_trace_of(rows)
    vectors = stored(z.mean.numpy(), z.uncertainty.numpy())
    part = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    own = {
        "vector": arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1]),
        "row": arrow.array(np.arange(first, first + len(rows))),
        "origin": arrow.array([origin]).take(arrow.array(np.zeros(len(rows), dtype=np.int64))),
        "part": arrow.array(np.array(numbers, dtype=np.int32)[part]),
        "digest": arrow.array(digests).take(arrow.array(part)),
    }
    return arrow.table(own | {named: rows[name] for name, named in names_of(header).items()})
