"""A LanceDB database of embeddings: tables, searches and changes. The only file that imports lancedb.

A database is a folder, or a URI in an object store (s3://, gs://, az://), and has these tables:

    items     a row is an image or a text: the columns of its embeddings, with `vector` (index/vectors.py) for `mean`,
              and: row (a unique integer), origin (the embedding data set), part (of it), digest (of that part)
    origins   a row per embedding data set: origin, header (JSON), location (a folder, or a URI)
    settings  one row: index/settings.py as JSON
    checksums a row per part: origin, part, rows, checksum (index/checksums.py); earlier versions wrote none

Every change is a new version of a table. A `Database` that was opened sees the items of that moment for as long as it
lives, so that readers are never disturbed. There may be any number of readers, and one writer.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prolip.checks import join_names
from prolip.embeddings import schema
from prolip.embeddings.extra_columns import make_unique_column_name
from prolip.embeddings.header import DatasetHeader
from prolip.extras import import_extra
from prolip.lazy import defer_package
from prolip.retrieval.calibration import Calibration, read_calibration
from prolip.retrieval.index.settings import IndexKind, IndexSettings, SearchEffort, describe_version_mismatch
from prolip.retrieval.index.sql import is_self_contained, join_conditions
from prolip.retrieval.index.vectors import vector_size
from prolip.storage.addresses import parse_address
from prolip.storage.file_systems import find_s3_endpoint

Distance = Literal["l2", "dot"]
"""l2: the squared distance, CSD minus the query's trace. dot: 1 - the inner product of the means."""

DATABASE_COLUMNS = ("vector", "row", "origin", "part", "digest")
"""Columns that a database adds to those of embeddings."""
RESERVED_COLUMNS = (
    *DATABASE_COLUMNS,
    "query_index",
    "_distance",
    "_rowid",
    "_rowaddr",
    "csd",
    "cosine",
    "match",
    "inclusion",
)
"""Names with a meaning in the result of a search; an extra column of such a name gets an underscore appended."""
QUERY_BATCH = 256
"""Queries per call of LanceDB."""
INDEX_CLASSES: dict[IndexKind, str] = {"ivf-sq": "IvfSq", "ivf-rq": "IvfRq", "ivf-pq": "IvfPq"}
"""Name of each kind's class in lancedb.index."""
MIN_TRAINING_ROWS = 256
"""Fewest rows that an index can be trained on."""


@contextmanager
def translate_lance_errors(uri: str | Path) -> Iterator[None]:
    """Turn LanceDB's errors about damage, unreachable storage or two writers into one message.

    Args:
        uri: URI of the database, for the message.

    Yields:
        None.

    Raises:
        ValueError: In place of such an error, or of a ValueError that doesn't name the database; other errors pass
            unchanged.
    """
    try:
        yield
    except BaseException as error:
        is_panic = type(error).__name__ in ("PanicException", "RustPanic")
        if isinstance(error, ValueError) and str(uri) not in str(error):
            raise ValueError(f"{uri}: {_shorten_message(error)}") from None
        if is_panic or isinstance(error, RuntimeError | KeyError | TypeError):
            raise ValueError(
                f"{uri}: the database can't be used ({_shorten_message(error)}). If its index is damaged, `prolip "
                f"index EMBEDDINGS --out {uri} --kind none` removes it. If its rows are damaged, remove the database "
                f"and run `prolip index EMBEDDINGS --out {uri}`."
            ) from None
        raise


def _shorten_message(error: BaseException) -> str:
    """LanceDB's message without the location in its own source, 300 characters at most."""
    return re.split(r", /|, rust/|\\n|\n", str(error))[0][:300]


@dataclass(frozen=True, eq=False)
class Database:
    """An open database.

    Attributes:
        uri: Folder or URI, as the user wrote it.
        connection: Connection of lancedb.
        items: The lancedb table of items.
    """

    uri: str
    connection: Any
    items: Any

    @classmethod
    def open(cls, uri: str | Path) -> Database:
        """Open a database as it is now; changes that are made later are not seen.

        Args:
            uri: A folder, or a URI (s3://, gs://, az://).

        Returns:
            The database.

        Raises:
            FileNotFoundError: There is no database.
            ValueError: It is damaged, can't be reached, or has another version.
        """
        if not has_database(uri):
            raise FileNotFoundError(
                f"{uri}: there is no database; `prolip index EMBEDDINGS --out {uri}` creates one"
            )
        with translate_lance_errors(uri):
            connection = _connect(uri)
            database = cls(str(uri), connection, connection.open_table("items"))
            _ = database.settings, database.origins  # read now, so that they are as old as the items
        return database

    @classmethod
    def create(cls, uri: str | Path, header: DatasetHeader) -> Database:
        """Create a database without rows.

        Args:
            uri: A folder or URI that holds no database yet.
            header: Header of embeddings: only those of the same model, variances and precision can be appended.

        Returns:
            The new database.

        Raises:
            ValueError: There is a database already, or the storage can't be used.
        """
        if has_database(uri):
            raise ValueError(f"{uri} already holds a database: open it to append, or choose another folder")
        with translate_lance_errors(uri):
            return cls._create(uri, header)

    @classmethod
    def _create(cls, uri: str | Path, header: DatasetHeader) -> Database:
        """Create the three tables, without rows, and open them."""
        arrow = import_extra("pyarrow", "search")
        connection = _connect(uri)
        text_tables = {"origins": ("origin", "header", "location"), "settings": ("settings",)}
        for name, columns in text_tables.items():
            schema = arrow.schema([arrow.field(column, arrow.string()) for column in columns])
            connection.create_table(name, schema=schema, exist_ok=True)
        # `items` comes last: a run that is killed before this has left no database
        return cls(str(uri), connection, connection.create_table("items", schema=make_item_schema(header)))

    @cached_property
    def header(self) -> DatasetHeader:
        """The header of the first embedding data set: model, variances and precision are those of all."""
        with translate_lance_errors(self.uri):
            metadata = self.items.schema.metadata
        if not metadata or schema.HEADER not in metadata:
            raise ValueError(f"{self.uri} is damaged: its items have no header. Remove it and index again")
        return DatasetHeader.from_json(metadata[schema.HEADER], self.uri)

    @property
    def columns(self) -> dict[str, Any]:
        """The Arrow type of each column of items."""
        with translate_lance_errors(self.uri):
            return {column.name: column.type for column in self.items.schema}

    def count_rows(self, where: str | None = None) -> int:
        """Count the items.

        Args:
            where: SQL: only rows that pass; None: all.
        """
        with translate_lance_errors(self.uri):
            return int(self.items.count_rows(where))

    @property
    def version(self) -> int:
        """The version of the table of items that this object sees."""
        with translate_lance_errors(self.uri):
            return int(self.items.version)

    def refreshed(self) -> Database:
        """This database, or, if anything of it was changed since it was opened, the database as it is now.

        For processes that answer many queries while others may append. Takes about a millisecond if nothing changed.

        Raises:
            ValueError, FileNotFoundError: As `Database.open`.
        """
        with translate_lance_errors(self.uri):
            seen = {"items": self.items, "settings": self._settings_table}
            is_current = all(
                self.connection.open_table(name).version == table.version for name, table in seen.items()
            )
        return self if is_current else Database.open(self.uri)

    def iter_batches(
        self, columns: Sequence[str], where: str | None = None, *, with_row_ids: bool = False
    ) -> Iterator[Any]:
        """Read some columns of all items, in no particular order.

        Args:
            columns: Columns to read.
            where: SQL: only rows that pass; None: all.
            with_row_ids: Also read `_rowid`, for `take_rows`.

        Yields:
            pyarrow record batches.
        """
        with translate_lance_errors(self.uri):
            query = self.items.search().select(list(columns)).with_row_id(with_row_ids)
            yield from (query if where is None else query.where(where)).to_batches()

    def take_rows(self, row_ids: np.ndarray, columns: Sequence[str]) -> Any:
        """Read some columns of some items.

        Args:
            row_ids: int64 (n,), as `iter_batches` read them from this version of the items.
            columns: Columns to read.

        Returns:
            A pyarrow table, in no particular order.
        """
        with translate_lance_errors(self.uri):
            return self.items.take_row_ids(row_ids.tolist()).select(list(columns)).to_arrow()

    def find_nearest(
        self,
        vectors: np.ndarray,
        count: int,
        *,
        columns: Sequence[str],
        distance: Distance = "l2",
        where: str | None = None,
        effort: SearchEffort | None = None,
    ) -> Any:
        """Find the `count` nearest items of each query.

        Args:
            vectors: float32 (Q, vector_size), of `make_query_vectors`.
            count: Items per query.
            columns: Columns to return.
            distance: l2 or dot.
            where: SQL; it is applied first, so that `count` items are found if as many pass. None: no filter.
            effort: Effort of an approximate search; None: exact.

        Returns:
            A pyarrow table with `query_index`, the columns and `_distance`, sorted by query, then by distance.
        """
        arrow = import_extra("pyarrow", "search")
        tables = [
            self._find_nearest_of_batch(
                vectors[first_query : first_query + QUERY_BATCH],
                first_query,
                count,
                columns,
                distance,
                where,
                effort,
            )
            for first_query in range(0, len(vectors), QUERY_BATCH)
        ]
        return arrow.concat_tables(tables).combine_chunks()

    def _find_nearest_of_batch(
        self,
        vectors: np.ndarray,
        first_query: int,
        count: int,
        columns: Sequence[str],
        distance: Distance,
        where: str | None,
        effort: SearchEffort | None,
    ) -> Any:
        """Run `find_nearest` for at most QUERY_BATCH queries, in one call of LanceDB.

        Args:
            vectors: float32 (q, vector_size).
            first_query: Number of the first query of this batch among all, from which `query_index` counts.
            count, columns, distance, where, effort: As for `find_nearest`.
        """
        arrow = import_extra("pyarrow", "search")
        with translate_lance_errors(self.uri):
            query = self.items.search(vectors, vector_column_name="vector", query_type="vector")
            query = query.distance_type(distance).limit(count).select([*columns, "_distance"])
            if where is not None:
                query = query.where(where, prefilter=True)
            if effort is None:
                query = query.bypass_vector_index()
            else:  # without a maximum: if few rows of the nearest partitions pass the filter, others are searched
                query = query.minimum_nprobes(effort.nprobes).maximum_nprobes(0).refine_factor(effort.refine)
            rows = query.to_arrow()
        if "query_index" not in rows.column_names:  # LanceDB adds none to the result of a single query
            numbers = np.full(len(rows), first_query, dtype=np.int32)
            return rows.add_column(0, "query_index", arrow.array(numbers))
        # LanceDB counts from 0 in each batch
        numbers = rows["query_index"].to_numpy() + np.int32(first_query)
        return rows.set_column(0, "query_index", arrow.array(numbers))

    def check_filter(self, where: str) -> None:
        """Raise a ValueError if a filter is not a condition on the columns of the database. Runs the filter once.

        Args:
            where: SQL, as the user wrote it.
        """
        try:
            if not is_self_contained(where):
                raise ValueError(
                    "its parentheses or quotes are not closed, or it contains a comment or a placeholder"
                )
            # some errors, such as a division by zero, only show when the filter runs
            self.items.search().where(join_conditions(where)).select(["row"]).limit(1).to_arrow()
        except (ValueError, RuntimeError) as error:
            reason = re.split(r", /|\. Valid fields|\n", str(error).removeprefix("Invalid input, "))[0]
            raise ValueError(
                f"the filter {where!r} can't be used ({reason}); the columns are {join_names(list(self.columns), 40)}"
            ) from None

    # -- metadata ------------------------------------------------------------------------------------------

    @cached_property
    def origins(self) -> dict[str, dict[str, str]]:
        """The header (JSON) and the location of each embedding data set, by origin."""
        rows = self._read_origins()
        return {row["origin"]: {"header": row["header"], "location": row["location"]} for row in rows}

    def _read_origins(self) -> list[dict[str, str]]:
        """Read all rows of the table of origins; a ValueError if the database has an older version."""
        table = self.connection.open_table("origins")
        if "location" not in table.schema.names:
            raise ValueError(describe_version_mismatch(self.uri))
        rows: list[dict[str, str]] = table.to_arrow().to_pylist()
        return rows

    def add_origin(self, origin: str, header: DatasetHeader, location: str) -> None:
        """Store where the items of an embedding data set come from.

        Args:
            origin: The name of the embedding data set.
            header: Header of the embedding data set.
            location: Location of the embedding data set.
        """
        arrow = import_extra("pyarrow", "search")
        row = {"origin": [origin], "header": [header.to_json()], "location": [location]}
        self.connection.open_table("origins").add(arrow.table(row))
        self.origins[origin] = {"header": header.to_json(), "location": location}

    @cached_property
    def _settings_table(self) -> Any:
        """The table of settings that this object sees."""
        return self.connection.open_table("settings")

    @cached_property
    def settings(self) -> IndexSettings:
        """The settings that were stored last; the defaults if there are none."""
        rows = self._settings_table.to_arrow()["settings"].to_pylist()
        return IndexSettings.from_json(rows[0], self.uri) if rows else IndexSettings()

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration in the database's folder, of the model of its items; None: there is none.

        Raises:
            ValueError: It is damaged, or of another model.
        """
        return read_calibration(self.uri, self.header.identity)

    def add_checksums(self, checksums: Sequence[tuple[str, int, int, str]]) -> None:
        """Append checksums; of several for one part, the last one counts.

        Args:
            checksums: (origin, part, number of rows, checksum).
        """
        arrow = import_extra("pyarrow", "search")
        table_schema = arrow.schema(
            [
                ("origin", arrow.string()),
                ("part", arrow.int32()),
                ("rows", arrow.int64()),
                ("checksum", arrow.string()),
            ]
        )
        columns = [arrow.array(list(values), field.type) for values, field in zip(
            zip(*checksums, strict=True), table_schema, strict=True
        )]  # fmt: skip
        with translate_lance_errors(self.uri):
            table = self.connection.create_table("checksums", schema=table_schema, exist_ok=True)
            table.add(arrow.table(columns, schema=table_schema))

    def read_checksums(self) -> list[tuple[str, int, int, str]]:
        """Read what `add_checksums` stored, in that order; empty for a database of an earlier version."""
        with translate_lance_errors(self.uri):
            try:
                rows = self.connection.open_table("checksums").to_arrow().to_pylist()
            except ValueError as error:
                if "not found" in str(error):
                    return []
                raise
            return [(row["origin"], row["part"], row["rows"], row["checksum"]) for row in rows]

    def save_settings(self, settings: IndexSettings) -> None:
        """Store settings, in place of those before.

        Args:
            settings: New settings; this object has them from now on, too.
        """
        arrow = import_extra("pyarrow", "search")
        row = arrow.table({"settings": [settings.to_json()]})
        self._settings_table.add(row, mode="overwrite")
        vars(self)["settings"] = settings  # replaces the cached value

    # -- changes -----------------------------------------------------------------------------------------------------

    def add_columns(self, fields: Sequence[Any]) -> None:
        """Add columns, which are null in all present rows.

        Args:
            fields: pyarrow fields; none: nothing is done.
        """
        if fields:
            with translate_lance_errors(self.uri):
                self.items.add_columns(list(fields))

    def append_rows(self, rows: Any) -> None:
        """Append items, atomically.

        Args:
            rows: A pyarrow table with the columns of the database.
        """
        with translate_lance_errors(self.uri):
            self.items.add(rows)

    def delete_rows(self, where: str) -> None:
        """Delete all rows that pass a condition.

        Args:
            where: SQL.
        """
        with translate_lance_errors(self.uri):
            self.items.delete(where)

    def optimize(self) -> None:
        """Add new rows to the index, if there is one, and merge small files."""
        with translate_lance_errors(self.uri):
            self.items.optimize()

    def create_index(self, kind: IndexKind) -> None:
        """Train an index on all rows; the old one is used until it is ready.

        Args:
            kind: Kind of the index; none: the index is removed.

        Raises:
            ValueError: There are fewer than MIN_TRAINING_ROWS rows.
        """
        if kind == "none":
            for old in self.items.list_indices():
                self.items.drop_index(old.name)
            return
        if self.count_rows() < MIN_TRAINING_ROWS:
            raise ValueError(
                f"an index needs at least {MIN_TRAINING_ROWS} rows, and {self.uri} has {self.count_rows()}: "
                "use kind none (--kind none), which needs no index"
            )
        config = getattr(import_extra("lancedb.index", "search"), INDEX_CLASSES[kind])
        with translate_lance_errors(self.uri):
            self.items.create_index("vector", config=config(distance_type="l2"), replace=True)

    @property
    def index_kind(self) -> IndexKind:
        """The kind of the present index; "none" if there is none."""
        with translate_lance_errors(self.uri):
            index_types = [index.index_type for index in self.items.list_indices()]
        return next((kind for kind, name in INDEX_CLASSES.items() if name in index_types), "none")


def open_database(database: str | Path | Database) -> Database:
    """Open a database, unless it is open already.

    Args:
        database: A database, or what `Database.open` takes.

    Returns:
        The open database.

    Raises:
        TypeError: It is something else.
        FileNotFoundError, ValueError: As `Database.open`.
    """
    if isinstance(database, Database):
        return database
    if not isinstance(database, str | Path):
        raise TypeError(f"database must be a Database or its location, not {type(database).__name__}")
    return Database.open(database)


def has_database(uri: str | Path) -> bool:
    """Whether `prolip index` wrote a database here.

    Args:
        uri: A folder, or a URI (s3://, gs://, az://).

    Returns:
        Whether there is one. The folder is not created.

    Raises:
        ValueError: The location is empty, has an unknown scheme, or can't be read.
    """
    if not str(uri):
        raise ValueError(
            "the location of the database is empty: it must be a folder, or a URI (s3://, gs://, az://)"
        )
    address = parse_address(uri, "database")
    if address.scheme == "file" and not Path(address.path).is_dir():
        return False  # connecting would create the folder
    with translate_lance_errors(uri):
        try:
            _connect(uri).open_table("items")
        except (ValueError, FileNotFoundError) as error:
            if "not found" in str(error):
                return False
            raise ValueError(
                f"{uri}: the storage can't be read ({_shorten_message(error)}); check the location and your credentials"
            ) from None
    return True


@contextmanager
def lock_for_writing(uri: str | Path) -> Iterator[None]:
    """Lock a database against other writers on this machine. (An object store has no lock.)

    Args:
        uri: URI of the database; a folder is created.

    Yields:
        None, while the lock is held.

    Raises:
        ValueError: Another process holds the lock.
    """
    address = parse_address(uri, "database")
    if address.scheme != "file":
        yield
        return
    folder = Path(address.path)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".writer", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{uri} is being written by another process: wait until that process has ended"
            ) from None
        yield


def make_item_schema(header: DatasetHeader) -> Any:
    """Make the schema of the items of an embedding data set.

    Args:
        header: Header of the embedding data set.

    Returns:
        A pyarrow schema, with the header in its metadata.
    """
    arrow = import_extra("pyarrow", "search")
    embedded = schema.make_schema(header)
    names = map_column_names(header)
    embedding_fields = [field.with_name(names[field.name]) for field in embedded if field.name in names]
    database_fields = [
        arrow.field("vector", arrow.list_(arrow.float32(), vector_size(header.dim))),
        arrow.field("row", arrow.int64()),
        arrow.field("origin", arrow.string()),
        arrow.field("part", arrow.int32()),
        arrow.field("digest", arrow.string()),
    ]
    return arrow.schema([*database_fields, *embedding_fields], embedded.metadata)


def map_column_names(header: DatasetHeader) -> dict[str, str]:
    """Map each embedding column but `mean` and `metadata` to its name in the database.

    Args:
        header: Header of the embedding data set.

    Returns:
        The new name of each column: a character that LanceDB rejects becomes an underscore.
    """
    names = [name for name in schema.make_schema(header).names if name not in ("mean", "metadata")]
    new_names: dict[str, str] = {}
    for name in names:
        valid = re.sub(r"[.`]", "_", name) or "_"
        new_names[name] = make_unique_column_name(
            valid, {*RESERVED_COLUMNS, *new_names.values(), *(set(names) - {name})}
        )
    return new_names


def _connect(uri: str | Path) -> Any:
    """Connect lancedb to a folder, which is created, or to an object store."""
    address = parse_address(uri, "database")
    # LanceDB takes the account of az:// as an option; the rest is in the environment, as for `prolip.storage`.
    options = {"account_name": address.account} if address.account else {}
    if address.scheme == "s3" and (endpoint := find_s3_endpoint()):
        options |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    location = replace(address, account="").url
    # half of the import of lancedb is a client of remote catalogs, of which it uses only classes of submodules
    defer_package("lance_namespace_urllib3_client")
    return import_extra("lancedb", "search").connect(location, storage_options=options or None)
