"""Draws the figures of docs/guides/uncertainty.md with scenes-tiny, on scenes that it was not trained on.

python tools/guide_figures.py docs/figures
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import prolip
from prolip import scenes
from prolip.evaluation.metrics.selective import auroc
from prolip.reports.figures import BLUE, GRAY, ORANGE, figure_style, make_figure, save_figure

SEED, COUNT, SIZE = 2026, 1000, 48
"""Seed and number of the scenes, and pixels of their images."""
STRIP = 4
"""Index of the scene that is shown more and more hidden."""


def main(out: Path) -> None:
    model = prolip.load("scenes-tiny", device="cpu")
    drawn = [scenes.SIMPLE.draw_scene(seed=SEED, index=index) for index in range(COUNT)]
    with figure_style():
        save_figure(draw_inside(model, drawn), out / "guide-inside")
        save_figure(draw_veils(model, drawn), out / "guide-veils")


def draw_inside(model: prolip.ProLIP, drawn: Sequence[scenes.Scene]) -> Any:
    """Histograms of three measures of inclusion, of captions that are true and of captions that are false."""
    captions = [
        scenes.make_caption_chain(scene, scenes.RandomDraws(SEED, index), scenes.SIMPLE)[2].text
        for index, scene in enumerate(drawn)
    ]
    images = model.embed_images([scenes.render(scene, SIZE) for scene in drawn])
    texts = model.embed_texts(captions)
    others = [
        next(
            other % COUNT
            for other in range(index + 1, index + COUNT)
            if not scenes.is_true_caption(captions[other % COUNT], scene)
        )
        for index, scene in enumerate(drawn)
    ]
    wrong = prolip.Gaussian(texts.mean[others], texts.log_var[others])
    figure = make_figure(10, 3)
    measures = (
        ("H (the paper's)", prolip.inclusion),
        ("log inclusion", prolip.log_inclusion),
        ("log containment (ours)", prolip.log_containment),
    )
    for axis, (name, measure) in zip(figure.subplots(1, 3), measures, strict=True):
        draw_histograms(axis, name, measure(images, texts), measure(images, wrong))
    return figure


def draw_histograms(axis: Any, name: str, true: torch.Tensor, false: torch.Tensor) -> None:
    """Both distributions of one measure, and how well it tells them apart."""
    both = torch.cat([true, false])
    low, high = both.quantile(0.005).item(), both.quantile(0.995).item()
    for values, color, label in ((true, BLUE, "true captions"), (false, ORANGE, "false captions")):
        axis.hist(values.clamp(low, high), bins=40, range=(low, high), color=color, alpha=0.65, label=label)
    separation = auroc(torch.arange(len(both)) < len(true), both)
    axis.set(title=name, yticks=[], xlabel=f"of the image in the caption, nats\nAUROC {separation:.2f}")
    if low < 0 < high or name.startswith("H"):
        axis.axvline(0, color=GRAY, linewidth=1)
    axis.spines["left"].set_visible(False)
    axis.legend(fontsize=8)


def draw_veils(model: prolip.ProLIP, drawn: Sequence[scenes.Scene]) -> Any:
    """A scene more and more hidden, and the uncertainty of images behind random veils against their ambiguity."""
    figure = make_figure(10, 3)
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))
    hidden = ((), ("color",), ("color", "shape"), ("color", "shape", "size", "position"))
    views = [scenes.render_veiled(drawn[STRIP], SIZE, scenes.hide_facts(*names)) for names in hidden]
    large = [scenes.render_veiled(drawn[STRIP], 128, scenes.hide_facts(*names)) for names in hidden]
    left.suptitle("More hidden, more uncertain", x=0.01, ha="left", fontsize=10.5, weight="bold")
    uncertainties = model.embed_images(views).uncertainty.tolist()
    for axis, view, names, value in zip(left.subplots(1, 4), large, hidden, uncertainties, strict=True):
        axis.imshow(view)
        axis.set(
            xticks=[],
            yticks=[],
            xlabel=f"hidden:\n{'all' if len(names) > 2 else ', '.join(names) or 'nothing'}",
        )
        axis.set_title(f"{value:.3f}", color=BLUE, loc="center")
    draw_scatter(right.subplots(), model, drawn)
    return figure


def draw_scatter(axis: Any, model: prolip.ProLIP, drawn: Sequence[scenes.Scene]) -> None:
    """Image uncertainty against the true log-ambiguity, of each scene behind a random veil."""
    veils = [scenes.draw_veil(scenes.RandomDraws(SEED, index, 1), scenes.SIMPLE) for index in range(COUNT)]
    pairs = list(zip(drawn, veils, strict=True))
    truth = [scenes.image_log_ambiguity(scenes.observe(scene, veil), scenes.SIMPLE) for scene, veil in pairs]
    images = model.embed_images([scenes.render_veiled(scene, SIZE, veil) for scene, veil in pairs])
    rank = torch.tensor(truth).argsort().argsort().double(), images.uncertainty.argsort().argsort().double()
    rho = torch.corrcoef(torch.stack(rank))[0, 1]
    axis.scatter(truth, images.uncertainty, s=5, color=BLUE, alpha=0.4, linewidths=0)
    axis.set(
        title=f"1,000 veiled images: ρ {rho:.2f}",
        xlabel="true log-ambiguity: clear ← → hidden, nats",
        ylabel="image uncertainty",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
