"""`python -m reproduction`: tests the claims of the paper in miniature."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import arg

from prolip import cli


def reproduce(
    scale: Literal["minutes", "hour", "night"] = "minutes",
    variants: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    out: Path = Path("runs/reproduction"),
    show: bool = False,
    overwrite: bool = False,
    docs: Path | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Test the paper's claims in miniature, each with controls and a verdict; train and measure what is missing.

    Example: python -m reproduction --scale hour --variants prolip clip --seeds 0 1 2

    Cells that exist in --out or in the repository are not run again; an interrupted run continues.

    Args:
        scale: The budget of each run: minutes, an hour or a night.
        variants: Variants of the recipe "miniature", or untrained or cost. None: all.
        seeds: Seeds of each variant. None: three of prolip and of untrained, one of the others.
        out: The folder for cells, runs and the table.
        show: Run nothing; print the table of the existing cells.
        overwrite: Run also cells that the repository holds; those in --out are still kept.
        docs: A page whose part between two markers is replaced by the table (docs/miniature.md).
        as_json: Print JSON instead of tables.
    """
    from prolip.console import print_tables
    from prolip.files import atomic_write, write_json
    from reproduction import run
    from reproduction.cell import COMMITTED, read_cells
    from reproduction.table import ClaimsTable, read_generated, write_generated

    out = out.expanduser()
    workspace = run.Workspace(
        out=out,
        committed=None if overwrite else COMMITTED,
        report=lambda text: print(text, file=sys.stderr),
    )
    if docs is not None:
        read_generated(docs.expanduser())  # fail now, not after hours of training, if the page has no markers
    if not show:
        run.run_missing(workspace, scale, run.choose_cells(variants, seeds))
    table = ClaimsTable.from_cells(read_cells([workspace.cells, COMMITTED]))
    if as_json:
        print(json.dumps(table.to_json(), indent=2, ensure_ascii=False))
    else:
        print_tables(table.make_tables(), width=160)
    paths = [write_json(out / "table.json", table.to_json())]
    markdown = table.to_markdown()
    paths.append(
        atomic_write(out / "table.md", lambda temporary: temporary.write_text(markdown, encoding="utf-8"))
    )
    if docs is not None:
        paths.append(write_generated(docs.expanduser(), markdown))
    print(*paths, sep="\n", file=sys.stderr if as_json else sys.stdout)


def main(args: list[str] | None = None) -> None:
    """Run `reproduce` with the arguments (None: those of the process); an expected error exits with one line."""
    with cli.reported_errors("reproduction"):
        tyro.cli(reproduce, prog="python -m reproduction", args=args)


if __name__ == "__main__":
    main()
