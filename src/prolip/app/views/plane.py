"""The plane of images and captions as SVG: dots with ellipses, whose name appears below the pointer."""

from __future__ import annotations

import html
from collections.abc import Sequence

from prolip.evaluation.plane import ProjectedGaussian
from prolip.reports.plane import SIGMAS, compute_ellipses

WIDTH, MARGIN = 720.0, 36.0
LABEL_LENGTH = 60


def draw_plane(
    images: Sequence[ProjectedGaussian],
    captions: Sequence[ProjectedGaussian],
    image_names: Sequence[str],
    caption_names: Sequence[str],
    ratios: Sequence[float],
) -> str:
    """Draw images and captions.

    Args:
        images: The images in the plane.
        captions: The captions.
        image_names: Name of each image; escaped here.
        caption_names: Text of each caption; escaped here.
        ratios: Fraction of the variance along each direction.

    Returns:
        An SVG with its legend, as HTML.
    """
    items = [
        *(("text", name, z) for name, z in zip(caption_names, captions, strict=True)),
        *(("image", name, z) for name, z in zip(image_names, images, strict=True)),
    ]
    outlines = [line.tolist() for line in compute_ellipses([z for _, _, z in items])]
    xs = [x for line in outlines for x, _ in line]
    ys = [y for line in outlines for _, y in line]
    scale = (WIDTH - 2 * MARGIN) / max(max(xs) - min(xs), max(ys) - min(ys), 1e-9)
    height = (max(ys) - min(ys)) * scale + 2 * MARGIN
    left = min(xs) - (WIDTH - 2 * MARGIN - (max(xs) - min(xs)) * scale) / (2 * scale)

    def place(point: Sequence[float]) -> tuple[float, float]:
        return MARGIN + (point[0] - left) * scale, MARGIN + (max(ys) - point[1]) * scale

    drawn = [
        _draw_item(kind, name, [place(point) for point in line], place(z.mean))
        for (kind, name, z), line in zip(items, outlines, strict=True)
    ]
    legend = (
        '<p class="pl-legend"><span class="pl-dot pl-image"></span>image <span class="pl-dot pl-text"></span>caption '
        f"· ellipses of {SIGMAS:g} σ · the two directions hold {100 * sum(ratios):.0f} % of the variance of samples</p>"
    )
    return (
        f'<svg class="pl-plane" viewBox="0 0 {WIDTH:g} {height:.0f}" role="img" '
        f'aria-label="Images and captions in a plane">{"".join(drawn)}</svg>{legend}'
    )


def _draw_item(
    kind: str, name: str, outline: Sequence[tuple[float, float]], center: tuple[float, float]
) -> str:
    """One dot with its ellipse, and the name that appears when the pointer is on it."""
    x, y = center
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in outline)
    anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
    shown = html.escape(name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…")
    return (
        f'<g class="pl-item pl-{kind}" tabindex="0"><title>{html.escape(name)}</title>'
        f'<polygon points="{points}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        f'<text x="{x:.1f}" y="{max(y - 12, 16):.1f}" text-anchor="{anchor}">{shown}</text></g>'
    )
