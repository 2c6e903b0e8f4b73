"""Veils: which facts of a scene its image hides, and what the image still shows, as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import Scene, SceneObject, World

OBJECT_FACTS = ("color", "shape", "size")
POSITION_FACTS = ("row", "column")
SCENE_FACTS = ("background", "style")
FACTS = (*OBJECT_FACTS, *POSITION_FACTS, *SCENE_FACTS)
"""Facts that a veil can hide, as fields of `Veil`."""
KIND_FRACTIONS = (0.05, 0.55, 0.2, 0.2)
"""How often a random veil hides nothing, facts, cells, or both."""

Cell = tuple[int, int]
"""Row and column of a cell of the grid, from the top left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veil:
    """Which facts of a scene are hidden: the same ones of all of its objects.

    Attributes:
        color: All objects are drawn in one gray.
        shape: All objects are drawn as the same blob.
        size: All objects are drawn at one size, between small and large.
        row: Objects are drawn midway between top and bottom, those of one column in random order.
        column: Objects are drawn midway between left and right, those of one row in random order.
        background: The background is drawn black.
        style: Everything is drawn in the style "clean".
        curtains: Cells (row, column) behind an opaque curtain: whatever is in them is hidden, even whether there is
            something. If the row is hidden, whole columns only; if the column is hidden, whole rows only.
    """

    color: bool = False
    shape: bool = False
    size: bool = False
    row: bool = False
    column: bool = False
    background: bool = False
    style: bool = False
    curtains: frozenset[Cell] = frozenset()

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of the hidden facts, in the order of FACTS."""
        return tuple(name for name in FACTS if getattr(self, name))

    @property
    def name(self) -> str:
        """The hidden facts and the number of curtains, such as "color, 2 curtains"; "nothing" if there are none."""
        names = list(self.facts)
        if self.row and self.column:
            names = [name for name in names if name != "column"]
            names[names.index("row")] = "position"
        number = len(self.curtains)
        curtains = [f"{number} curtain{'s' if number > 1 else ''}"] if number else []
        return ", ".join([*names, *curtains]) or "nothing"

    @property
    def kind(self) -> str:
        """What it hides: "nothing", "facts", "cells", or "facts and cells"."""
        names = [name for name, hides in (("facts", self.facts), ("cells", self.curtains)) if hides]
        return " and ".join(names) or "nothing"

    def hides_nothing(self) -> bool:
        """Whether the image is the ordinary one."""
        return not self.facts and not self.curtains

    def covers_all(self, grid: int) -> bool:
        """Whether there is a curtain over every cell. grid: cells per side."""
        return len(self.curtains) == grid**2


def combine_veils(first: Veil, second: Veil) -> Veil:
    """Combine two veils.

    Args:
        first, second: The veils.

    Returns:
        The veil that hides what either of them hides.
    """
    hidden = {name: getattr(first, name) or getattr(second, name) for name in FACTS}
    return Veil(**hidden, curtains=first.curtains | second.curtains)


def hide_facts(*names: str, curtains: frozenset[Cell] = frozenset()) -> Veil:
    """Make a veil from the names of the facts that it hides.

    Args:
        names: Some of FACTS, or "position", which is row and column.
        curtains: Cells behind a curtain.

    Returns:
        The veil.
    """
    facts = {fact for name in names for fact in (POSITION_FACTS if name == "position" else (name,))}
    return Veil(**dict.fromkeys(facts, True), curtains=curtains)


VEILS: Mapping[str, Veil] = {
    veil.name: veil
    for veil in (
        hide_facts(),
        hide_facts("color"),
        hide_facts("shape"),
        hide_facts("size"),
        hide_facts("row"),
        hide_facts("column"),
        hide_facts("position"),
        hide_facts("background"),
        hide_facts("color", "shape"),
        hide_facts("color", "position"),
        hide_facts("shape", "size"),
        hide_facts("color", "shape", "size"),
        hide_facts("color", "shape", "size", "position"),
        hide_facts("color", "shape", "size", "position", "background", "style"),
    )
}
"""Veils without curtains, by name."""


def draw_curtains(draws: RandomDraws, grid: int, count: int) -> frozenset[Cell]:
    """Draw the cells behind curtains.

    Args:
        draws: The random stream.
        grid: Cells per side.
        count: Number of curtains.

    Returns:
        The cells, all choices equally likely.
    """
    return frozenset(divmod(cell, grid) for cell in draws.sample(grid**2, count))


def draw_veil(draws: RandomDraws, world: World) -> Veil:
    """Draw a veil: nothing, any number of facts, any number of curtains, or facts of objects and curtains.

    Each number of facts or curtains is equally likely, up to all of them; and so are all choices of that many.

    Args:
        draws: The random stream.
        world: The distribution of scenes; a background or a style that doesn't vary is not hidden.

    Returns:
        The veil.
    """
    has_facts, has_curtains = ((False, False), (True, False), (False, True), (True, True))[
        draws.categorical(KIND_FRACTIONS)
    ]
    varying = [name for name in SCENE_FACTS if name in world.varying_attributes]
    facts = [*OBJECT_FACTS, *([] if has_curtains else POSITION_FACTS), *varying]
    chosen = draws.sample(len(facts), 1 + draws.randbelow(len(facts))) if has_facts else []
    curtains: frozenset[Cell] = frozenset()
    if has_curtains:
        curtains = draw_curtains(draws, world.grid, 1 + draws.randbelow(world.grid**2))
    return hide_facts(*(facts[i] for i in chosen), curtains=curtains)


@dataclass(frozen=True, slots=True)
class VisibleObject:
    """What an image shows of an object. None: not visible."""

    shape: str | None
    color: str | None
    size: str | None
    row: int | None
    column: int | None


@dataclass(frozen=True, slots=True)
class ImageMeaning:
    """A formula: exactly what an image shows of its scene. An image is a function of it and of the render seed.

    Attributes:
        veil: What is hidden: a cell without a curtain and without a visible object is known to be empty.
        objects: The objects that are not behind a curtain, in a canonical order. They are all objects of the scene
            if there is no curtain.
        background: The background; None: not visible.
        styles: The styles that the scene may have, since they look the same; None: any. The style shows in the
            objects: without a visible one it is not known.
        grid: Cells per side.
    """

    veil: Veil
    objects: tuple[VisibleObject, ...]
    background: str | None
    styles: frozenset[str] | None
    grid: int


def observe(scene: Scene, veil: Veil) -> ImageMeaning:
    """Work out what an image of a scene shows through a veil.

    Args:
        scene: The scene.
        veil: What is hidden.

    Returns:
        The formula; two scenes with the same one and the same render seed have the same image.

    Raises:
        ValueError: There is a curtain over a cell outside of the grid, or over a part of a row or column whose
            position is hidden.
    """
    if veil.curtains:
        _require_curtains(veil, scene.grid)
    objects = [
        _observe_object(obj, veil) for obj in scene.objects if (obj.row, obj.column) not in veil.curtains
    ]
    if len(objects) > 1:
        objects.sort(key=_make_sorting_key)
    return ImageMeaning(
        veil,
        tuple(objects),
        None if veil.background or veil.covers_all(scene.grid) else scene.background,
        _observe_styles(scene.style, veil) if objects else None,
        scene.grid,
    )


def _observe_object(obj: SceneObject, veil: Veil) -> VisibleObject:
    """What is visible of an object that is not behind a curtain."""
    return VisibleObject(
        None if veil.shape else obj.shape,
        None if veil.color else obj.color,
        None if veil.size else obj.size,
        None if veil.row else obj.row,
        None if veil.column else obj.column,
    )


def _observe_styles(style: str, veil: Veil) -> frozenset[str] | None:
    """The styles that look like a scene's; without colors, "grey" looks like "clean"."""
    if veil.style:
        return None
    if veil.color and style in ("clean", "grey"):
        return frozenset(("clean", "grey"))
    return frozenset((style,))


def _make_sorting_key(obj: VisibleObject) -> tuple[object, ...]:
    """The key of the canonical order. Facts are hidden of all objects or of none, so that keys can be compared."""
    return obj.row or 0, obj.column or 0, obj.shape or "", obj.color or "", obj.size or ""


def _require_curtains(veil: Veil, grid: int) -> None:
    """Raise ValueError unless the curtains fit the grid, and the positions that the veil hides."""
    for row, column in veil.curtains:
        if not (0 <= row < grid and 0 <= column < grid):
            raise ValueError(
                f"a curtain is at cell {(row, column)}, outside of a grid of {grid} x {grid} cells"
            )
        rows = range(grid) if veil.row else (row,)
        columns = range(grid) if veil.column else (column,)
        if not veil.curtains.issuperset((r, c) for r in rows for c in columns):
            raise ValueError(
                f"the veil hides {veil.name}: a curtain at cell {(row, column)} must then be over its whole "
                f"{'column' if veil.row else 'row'}"
            )
