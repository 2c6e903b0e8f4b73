"""Embeddings in LanceDB. The only file of the search that imports lancedb.

Three tables lie under one address, a folder or an object store's (s3://, gs://, az://):

    items     a row is an image or a text: the columns of its embeddings, with `vector` (index/vectors.py) for `mean`,
              and: row (its number), origin (the embeddings it came from), part (of them), digest (of that part)
    origins   a row for each of those embeddings: origin, header (JSON), place (a folder, or an address)
    settings  one row: index/settings.py as JSON

Every change is a new version of a table. A `Database` that was opened sees the items of that moment for as long as it
lives, so that readers are never disturbed. There may be any number of readers, and one writer.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prolip.checks import some
from prolip.embeddings import schema
from prolip.embeddings.extra_columns import free_name
from prolip.embeddings.header import Header
from prolip.extras import require
from prolip.retrieval.index.settings import Effort, Kind, Settings
from prolip.retrieval.index.sql import all_of, is_closed
from prolip.retrieval.index.vectors import width

Distance = Literal["l2", "dot"]
"""l2: the squared distance, CSD less the query's trace. dot: 1 - the inner product of the means."""

OWN = ("vector", "row", "origin", "part", "digest")
"""Columns that a database adds to those of embeddings."""
TAKEN = (*OWN, "query_index", "_distance", "_rowid", "_rowaddr", "csd", "cosine", "match", "inclusion")
"""Names that mean something in what a search gives; what came along under such a name gets a line behind it."""
SCHEMES = ("s3", "gs", "az")
AT_ONCE = 256
"""Queries of one call."""
CLASSES: dict[Kind, str] = {"ivf-sq": "IvfSq", "ivf-rq": "IvfRq", "ivf-pq": "IvfPq"}
FEWEST = 256
"""Rows that an index can be trained on."""


@contextmanager
def in_words(uri: str | Path) -> Iterator[None]:
    """What LanceDB says of damage, of a store that can't be reached or of two writers becomes one sentence."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, RuntimeError) or type(error).__name__ in ("PanicException", "RustPanic"):
            raise ValueError(
                f"{uri}: the database can't be used ({_short(error)}); if its index is damaged, `prolip index ... "
                "--kind none` removes it; if its rows are, make it again"
            ) from None
        raise


def _short(error: BaseException) -> str:
    """LanceDB's words up to where they tell of its own source."""
    return re.split(r", /|, rust/|\\n|\n", str(error))[0][:300]


@dataclass(frozen=True, eq=False)
class Database:
    """uri: as a user said it. connection, items: of lancedb."""

    uri: str
    connection: Any
    items: Any

    @classmethod
    def open(cls, uri: str | Path) -> Database:
        if not exists(uri):
            raise FileNotFoundError(
                f"{uri}: there is no database; `prolip index EMBEDDINGS --out {uri}` makes one"
            )
        with in_words(uri):
            connection = _connect(uri)
            found = cls(str(uri), connection, connection.open_table("items"))
            _ = found.settings, found.origins  # of this moment, as the items are
        return found

    @classmethod
    def create(cls, uri: str | Path, header: Header) -> Database:
        """A database without rows, for embeddings of the header's model and kind."""
        if exists(uri):
            raise ValueError(f"{uri} holds a database already: open it to add to it, or choose another place")
        with in_words(uri):
            return cls._created(uri, header)

    @classmethod
    def _created(cls, uri: str | Path, header: Header) -> Database:
        arrow = require("pyarrow", "search")
        connection = _connect(uri)
        texts = {"origins": ("origin", "header", "place"), "settings": ("settings",)}
        for name, columns in texts.items():
            schema = arrow.schema([arrow.field(column, arrow.string()) for column in columns])
            connection.create_table(name, schema=schema, exist_ok=True)
        # the last: a run that is killed before this has left no database
        return cls(str(uri), connection, connection.create_table("items", schema=schema_of(header)))

    @cached_property
    def header(self) -> Header:
        """Of the first embeddings: what it says of the model and of variances holds for all."""
        return Header.from_json(self.items.schema.metadata[schema.HEADER], self.uri)

    @property
    def columns(self) -> dict[str, Any]:
        """The Arrow type of each column of items."""
        return {column.name: column.type for column in self.items.schema}

    def count(self, where: str | None = None) -> int:
        with in_words(self.uri):
            return int(self.items.count_rows(where))

    def rows(self, columns: Sequence[str], where: str | None = None) -> Iterator[Any]:
        """Some columns of all items, a pyarrow record batch after another, in no order that could be relied on."""
        with in_words(self.uri):
            query = self.items.search().select(list(columns))
            yield from (query if where is None else query.where(where)).to_batches()

    def nearest(
        self,
        vectors: np.ndarray,
        count: int,
        *,
        columns: Sequence[str],
        distance: Distance = "l2",
        where: str | None = None,
        effort: Effort | None = None,
    ) -> Any:
        """The `count` nearest items of each query, a pyarrow table with `query_index`, the columns and `_distance`.

        vectors: float32 (Q, width), of `vectors.asked`. where: SQL; it is applied first, so that `count` items are
        found if so many pass. effort: None: exact. Query after query, the nearest first.
        """
        arrow = require("pyarrow", "search")
        blocks = [
            self._nearest(vectors[first : first + AT_ONCE], first, count, columns, distance, where, effort)
            for first in range(0, len(vectors), AT_ONCE)
        ]
        return arrow.concat_tables(blocks).combine_chunks()

    def _nearest(
        self,
        vectors: np.ndarray,
        first: int,
        count: int,
        columns: Sequence[str],
        distance: Distance,
        where: str | None,
        effort: Effort | None,
    ) -> Any:
        arrow = require("pyarrow", "search")
        query = self.items.search(vectors, vector_column_name="vector", query_type="vector")
        query = query.distance_type(distance).limit(count).select([*columns, "_distance"])
        if where is not None:
            query = query.where(where, prefilter=True)
        if effort is None:
            query = query.bypass_vector_index()
        else:  # without a maximum: if few rows of the nearest cells pass the filter, others are looked into
            query = query.minimum_nprobes(effort.nprobes).maximum_nprobes(0).refine_factor(effort.refine)
        with in_words(self.uri):
            found = query.to_arrow()
        if "query_index" not in found.column_names:  # a batch of one has none
            return found.add_column(0, "query_index", arrow.array(np.full(len(found), first, dtype=np.int32)))
        return found.set_column(
            0, "query_index", arrow.array(found["query_index"].to_numpy() + np.int32(first))
        )

    def check_filter(self, where: str) -> None:
        """One sentence if it is no condition on our columns."""
        try:
            if not is_closed(where):
                raise ValueError("its brackets or quotes are not closed, or it holds a comment")
            # what divides by zero is only found out by doing it
            self.items.search().where(all_of(where)).select(["row"]).limit(1).to_arrow()
        except (ValueError, RuntimeError) as error:
            reason = re.split(r", /|\. Valid fields|\n", str(error).removeprefix("Invalid input, "))[0]
            raise ValueError(
                f"the filter {where!r} can't be used ({reason}); the columns are {some(list(self.columns), 40)}"
            ) from None

    # -- what is remembered ------------------------------------------------------------------------------------------

    @cached_property
    def origins(self) -> dict[str, dict[str, str]]:
        """header (JSON) and place of each of the embeddings that were added."""
        rows = self.connection.open_table("origins").to_arrow().to_pylist()
        return {row["origin"]: {"header": row["header"], "place": row["place"]} for row in rows}

    def add_origin(self, origin: str, header: Header, place: str) -> None:
        arrow = require("pyarrow", "search")
        row = {"origin": [origin], "header": [header.to_json()], "place": [place]}
        self.connection.open_table("origins").add(arrow.table(row))
        self.origins[origin] = {"header": header.to_json(), "place": place}

    @cached_property
    def settings(self) -> Settings:
        found = self.connection.open_table("settings").to_arrow()["settings"].to_pylist()
        return Settings.from_json(found[0], self.uri) if found else Settings()

    def keep(self, settings: Settings) -> None:
        arrow = require("pyarrow", "search")
        row = arrow.table({"settings": [settings.to_json()]})
        self.connection.open_table("settings").add(row, mode="overwrite")
        vars(self)["settings"] = settings  # what was read before is no longer so

    # -- changes -----------------------------------------------------------------------------------------------------

    def add_columns(self, fields: Sequence[Any]) -> None:
        """New columns, null in the rows that are there. fields: of pyarrow."""
        if fields:
            with in_words(self.uri):
                self.items.add_columns(list(fields))

    def append(self, rows: Any) -> None:
        """A pyarrow table of items: all of it, or nothing."""
        with in_words(self.uri):
            self.items.add(rows)

    def remove(self, where: str) -> None:
        """All rows that a condition holds for."""
        with in_words(self.uri):
            self.items.delete(where)

    def fold_in(self) -> None:
        """Put rows that were added lately into the index, if there is one, and small files together."""
        with in_words(self.uri):
            self.items.optimize()

    def build_index(self, kind: Kind) -> None:
        """Train an index on all rows. The old one serves until the new one is there; kind none: there is none."""
        if kind == "none":
            for old in self.items.list_indices():
                self.items.drop_index(old.name)
            return
        if self.count() < FEWEST:
            raise ValueError(
                f"an index needs at least {FEWEST} rows, and {self.uri} has {self.count()}: kind none"
            )
        config = getattr(require("lancedb.index", "search"), CLASSES[kind])
        with in_words(self.uri):
            self.items.create_index("vector", config=config(distance_type="l2"), replace=True)

    @property
    def kind(self) -> Kind:
        """Of the index that is there."""
        with in_words(self.uri):
            found = [index.index_type for index in self.items.list_indices()]
        return next((kind for kind, name in CLASSES.items() if name in found), "none")


def exists(uri: str | Path) -> bool:
    """Whether there is a database of ours."""
    if not str(uri):
        raise ValueError("say where the database is: a folder, or an address (s3://, gs://, az://)")
    if not _is_remote(uri) and not Path(uri).expanduser().is_dir():
        return False  # connecting would make the folder
    with in_words(uri):
        try:
            _connect(uri).open_table("items")
        except (ValueError, FileNotFoundError) as error:
            if "not found" in str(error):
                return False
            raise ValueError(f"{uri}: no database can be looked for there ({_short(error)})") from None
    return True


@contextmanager
def writing(uri: str | Path) -> Iterator[None]:
    """One writer at a time, on one machine. (An object store has no lock.)"""
    if _is_remote(uri):
        yield
        return
    folder = Path(uri).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".writer", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{uri} is being written by another process: wait until it has ended") from None
        yield


def schema_of(header: Header) -> Any:
    """The pyarrow schema of items."""
    arrow = require("pyarrow", "search")
    embedded = schema.schema(header)
    names = names_of(header)
    fields = [field.with_name(names[field.name]) for field in embedded if field.name in names]
    own = [
        arrow.field("vector", arrow.list_(arrow.float32(), width(header.dim))),
        arrow.field("row", arrow.int64()),
        arrow.field("origin", arrow.string()),
        arrow.field("part", arrow.int32()),
        arrow.field("digest", arrow.string()),
    ]
    return arrow.schema([*own, *fields], embedded.metadata)


def names_of(header: Header) -> dict[str, str]:
    """Columns of embeddings, but for `mean`, and what a database calls them: what it can't have in a name is a line."""
    names = [name for name in schema.schema(header).names if name != "mean"]
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[.`]", "_", name) or "_"
        found[name] = free_name(plain, {*TAKEN, *found.values(), *(set(names) - {name})})
    return found


def _connect(uri: str | Path) -> Any:
    place = str(uri) if _is_remote(uri) else str(Path(uri).expanduser())
    return require("lancedb", "search").connect(place)


def _is_remote(uri: str | Path) -> bool:
    scheme, there, _ = str(uri).partition("://")
    if there and scheme not in SCHEMES:
        raise ValueError(f"{uri}: {scheme} is none of {', '.join(SCHEMES)}, nor is it a folder")
    return bool(there)
