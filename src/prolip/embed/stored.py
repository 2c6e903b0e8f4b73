"""A folder of embeddings, read part after part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from prolip.checks import some
from prolip.data.cells import reading
from prolip.data.sample import Bad
from prolip.data.source import Source
from prolip.data.tally import Tally
from prolip.embed import table
from prolip.embed.header import Header
from prolip.embed.tasks import open_source
from prolip.extras import require
from prolip.files import write_whole

Modality = Literal["image", "text"]


@dataclass(frozen=True)
class Embeddings:
    """folder: as `prolip embed` wrote it. header: what it says of itself."""

    folder: Path
    header: Header

    @classmethod
    def open(cls, folder: str | Path, *, whole: bool = True) -> Embeddings:
        """whole: parts that are missing (the run that writes them was stopped, or goes on) are an error."""
        require("pyarrow", "data")
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder of embeddings")
        found = cls(path, Header.read(path))
        if whole and (missing := found.missing):
            raise ValueError(
                f"{path} lacks {len(missing)} of {found.header.parts} parts, the first of them part {missing[0]}: run "
                "`prolip embed` with the same words again, and it goes on"
            )
        return found

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Of the parts that are there."""
        names = {path.name for path in self.folder.glob("part-*.parquet")}
        return tuple(number for number in range(self.header.parts) if part_name(number) in names)

    @property
    def missing(self) -> list[int]:
        there = set(self.numbers)
        return [number for number in range(self.header.parts) if number not in there]

    def part(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """The pyarrow table of a part. columns: None: all."""
        path = self.folder / part_name(number)
        with reading(path):
            parquet = require("pyarrow.parquet", "data")
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                found = file.read(columns=columns if columns is None else list(columns))
        if columns is not None and (unknown := set(columns) - set(found.schema.names)):
            raise ValueError(f"{path} has no column {some(sorted(unknown))}; it has {some(self.columns, 30)}")
        if found.schema.metadata[table.HEADER] != self.header.to_json().encode():
            raise ValueError(f"{path} is not of this folder: its header is another one")
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

    def bads(self) -> Iterator[tuple[int, int, Bad]]:
        """(part, number of the sample, why) of all that was left out."""
        for part in self.numbers:
            yield from ((part, number, bad) for number, bad in table.bads_of(self._metadata(part)).items())

    def misfits(self) -> Counter[str]:
        """How many values of each extra column were not of its type, and are null."""
        return sum((table.misfits_of(self._metadata(part)) for part in self.numbers), Counter())

    def tallies(self) -> dict[int, Tally]:
        """Of each part: samples that were tried, and those that were left out."""
        found = {part: Tally() for part in self.numbers}
        for part, tally in found.items():
            metadata = self._metadata(part)
            tally.add(table.tried_of(metadata), table.bads_of(metadata).values())
        return found

    def __len__(self) -> int:
        """Rows: images and texts."""
        return sum(self._footer(number).num_rows for number in self.numbers)

    @property
    def columns(self) -> list[str]:
        return list(table.schema(self.header).names)

    def source(self) -> Source:
        """The data, opened again."""
        return open_source(self.header.data, self.header.captions, self.header.image, self.header.what)

    def _metadata(self, number: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._footer(number).schema.to_arrow_schema().metadata
        return found

    def _footer(self, number: int) -> Any:
        path = self.folder / part_name(number)
        with reading(path):
            return require("pyarrow.parquet", "data").read_metadata(path)


def part_name(number: int) -> str:
    return f"part-{number:09d}.parquet"


def write_part(folder: Path, number: int, rows: Any) -> Path:
    """A part, there or not, with a checksum for every page of it."""
    parquet = require("pyarrow.parquet", "data")
    options = {
        "compression": "zstd",
        "use_dictionary": False,  # vectors have no two equal numbers
        "write_page_checksum": True,
        "row_group_size": max(1, len(rows)),
    }
    return write_whole(folder / part_name(number), lambda aside: parquet.write_table(rows, aside, **options))
