"""Embeddings on disk or in an object store, read part after part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from prolip.checks import some
from prolip.data.sample import Bad
from prolip.data.sample_errors import Tally
from prolip.data.source import Source
from prolip.data.sources.columns import DamagedError, reading
from prolip.embeddings import schema
from prolip.embeddings.footers import Footer, part_name, read_footers
from prolip.embeddings.header import Header
from prolip.embeddings.storage import Folder, Place, place_of
from prolip.embeddings.tasks import SourceTasks, open_source
from prolip.extras import require

Modality = Literal["image", "text"]


@dataclass(frozen=True)
class Embeddings:
    """place: where `prolip embed` wrote them. header: what they say of themselves."""

    place: Place
    header: Header

    @classmethod
    def open(cls, where: str | Path, *, whole: bool = True) -> Embeddings:
        """where: a folder, or an address in an object store (s3://, gs://, abfs://).
        whole: parts that are missing (the run that writes them was stopped, or goes on) are an error."""
        require("pyarrow", "data")
        place = place_of(where)
        found = cls(place, Header.read(place))
        if whole and (missing := found.missing):
            raise ValueError(
                f"{place} lacks {len(missing)} of {found.header.parts} parts, the first of them part {missing[0]}: run "
                "`prolip embed` with the same words again, and it goes on"
            )
        return found

    @property
    def folder(self) -> Path:
        """Of embeddings that lie in one."""
        if not isinstance(self.place, Folder):
            raise ValueError(f"{self.place} is not a folder of this machine")
        return self.place.path

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Of the parts that are there."""
        names = self.place.names()
        return tuple(number for number in range(self.header.parts) if part_name(number) in names)

    @property
    def missing(self) -> list[int]:
        there = set(self.numbers)
        return [number for number in range(self.header.parts) if number not in there]

    def part(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """The pyarrow table of a part. columns: None: all."""
        name = self._name(number)
        parquet = require("pyarrow.parquet", "data")
        try:
            with reading(name), self.place.opened(part_name(number)) as file:
                opened = parquet.ParquetFile(file, page_checksum_verification=True)
                found = opened.read(columns=columns if columns is None else list(columns))
        except DamagedError as error:
            raise DamagedError(f"{error}; remove it, and `prolip embed` makes it again") from None
        if columns is not None and (unknown := set(columns) - set(found.schema.names)):
            raise ValueError(f"{name} has no column {some(sorted(unknown))}; it has {some(self.columns, 30)}")
        schema.require_part(found.schema.metadata, self.header, number, name)
        return found

    def blocks(
        self, modality: Modality | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """(number of a part, its rows), part after part. modality: None: images and texts."""
        compute = require("pyarrow.compute", "data")
        asked = columns if columns is None or modality is None else [*dict.fromkeys([*columns, "modality"])]
        for number in self.numbers:
            rows = self.part(number, asked)
            if modality is not None:
                rows = rows.filter(compute.equal(rows["modality"], modality))
            yield number, rows if columns is None else rows.select(list(columns))

    def footer(self, part: int) -> Footer:
        """What a part says of itself, as it was when the first of them was asked for."""
        found = self._footers[part]
        if isinstance(found, DamagedError):
            raise found
        return found

    def bads(self) -> Iterator[tuple[int, int, Bad]]:
        """(part, number of the sample, why) of all that was left out."""
        for part in self.numbers:
            yield from ((part, number, bad) for number, bad in self.footer(part).bads.items())

    def misfits(self) -> Counter[str]:
        """How many values of each extra column were not of its type, and are null."""
        return sum((self.footer(part).misfits for part in self.numbers), Counter())

    def tally(self) -> Tally:
        """Samples that were tried, and those that were left out."""
        whole = Tally()
        for part in self.numbers:
            whole.merge(self.footer(part).tally())
        return whole

    def size_in_bytes(self) -> int:
        """Of all parts."""
        return sum(self.footer(part).size for part in self.numbers)

    def __len__(self) -> int:
        """Rows: images and texts."""
        return sum(self.footer(part).rows for part in self.numbers)

    @property
    def columns(self) -> list[str]:
        return list(schema.schema(self.header).names)

    def source(self) -> Source:
        """The data, opened again. An error if it is a stream, or has changed: a number would lead to another sample."""
        header = self.header
        source = open_source(header.data, header.captions, header.image, header.what)
        if SourceTasks(source, header.part_size).fingerprint() != header.fingerprint:
            raise ValueError(f"{source.name} has changed since it was embedded: embed it again")
        return source

    @cached_property
    def _footers(self) -> dict[int, Footer | DamagedError]:
        return read_footers(self.place, self.header, self.numbers)

    def _name(self, number: int) -> str:
        return f"{self.place}/{part_name(number)}"


def write_part(where: str | Path | Place, number: int, rows: Any) -> None:
    """A part, there or not, with a checksum for every page of it."""
    parquet = require("pyarrow.parquet", "data")
    options = {
        "compression": "zstd",
        "use_dictionary": False,  # vectors have no two equal numbers
        "write_page_checksum": True,
        "row_group_size": max(1, len(rows)),
    }
    place_of(where).write(part_name(number), lambda file: parquet.write_table(rows, file, **options))
