"""Draws the README's picture: two photographs of scikit-learn, veiled more and more, and captions of each.

python tools/readme_picture.py docs/figures/photographs
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import prolip
from prolip.data.sources.foreground import occlude_center
from prolip.reports.figures import BLUE, ORANGE, figure_style, make_figure, save_figure

FRACTIONS = (0.0, 0.5, 0.8)
"""Hidden parts of the area of each photograph."""
CAPTIONS = (
    ("something", "a building", "a building by the water", "a palace with a curved roof by the water"),
    ("something", "a flower", "an orange flower", "an orange dahlia in front of dark green leaves"),
)


def main(out: Path) -> None:
    model = prolip.load("photos-small")
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    with figure_style():
        figure = make_figure(11, 4.2)
        views, captions = figure.subfigures(1, 2, width_ratios=(1.45, 1))
        views.suptitle("Uncertainty of photographs", x=0.005, ha="left", fontsize=10.5, weight="bold")
        draw_views(views.subplots(len(photos), len(FRACTIONS)), model, photos)
        draw_captions(captions.subplots(len(photos), 1, sharex=True), model)
        save_figure(figure, out)


def draw_views(axes: Any, model: prolip.ProLIP, photos: list[Image.Image]) -> None:
    """Each photograph, hidden more and more from left to right, above its uncertainty."""
    for row, photo in zip(axes, photos, strict=True):
        views = [occlude_center(photo, fraction) for fraction in FRACTIONS]
        uncertainties = model.embed_images(views).uncertainty.tolist()
        for axis, view, uncertainty in zip(row, views, uncertainties, strict=True):
            axis.imshow(view)
            axis.set_axis_off()
            axis.set_title(f"{uncertainty:.3f}", color=BLUE, loc="center", pad=3)


def draw_captions(axes: Any, model: prolip.ProLIP) -> None:
    """The captions of each photograph by their uncertainty, the most general at the top."""
    texts = [model.embed_texts(captions).uncertainty for captions in CAPTIONS]
    low, high = torch.cat(texts).min().item(), torch.cat(texts).max().item()
    span = high - low
    for axis, captions, uncertainties in zip(axes, CAPTIONS, texts, strict=True):
        for place, (caption, uncertainty) in enumerate(zip(captions, uncertainties.tolist(), strict=True)):
            axis.plot(uncertainty, -place, "o", color=ORANGE, markersize=8)
            axis.text(low - 0.015 * span, 0.28 - place, caption, fontsize=10)
            axis.text(uncertainty, -place, f"  {uncertainty:.3f}", va="center", color=ORANGE)
        axis.set(ylim=(-len(captions) + 0.6, 0.8), yticks=[], xlim=(low - 0.02 * span, high + 0.15 * span))
        axis.spines["left"].set_visible(False)
    axes[0].set_title("Uncertainty of captions")
    axes[-1].locator_params(axis="x", nbins=5)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
