"""The most and the least certain pictures and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prolip.data.source import Source
from prolip.reports.page.components import Cell, Gallery, Section
from prolip.reports.page.pictures import inline
from prolip.reports.sheets import picture_of


def section(result: Mapping[str, Any], source: Source) -> Section:
    """result: of `evaluate.uncertainty.analyse`. source: the data that it is of."""
    shown = (
        ("Most certain images", "certain_images", "image"),
        ("Most uncertain images", "uncertain_images", "image"),
        ("Most certain captions", "certain_captions", "text"),
        ("Most uncertain captions", "uncertain_captions", "text"),
    )
    galleries = [
        Gallery(title=title, says=_says(kind, result[key]), cells=_cells(result[key], source, kind))
        for title, key, kind in shown
    ]
    intro = (
        "An uncertain image is one that many captions fit about equally well; an uncertain caption fits many pictures. "
        "The number is the uncertainty tr(Σ); a caption stands with its own picture."
    )
    return Section(id="certain", title="Most and least certain", intro=intro, blocks=galleries)


def _says(kind: str, samples: Sequence[Mapping[str, Any]]) -> str:
    values = [entry[f"{kind}_uncertainty"] for entry in samples]
    return f"From {values[0]:.3g} to {values[-1]:.3g}."


def _cells(samples: Sequence[Mapping[str, Any]], source: Source, kind: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            picture=inline(picture_of(source, entry["number"]), f"picture of: {entry['caption']}"),
            captions=(entry["caption"],),
            notes=(f"{entry[f'{kind}_uncertainty']:.3g}",),
        )
        for entry in samples
    )
