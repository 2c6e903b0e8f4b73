"""Pictures that are alike and their captions in a plane: means as dots, covariances as ellipses."""

from __future__ import annotations

from functools import partial

import torch

from prolip.data.source import Source
from prolip.evaluation.captions import Pairs
from prolip.reports import plane
from prolip.reports.page.components import Cell, Figure, Gallery, Section
from prolip.reports.page.pictures import inline
from prolip.reports.page.svg import panel
from prolip.reports.sheets import picture_of

COUNT = 6


def section(pairs: Pairs, source: Source) -> Section:
    rows, captions = plane.choose(pairs, 0, COUNT)
    images, texts = pairs.images[rows], pairs.texts[captions]
    fitted = plane.fit([images, texts], torch.Generator().manual_seed(0))
    place = {int(row): number for number, row in enumerate(rows)}
    owners = [place[int(row)] for row in pairs.captions.image_of[captions]]
    svg = panel(
        partial(plane.draw_plane, plane=fitted, images=images, texts=texts, numbers=owners),
        f"{len(rows)} images and {len(captions)} captions as dots with ellipses in two dimensions",
        width=5.4,
        height=4.5,
    )
    wide = plane.SIGMAS * fitted.covariances(images).diagonal(dim1=1, dim2=2).sum(1).sqrt().mean()
    wide_texts = plane.SIGMAS * fitted.covariances(texts).diagonal(dim1=1, dim2=2).sum(1).sqrt().mean()
    figure = Figure(
        title="Ellipses of two standard deviations",
        says=says_plane(float(wide), float(wide_texts), 100 * float(fitted.shares.sum())),
        svg=svg,
    )
    cells = tuple(
        Cell(
            picture=inline(picture_of(source, int(pairs.numbers[row])), f"picture {number + 1}"),
            number=number + 1,
            captions=tuple(
                pairs.captions.texts[int(c)]
                for c, owner in zip(captions, owners, strict=True)
                if owner == number
            ),
        )
        for number, row in enumerate(rows.tolist())
    )
    return Section(
        id="plane",
        title="A view in two dimensions",
        intro="One picture and those nearest to it by CSD, each with its first and its last caption; a line joins a "
        "caption to its picture. The plane is a PCA of draws from all of these Gaussians.",
        blocks=(figure, Gallery(title="The pictures, by number", cells=cells)),
    )


def says_plane(image: float, text: float, shown: float) -> str:
    """image, text: mean sizes of the ellipses. shown: percent of the variance."""
    hoped = "The ellipse of a caption should be larger than that of its picture, and hold it."
    ratio = text / image if image > 0 else float("inf")
    found = (
        f"Here those of captions are {ratio:.1f} times as large"
        if ratio >= 1
        else f"Here it is the wrong way round: those of captions are {ratio:.2f} times as large"
    )
    return f"{hoped} {found}; the plane shows {shown:.0f} % of the variance, and so hides the rest."
