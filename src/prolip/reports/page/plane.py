"""Section on the embedding plane: similar images and their captions as ellipses in two dimensions."""

from __future__ import annotations

from functools import partial

import torch

from prolip.data.source import Source
from prolip.evaluation.captions import EmbeddedPairs
from prolip.reports import plane
from prolip.reports.page.components import Gallery, GalleryItem, PageFigure, PageSection
from prolip.reports.page.formatting import REVERSED
from prolip.reports.page.html import embed_image
from prolip.reports.page.svg import render_panel
from prolip.reports.sheets import read_sample_image

NUM_IMAGES = 6
"""Images in the plane."""


def build_section(pairs: EmbeddedPairs, source: Source) -> PageSection:
    """Build the section: the first image and those nearest to it, with captions, projected onto a plane.

    Args:
        pairs: Embeddings of images and captions, with uncertainty.
        source: The data of the pairs; images are read from it.

    Returns:
        The section.
    """
    image_rows, caption_rows = plane.choose_similar_images(pairs, 0, NUM_IMAGES)
    images, texts = pairs.images[image_rows], pairs.texts[caption_rows]
    fitted = plane.fit_plane([images, texts], torch.Generator().manual_seed(0))
    # row of an image -> its position in the figure
    positions = {int(row): position for position, row in enumerate(image_rows)}
    image_positions = [positions[int(row)] for row in pairs.captions.image_index[caption_rows]]
    svg = render_panel(
        partial(plane.draw_plane, plane=fitted, images=images, texts=texts, image_positions=image_positions),
        f"{len(image_rows)} images and {len(caption_rows)} captions as dots with ellipses in two dimensions",
        width=5.4,
        height=4.5,
    )
    # size of an ellipse: SIGMAS times the square root of its trace
    image_size, text_size = (
        float(plane.SIGMAS * fitted.project_covariances(z).diagonal(dim1=1, dim2=2).sum(1).sqrt().mean())
        for z in (images, texts)
    )
    figure = PageFigure(
        title="Ellipses of two standard deviations",
        description=describe_plane(image_size, text_size, float(fitted.explained_variance_ratio.sum())),
        svg=svg,
    )
    items = tuple(
        GalleryItem(
            image=embed_image(read_sample_image(source, int(pairs.indices[row])), f"image {position + 1}"),
            number=position + 1,
            captions=tuple(
                pairs.captions.texts[int(caption_row)]
                for caption_row, image_position in zip(caption_rows, image_positions, strict=True)
                if image_position == position
            ),
        )
        for position, row in enumerate(image_rows.tolist())
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
        f"Here those of captions are {ratio:.1f} times as large"
        if ratio >= 1
        else f"Here the sizes are {REVERSED}: those of captions are {ratio:.2f} times as large"
    )
    return f"{expected} {comparison}. The plane holds {100 * explained:.0f} % of the variance."
