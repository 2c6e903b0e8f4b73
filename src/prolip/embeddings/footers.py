"""What parts say of themselves at their end: read once, by many threads, since an object store takes its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from prolip.data.sample import Bad
from prolip.data.sample_errors import Tally
from prolip.data.sources.columns import DamagedError, reading
from prolip.embeddings import schema
from prolip.embeddings.header import Header
from prolip.embeddings.storage import Place
from prolip.extras import require

THREADS = 16


class Footer(NamedTuple):
    """rows: images and texts. size: bytes. digest: of ids and Gaussians. tried: samples, good and bad; bads: the bad
    ones, by number. misfits: values of each extra column that were left out."""

    rows: int
    size: int
    digest: str
    tried: int
    bads: dict[int, Bad]
    misfits: Counter[str]

    def tally(self) -> Tally:
        found = Tally()
        found.add(self.tried, self.bads.values())
        return found


def part_name(number: int) -> str:
    return f"part-{number:09d}.parquet"


def read_footers(place: Place, header: Header, numbers: Iterable[int]) -> dict[int, Footer | DamagedError]:
    """Of each part; an error of the reader where it is damaged. One that is no part of these embeddings is an error."""
    wanted = list(numbers)
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda number: _read(place, header, number), wanted))
    return dict(zip(wanted, found, strict=True))


def _read(place: Place, header: Header, number: int) -> Footer | DamagedError:
    name = f"{place}/{part_name(number)}"
    try:
        with reading(name), place.opened(part_name(number)) as file:
            size = int(file.size())
            footer = require("pyarrow.parquet", "data").read_metadata(file)
            metadata = footer.schema.to_arrow_schema().metadata
    except DamagedError as error:
        return error
    schema.require_part(metadata, header, number, name)
    return Footer(
        rows=footer.num_rows,
        size=size,
        digest=schema.digest_of(metadata),
        tried=schema.tried_of(metadata),
        bads=schema.bads_of(metadata),
        misfits=schema.misfits_of(metadata),
    )
