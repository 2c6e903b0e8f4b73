"""Section on training: losses by term, held-out recall and uncertainty over samples seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prolip.proportions import compute_wilson_interval
from prolip.reports import figures
from prolip.reports.page.components import PageFigure, PageSection
from prolip.reports.page.formatting import REVERSED, format_count, format_percentage, format_ratio
from prolip.reports.page.run import TrainingRun, is_finite
from prolip.reports.page.svg import render_panel
from prolip.training.reference import REFERENCE, measures_accuracy

CONTRASTIVE_TERMS = ("ppcl", "likelihood", "one_sided_images", "one_sided_texts", "siglip", "pml", "clip")
LINE_STYLES: dict[str, tuple[str, str]] = {
    "ppcl": (figures.BLUE, "-"),
    "likelihood": (figures.BLUE, "--"),
    "one_sided_images": (figures.PURPLE, "--"),
    "one_sided_texts": (figures.PURPLE, "-."),
    "siglip": (figures.ORANGE, "-"),
    "pml": (figures.GREEN, "-"),
    "clip": (figures.GRAY, "-"),
    "inclusion": (figures.ORANGE, "-"),
    "nll": (figures.BLUE, ":"),
    "distillation": (figures.ORANGE, "--"),
    "masked_images": (figures.GREEN, "-"),
    "masked_texts": (figures.GREEN, ":"),
    "vib_images": (figures.PURPLE, "-"),
    "vib_texts": (figures.PURPLE, ":"),
}
"""Color and dash of each term of the loss; terms of one kind share a color."""

TERM_LABELS = {
    "ppcl": "PPCL",
    "likelihood": "likelihood",
    "one_sided_images": "one-sided likelihood of images",
    "one_sided_texts": "one-sided likelihood of texts",
    "siglip": "SigLIP",
    "pml": "PML",
    "clip": "CLIP",
    "nll": "NLL of own pairs",
    "distillation": "distillation of widths",
    "inclusion": "image in text",
    "masked_images": "masked images",
    "masked_texts": "masked texts",
    "vib_images": "VIB of images",
    "vib_texts": "VIB of texts",
}
MIN_LOSS = 1e-4
"""Lower end of the logarithmic axis: smaller losses are noise around zero."""

Points = list[tuple[float, float]]
"""(samples, value) of a curve."""


def build_section(run: TrainingRun) -> PageSection | None:
    """Build the section: plots of the metrics of a run.

    Args:
        run: The training run.

    Returns:
        The section; None for a run without metrics.
    """
    figures_with_data = [
        figure
        for figure in (
            _build_contrastive_figure(run),
            _build_recall_figure(run),
            _build_reference_figure(run),
            _build_other_losses_figure(run),
            _build_uncertainty_figure(run),
        )
        if figure is not None
    ]
    if not figures_with_data:
        return None
    ends = [format_count(end) for end in run.stage_ends]
    intro = "The horizontal axis is the number of samples seen."
    if ends:
        intro += f" A dotted line marks the start of a training stage ({', '.join(ends)} samples)."
    return PageSection(id="training", title="Training curves", intro=intro, blocks=figures_with_data)


def get_points(lines: Sequence[Mapping[str, float | None]], key: str) -> Points:
    """Collect the points of a curve. Values that are not finite can't be plotted and are skipped.

    Args:
        lines: Lines of metrics.jsonl.
        key: Name of the metric.

    Returns:
        (samples, value) of each line that has both.
    """
    return [
        (samples, value)
        for line in lines
        if (samples := line.get("samples")) is not None and is_finite(value := line.get(key))
    ]


def _build_contrastive_figure(run: TrainingRun) -> PageFigure | None:
    """Figure of the contrastive losses; None if none was logged."""
    terms = _get_loss_curves(run, CONTRASTIVE_TERMS)
    if not terms:
        return None

    def draw(axes: Any) -> None:
        """Draw the losses on linear axes from 0."""
        _draw_loss_curves(axes, terms)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("loss")
        _finish_axes(axes, run)

    return PageFigure(
        title="Contrastive loss",
        description=describe_contrastive(terms),
        svg=render_panel(draw, f"Lines of {', '.join(terms)} over samples"),
    )


def describe_contrastive(terms: Mapping[str, Points]) -> str:
    """Describe how the contrastive losses changed.

    Args:
        terms: (samples, loss) by term of the loss.

    Returns:
        The expectation and what was measured.
    """
    clauses = []
    for name, points in terms.items():
        first, last = points[0][1], points[-1][1]
        verb = "fell" if last < first else "did not fall: it changed"
        clauses.append(f"{TERM_LABELS.get(name, name)} {verb} from {first:.3g} to {last:.3g}")
    listed = " and ".join(filter(None, (", ".join(clauses[:-1]), clauses[-1])))
    return f"The contrastive loss should fall and level off. Here {listed}."


def _build_other_losses_figure(run: TrainingRun) -> PageFigure | None:
    """Figure of inclusion losses and regularizers on a logarithmic axis; None if none was logged."""
    terms = _get_loss_curves(run, [name for name in LINE_STYLES if name not in CONTRASTIVE_TERMS])
    if not terms:
        return None

    def draw(axes: Any) -> None:
        """Draw the losses on a logarithmic axis, with the legend above the lines."""
        _draw_loss_curves(axes, terms)
        axes.set_yscale("log")
        axes.set_ylim(MIN_LOSS, 50 * axes.get_ylim()[1])  # room for the legend
        axes.set_ylabel("loss, before its weight")
        _finish_axes(axes, run)
        axes.legend(loc="upper right", fontsize=8, ncols=2)

    return PageFigure(
        title="Inclusion and regularization",
        description=describe_other_losses(terms),
        svg=render_panel(draw, f"Lines of {', '.join(terms)} over samples, logarithmic"),
    )


def describe_other_losses(terms: Mapping[str, Points]) -> str:
    """Describe the last values of the inclusion losses.

    Args:
        terms: (samples, loss) by term of the loss.

    Returns:
        The expectation and what was measured.
    """
    expected = (
        "The inclusion terms should approach 0: a text, or a masked input, then includes the complete one."
    )
    inclusion_ends = [
        f"{TERM_LABELS.get(name, name)} {_format_loss(points[-1][1])}"
        for name, points in terms.items()
        if "vib" not in name  # a regularizer, of which nothing is expected
    ]
    return f"{expected} Here they end at: {', '.join(inclusion_ends)}." if inclusion_ends else expected


def _format_loss(value: float) -> str:
    """A loss with two digits; one below the axis is only called that."""
    return f"below {MIN_LOSS:g}" if value < MIN_LOSS else f"{value:.2g}"


def _get_loss_curves(run: TrainingRun, names: Iterable[str]) -> dict[str, Points]:
    """Curves of the terms of the loss that were logged, by name; values up to 0 have no place on a logarithmic axis."""
    curves = {name: [(x, y) for x, y in get_points(run.metrics, f"loss/{name}") if y > 0] for name in names}
    return {name: points for name, points in curves.items() if points}


def _draw_loss_curves(axes: Any, terms: Mapping[str, Points]) -> None:
    """Draw a line per term of the loss; `terms` has the points by name."""
    for name, points in terms.items():
        color, dash = LINE_STYLES[name]
        marker = "o" if len(points) == 1 else ""  # one point makes no line
        axes.plot(
            *zip(*points, strict=True),
            linestyle=dash,
            marker=marker,
            color=color,
            linewidth=1.4,
            label=TERM_LABELS.get(name, name),
        )


def _build_recall_figure(run: TrainingRun) -> PageFigure | None:
    """Figure of held-out recall@1 in both directions; None without held-out data."""
    directions = {
        "image → text": (get_points(run.metrics, "held_out/image_to_text_r1"), figures.BLUE),
        "text → image": (get_points(run.metrics, "held_out/text_to_image_r1"), figures.ORANGE),
    }
    lines = {name: (points, color) for name, (points, color) in directions.items() if points}
    mean = get_points(run.metrics, "held_out/r1")
    if not mean:
        return None

    def draw(axes: Any) -> None:
        """Draw recall@1 in percent, one line per direction."""
        for name, (points, color) in lines.items():
            _draw_percentages(axes, points, color, name)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("R@1, %")
        _finish_axes(axes, run)

    return PageFigure(
        title="Held-out retrieval",
        description=f"{describe_recall(mean)}{describe_last_recalls(run.metrics)}",
        svg=render_panel(draw, "Recall at 1 on held-out data over samples, both directions"),
    )


def _build_reference_figure(run: TrainingRun) -> PageFigure | None:
    """Figure of the reference, on which the start was good; None for a run without one."""
    points = get_points(run.metrics, REFERENCE)
    if not points:
        return None
    label = "accuracy" if measures_accuracy(run.config.held_out) else "R@1"

    def draw(axes: Any) -> None:
        """Draw recall@1 or accuracy in percent."""
        _draw_percentages(axes, points, figures.BLUE, label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{label}, %")
        _finish_axes(axes, run)

    return PageFigure(
        title="What the start was good at",
        description=describe_reference(points, label, run.config.held_out.max_reference_drop),
        svg=render_panel(draw, f"{label} on the reference over samples"),
    )


def describe_reference(points: Points, label: str, max_drop: float) -> str:
    """Describe how much of what the start was good at was kept.

    Args:
        points: (samples, value) on the reference.
        label: Name of the metric.
        max_drop: A larger drop counts as a loss.

    Returns:
        The expectation and what was measured.
    """
    (_, first), (_, last) = points[0], points[-1]
    verdict = "Ability was lost" if first - last > max_drop else "Nothing was lost"
    return (
        f"{label} on the reference (held_out.reference), which the start ranks well, should not fall by more than "
        f"{format_percentage(max_drop)}. {verdict}: it went from "
        f"{format_percentage(first)} to {format_percentage(last)}."
    )


def _draw_percentages(axes: Any, points: Points, color: str, label: str) -> None:
    """Draw fractions over samples as a line with markers, in percent."""
    samples, values = zip(*points, strict=True)
    percentages = [100 * value for value in values]
    axes.plot(samples, percentages, "o-", color=color, markersize=3.5, linewidth=1.4, label=label)


def describe_recall(points: Points) -> str:
    """Describe how held-out recall changed.

    Args:
        points: (samples, mean R@1 of both directions).

    Returns:
        The expectation and what was measured.
    """
    (_, first), (_, last), best = points[0], points[-1], max(points, key=lambda point: point[1])
    change = f"from {format_percentage(first)} to {format_percentage(last)}"
    if last < best[1]:
        change += f"; the best value, {format_percentage(best[1])}, was at {format_count(best[0])} samples"
    verb = "rose" if last > first else "did not rise: it changed"
    return (
        f"Recall on held-out data should keep rising. Here the mean of both directions {verb} {change}. "
        "These are the pairs held out in training, and an item with an equal caption counts as a match; the number at "
        "the top of the page is of the evaluation data, and only an item's own counts."
    )


def describe_last_recalls(lines: Sequence[Mapping[str, float | None]]) -> str:
    """Describe the last recall of each direction, with its Wilson interval and the number of samples.

    Args:
        lines: Lines of metrics.jsonl.

    Returns:
        A sentence, after a space; "" if the number of samples was not logged.
    """
    texts = []
    for title, name in (("image to text", "image_to_text_r1"), ("text to image", "text_to_image_r1")):
        recalls, counts = (get_points(lines, f"held_out/{key}") for key in (name, "n"))
        if not recalls or not counts:
            return ""
        low, high = compute_wilson_interval(recalls[-1][1], round(counts[-1][1]))
        interval = f"{format_percentage(low)} to {format_percentage(high)}"
        texts.append(f"{format_percentage(recalls[-1][1])} {title} (95 % interval {interval})")
    return f" The last: {', '.join(texts)}; n = {counts[-1][1]:,.0f} samples."


def _build_uncertainty_figure(run: TrainingRun) -> PageFigure | None:
    """Figure of mean uncertainty of images and texts, with bands from 5 to 95 %; None if it was not logged or is 0."""
    modalities = (("image", figures.BLUE), ("text", figures.ORANGE))
    means = {name: get_points(run.metrics, f"{name}/uncertainty") for name, _ in modalities}
    if not all(means.values()) or not all(value > 0 for points in means.values() for _, value in points):
        return None

    def draw(axes: Any) -> None:
        """Draw the means as lines over their bands, for images and for texts."""
        for name, color in modalities:
            low, high = (get_points(run.metrics, f"{name}/uncertainty_{q}") for q in ("q05", "q95"))
            if low and len(low) == len(high):
                axes.fill_between(
                    [x for x, _ in low],
                    [y for _, y in low],
                    [y for _, y in high],
                    color=color,
                    alpha=0.15,
                    linewidth=0,
                )
            marker = "o" if len(means[name]) == 1 else ""
            axes.plot(
                *zip(*means[name], strict=True), color=color, linewidth=1.4, marker=marker, label=f"{name}s"
            )
        axes.set_ylabel("uncertainty, tr Σ (5 to 95 %)")
        axes.set_ylim(bottom=0)
        _finish_axes(axes, run)

    return PageFigure(
        title="Uncertainty while training",
        description=describe_uncertainty(means["image"][-1][1], means["text"][-1][1]),
        svg=render_panel(draw, "Mean uncertainty of images and of texts over samples, with bands"),
    )


def describe_uncertainty(image: float, text: float) -> str:
    """Compare the mean uncertainty of texts and images at the end of training.

    Args:
        image: Mean tr(Sigma) of images.
        text: Mean tr(Sigma) of texts.

    Returns:
        The expectation and what was measured.
    """
    expected = (
        "Texts should end up more uncertain than images, because a caption describes only part of an image."
    )
    if text > image:
        return f"{expected} Here their mean is {format_ratio(text / image)} times that of images at the end."
    ratio = format_ratio(image / text)
    return f"{expected} Here it is {REVERSED}: the mean of images is {ratio} times that of texts at the end."


def _finish_axes(axes: Any, run: TrainingRun) -> None:
    """Mark the ends of training stages, label the axis of samples and add the legend."""
    for end in run.stage_ends:
        axes.axvline(end, color=figures.GRAY, linewidth=1.0, linestyle=":")
    axes.set_xlabel("samples")
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: format_count(value))
    axes.legend(loc="best", fontsize=8)
