"""The figure of uncertainty against truth: one column per model, captions above, veiled images below.

`python -m reproduction.truth_figure ppcl=FOLDER likelihood=FOLDER` measures models and draws; `--numbers FILE` draws
again from the numbers that the first call saved, without models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from tyro.conf import Positional

from prolip import cli
from prolip.console import format_number
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.correlation import spearman
from prolip.files import atomic_write, read_json
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.reports import figures
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.source import Scenes
from prolip.weights.load import load
from reproduction.ambiguity import correlate_within_groups
from reproduction.evaluation_data import PAIRS_SPLIT, EvaluationData, EvaluationSizes, has_variances
from reproduction.veils import VEILED_SPLIT

LEVELS = ("level 0: always true", "level 1", "level 2", "level 3: specific")
VEILS = ("nothing hidden", "facts hidden", "cells hidden", "both hidden")
"""Kinds of points of the two rows; their numbers are `TextTruth.level` and `ImageTruth.veil`."""
COLORS = (figures.GRAY, figures.GREEN, figures.ORANGE, figures.BLUE)
"""Colors of the kinds of points."""
DIGITS = 5
"""Significant digits of the saved numbers."""
MAX_TICKS = 5
"""Largest number of ticks of uncertainty."""
X_TICKS = (-12, -8, -4, 0)
"""Ticks of the log-ambiguity: the most specific captions of these scenes are at -13 nats."""
X_LABELS = {
    "text": "true log-ambiguity of the caption: specific ← → general",
    "image": "true log-ambiguity of the veiled image: clear ← → hidden",
}
NAME_STYLE = {
    "xycoords": "axes fraction",
    "textcoords": "offset points",
    "fontweight": "bold",
    "fontsize": 11,
}
"""How the name of a model is written above its column."""


@dataclass(frozen=True)
class TextTruth:
    """What is known of T different captions, in columns of length T.

    Attributes:
        log_ambiguity: ln of the probability that a random scene satisfies the caption.
        level: 0 (general) to 3.
        words: Number of words.
    """

    log_ambiguity: tuple[float, ...]
    level: tuple[int, ...]
    words: tuple[int, ...]


@dataclass(frozen=True)
class ImageTruth:
    """What is known of N veiled images, in columns of length N.

    Attributes:
        log_ambiguity: ln of the probability that a random scene looks the same.
        veil: What is hidden, an index of VEILS.
    """

    log_ambiguity: tuple[float, ...]
    veil: tuple[int, ...]


@dataclass(frozen=True)
class ModelUncertainty:
    """What a model says: tr(Sigma) of each caption, (T,), and of each image, (N,)."""

    name: str
    texts: tuple[float, ...]
    images: tuple[float, ...]


@dataclass(frozen=True)
class TruthNumbers:
    """All that the figure shows."""

    texts: TextTruth
    images: ImageTruth
    models: tuple[ModelUncertainty, ...]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TruthNumbers:
        """Build it from the JSON that `write_numbers` writes."""
        return cls(
            TextTruth(**{name: tuple(column) for name, column in content["texts"].items()}),
            ImageTruth(**{name: tuple(column) for name, column in content["images"].items()}),
            tuple(
                ModelUncertainty(model["name"], tuple(model["texts"]), tuple(model["images"]))
                for model in content["models"]
            ),
        )


@dataclass(frozen=True)
class Correlations:
    """Spearman's correlations of one panel, None where a side doesn't vary.

    Attributes:
        overall: Over all points.
        within: Mean over groups of at least 50 points: captions of one length, images behind one kind of veil.
    """

    overall: float | None
    within: float | None


def correlate(uncertainty: Sequence[float], truth: Sequence[float], groups: Sequence[int]) -> Correlations:
    """Correlate the uncertainty of each point with its truth, overall and within groups; all of one length."""
    a, b = (torch.tensor(values, dtype=torch.float64) for values in (uncertainty, truth))
    within = [value for _, value in correlate_within_groups(torch.tensor(groups), a, b)]
    return Correlations(spearman(a, b), sum(within) / len(within) if within else None)


def measure_truth(models: Mapping[str, ProLIP], data: EvaluationData) -> TruthNumbers:
    """Measure models on fresh captions, those of the reproduction's table, and on fresh veiled images.

    Args:
        models: Probabilistic models by the name in the figure.
        data: Sizes and seeds; its folder is not used.

    Returns:
        The numbers of the figure.

    Raises:
        ValueError: If a model has no variances.
    """
    source = data.scenes(PAIRS_SPLIT, data.sizes.scenes)
    drawn = (caption for index in range(len(source)) for caption in source.captions(index))
    captions = list({caption.text: caption for caption in drawn}.values())
    veiled = Scenes(
        data.world, length=data.sizes.scenes, size=data.sizes.size, seed=data.derive_seed(VEILED_SPLIT),
        captions=1, veiled=1.0,
    )  # fmt: skip
    return TruthNumbers(
        TextTruth(
            tuple(round(log_ambiguity(caption.meaning, data.world), 9) for caption in captions),
            tuple(caption.level for caption in captions),
            tuple(len(caption.text.split()) for caption in captions),
        ),
        describe_veiled(veiled),
        tuple(
            measure_uncertainty(name, model, [caption.text for caption in captions], veiled)
            for name, model in models.items()
        ),
    )


def describe_veiled(source: Scenes) -> ImageTruth:
    """What is known of the veiled images of a source."""
    veils = [source.draw_veil(index) for index in range(len(source))]
    return ImageTruth(
        tuple(round(source.image_annotation(index).log_ambiguity, 9) for index in range(len(source))),
        tuple(bool(veil.facts) + 2 * bool(veil.curtains) for veil in veils),
    )


def measure_uncertainty(name: str, model: ProLIP, texts: Sequence[str], images: Scenes) -> ModelUncertainty:
    """Embed texts and images with a model; raises ValueError if it has no variances."""
    embedder = Embedder(model=model.eval(), progress=False)
    embedded = [embedder.embed_texts(list(texts)), embedder.embed_images(images).images]
    if not all(map(has_variances, embedded)):
        raise ValueError(f"{name} is a deterministic model: it has no uncertainty to draw")
    return ModelUncertainty(name, *map(_round_uncertainty, embedded))


def save_truth_figure(numbers: TruthNumbers, out: Path) -> list[Path]:
    """Save the figure: a column per model; uncertainty on a logarithmic axis against the true log-ambiguity.

    Args:
        numbers: What to draw.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    texts, images = numbers.texts, numbers.images
    with figures.figure_style():
        figure = figures.make_figure(1.2 + 2.7 * len(numbers.models), 7.0)
        upper, lower = figure.subfigures(2, 1)
        for column, axes in enumerate(_make_row(upper, len(numbers.models), "text", LEVELS)):
            model = numbers.models[column]
            _draw_panel(axes, texts.log_ambiguity, model.texts, texts.level)
            _write_title(axes, correlate(model.texts, texts.log_ambiguity, texts.words), "within a length")
            axes.annotate(model.name, (0, 1), (0, 22), **NAME_STYLE)
        for column, axes in enumerate(_make_row(lower, len(numbers.models), "image", VEILS)):
            model = numbers.models[column]
            _draw_panel(axes, images.log_ambiguity, model.images, images.veil)
            _write_title(axes, correlate(model.images, images.log_ambiguity, images.veil), "within a veil")
        return figures.save_figure(figure, out)


def _make_row(part: Any, columns: int, modality: str, kinds: Sequence[str]) -> list[Any]:
    """Make the axes of one row, in a part of the figure, with labels and a legend of the kinds of points."""
    row = part.subplots(1, columns, squeeze=False, sharex=True)[0]
    row[0].set_ylabel(f"{modality} uncertainty")
    part.supxlabel(f"{X_LABELS[modality]}, nats", fontsize=9.5)
    handles = [
        row[0].scatter([], [], s=22, color=color, linewidth=0, label=kind)
        for color, kind in zip(COLORS, kinds, strict=True)
    ]
    part.legend(handles=handles, loc="outside upper right", ncols=len(kinds), handletextpad=0.1)
    return list(row)


def _draw_panel(
    axes: Any, truth: Sequence[float], uncertainty: Sequence[float], kinds: Sequence[int]
) -> None:
    """Draw points (N,), colored by kind, the rarer kinds above the others."""
    x, y = torch.tensor(truth), torch.tensor(uncertainty)
    kind = torch.tensor(kinds)
    for number in sorted(range(len(COLORS)), key=lambda number: -int((kind == number).sum())):
        shown = kind == number
        axes.scatter(
            x[shown],
            y[shown],
            s=7,
            alpha=0.35,
            color=COLORS[number],
            linewidth=0,
            rasterized=True,
            clip_on=False,
        )
    low, high = float(y.min()), float(y.max())
    margin = (high / low) ** 0.06
    axes.set(yscale="log", ylim=(low / margin / 1.001, high * margin * 1.001), xticks=X_TICKS)
    ticks = figures.choose_log_ticks(low, high, MAX_TICKS)
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.minorticks_off()


def _write_title(axes: Any, correlations: Correlations, within: str) -> None:
    """Write the correlations above a panel."""
    overall, grouped = (format_number(value, "+.2f") for value in (correlations.overall, correlations.within))
    text = f"ρ {overall}, {within} {grouped}".replace("-", "\N{MINUS SIGN}")
    axes.set_title(text, fontsize=9.5, fontweight="normal")


def _round_uncertainty(z: Gaussian) -> tuple[float, ...]:
    """The uncertainty of each row, with DIGITS significant digits."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in z.uncertainty.tolist())


def write_numbers(numbers: TruthNumbers, path: Path) -> Path:
    """Write the numbers of a figure as JSON, without a line for each; returns the path."""
    text = json.dumps(asdict(numbers), ensure_ascii=False) + "\n"
    return atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_models(assignments: Sequence[str]) -> dict[str, ProLIP]:
    """Load models that are given as NAME=MODEL, a folder or a name of `prolip.load`; raises ValueError if one isn't."""
    models = {}
    for assignment in assignments:
        name, equals, address = assignment.partition("=")
        if not (name and equals and address):
            raise ValueError(f"{assignment!r} is not NAME=FOLDER")
        models[name] = load(address, device="cpu")
    return models


def measure_and_draw(
    models: Positional[tuple[str, ...]] = (),
    out: Path = Path("runs/uncertainty-truth"),
    numbers: Path | None = None,
    scenes: int = EvaluationSizes().scenes,
) -> None:
    """Draw uncertainty against truth for several models; print the paths of the figure and of its numbers.

    Example: python -m reproduction.truth_figure PPCL=runs/a/model likelihood=runs/b/model

    Args:
        models: NAME=FOLDER of each model, in the order of the columns.
        out: The figure, without suffix; the numbers are saved next to it as JSON.
        numbers: Draw again from this JSON file, without models.
        scenes: Number of fresh scenes for captions, and of veiled images.
    """
    if bool(models) == (numbers is not None):
        raise ValueError("give either models as NAME=FOLDER, or --numbers with the file of an earlier figure")
    out = out.expanduser()
    if numbers is not None:
        measured = TruthNumbers.from_json(read_json(numbers.expanduser()))
        print(*save_truth_figure(measured, out), sep="\n")
        return
    data = EvaluationData(out.parent, EvaluationSizes(scenes=scenes))
    measured = measure_truth(read_models(models), data)
    saved = write_numbers(measured, out.with_name(f"{out.name}.json"))
    print(saved, *save_truth_figure(measured, out), sep="\n")


def main(args: list[str] | None = None) -> None:
    """Run `measure_and_draw` with the arguments (None: those of the process)."""
    with cli.reported_errors("reproduction.truth_figure"):
        tyro.cli(measure_and_draw, prog="python -m reproduction.truth_figure", args=args)


if __name__ == "__main__":
    main()
