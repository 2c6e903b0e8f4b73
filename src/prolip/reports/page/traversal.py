"""Section on traversal: captions from the one nearest to an image to its most general one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prolip.reports.page.components import Card, CardGrid, CardLine, PageSection
from prolip.reports.page.formatting import REVERSED, format_percentage
from prolip.reports.page.html import embed_image
from prolip.reports.page.results import ImageTraversal
from prolip.retrieval.traversal.api import CaptionPath

MAX_STEPS = 8
"""Captions shown per path. A longer path is thinned out evenly; both ends stay."""


def build_section(traversals: Sequence[ImageTraversal], chains: Mapping[str, Any] | None) -> PageSection:
    """Cards of a few images with their paths of captions.

    Args:
        traversals: Traversals of a few images.
        chains: Result of `evaluate_hierarcaps`; None without chains of captions.

    Returns:
        The section.
    """
    uncertainties = [
        step.uncertainty for one in traversals for step in one.path.steps if step.uncertainty is not None
    ]
    largest_uncertainty = max(uncertainties, default=0.0)
    cards = tuple(
        _build_card(number, one, largest_uncertainty) for number, one in enumerate(traversals, start=1)
    )
    intro = (
        "A path starts at the caption nearest to the image and leads to its root, the most general caption. Bars show "
        "the uncertainty of each caption, on one scale for all images."
    )
    if any(one.is_true for one in traversals):
        intro += " ✓ and ✗ mark captions that are true and false of the image."
    description = describe_paths(
        [one.path for one in traversals], [is_true for one in traversals for is_true in one.is_true]
    )
    if chains is not None and chains["uncertainty"] is not None:
        description += f" {describe_order(chains['uncertainty']['adjacent_order'], chains['chains'])}"
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
        A sentence; empty without uncertainty and truth.
    """
    ends = [
        (path.steps[0].uncertainty, path.steps[-1].uncertainty)
        for path in paths
        if path.steps[0].uncertainty is not None
    ]
    parts = []
    if ends:
        rising = sum(1 for first, last in ends if first is not None and last is not None and last > first)
        comment = f", mostly {REVERSED}" if 2 * rising < len(ends) else ""
        parts.append(
            "uncertainty should rise along a path: from its first to its last caption it does for "
            f"{rising} of {len(ends)}{comment}"
        )
    if is_true:
        parts.append(
            f"{format_percentage(sum(is_true) / len(is_true))} of the captions are true of their image"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def describe_order(fraction: float, chains: int) -> str:
    """Say how often the more general of two adjacent captions of a chain is the more uncertain one.

    Args:
        fraction: Fraction of adjacent pairs, 0 to 1.
        chains: Number of chains.

    Returns:
        A sentence.
    """
    text = (
        f"In {chains:,} chains of captions the more general of two adjacent captions is the more uncertain one in "
        f"{format_percentage(fraction)}"
    )
    return f"{text}, {REVERSED}." if fraction < 0.5 else f"{text}."


def _build_card(number: int, traversal: ImageTraversal, largest: float) -> Card:
    """Card of an image with at most `MAX_STEPS` captions of its path; `largest`: uncertainty of a full bar."""
    path, total = traversal.path, len(traversal.path.steps)
    lines = []
    for index in choose_evenly(total, MAX_STEPS):
        step = path.steps[index]
        is_true = traversal.is_true[index] if traversal.is_true else None
        lines.append(_build_line(step.caption, step.uncertainty, largest, is_true))
    root = "the empty caption" if path.root is None else path.root.caption
    uncertainty = "" if path.uncertainty is None else f": uncertainty {path.uncertainty:.3g}"
    thinned = f" ({len(lines)} of {total} captions shown)" if total > len(lines) else ""
    return Card(
        title=f"Image {number}{uncertainty}",
        image=embed_image(traversal.image, f"image {number}: {path.steps[0].caption}"),
        lines=tuple(lines),
        note=f"Root: {root}{thinned}",
    )


def _build_line(text: str, uncertainty: float | None, largest: float, is_true: bool | None) -> CardLine:
    """A caption with its uncertainty as number and bar; without uncertainty only the caption."""
    if uncertainty is None:
        return CardLine(text=text, is_true=is_true)
    fraction = uncertainty / largest if largest > 0 else 0.0
    return CardLine(text=text, value=f"{uncertainty:.3g}", bar_fraction=fraction, is_true=is_true)


def choose_evenly(total: int, count: int) -> list[int]:
    """Choose evenly spaced indices, with the first and the last.

    Args:
        total: Number of items.
        count: Maximum number of indices, at least 2.

    Returns:
        Indices below `total`, ascending.
    """
    if total <= count:
        return list(range(total))
    return sorted({round(position * (total - 1) / (count - 1)) for position in range(count)})
