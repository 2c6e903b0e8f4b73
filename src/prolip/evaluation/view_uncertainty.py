"""Does the uncertainty of an image rise when a part of it is hidden? Boxes, patches and crops, without any truth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rich.table import Table

from prolip.console import format_number, format_percent, make_table
from prolip.data.source import Source, Subset
from prolip.data.views import ViewSource
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.evaluation.result import Proportion
from prolip.preprocessing.image_views import ImageViews, ViewKind

VIEWS: tuple[tuple[ViewKind, float], ...] = (("box", 0.7), ("patches", 0.25), ("crop", 0.25))
"""Kinds of views, and the fraction of the image that each shows."""
LABELS: dict[ViewKind, str] = {
    "box": "a box hides {hidden:.0f} % of the area",
    "patches": "{hidden:.0f} % of the patches hidden",
    "crop": "cropped to {shown:.0f} % of the area",
}


@dataclass(frozen=True, kw_only=True)
class ViewUncertainty:
    """How the uncertainty of images changes in one kind of view."""

    kind: ViewKind
    """box: all but a box at a random place. patches: some cells of a grid. crop: a part, enlarged."""
    shown: float
    """Fraction of the image's area that is visible."""
    rises: Proportion
    """Images whose view is more uncertain than the image."""
    median_ratio: float
    """Median of the uncertainty of the view divided by that of the image."""


@dataclass(frozen=True, kw_only=True)
class ViewReport:
    """Uncertainty of views against that of the whole images."""

    n: int
    """Number of images."""
    rows: tuple[ViewUncertainty, ...]
    """One row per kind of view."""

    def table(self) -> Table:
        """A row per kind of view."""
        table = make_table(
            f"Uncertainty of {self.n:,} images of which a part is hidden",
            ["view"],
            ("rises, % of images", "95 % interval", "median ratio"),
            caption="A view shows less, so its uncertainty should rise; 50 % is chance",
        )
        for row in self.rows:
            label = LABELS[row.kind].format(hidden=100 * (1 - row.shown), shown=100 * row.shown)
            interval = f"{format_percent(row.rises.low)} to {format_percent(row.rises.high)}"
            table.add_row(
                label, format_percent(row.rises.value), interval, format_number(row.median_ratio, ".3f")
            )
        return table


def measure_views(embedder: BaseEmbedder, source: Source, num_images: int, seed: int) -> ViewReport:
    """Compare the uncertainty of images with that of views of them.

    Args:
        embedder: The model, and how to embed with it; it must have variances.
        source: The images.
        num_images: Largest number of images, evenly spaced over the source.
        seed: Seed of the views.

    Returns:
        The report.
    """
    images = Subset(source, num_images)
    whole = embedder.embed_images(images)
    rows = []
    for kind, shown in VIEWS:
        views = ViewSource(images, "part", seed, ImageViews(min_area=shown, max_area=shown), shown=kind)
        rows.append(_compare(kind, shown, whole, embedder.embed_images(views)))
    return ViewReport(n=len(whole), rows=tuple(rows))


def _compare(kind: ViewKind, shown: float, whole: EncodedImages, views: EncodedImages) -> ViewUncertainty:
    """Compare views with whole images, of those samples that have both."""
    is_viewed = torch.isin(whole.indices, views.indices)
    is_whole = torch.isin(views.indices, whole.indices)
    before = whole.images.uncertainty.double()[is_viewed]
    after = views.images.uncertainty.double()[is_whole]
    rises = float((after > before).double().mean())
    return ViewUncertainty(
        kind=kind,
        shown=shown,
        rises=Proportion.from_mean(rises, len(before)),
        median_ratio=float((after / before).median()),
    )
