"""Cells: the measurements of one variant at one scale with one seed, as a small JSON file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from prolip.files import read_json, write_json
from reproduction.observations import MissingNumberError, Numbers
from reproduction.recipe import SCALES, compute_current_fingerprint

T = TypeVar("T")
FORMAT, VERSION = "prolip-cell", 2
"""Cells of another version count as missing."""
MEASURES = 1
"""Version of the measurements, in the provenance of a cell. A cell of an older version may lack numbers."""
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
        """Variant and seed, the stem of the file: "prolip-0"."""
        return f"{self.variant}-{self.seed}"

    def observe(self, observe: Callable[[Numbers], T | None]) -> T | None:
        """Read something from the numbers.

        Args:
            observe: Reads it; None where a deterministic model has none.

        Returns:
            What it returns; None if the cell was measured before there was such a number.

        Raises:
            ValueError: The cell should have the number, but lacks it.
        """
        try:
            return observe(self.numbers)
        except MissingNumberError as error:
            if self.provenance.get("measures", 0) < MEASURES:
                return None
            raise ValueError(f"{self.scale}/{self.name}.json: {error}") from None


def get_cell_path(folder: Path, scale: str, variant: str, seed: int) -> Path:
    """The file of a cell in a folder of cells."""
    return folder / scale / f"{variant}-{seed}.json"


def write_cell(folder: Path, cell: Cell) -> Path:
    """Write a cell atomically to its file in a folder of cells; returns the path."""
    content = {"format": FORMAT, "version": VERSION, **asdict(cell)}
    return write_json(get_cell_path(folder, cell.scale, cell.variant, cell.seed), content)


def read_cell(path: Path) -> Cell | None:
    """Read a cell.

    Returns:
        The cell; None if it has another version.

    Raises:
        ValueError: The file is damaged, or its name or folder is not that of the cell.
    """
    advice = (
        f"Remove the file, and measure the cell again with: python -m reproduction --scale {path.parent.name}"
    )
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}. {advice}") from None
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a cell of python -m reproduction. {advice}")
    if content.get("version") != VERSION:
        return None
    missing = [name for name in Cell.__dataclass_fields__ if name not in content]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}. {advice}")
    cell = Cell(**{name: content[name] for name in Cell.__dataclass_fields__})
    if (cell.scale, f"{cell.name}.json") != (path.parent.name, path.name):
        raise ValueError(
            f"{path} holds the cell {cell.scale}/{cell.name}, which belongs to another file. {advice}"
        )
    return cell


def read_cells(folders: Sequence[Path]) -> list[Cell]:
    """Read all cells of some folders.

    Args:
        folders: By priority: of two cells of the same scale, variant and seed, that of the earlier folder is taken.

    Returns:
        The cells. All seeds of a variant at a scale have one recipe: the current one if there are cells of it, else
        that of the first cell. Cells of other recipes are skipped, so that an old cell doesn't hide a new one.
    """
    cells = [cell for path in _iter_files(folders) if (cell := read_cell(path)) is not None]
    fingerprints: dict[tuple[str, str], str] = {}  # the recipe that is used, by (scale, variant)
    for cell in cells:
        fingerprints.setdefault((cell.scale, cell.variant), cell.fingerprint)
    for cell in cells:
        if cell.fingerprint == compute_current_fingerprint(cell.variant, cell.scale):
            fingerprints[cell.scale, cell.variant] = cell.fingerprint
    unique_cells: dict[tuple[str, str, int], Cell] = {}
    for cell in cells:
        if fingerprints[cell.scale, cell.variant] == cell.fingerprint:
            unique_cells.setdefault((cell.scale, cell.variant, cell.seed), cell)
    return list(unique_cells.values())


def _iter_files(folders: Sequence[Path]) -> Iterator[Path]:
    """Files of cells: folder after folder, scale after scale, by name."""
    for folder in folders:
        for scale in SCALES:
            yield from sorted((folder / scale).glob("*.json"))
