"""`prolip index` and `prolip search`: retrieval from embeddings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.cli.options import Json, print_json
from prolip.retrieval.config import IndexConfig, SearchConfig


def index(
    embeddings: Annotated[Positional[tuple[str, ...]], arg(metavar="EMBEDDINGS ...")],
    out: str,
    config: IndexConfig,
    verify: bool = False,
    as_json: Json = False,
) -> None:
    """Put embeddings into a database that ranks by CSD, or add to an existing one. An interrupted run can be continued.

    Example: prolip index embeddings --out database

    Concurrent searches see the database as it was when they opened it.

    Args:
        embeddings: Folders or addresses in an object store that `prolip embed` wrote, all of one model.
        out: Folder, or address in an object store (s3://, gs://, az://).
        verify: Without EMBEDDINGS: read all rows of the database, and list those parts that differ from what was
            written.
    """
    if verify:
        _verify(embeddings, out, as_json)
        return
    from prolip.retrieval.index import build

    result = build.index(embeddings, out, config)
    if as_json:
        print_json(result)
    else:
        print(f"{out}: {result.rows:,} rows. {result.settings.describe()}")


def _verify(embeddings: tuple[str, ...], out: str, as_json: bool) -> None:
    """Compare a database with its checksums; print what differs, and end with exit code 1 if anything does.

    Raises:
        ValueError: There are embeddings, too.
        SystemExit: 1 if something differs.
    """
    from prolip.retrieval.index.checksums import verify_database

    if embeddings:
        raise ValueError(f"--verify only reads a database: prolip index --out {out} --verify")
    result = verify_database(out)
    if as_json:
        print_json(result)
    else:
        print(*(f"{out}: {difference}" for difference in result.differences), sep="\n", end="")
        if result.differences:
            print("\nRemove the database, and run `prolip index` again.")
        elif not result.unverified_parts:
            print(f"{out}: {result.rows:,} rows are as they were written.")
        if result.unverified_parts:
            print(
                f"{out}: {result.unverified_parts:,} parts have no checksum: an earlier version wrote them."
            )
    if result.differences:
        raise SystemExit(1)


def search(
    database: Annotated[Positional[str], arg(metavar="DB")],
    config: SearchConfig,
    text: Annotated[Positional[str | None], arg(metavar="[TEXT]")] = None,
    image: Path | None = None,
    sheet: Path | None = None,
    as_json: Json = False,
) -> None:
    """Search a database with a text or an image, and report the confidence of the result.

    Example: prolip search database "a red circle" -k 20 --where "uncertainty < 0.4" --sheet found.png

    Args:
        database: Folder or address of the database that `prolip index` wrote.
        text: Query text; or --image.
        image: Query image.
        sheet: File for a sheet of the images (.png, and .svg next to it).
    """
    from prolip.retrieval import response as retrieval
    from prolip.retrieval.index.database import Database

    if sheet is not None and sheet.suffix not in ("", ".png", ".svg"):
        raise ValueError(f"--sheet {sheet}: the file name must end in .png or .svg")
    query = text if image is None else image
    if query is None or (text is not None and image is not None):
        raise ValueError(
            'pass either a text or an image: prolip search DB "a red circle", or prolip search DB --image FILE'
        )
    opened_database = Database.open(database)
    response = retrieval.search(opened_database, query, config)
    if as_json:
        print_json(response)
    else:
        retrieval.show(response)
    if sheet is not None:
        from prolip.reports import hits

        written = hits.save_hits_sheet(sheet.expanduser(), opened_database, response)
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
