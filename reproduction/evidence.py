"""Selection of cells: the largest complete scale of a variant, or the largest common one of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reproduction.cell import Cell
from reproduction.recipe import SCALES
from reproduction.variants import UNTRAINED_VARIANTS, get_variant


@dataclass(frozen=True)
class Evidence:
    """All cells there are."""

    cells: Sequence[Cell]

    def largest_scale(self, *variants: str) -> str | None:
        """The largest scale at which all of the variants have all their seeds; if there is none, a cell."""
        common = [scale for scale in SCALES if all(self._cells(name, scale) for name in variants)]
        whole = [scale for scale in common if all(self._has_all_seeds(name, scale) for name in variants)]
        best = whole or common
        return best[-1] if best else None

    def at_scale(self, name: str, scale: str | None) -> list[Cell]:
        """By seed. What nothing is trained for is taken from its own largest scale where this one has none."""
        found = self._cells(name, scale)
        if not found and name in UNTRAINED_VARIANTS:
            found = self._cells(name, self.largest_scale(name))
        return found

    def largest(self, name: str) -> list[Cell]:
        """Cells of the largest scale, by seed."""
        return self._cells(name, self.largest_scale(name))

    def _has_all_seeds(self, name: str, scale: str) -> bool:
        return len(self._cells(name, scale)) >= get_variant(name).seeds

    def _cells(self, name: str, scale: str | None) -> list[Cell]:
        found = [cell for cell in self.cells if (cell.variant, cell.scale) == (name, scale)]
        return sorted(found, key=lambda cell: cell.seed)
