"""Figures and sheets of the uncertainty report and of the background evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prolip.console import format_number
from prolip.data.source import Source
from prolip.data.sources.foreground import ForegroundImages
from prolip.evaluation.background import BackgroundResult
from prolip.evaluation.examples import UncertaintyExample
from prolip.evaluation.uncertainty import UncertaintyResult
from prolip.reports import figures, sheets
from prolip.reports.sheets import SheetGroup, SheetItem, read_sample_image


def save_uncertainty_figure(result: UncertaintyResult, out: Path) -> list[Path]:
    """Save one figure with a panel per analysis that the result holds.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    panels: list[Callable[[Any, UncertaintyResult], None]] = [draw_histograms, draw_pairs, draw_lengths]
    panels += [draw_levels] if result.by_level is not None else []
    panels += [draw_truth] if result.ambiguity is not None else []
    panels += [draw_regression]
    columns = 3 if len(panels) > 4 else 2
    rows = math.ceil(len(panels) / columns)
    with figures.figure_style():
        figure = figures.make_figure(11.0, 3.6 * rows)
        grid = figure.add_gridspec(rows, columns)
        for number, draw in enumerate(panels):
            draw(figure.add_subplot(grid[divmod(number, columns)]), result)
        return figures.save_figure(figure, out)


def save_uncertainty_sheets(result: UncertaintyResult, source: Source, folder: Path) -> list[Path]:
    """Save sheets of the most and the least certain samples, of four corners, and of long but uncertain captions.

    A corner holds pairs with an extreme image and text: certain or uncertain, in all four combinations.

    Args:
        result: The result.
        source: The data of the result; its images are read again.
        folder: Folder in which the sheets are written.

    Returns:
        Paths of the PNGs and SVGs.
    """
    extremes = [
        _make_sheet_group("Most uncertain images", result.examples.uncertain_images, source, ("image",)),
        _make_sheet_group("Most certain images", result.examples.certain_images, source, ("image",)),
        _make_sheet_group("Most uncertain captions", result.examples.uncertain_captions, source, ("text",)),
        _make_sheet_group("Most certain captions", result.examples.certain_captions, source, ("text",)),
    ]
    corners = [
        _make_sheet_group(title[0].upper() + title[1:], samples[:6], source, ("csd", "image", "text"))
        for title, samples in result.examples.corners.items()
    ]
    long_captions = [
        (f"{example.text_uncertainty:.4f}", f"{example.caption}  ({_describe_length_and_rank(example)})")
        for example in result.examples.long_uncertain_captions
    ]
    return [
        *sheets.save_image_sheet(folder / "most_and_least_certain", extremes),
        *sheets.save_image_sheet(folder / "corners", corners),
        *sheets.save_caption_sheet(
            folder / "long_uncertain_captions", "Long but uncertain captions", long_captions
        ),
    ]


def save_background_figure(result: BackgroundResult, out: Path) -> list[Path]:
    """Save a figure of uncertainty before and after blanking the background, image by image.

    A second panel shows the fraction of images whose uncertainty rises, also of untrained models.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    with figures.figure_style():
        figure = figures.make_figure(9.0, 4.0)
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1.0))
        _draw_before_after(left, result)
        _draw_fraction_increased(right, result)
        return figures.save_figure(figure, out)


def save_background_sheet(result: BackgroundResult, data: ForegroundImages, out: Path) -> list[Path]:
    """Save a sheet of the images whose uncertainty changes most, each with and without its background.

    Args:
        result: The result.
        data: The data of the result; its images are read again.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG.
    """
    shown = ((data.with_canvas(None), result.before), (data.with_canvas(result.canvas), result.after))
    groups = []
    for title, rows in (("rises", result.largest_increases), ("falls", result.largest_decreases)):
        items = [
            SheetItem(
                image=read_sample_image(source, result.indices[row]),
                notes=(f"uncertainty {uncertainties[row]:.4f}",),
            )
            for row in rows[:3]
            for source, uncertainties in shown
        ]
        groups.append(SheetGroup(title=f"Uncertainty {title} most without the background", items=items))
    return sheets.save_image_sheet(out, groups)


def _make_sheet_group(
    title: str, samples: Sequence[UncertaintyExample], source: Source, note_names: Sequence[str]
) -> SheetGroup:
    """A group of a sheet: the samples with captions and numbers; images are read from the source.

    `note_names` lists the numbers below each image: "image" and "text" (uncertainties), "csd".
    """
    items = []
    for sample in samples:
        notes = {
            "image": f"image {sample.image_uncertainty:.4f}",
            "text": f"text {sample.text_uncertainty:.4f}",
            "csd": f"CSD {sample.csd:.3f}",
        }
        items.append(
            SheetItem(
                image=read_sample_image(source, sample.index),
                caption=sample.caption,
                notes=tuple(notes[name] for name in note_names),
            )
        )
    return SheetGroup(title=title, items=items)


def _describe_length_and_rank(example: UncertaintyExample) -> str:
    """Length and rank in uncertainty of a caption: "31 tokens, above 98.2 % of all captions"."""
    fraction = int(1000 * example.text_rank) / 10  # rounded down: only the most uncertain one is above 100 %
    return f"{example.length} tokens, above {fraction:.1f} % of all captions"


def draw_histograms(axes: Any, result: UncertaintyResult) -> None:
    """Draw histograms of the uncertainty of images and of texts.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    edges = np.exp(result.histogram.edges)  # bins are equal in log uncertainty
    for name, color, counts_of_bins, mean in (
        ("images", figures.BLUE, result.histogram.image, result.image.mean),
        ("texts", figures.ORANGE, result.histogram.text, result.text.mean),
    ):
        counts = np.array(counts_of_bins)
        label = f"{name}, mean {mean:.4g}"
        axes.stairs(counts / counts.sum(), edges, fill=True, alpha=0.35, color=color, label=label)
        axes.stairs(counts / counts.sum(), edges, color=color, linewidth=1.0)
    axes.set_xscale("log")
    _set_log_ticks(axes, float(edges[0]), float(edges[-1]))
    axes.set(title="Images and texts", xlabel="uncertainty tr(Σ)", ylabel="fraction")
    axes.set_ylim(0, min(1.0, 1.28 * axes.get_ylim()[1]))  # space for the legend above the bars
    axes.legend(loc="best")


def _get_dot_style(count: int) -> tuple[float, float]:
    """Area and opacity of the dots of a scatter plot: few are large and solid, many small and faint."""
    return (16.0, 0.6) if count <= 300 else (5.0, 0.3)


def draw_pairs(axes: Any, result: UncertaintyResult) -> None:
    """Draw the uncertainty of each caption against that of its image.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    points = result.points
    size, alpha = _get_dot_style(len(points.text))
    axes.scatter(
        points.image, points.text, s=size, alpha=alpha, color=figures.GREEN, linewidth=0, rasterized=True
    )
    percent = 100 * result.text_above_own_image.value
    axes.set(title=f"Pairs: text above image in {percent:.0f} %", ylabel="text uncertainty")
    axes.set(xlabel="image uncertainty")
    axes.locator_params(axis="x", nbins=5)


def draw_lengths(axes: Any, result: UncertaintyResult) -> None:
    """Draw quantiles of caption uncertainty by length in tokens.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    bins = result.by_length.bins
    middle = [(entry.low + entry.high) / 2 for entry in bins]

    def get_quantiles(name: str) -> list[float]:
        """The quantile of this name, one number per bin of lengths."""
        return [getattr(entry, name) for entry in bins]

    for low, high, alpha, label in (("q05", "q95", 0.15, "5 to 95 %"), ("q25", "q75", 0.3, "25 to 75 %")):
        axes.fill_between(
            middle,
            get_quantiles(low),
            get_quantiles(high),
            color=figures.ORANGE,
            alpha=alpha,
            linewidth=0,
            label=label,
        )
    axes.plot(middle, get_quantiles("median"), color=figures.ORANGE, marker="o", markersize=3, label="median")
    rho = format_number(result.by_length.spearman, ".2f")
    axes.set(title=f"By caption length (ρ {rho})", xlabel="tokens", ylabel="text uncertainty")
    axes.locator_params(axis="x", integer=True)
    lowest, highest = min(get_quantiles("q05")), max(get_quantiles("q95"))
    # space for the legend
    axes.set_ylim(top=highest + 0.4 * (highest - lowest) if highest > lowest else None)
    axes.legend(loc="upper left")


def draw_levels(axes: Any, result: UncertaintyResult) -> None:
    """Draw quantiles of caption uncertainty by level of generality.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    levels = () if result.by_level is None else result.by_level.levels
    for position, entry in enumerate(levels):
        axes.plot([position, position], [entry.q05, entry.q95], color=figures.ORANGE, linewidth=1.2)
        axes.plot([position, position], [entry.q25, entry.q75], color=figures.ORANGE, linewidth=11, alpha=0.4,
                  solid_capstyle="butt")  # fmt: skip
    axes.plot(
        range(len(levels)), [entry.median for entry in levels], "o-", color=figures.ORANGE, linewidth=0.8
    )
    axes.set_xticks(range(len(levels)), [f"{entry.level}\nn = {entry.n:,}" for entry in levels])
    axes.set(title="By level, general to specific", ylabel="text uncertainty")
    axes.margins(x=0.15)


def draw_truth(axes: Any, result: UncertaintyResult) -> None:
    """Draw caption uncertainty against the true log-ambiguity.

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    points = result.points
    with_truth = [
        (ambiguity, uncertainty)
        for ambiguity, uncertainty in zip(points.log_ambiguity or (), points.text, strict=True)
        if ambiguity is not None
    ]
    truth, text = np.array(with_truth).reshape(-1, 2).T
    size, alpha = _get_dot_style(len(text))
    axes.scatter(truth, text, s=size, alpha=alpha, color=figures.GRAY, linewidth=0, rasterized=True)
    middles, medians = _compute_binned_medians(truth, text)
    axes.plot(middles, medians, "o-", color=figures.ORANGE, markersize=4, label="median")
    correlation = None if result.ambiguity is None else result.ambiguity.spearman
    axes.set(
        title=f"Against the truth (ρ {format_number(correlation, '.2f')})",
        ylabel="text uncertainty",
    )
    axes.set(xlabel="true log-ambiguity: specific ← → general")
    axes.legend(loc="best")


def draw_regression(axes: Any, result: UncertaintyResult) -> None:
    """Draw R^2 of each target without and with uncertainty.

    The whisker is the confidence interval of the difference; β is the coefficient of log uncertainty in standard
    deviations (positive: more uncertain where a caption is more ambiguous).

    Args:
        axes: Matplotlib axes to draw on.
        result: The result.
    """
    comparisons = {
        "rank of the\nown image": result.regression.own_image,
        "true\nambiguity": result.regression.ambiguity,
    }
    fits = [
        (title, comparison.fit)
        for title, comparison in comparisons.items()
        if comparison is not None and comparison.fit is not None
    ]
    axes.set(title="What uncertainty adds", ylabel="R² on held-out captions")
    axes.set_xticks(range(len(fits)), [title for title, _ in fits])
    if not fits:
        axes.text(0.5, 0.5, "too few captions", ha="center", transform=axes.transAxes, color=figures.GRAY)
        return
    for position, (_, fit) in enumerate(fits):
        without = fit.r2_without
        axes.bar(
            position - 0.2,
            without,
            0.38,
            color=figures.GRAY,
            label="length and frequency" if position == 0 else None,
        )
        axes.bar(
            position + 0.2,
            fit.r2_with,
            0.38,
            color=figures.ORANGE,
            label="and uncertainty" if position == 0 else None,
        )
        low, high = without + fit.interval.low, without + fit.interval.high
        axes.plot([position + 0.2, position + 0.2], [low, high], color="#444", linewidth=1.2)
        axes.annotate(
            f"β {fit.uncertainty_coefficient:+.2f}",
            (position + 0.2, max(0, high)),
            (0, 3),
            textcoords="offset points",
            ha="center",
        )
    axes.axhline(0, color=figures.GRAY, linewidth=0.8)
    axes.set(xlim=(-0.7, len(fits) - 0.3))
    axes.margins(y=0.05)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.4 * (high - low))  # space for β and the legend above the bars
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= min(high, 1.0)])
    axes.legend(loc="upper left")


def _draw_before_after(axes: Any, result: BackgroundResult) -> None:
    """Draw the uncertainty of each image without its background against that before, and the means."""
    before, after = np.array(result.before), np.array(result.after)
    ends = [min(before.min(), after.min()), max(before.max(), after.max())]
    axes.plot(ends, ends, color=figures.GRAY, linewidth=0.8)
    axes.scatter(before, after, s=10, alpha=0.5, color=figures.BLUE, linewidth=0, rasterized=True)
    mean = result.model
    axes.plot(mean.before, mean.after, "o", color=figures.ORANGE, markersize=7,
              label=f"mean {mean.before:.4f} → {mean.after:.4f}")  # fmt: skip
    axes.set(title="Background removed", xlabel="uncertainty before", ylabel="after")
    axes.set_aspect("equal", adjustable="datalim")
    axes.locator_params(nbins=5)
    axes.legend(loc="upper left")


def _draw_fraction_increased(axes: Any, result: BackgroundResult) -> None:
    """Draw the fraction of images whose uncertainty rises without their background: this model and untrained ones."""
    rows = [("this model", result.model, figures.BLUE)]
    rows += [
        (f"untrained {seed}", comparison, figures.GRAY) for seed, comparison in enumerate(result.untrained)
    ]
    for position, (_, comparison, color) in enumerate(rows):
        fraction = comparison.fraction_increased.value
        axes.barh(position, fraction, 0.6, color=color)
        axes.text(fraction + 0.01, position, f"{100 * fraction:.0f} %", va="center")
    axes.axvline(0.5, color=figures.GRAY, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), [title for title, _, _ in rows])
    axes.invert_yaxis()
    axes.set(title="Fraction that becomes more uncertain", xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1))


def _compute_binned_medians(
    x: np.ndarray, y: np.ndarray, max_bins: int = 10
) -> tuple[list[float], list[float]]:
    """Medians of x and of y in bins by quantiles of x, at most `max_bins`; equal x stay in one bin."""
    edges = np.unique(np.quantile(x, np.linspace(0, 1, max_bins + 1)))
    # the largest x belongs to the last bin; if all x are equal, there is one edge and one bin
    bins = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(0, len(edges) - 2))
    nonempty = np.unique(bins)
    return (
        [float(np.median(x[bins == number])) for number in nonempty],
        [float(np.median(y[bins == number])) for number in nonempty],
    )


def _set_log_ticks(axes: Any, low: float, high: float) -> None:
    """Set ticks of a logarithmic horizontal axis from low to high, labeled with plain numbers."""
    ticks = figures.choose_log_ticks(low, high)
    axes.set_xticks(ticks, [f"{tick:.6g}" for tick in ticks])
    axes.minorticks_off()
