"""`python -m reproduction`: the paper's claims in miniature."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import arg

from prolip import cli


def reproduce(
    scale: Literal["minutes", "hour", "night"] = "minutes",
    variants: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    out: Path = Path("runs/reproduce"),
    show: bool = False,
    anew: bool = False,
    docs: Path | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """The paper's claims in miniature, each with its controls and a verdict; trains and measures what is missing.

    Example: python -m reproduction --scale hour --variants prolip clip --seeds 0 1 2

    Cells that are there, own ones or the package's, are not run again; a run that was stopped goes on.

    Args:
        scale: The budget of each run: minutes, an hour, a night.
        variants: Of the recipe miniature, and untrained, cost. None: all.
        seeds: Of each variant. None: as many as the table asks for, three of the headline.
        out: The folder for cells, runs and the table.
        show: Run nothing: the table of what is there.
        anew: Run also what the package has cells of.
        docs: A page whose part between two markers is written anew (docs/miniature.md).
        as_json: Print JSON instead of tables.
    """
    from prolip.files import write_json, write_whole
    from reproduction import run
    from reproduction.cell import PACKAGED, read_cells
    from reproduction.document import between, put_between
    from reproduction.table import ClaimsTable

    out = out.expanduser()
    work = run.Work(
        out=out, packaged=None if anew else PACKAGED, tell=lambda text: print(text, file=sys.stderr)
    )
    if docs is not None:
        between(
            docs.expanduser()
        )  # now: after hours of work is no time to learn that the page has no place for it
    if not show:
        run.run_missing(work, scale, run.choose(variants, seeds))
    table = ClaimsTable.of(read_cells([work.cells, PACKAGED]))
    if as_json:
        print(json.dumps(table.as_json(), indent=2, ensure_ascii=False))
    else:
        _print(table.for_people())
    paths = [write_json(out / "table.json", table.as_json())]
    text = table.as_markdown()
    paths.append(write_whole(out / "table.md", lambda aside: aside.write_text(text, encoding="utf-8")))
    if docs is not None:
        paths.append(put_between(docs.expanduser(), text))
    print(*paths, sep="\n", file=sys.stderr if as_json else sys.stdout)


def _print(tables: list[Any]) -> None:
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 160)
    for table in tables:
        console.print(table)


def main(args: list[str] | None = None) -> None:
    with cli.reported_errors("reproduction"):
        tyro.cli(reproduce, prog="python -m reproduction", args=args)


if __name__ == "__main__":
    main()
