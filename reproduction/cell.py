"""Cells: the measurements of one variant at one scale with one seed, as a small JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prolip.files import read_json, write_json
from reproduction.recipe import SCALES, compute_current_fingerprint

FORMAT, VERSION = "prolip-cell", 2
"""Cells of another version count as missing."""
COMMITTED = Path(__file__).parent / "cells"
"""The cells of this repository."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What was measured of one model.

    Attributes:
        scale: Scale of SCALES.
        variant: Variant of the recipe, or "untrained" or "cost".
        seed: Seed of the training.
        fingerprint: Fingerprint of the recipe.
        provenance: Versions, threads, seconds and training samples.
        numbers: The result of `measure.measure_model`; of the variant "cost", of `cost.measure_cost`.
    """

    scale: str
    variant: str
    seed: int
    fingerprint: str
    provenance: dict[str, Any]
    numbers: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"


def get_cell_path(folder: Path, scale: str, variant: str, seed: int) -> Path:
    """The file of a cell."""
    return folder / scale / f"{variant}-{seed}.json"


def write_cell(folder: Path, cell: Cell) -> Path:
    """Write a cell atomically."""
    content = {"format": FORMAT, "version": VERSION, **asdict(cell)}
    return write_json(get_cell_path(folder, cell.scale, cell.variant, cell.seed), content)


def read_cell(path: Path) -> Cell | None:
    """Read a cell.

    Returns:
        The cell; None if it has another version.

    Raises:
        ValueError: The file is damaged or in the wrong folder.
    """
    advice = "remove it: python -m reproduction then measures it again"
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; {advice}") from None
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a cell of python -m reproduction; {advice}")
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
    """Read all cells of some folders.

    Args:
        folders: By priority: of two cells of the same scale, variant and seed, that of the earlier folder is taken.

    Returns:
        The cells. All seeds of a variant at a scale have one recipe: the current one if there are cells of it, else
        that of the first cell. Others are left out, so that an old cell doesn't hide a new one.
    """
    cells = [cell for path in _files(folders) if (cell := read_cell(path)) is not None]
    recipes: dict[tuple[str, str], str] = {}
    for cell in cells:
        recipes.setdefault((cell.scale, cell.variant), cell.fingerprint)
    for cell in cells:
        if cell.fingerprint == compute_current_fingerprint(cell.variant, cell.scale):
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
