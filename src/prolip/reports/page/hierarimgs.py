"""HierarImgs: does a picture with fewer segments include the whole one?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from prolip.data.sources.hierarimgs import HierarImgs
from prolip.preprocessing.images import read_image
from prolip.reports import hierarchy
from prolip.reports.page.components import Cell, Figure, Gallery, Section
from prolip.reports.page.pictures import inline
from prolip.reports.page.svg import panel
from prolip.reports.page.words import CLOSE, NOTHING_LEARNED, WRONG_WAY, beside, percent


def section(result: Mapping[str, Any], data: HierarImgs) -> Section:
    """result: of `evaluate.hierarimgs.evaluate`, of a model with uncertainty."""
    figures = [
        Figure(
            title=f"Level {level}: {level + 1} segment{'s' if level else ''}",
            says=says_level(row["included"], _untrained(result["control"], level)),
            svg=panel(
                partial(_draw, level=level, row=row),
                f"Histogram of H of {result['images']} originals in level {level}, and of its mirror image",
            ),
        )
        for level, row in enumerate(result["by_level"])
    ]
    intro = (
        "Pictures are built up from their largest segment on. What shows less should be the wider Gaussian and include "
        "the original: H(original in level) above 0, filled; the outline is the mirror image."
    )
    return Section(
        id="hierarimgs", title="Pictures that grow", intro=intro, blocks=[_example(data), *figures]
    )


def _draw(axes: Any, level: int, row: Mapping[str, Any]) -> None:
    hierarchy.draw_h(axes, level, row, None)
    axes.set_ylabel("pictures")


def says_level(included: float, untrained: list[float]) -> str:
    """untrained: the same share of models that have learned nothing; empty if none was asked."""
    found = f"Included here: {percent(included)} of originals"
    if included < 0.5:
        found += f", {WRONG_WAY}"
    close = included >= 0.5 and bool(untrained) and max(untrained) > included - CLOSE
    return f"{found}{beside(untrained, percent)}.{f' {NOTHING_LEARNED}' if close else ''}"


def _untrained(control: Mapping[str, Any] | None, level: int) -> list[float]:
    return [] if control is None else list(control["included"][level]["by_seed"])


def _example(data: HierarImgs) -> Gallery:
    files = [*(level[0] for level in data.levels), data.originals[0]]
    names = [*(f"level {number}" for number in range(len(data.levels))), "original"]
    cells = tuple(
        Cell(picture=inline(read_image(file), name), notes=(name,))
        for file, name in zip(files, names, strict=True)
    )
    return Gallery(title="One of them", cells=cells)
