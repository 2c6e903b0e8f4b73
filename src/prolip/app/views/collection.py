"""The result of Collection as HTML: distributions, and lists of what stands out."""

from __future__ import annotations

from collections.abc import Sequence

from prolip.app.collection import CollectionItem, CollectionResult
from prolip.app.views import markup
from prolip.app.views.pictures import show_picture
from prolip.app.workspace import ModelWorkspace, get_label
from prolip.filtering.criteria import get_criterion

BINS = 40
WIDTH, HEIGHT, BASE = 720, 150, 24
"""Pixels of the distribution; BASE is the room for the numbers below it."""


def show_collection(workspace: ModelWorkspace, result: CollectionResult) -> str:
    """Show a collection.

    Args:
        workspace: Its database.
        result: What stands out in it.

    Returns:
        HTML.
    """
    criterion = get_criterion(result.rank_by)
    counts = markup.make_facts(
        [
            (f"{result.samples:,}", "samples"),
            *((f"{count:,}", name) for name, count in result.outcomes.items() if count or name == "kept"),
            (markup.format_value(result.threshold), f"{criterion.column} of the worst kept sample"),
        ]
    )
    lists = (
        (
            "Pairs whose caption may not match",
            f"The worst by {criterion.description}.",
            result.mismatched,
            "value",
        ),
        (
            "Most uncertain images",
            "They show little, or much at once.",
            result.uncertain_images,
            "image_uncertainty",
        ),
        (
            "Most certain images",
            "What they show is clear to the model.",
            result.certain_images,
            "image_uncertainty",
        ),
        ("Most uncertain captions", "They fit many images.", result.uncertain_captions, "text_uncertainty"),
        ("Most certain captions", "They fit few images.", result.certain_captions, "text_uncertainty"),
    )
    sections = [
        markup.make_section(
            title, text, markup.make_grid([_make_card(workspace, item, name) for item in items])
        )
        for title, text, items, name in lists
        if items
    ]
    sections.insert(1, _show_duplicates(workspace, result))
    return counts + _show_distributions(result) + "".join(sections)


def _show_duplicates(workspace: ModelWorkspace, result: CollectionResult) -> str:
    """Near-duplicates, each beside the sample that it duplicates."""
    pairs = [
        f'<div class="pl-pair">{_make_card(workspace, first, "value")}{_make_card(workspace, second, "value")}</div>'
        for first, second in result.duplicates
    ]
    body = (
        f'<div class="pl-pairs">{"".join(pairs)}</div>'
        if pairs
        else markup.make_message("There are none among the kept samples.")
    )
    return markup.make_section(
        "Suspected duplicates",
        "Left: what would be dropped. Right: the similar sample with the better score.",
        body,
    )


def _make_card(workspace: ModelWorkspace, item: CollectionItem, name: str) -> str:
    """The card of a sample, with one number."""
    column = {"value": "score", "image_uncertainty": "uncertainty", "text_uncertainty": "uncertainty"}[name]
    picture = show_picture(
        workspace, None, item.path, item.index, get_label({"path": item.path, "id": item.id})
    )
    return markup.make_card(
        picture,
        [
            markup.escape(item.caption or "no caption"),
            f'{column} <b class="pl-number">{markup.format_value(getattr(item, name))}</b>',
            f"id {markup.escape(item.id)}",
        ],
    )


def _show_distributions(result: CollectionResult) -> str:
    """The distributions of uncertainty of images and texts, on one axis."""
    values = [value for quantiles in result.uncertainty_quantiles.values() for value in quantiles]
    if not values:
        return ""
    low, high = min(values), max(values)
    drawn = [
        _draw_distribution(name, quantiles, low, high)
        for name, quantiles in sorted(result.uncertainty_quantiles.items())
    ]
    return markup.make_section(
        "Distribution of uncertainty",
        "Each bar is the share of the images, or captions, with an uncertainty in its range. Both have one axis.",
        "".join(drawn),
    )


def _draw_distribution(name: str, quantiles: Sequence[float], low: float, high: float) -> str:
    """A histogram of quantiles: each stands for the same share of the items."""
    counts = [0] * BINS
    for value in quantiles:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1) if high > low else 0] += 1
    width, unit, bottom = WIDTH / BINS, (HEIGHT - BASE) / max(counts), HEIGHT - BASE
    bars = "".join(
        f'<rect class="pl-{name}" x="{number * width + 1:.1f}" y="{bottom - unit * count:.1f}" '
        f'width="{width - 2:.1f}" height="{unit * count:.1f}"><title>'
        f"{count / len(quantiles):.1%} from {markup.format_value(low + (high - low) * number / BINS)} to "
        f"{markup.format_value(low + (high - low) * (number + 1) / BINS)}</title></rect>"
        for number, count in enumerate(counts)
        if count
    )
    labels = (
        f'<text x="0" y="{HEIGHT - 6}">{markup.format_value(low)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">{markup.format_value(high)}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">uncertainty of {name}s</text>'
    )
    return (
        f'<svg class="pl-histogram" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Uncertainty of {name}s">'
        f'{bars}<line x1="0" x2="{WIDTH}" y1="{HEIGHT - BASE}" y2="{HEIGHT - BASE}"/>{labels}</svg>'
    )
