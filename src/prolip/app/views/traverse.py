"""The result of Traverse as HTML: two paths of captions, each with its uncertainty."""

from __future__ import annotations

from PIL import Image

from prolip.app.traverse import TraverseResult
from prolip.app.views import markup
from prolip.retrieval.traversal.api import CaptionPath, CaptionStep


def show_paths(result: TraverseResult, picture: Image.Image) -> str:
    """Show the paths of an image.

    Args:
        result: Both paths.
        picture: The image.

    Returns:
        HTML.
    """
    steps = [
        step
        for path in (result.root, result.null)
        for step in (*path.steps, *([path.root] if path.root else []))
    ]
    largest = max((step.uncertainty or 0.0 for step in steps), default=0.0)
    head = (
        f'<div class="pl-subject">{markup.make_picture(picture, result.image)}<div>{markup.escape(result.image)}'
        f'<br>uncertainty <b class="pl-number">{markup.format_value(result.root.uncertainty)}</b></div></div>'
    )
    default = _show_path("Towards its root", result.root, largest)
    null = _show_path('Towards the empty caption ""', result.null, largest)
    return f'{head}<div class="pl-columns">{default}{null}</div>'


def _show_path(title: str, path: CaptionPath, largest: float) -> str:
    """One path, the nearest caption first: bars of uncertainty."""
    entries = [_show_step(step, largest) for step in path.steps]
    if path.root is not None:
        entries.append(_show_step(path.root, largest, path.root_label))
    body = f'<ol class="pl-path">{"".join(entries)}</ol>'
    explanation = (
        "From the caption nearest to the image to a general one. The bar is the uncertainty of the caption. "
        f"{markup.escape(path.note[:1].upper() + path.note[1:])}."
    )
    return markup.make_section(title, explanation, body)


def _show_step(step: CaptionStep, largest: float, label: str = "") -> str:
    """One caption with its uncertainty and its similarity to the image."""
    bar = markup.make_bars([""], [step.uncertainty], "text", largest) if step.uncertainty is not None else ""
    mark = f' <span class="pl-tag">{label}</span>' if label else ""
    return (
        f'<li><div class="pl-step">{markup.escape(step.caption)}{mark}</div>{bar}'
        f'<div class="pl-card-line">similarity {markup.format_value(step.similarity)}</div></li>'
    )
