"""Section on traversal: captions from the one nearest to an image to its most general one."""

from __future__ import annotations

from collections.abc import Sequence

from prolip.evaluation.hierarcaps import HierarCapsResult
from prolip.reports.page.components import Card, CardGrid, CardLine, PageSection
from prolip.reports.page.formatting import REVERSED, format_percentage
from prolip.reports.page.html import embed_image
from prolip.reports.page.results import ImageTraversal
from prolip.retrieval.traversal.api import CaptionPath

MAX_STEPS = 8
"""Captions shown per path. A longer path is thinned out evenly; both ends stay."""


def build_section(traversals: Sequence[ImageTraversal], chains: HierarCapsResult | None) -> PageSection:
    """Build the section: cards of a few images with their paths of captions.

    Args:
        traversals: Traversals of a few images.
        chains: Result of HierarCaps; None without chains of captions.

    Returns:
        The section.
    """
    uncertainties = [
        step.uncertainty
        for traversal in traversals
        for step in traversal.path.steps
        if step.uncertainty is not None
    ]
    max_uncertainty = max(uncertainties, default=0.0)
    cards = tuple(
        _build_card(number, traversal, max_uncertainty)
        for number, traversal in enumerate(traversals, start=1)
    )
    intro = (
        "A path starts at the caption nearest to the image and leads to its root, the most general caption that "
        "matches it, or to an anchor, a caption that includes the image and need not be general. Bars show the "
        "uncertainty of each caption, on one scale for all images."
    )
    if any(traversal.is_true for traversal in traversals):
        intro += " ✓ and ✗ mark captions that are true and false of the image."
    description = describe_paths(
        [traversal.path for traversal in traversals],
        [is_true for traversal in traversals for is_true in traversal.is_true],
    )
    order = None if chains is None or chains.uncertainty is None else chains.uncertainty.adjacent_order
    if order is not None:
        description += f" {describe_order(order.value, order.n)}"
    return PageSection(
        id="traversal",
        title="Traversal from specific to general captions",
        intro=intro,
        blocks=[CardGrid(title="Paths of a few images", description=description, cards=cards)],
    )


def describe_paths(paths: Sequence[CaptionPath], is_true: Sequence[bool]) -> str:
    """Say how often uncertainty rises along a path, and how many captions are true.

    Args:
        paths: Paths of a few images.
        is_true: Whether each of their captions is true of its image, path after path; empty if unknown.

    Returns:
        A sentence; empty if there are neither uncertainties nor truth values.
    """
    ends = [
        (path.steps[0].uncertainty, path.steps[-1].uncertainty)
        for path in paths
        if path.steps[0].uncertainty is not None
    ]
    clauses = []
    if ends:
        num_rising = sum(1 for first, last in ends if first is not None and last is not None and last > first)
        comment = f", mostly {REVERSED}" if 2 * num_rising < len(ends) else ""
        clauses.append(
            "uncertainty should rise along a path: from its first to its last caption it does for "
            f"{num_rising} of {len(ends)} images{comment}"
        )
    if is_true:
        clauses.append(
            f"{format_percentage(sum(is_true) / len(is_true))} of the captions are true of their image"
        )
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def describe_order(fraction: float, num_chains: int) -> str:
    """Say how often the more general of two adjacent captions of a chain is the more uncertain one.

    Args:
        fraction: Fraction of adjacent pairs, 0 to 1.
        num_chains: Number of chains.

    Returns:
        A sentence.
    """
    text = (
        f"In {num_chains:,} chains of captions the more general of two adjacent captions is the more uncertain one in "
        f"{format_percentage(fraction)}"
    )
    return f"{text}, {REVERSED}." if fraction < 0.5 else f"{text}."


def _build_card(number: int, traversal: ImageTraversal, max_uncertainty: float) -> Card:
    """Card of an image with at most `MAX_STEPS` captions of its path; `max_uncertainty` is that of a full bar."""
    path, total = traversal.path, len(traversal.path.steps)
    lines = []
    for index in choose_evenly(total, MAX_STEPS):
        step = path.steps[index]
        is_true = traversal.is_true[index] if traversal.is_true else None
        lines.append(_build_line(step.caption, step.uncertainty, max_uncertainty, is_true))
    root = "the empty caption" if path.root is None else path.root.caption
    uncertainty = "" if path.uncertainty is None else f": uncertainty {path.uncertainty:#.4g}"
    thinned = f" ({len(lines)} of {total} captions shown)" if total > len(lines) else ""
    return Card(
        title=f"Image {number}{uncertainty}",
        image=embed_image(traversal.image, f"image {number}: {path.steps[0].caption}"),
        lines=tuple(lines),
        note=f"{path.root_label.capitalize()}: {root}{thinned}",
    )


def _build_line(
    caption: str, uncertainty: float | None, max_uncertainty: float, is_true: bool | None
) -> CardLine:
    """A caption with its uncertainty as number and bar; without uncertainty only the caption."""
    if uncertainty is None:
        return CardLine(text=caption, is_true=is_true)
    fraction = uncertainty / max_uncertainty if max_uncertainty > 0 else 0.0
    return CardLine(text=caption, value=f"{uncertainty:#.4g}", bar_fraction=fraction, is_true=is_true)


def choose_evenly(num_items: int, max_indices: int) -> list[int]:
    """Choose evenly spaced indices, with the first and the last.

    Args:
        num_items: Number of items to choose from.
        max_indices: Maximum number of indices, at least 2.

    Returns:
        Indices below `num_items`, ascending.
    """
    if num_items <= max_indices:
        return list(range(num_items))
    return sorted({round(position * (num_items - 1) / (max_indices - 1)) for position in range(max_indices)})
