"""Section on HierarImgs: does an image with fewer segments include the complete one?"""

from __future__ import annotations

from functools import partial
from typing import Any

from prolip.data.sources.hierarimgs import HierarImgs
from prolip.evaluation.hierarimgs import HierarImgsResult, LevelInclusion
from prolip.preprocessing.images import read_image
from prolip.reports import hierarchy
from prolip.reports.page.components import Gallery, GalleryItem, PageFigure, PageSection
from prolip.reports.page.formatting import (
    MIN_MARGIN,
    NOT_LEARNED,
    REVERSED,
    describe_untrained,
    format_percentage,
)
from prolip.reports.page.html import embed_image
from prolip.reports.page.svg import render_panel


def build_section(result: HierarImgsResult, data: HierarImgs) -> PageSection:
    """Build the section: histograms of H by level, and one example.

    Args:
        result: The result; without uncertainty there are no histograms.
        data: The images of the result.

    Returns:
        The section.
    """
    figures = [
        PageFigure(
            title=f"Level {level}: {level + 1} segment{'s' if level else ''}",
            description=describe_level(
                row.included.value, [fraction.value for fraction in row.untrained_included]
            ),
            svg=render_panel(
                partial(_draw_level, level=level, row=row),
                f"Histogram of H of {result.n} originals in level {level}, and of its mirror image",
            ),
        )
        for level, row in enumerate(level.inclusion for level in result.levels)
        if row is not None
    ]
    intro = (
        "Images are built up segment by segment, the largest first. A level that shows less should be the more "
        "uncertain Gaussian and include the original: H(original in level) above 0 (filled); the outline is its mirror "
        "image."
    )
    return PageSection(
        id="hierarimgs",
        title="HierarImgs: images built up segment by segment",
        intro=intro,
        blocks=[_build_example(data), *figures],
    )


def _draw_level(axes: Any, level: int, row: LevelInclusion) -> None:
    """Draw the panel of one level, without the numbers of untrained models."""
    hierarchy.draw_inclusion(axes, level, row, show_untrained=False)
    axes.set_ylabel("images")


def describe_level(included: float, untrained: list[float]) -> str:
    """Say which fraction of the originals a level includes.

    Args:
        included: Fraction, 0 to 1.
        untrained: The same fraction for untrained models; empty if there are none.

    Returns:
        One or two sentences.
    """
    text = f"Included here: {format_percentage(included)} of originals"
    if included < 0.5:
        text += f", {REVERSED}"
    # an untrained model that includes nearly as many
    is_close = included >= 0.5 and bool(untrained) and max(untrained) > included - MIN_MARGIN
    return f"{text}{describe_untrained(untrained, format_percentage)}.{f' {NOT_LEARNED}' if is_close else ''}"


def _build_example(data: HierarImgs) -> Gallery:
    """Build the gallery of the first image: its levels, then the original; their files are read here."""
    files = [*(level[0] for level in data.levels), data.originals[0]]
    names = [*(f"level {number}" for number in range(len(data.levels))), "original"]
    items = tuple(
        GalleryItem(image=embed_image(read_image(file), name), notes=(name,))
        for file, name in zip(files, names, strict=True)
    )
    return Gallery(title="Example", items=items)
