"""Embeddings in LanceDB. The only file of the search that imports lancedb.

Three tables lie under one address, a folder or an object store's (s3://, gs://, az://):

    items     a row is an image or a text: the columns of its embeddings, with `vector` (search/index/vectors.py) for `mean`,
              and: row (its number in the database), origin (the embeddings it came from), part (of them)
    origins   a row for each of those embeddings: origin, header (JSON), place (a folder, or an address)
    settings  one row: search/index/settings.py as JSON

Every change is a new version of a table. A `Database` that was opened sees the items of that moment for as long as it
lives, so that readers are never disturbed. There may be any number of readers, and one writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prolip.checks import some
from prolip.embed import table
from prolip.embed.header import Header
from prolip.extras import require
from prolip.search.index.settings import Effort, Kind, Settings
from prolip.search.index.vectors import width

Distance = Literal["l2", "dot"]
"""l2: the squared distance, CSD less the query's trace. dot: 1 - the inner product of the means."""

OWN = ("vector", "row", "origin", "part")
"""Columns that a database adds to those of embeddings; what came along under such a name gets a line behind it."""
AT_ONCE = 256
"""Queries of one call."""
CLASSES: dict[Kind, str] = {"ivf-sq": "IvfSq", "ivf-rq": "IvfRq", "ivf-pq": "IvfPq"}
FEWEST = 256
"""Rows that an index can be trained on."""


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
        connection = _connect(uri)
        return cls(str(uri), connection, connection.open_table("items"))

    @classmethod
    def create(cls, uri: str | Path, header: Header) -> Database:
        """A database without rows, for embeddings of the header's model and kind."""
        arrow = require("pyarrow", "search")
        if exists(uri):
            raise ValueError(f"{uri} holds a database already: open it to add to it, or choose another place")
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
        return Header.from_json(self.items.schema.metadata[table.HEADER], self.uri)

    @property
    def columns(self) -> dict[str, Any]:
        """The Arrow type of each column of items."""
        return {column.name: column.type for column in self.items.schema}

    def count(self, where: str | None = None) -> int:
        return int(self.items.count_rows(where))

    def rows(self, columns: Sequence[str], where: str | None = None) -> Iterator[Any]:
        """Some columns of all items, a pyarrow record batch after another, in no order that could be relied on."""
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
        found = query.to_arrow()
        if "query_index" not in found.column_names:  # a batch of one has none
            return found.add_column(0, "query_index", arrow.array(np.full(len(found), first, dtype=np.int32)))
        return found.set_column(
            0, "query_index", arrow.array(found["query_index"].to_numpy() + np.int32(first))
        )

    def check_filter(self, where: str) -> None:
        """One sentence if it is no condition on our columns."""
        try:
            self.items.search().where(all_of(where)).select(["row"]).explain_plan()
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
            self.items.add_columns(list(fields))

    def append(self, rows: Any) -> None:
        """A pyarrow table of items: all of it, or nothing."""
        self.items.add(rows)

    def fold_in(self) -> None:
        """Put rows that were added lately into the index, if there is one, and small files together."""
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
        self.items.create_index("vector", config=config(distance_type="l2"), replace=True)

    @property
    def has_index(self) -> bool:
        return bool(list(self.items.list_indices()))


def exists(uri: str | Path) -> bool:
    """Whether there is a database of ours."""
    if not _is_remote(uri) and not Path(uri).expanduser().is_dir():
        return False  # connecting would make the folder
    try:
        _connect(uri).open_table("items")
    except (ValueError, FileNotFoundError):
        return False
    return True


def schema_of(header: Header) -> Any:
    """The pyarrow schema of items."""
    arrow = require("pyarrow", "search")
    embedded = table.schema(header)
    fields = [named(field) for field in embedded if field.name != "mean"]
    own = [
        arrow.field("vector", arrow.list_(arrow.float32(), width(header.dim))),
        arrow.field("row", arrow.int64()),
        arrow.field("origin", arrow.string()),
        arrow.field("part", arrow.int32()),
    ]
    return arrow.schema([*own, *fields], embedded.metadata)


def named(field: Any) -> Any:
    """A column of embeddings as a database calls it."""
    return field.with_name(f"{field.name}_") if field.name in OWN else field


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def all_of(*conditions: str | None) -> str | None:
    """SQL that holds if all do; None: no condition."""
    there = [f"({condition})" for condition in conditions if condition is not None]
    return " AND ".join(there) or None


def _connect(uri: str | Path) -> Any:
    place = str(uri) if _is_remote(uri) else str(Path(uri).expanduser())
    return require("lancedb", "search").connect(place)


def _is_remote(uri: str | Path) -> bool:
    return "://" in str(uri)
