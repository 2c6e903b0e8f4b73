"""Sections on uncertainty: what it correlates with, and the most and the least certain samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from prolip.choices import Modality
from prolip.data.source import Source
from prolip.evaluation.caption_correlations import AmbiguityCorrelations, make_correlation_table
from prolip.evaluation.examples import UncertaintyExample
from prolip.evaluation.regression import RegressionFit, Regressions
from prolip.evaluation.result import Proportion
from prolip.evaluation.uncertainty import UncertaintyByLevel, UncertaintyResult
from prolip.reports import uncertainty as plots
from prolip.reports.page.components import (
    Gallery,
    GalleryItem,
    PageBlock,
    PageFigure,
    PageSection,
    convert_table,
)
from prolip.reports.page.formatting import (
    MIN_MARGIN,
    MIN_TREND,
    NOT_LEARNED,
    REVERSED,
    describe_trend,
    describe_untrained,
    drop_none,
    format_correlation,
    format_percentage,
    format_ratio,
)
from prolip.reports.page.html import embed_image
from prolip.reports.page.results import HeadlineMetrics
from prolip.reports.page.svg import render_panel
from prolip.reports.sheets import read_sample_image

SAME_SIZE = 0.01
"""Mean uncertainties that differ by less than this fraction count as equal."""


def build_section(result: UncertaintyResult, untrained: Sequence[HeadlineMetrics] = ()) -> PageSection:
    """Build the section on what uncertainty correlates with: modality, caption length, level, true ambiguity.

    Args:
        result: The result.
        untrained: Headline numbers of untrained models.

    Returns:
        The section.
    """
    untrained_above = drop_none(metrics.text_above for metrics in untrained)
    untrained_length = drop_none(metrics.length for metrics in untrained)
    # title, draw function, description, kind of plot for the alternative text
    panels = [
        (
            "Images and texts",
            plots.draw_histograms,
            describe_modalities(result.image.mean, result.text.mean),
            "Histograms",
        ),
        (
            "Each caption and its image",
            plots.draw_pairs,
            describe_pairs(result.text_above_own_image, untrained_above),
            "Scatter plot",
        ),
        (
            "By caption length",
            plots.draw_lengths,
            describe_length(result.by_length.spearman, untrained_length),
            "Quantiles by tokens",
        ),
    ]
    if result.by_level is not None:
        text = describe_levels(result.by_level, drop_none(metrics.level for metrics in untrained))
        panels.append(("By level of detail", plots.draw_levels, text, "Quantiles by level"))
    if result.ambiguity is not None:
        text = describe_truth(result.ambiguity, drop_none(metrics.truth for metrics in untrained))
        panels.append(("Against the true ambiguity", plots.draw_truth, text, "Scatter plot"))
    if text := describe_regression(result.regression):
        panels.append(("What uncertainty adds to a regression", plots.draw_regression, text, "Bars of R²"))
    figures = [
        PageFigure(
            title=title,
            description=description,
            svg=render_panel(partial(draw, result=result), f"{kind}: {title.lower()}"),
        )
        for title, draw, description, kind in panels
    ]
    blocks: list[PageBlock] = [*figures]
    if result.controls is not None:
        blocks.append(convert_table(make_correlation_table(result.controls)))
    intro = f"Images: {result.n:,}; captions: {result.num_captions:,}. Uncertainty is the trace of Σ."
    return PageSection(id="uncertainty", title="Uncertainty", intro=intro, blocks=blocks)


def build_extremes_section(result: UncertaintyResult, source: Source) -> PageSection:
    """Build the section with galleries of the most and the least certain images and captions.

    Args:
        result: The result.
        source: The data of the result; images are read from it.

    Returns:
        The section.
    """
    examples = result.examples
    # title, samples, modality whose uncertainty is shown
    gallery_specs: tuple[tuple[str, Sequence[UncertaintyExample], Modality], ...] = (
        ("Most certain images", examples.certain_images, "image"),
        ("Most uncertain images", examples.uncertain_images, "image"),
        ("Most certain captions", examples.certain_captions, "text"),
        ("Most uncertain captions", examples.uncertain_captions, "text"),
    )
    galleries = [
        Gallery(
            title=title,
            description=_describe_range(modality, samples),
            items=tuple(_build_item(sample, source, modality) for sample in samples),
        )
        for title, samples, modality in gallery_specs
    ]
    intro = (
        "An uncertain image matches many captions about equally well; an uncertain caption matches many images. "
        "The number is the uncertainty tr(Σ). A caption is shown with its own image."
    )
    return PageSection(id="extremes", title="Most and least certain samples", intro=intro, blocks=galleries)


def _get_uncertainty(sample: UncertaintyExample, modality: Modality) -> float:
    """Uncertainty of the image or of the caption of a sample."""
    return sample.image_uncertainty if modality == "image" else sample.text_uncertainty


def _describe_range(modality: Modality, samples: Sequence[UncertaintyExample]) -> str:
    """A sentence on the uncertainty of the first and of the last sample of a gallery."""
    first, last = (_get_uncertainty(sample, modality) for sample in (samples[0], samples[-1]))
    return f"From {first:#.4g} to {last:#.4g}."


def _build_item(sample: UncertaintyExample, source: Source, modality: Modality) -> GalleryItem:
    """Read the image of a sample; its gallery item shows the uncertainty of that modality (image or text)."""
    return GalleryItem(
        image=embed_image(read_sample_image(source, sample.index), f"image of: {sample.caption}"),
        captions=(sample.caption,),
        notes=(f"{_get_uncertainty(sample, modality):#.4g}",),
    )


def describe_modalities(image: float, text: float) -> str:
    """Compare the mean uncertainty of texts and images.

    Args:
        image: Mean uncertainty of images.
        text: Mean uncertainty of texts.

    Returns:
        The expectation and what was measured.
    """
    expected = "Texts should be more uncertain than images."
    if abs(text / image - 1) < SAME_SIZE:
        return (
            f"{expected} Here both are equally uncertain: the mean of texts is {format_ratio(text / image)} times that "
            "of images."
        )
    if text > image:
        return f"{expected} Here their mean uncertainty is {format_ratio(text / image)} times that of images."
    return f"{expected} Here it is {REVERSED}: the mean of images is {format_ratio(image / text)} times that of texts."


def describe_pairs(above: Proportion, untrained: Sequence[float] = ()) -> str:
    """Describe for how many captions the uncertainty is above that of their image.

    Args:
        above: Fraction of captions that are more uncertain than their image.
        untrained: The same fraction for untrained models.

    Returns:
        The expectation and what was measured.
    """
    expected = "A caption should be more uncertain than its image."
    fraction = above.value
    text = f"{expected} This holds for {format_percentage(fraction)} of captions"
    if above.low < 0.5 < above.high:
        return f"{text}: as many as by chance."
    if fraction < 0.5:
        return f"{text}: {REVERSED}."
    is_close = (
        bool(untrained) and max(untrained) > fraction - MIN_MARGIN
    )  # an untrained model does nearly as well
    return f"{text}{describe_untrained(untrained, format_percentage)}.{f' {NOT_LEARNED}' if is_close else ''}"


def describe_length(spearman: float | None, untrained: Sequence[float] = ()) -> str:
    """Describe how uncertainty depends on the length of a caption.

    Args:
        spearman: Correlation of uncertainty and length; None: undefined.
        untrained: The same correlation for untrained models.

    Returns:
        The expectation and what was measured.
    """
    expected = "A longer caption is more specific, so uncertainty should fall with length:"
    return f"{expected} here {describe_trend(spearman, -1)}{_compare_trend(spearman, untrained, -1)}"


def describe_levels(by_level: UncertaintyByLevel, untrained: Sequence[float] = ()) -> str:
    """Describe which adjacent levels of generality are in order, by their medians.

    Args:
        by_level: `by_level` of the result.
        untrained: The correlation with the level for untrained models.

    Returns:
        The expectation and what was measured.
    """
    levels = by_level.levels
    expected = "Level 0 is the most general; from level to level the median should fall."
    if len(levels) < 2:
        return f"{expected} There is only one level."
    rising_steps = [
        f"{after.level} above {before.level}"
        for before, after in pairwise(levels)
        if after.median >= before.median
    ]
    rho = by_level.spearman
    end = f"; ρ {format_correlation(rho)}{_compare_trend(rho, untrained, -1)}"
    if not rising_steps:
        return f"{expected} Here it falls at every step{end}"
    extent = f"every step, {REVERSED}" if len(rising_steps) == len(levels) - 1 else "some steps"
    return f"{expected} Here it doesn't fall at {extent}: level {', '.join(rising_steps)}{end}"


def describe_truth(truth: AmbiguityCorrelations, untrained: Sequence[float] = ()) -> str:
    """Describe how uncertainty depends on the true ambiguity of a caption.

    Args:
        truth: `ambiguity` of the result.
        untrained: The same correlation for untrained models.

    Returns:
        The expectation and what was measured.
    """
    expected = "The ambiguity of each caption is known exactly, and uncertainty should rise with it:"
    within = truth.mean_within_length
    at_equal_length = (
        ""
        if within is None
        else f"; among captions of equal length, ρ is {format_correlation(within)} on average"
    )
    rho = truth.spearman
    return f"{expected} here {describe_trend(rho, 1)}{at_equal_length}{_compare_trend(rho, untrained, 1)}"


def _compare_trend(value: float | None, untrained: Sequence[float], expected_sign: int) -> str:
    """End a sentence on a correlation with that of untrained models; say so if one of them nearly reaches it."""
    is_close = (
        value is not None
        and expected_sign * value >= MIN_TREND
        and any(expected_sign * other > expected_sign * value - MIN_MARGIN for other in untrained)
    )
    return f"{describe_untrained(untrained, format_correlation)}.{f' {NOT_LEARNED}' if is_close else ''}"


def describe_regression(regressions: Regressions) -> str:
    """Describe what uncertainty adds to the regressions.

    Args:
        regressions: `regression` of the result.

    Returns:
        The expectation and what was measured; empty if no regression could be fitted.
    """
    comparisons = {
        "the rank of a caption's own image": regressions.own_image,
        "the true ambiguity": regressions.ambiguity,
    }
    fits = {
        name: comparison.fit
        for name, comparison in comparisons.items()
        if comparison is not None and comparison.fit is not None
    }
    if not fits:
        return ""
    gains = [f"{_format_gain(fit)} for {name}" for name, fit in fits.items()]
    reversed_names = [
        name for name, fit in fits.items() if _is_significant(fit) and fit.uncertainty_coefficient < 0
    ]
    text = (
        "Uncertainty should predict the ambiguity of a caption beyond its length and word frequency. "
        f"It adds to R²: {' and '.join(gains)}"
    )
    return (
        f"{text}; its coefficient (β) is negative for {' and '.join(reversed_names)}: {REVERSED}."
        if reversed_names
        else f"{text}."
    )


def _format_gain(fit: RegressionFit) -> str:
    """The gain in R² of a regression, marked if it is not significant."""
    gain = format_correlation(fit.difference)
    return gain if _is_significant(fit) else f"{gain} (not significant)"


def _is_significant(fit: RegressionFit) -> bool:
    """Whether the confidence interval of the gain lies above 0."""
    return fit.interval.low > 0
