"""Training curves: losses by term, held-out recall, uncertainty, all over samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prolip.reports import figures
from prolip.reports.page.components import Figure, Section
from prolip.reports.page.run import Run, is_finite
from prolip.reports.page.svg import panel
from prolip.reports.page.words import large, percent

CONTRASTS = ("ppcl", "siglip", "pml", "clip")
LOOKS: dict[str, tuple[str, str]] = {
    "ppcl": (figures.FIRST, "-"),
    "siglip": (figures.SECOND, "-"),
    "pml": (figures.THIRD, "-"),
    "clip": (figures.MUTED, "-"),
    "inclusion": (figures.SECOND, "-"),
    "masked_images": (figures.THIRD, "-"),
    "masked_texts": (figures.THIRD, ":"),
    "vib_images": ("#8d5ea8", "-"),
    "vib_texts": ("#8d5ea8", ":"),
}
"""Colour and dash of each term of the loss; terms of one kind share a colour."""

CALLED = {
    "ppcl": "PPCL",
    "siglip": "SigLIP",
    "pml": "PML",
    "clip": "CLIP",
    "inclusion": "image in text",
    "masked_images": "masked images",
    "masked_texts": "masked texts",
    "vib_images": "VIB of images",
    "vib_texts": "VIB of texts",
}
FLOOR = 1e-4
"""The least loss that is drawn: what is smaller is noise about zero."""

Points = list[tuple[float, float]]


def section(run: Run) -> Section | None:
    """None for a run without metrics."""
    drawn = [
        figure for figure in (_contrast(run), _recall(run), _others(run), _widths(run)) if figure is not None
    ]
    if not drawn:
        return None
    ends = [large(end) for end in run.stage_ends]
    intro = "Everything is drawn over samples seen."
    if ends:
        intro += f" A dotted line marks where a new stage of training begins ({', '.join(ends)} samples)."
    return Section(id="training", title="Training curves", intro=intro, blocks=drawn)


def points(lines: Sequence[dict[str, Any]], key: str) -> Points:
    """(samples, value) of each line that has both; what is not finite can't be drawn."""
    return [
        (line["samples"], line[key])
        for line in lines
        if line.get("samples") is not None and is_finite(line.get(key))
    ]


def _contrast(run: Run) -> Figure | None:
    terms = _terms(run, CONTRASTS)
    if not terms:
        return None

    def draw(axes: Any) -> None:
        _draw_terms(axes, terms)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("loss")
        _finish(axes, run)

    return Figure(
        title="Contrast",
        says=says_contrast(terms),
        svg=panel(draw, f"Lines of {', '.join(terms)} over samples"),
    )


def says_contrast(terms: Mapping[str, Points]) -> str:
    told = []
    for name, line in terms.items():
        first, last = line[0][1], line[-1][1]
        verb = "fell" if last < first else "did not fall: it went"
        told.append(f"{CALLED.get(name, name)} {verb} from {first:.3g} to {last:.3g}")
    return f"The loss that tells pairs from strangers should fall and level off. Here {' and '.join(told)}."


def _others(run: Run) -> Figure | None:
    terms = _terms(run, [name for name in LOOKS if name not in CONTRASTS])
    if not terms:
        return None

    def draw(axes: Any) -> None:
        _draw_terms(axes, terms)
        axes.set_yscale("log")
        axes.set_ylim(FLOOR, 50 * axes.get_ylim()[1])  # room for the legend
        axes.set_ylabel("loss, before its weight")
        _finish(axes, run)
        axes.legend(loc="upper right", fontsize=8, ncols=2)

    return Figure(
        title="Inclusion and regularisation",
        says=says_others(terms),
        svg=panel(draw, f"Lines of {', '.join(terms)} over samples, logarithmic"),
    )


def says_others(terms: Mapping[str, Points]) -> str:
    hoped = (
        "The inclusion terms should come close to 0: what is masked, or a text, then includes what is whole."
    )
    last = [
        f"{CALLED.get(name, name)} {line[-1][1]:.2g}" for name, line in terms.items() if "vib" not in name
    ]
    return f"{hoped} Here they end at: {', '.join(last)}." if last else hoped


def _terms(run: Run, names: Iterable[str]) -> dict[str, Points]:
    """Those of the loss that there are, where they are above 0."""
    found = {name: [(x, y) for x, y in points(run.metrics, f"loss/{name}") if y > 0] for name in names}
    return {name: line for name, line in found.items() if line}


def _draw_terms(axes: Any, terms: Mapping[str, Points]) -> None:
    for name, line in terms.items():
        colour, dash = LOOKS[name]
        axes.plot(*zip(*line, strict=True), dash, color=colour, linewidth=1.4, label=CALLED.get(name, name))


def _recall(run: Run) -> Figure | None:
    ways = {
        "image → text": (points(run.metrics, "held_out/image_to_text_r1"), figures.FIRST),
        "text → image": (points(run.metrics, "held_out/text_to_image_r1"), figures.SECOND),
    }
    lines = {name: found for name, found in ways.items() if found[0]}
    mean = points(run.metrics, "held_out/r1")
    if not mean:
        return None

    def draw(axes: Any) -> None:
        for name, (line, colour) in lines.items():
            places, heights = zip(*line, strict=True)
            axes.plot(
                places,
                [100 * y for y in heights],
                "o-",
                color=colour,
                markersize=3.5,
                linewidth=1.4,
                label=name,
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("R@1, %")
        _finish(axes, run)

    return Figure(
        title="Held-out retrieval",
        says=says_recall(mean),
        svg=panel(draw, "Recall at 1 on held-out data over samples, both ways"),
    )


def says_recall(line: Points) -> str:
    (_, first), (_, last), best = line[0], line[-1], max(line, key=lambda point: point[1])
    found = f"from {percent(first)} to {percent(last)}"
    if last < best[1]:
        found += f"; the best check, {percent(best[1])}, was at {large(best[0])} samples"
    verb = "rose" if last > first else "did not rise: it went"
    return f"Recall on data that was not trained on should keep rising. Here the mean of both ways {verb} {found}."


def _widths(run: Run) -> Figure | None:
    kinds = (("image", figures.FIRST), ("text", figures.SECOND))
    means = {name: points(run.metrics, f"{name}/uncertainty") for name, _ in kinds}
    if not all(means.values()) or not all(value > 0 for line in means.values() for _, value in line):
        return None

    def draw(axes: Any) -> None:
        for name, colour in kinds:
            low, high = (points(run.metrics, f"{name}/uncertainty_{q}") for q in ("q05", "q95"))
            if low and len(low) == len(high):
                axes.fill_between(
                    [x for x, _ in low],
                    [y for _, y in low],
                    [y for _, y in high],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
            axes.plot(*zip(*means[name], strict=True), color=colour, linewidth=1.4, label=f"{name}s")
        axes.set_ylabel("uncertainty, tr Σ (5 to 95 %)")
        axes.set_ylim(bottom=0)
        _finish(axes, run)

    return Figure(
        title="Uncertainty while training",
        says=says_widths(means["image"][-1][1], means["text"][-1][1]),
        svg=panel(draw, "Mean uncertainty of images and of texts over samples, with bands"),
    )


def says_widths(image: float, text: float) -> str:
    hoped = "Texts should end up wider than images, because a caption leaves most of a picture open."
    if text > image:
        return f"{hoped} Here their mean is {text / image:.1f} times that of images at the end."
    return f"{hoped} Here it is the wrong way round: images are {image / text:.1f} times as wide at the end."


def _finish(axes: Any, run: Run) -> None:
    for end in run.stage_ends:
        axes.axvline(end, color=figures.MUTED, linewidth=1.0, linestyle=":")
    axes.set_xlabel("samples")
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: large(value))
    axes.legend(loc="best", fontsize=8)
