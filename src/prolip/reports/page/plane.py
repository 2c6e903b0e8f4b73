"""Section on the embedding plane: similar images and their captions as ellipses in two dimensions."""

from __future__ import annotations

from functools import partial

from prolip.data.source import Source
from prolip.evaluation.plane import ProjectedPairs
from prolip.reports import plane
from prolip.reports.page.components import Gallery, GalleryItem, PageFigure, PageSection
from prolip.reports.page.formatting import REVERSED, format_ratio
from prolip.reports.page.html import embed_image
from prolip.reports.page.svg import render_panel
from prolip.reports.sheets import read_sample_image


def build_section(projected: ProjectedPairs, source: Source) -> PageSection:
    """Build the section: the first image and those nearest to it, with captions, projected onto a plane.

    Args:
        projected: `plane` of an `UncertaintyResult`.
        source: The data of the result; images are read from it.

    Returns:
        The section.
    """
    svg = render_panel(
        partial(plane.draw_plane, projected=projected),
        f"{len(projected.images)} images and {len(projected.captions)} captions as dots with ellipses in two "
        "dimensions",
        width=5.4,
        height=4.5,
    )
    image_size, text_size = map(plane.compute_mean_size, (projected.images, projected.captions))
    figure = PageFigure(
        title="Ellipses of two standard deviations",
        description=describe_plane(image_size, text_size, sum(projected.explained_variance_ratio)),
        svg=svg,
    )
    items = tuple(
        GalleryItem(
            image=embed_image(read_sample_image(source, image.index), f"image {position + 1}"),
            number=position + 1,
            captions=projected.captions_of(position),
        )
        for position, image in enumerate(projected.images)
    )
    return PageSection(
        id="plane",
        title="Embeddings in two dimensions",
        intro="One image and those nearest to it by CSD, each with its first and its last caption; a line joins a "
        "caption to its image. The plane is a PCA of samples from all of these Gaussians.",
        blocks=(figure, Gallery(title="The images, by number", items=items)),
    )


def describe_plane(image_size: float, text_size: float, explained: float) -> str:
    """Compare the ellipses of captions with those of images.

    Args:
        image_size: Mean size of the ellipses of images.
        text_size: Mean size of the ellipses of captions.
        explained: Fraction of the variance in the plane, 0 to 1.

    Returns:
        The expectation and what was measured.
    """
    expected = "The ellipse of a caption should be larger than that of its image, and contain it."
    ratio = text_size / image_size if image_size > 0 else float("inf")
    comparison = (
        f"Here those of captions are {format_ratio(ratio)} times as large"
        if ratio >= 1
        else f"Here the sizes are {REVERSED}: those of captions are {format_ratio(ratio)} times as large"
    )
    return f"{expected} {comparison}. The plane holds {100 * explained:.0f} % of the variance."
