"""Selection of cells: the largest complete scale of a variant, or the largest common one of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reproduction.cell import Cell
from reproduction.recipe import SCALES
from reproduction.variants import UNTRAINED_VARIANTS, get_variant


@dataclass(frozen=True)
class Evidence:
    """All cells that were read; selects those that a claim is judged by."""

    cells: Sequence[Cell]

    def largest_scale(self, *variants: str) -> str | None:
        """The largest scale at which all of the variants have all their default seeds.

        If there is none, the largest at which each has at least one cell; None if there is no such scale either.
        """
        common = [scale for scale in SCALES if all(self._select_cells(name, scale) for name in variants)]
        complete = [scale for scale in common if all(self._has_all_seeds(name, scale) for name in variants)]
        candidates = complete or common
        return candidates[-1] if candidates else None

    def at_scale(self, variant: str, scale: str | None) -> list[Cell]:
        """Cells of a variant at a scale, by seed; [] if there are none.

        A variant without training has the same numbers at every scale: if it has no cell at this one, those of its own
        largest scale are returned.
        """
        cells = self._select_cells(variant, scale)
        if not cells and variant in UNTRAINED_VARIANTS:
            cells = self.at_largest_scale(variant)
        return cells

    def at_largest_scale(self, variant: str) -> list[Cell]:
        """Cells of a variant at its own `largest_scale`, by seed."""
        return self._select_cells(variant, self.largest_scale(variant))

    def _has_all_seeds(self, variant: str, scale: str) -> bool:
        """Whether a variant has as many cells at a scale as it has seeds by default."""
        return len(self._select_cells(variant, scale)) >= get_variant(variant).seeds

    def _select_cells(self, variant: str, scale: str | None) -> list[Cell]:
        """Cells of a variant at a scale, by seed."""
        cells = [cell for cell in self.cells if (cell.variant, cell.scale) == (variant, scale)]
        return sorted(cells, key=lambda cell: cell.seed)
