"""Cells: what was measured of one variant, at one scale, with one seed; a small JSON each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prolip.files import read_json, write_json
from reproduction.recipe import SCALES, current_fingerprint

FORMAT, VERSION = "prolip-cell", 1
"""A new version of what is measured makes all older cells count as missing."""
PACKAGED = Path(__file__).parent / "cells"
"""The cells that come with the package."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """scale, variant, seed: which. fingerprint: of its recipe. made: by which versions, in how many seconds.
    numbers: what `measure` found; of the variant "cost", what `cost` did."""

    scale: str
    variant: str
    seed: int
    fingerprint: str
    made: dict[str, Any]
    numbers: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"


def cell_path(folder: Path, scale: str, variant: str, seed: int) -> Path:
    return folder / scale / f"{variant}-{seed}.json"


def write_cell(folder: Path, cell: Cell) -> Path:
    content = {"format": FORMAT, "version": VERSION, **asdict(cell)}
    return write_json(cell_path(folder, cell.scale, cell.variant, cell.seed), content)


def read_cell(path: Path) -> Cell | None:
    """A cell; None if another version measured it. A damaged file is an error that says what to do."""
    advice = "remove it, and prolip reproduce makes it anew"
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; {advice}") from None
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} is no cell of prolip reproduce; {advice}")
    if content.get("version") != VERSION:
        return None
    missing = [name for name in Cell.__dataclass_fields__ if name not in content]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; {advice}")
    cell = Cell(**{name: content[name] for name in Cell.__dataclass_fields__})
    if (cell.scale, f"{cell.name}.json") != (path.parent.name, path.name):
        raise ValueError(f"{path} holds the cell {cell.scale}/{cell.name}; {advice}")
    return cell


def read_cells(folders: Sequence[Path]) -> list[Cell]:
    """All cells of some folders; of two of the same scale, variant and seed that of the earlier folder.

    Seeds of one variant at one scale must be of one recipe: that of today if there are cells of it, else that of the
    first cell. Others are left out: an old cell of one's own must not hide a new one of the package.
    """
    cells = [cell for path in _files(folders) if (cell := read_cell(path)) is not None]
    recipes: dict[tuple[str, str], str] = {}
    for cell in cells:
        recipes.setdefault((cell.scale, cell.variant), cell.fingerprint)
    for cell in cells:
        if cell.fingerprint == current_fingerprint(cell.variant, cell.scale):
            recipes[cell.scale, cell.variant] = cell.fingerprint
    found: dict[tuple[str, str, int], Cell] = {}
    for cell in cells:
        if recipes[cell.scale, cell.variant] == cell.fingerprint:
            found.setdefault((cell.scale, cell.variant, cell.seed), cell)
    return list(found.values())


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        for scale in SCALES:
            yield from sorted((folder / scale).glob("*.json"))
