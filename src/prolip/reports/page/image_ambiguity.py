"""Section on images of known ambiguity: does image uncertainty rise with what an image hides?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from prolip.data.image_annotations import parse_image_annotation
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.sample_metadata import collect_metadata
from prolip.evaluation.image_ambiguity_result import (
    PERPLEXITY,
    SOFTMAX,
    UNCERTAINTY,
    ImageAmbiguityResult,
    SequenceMetrics,
)
from prolip.reports import image_ambiguity as plots
from prolip.reports.page.components import Gallery, GalleryItem, PageFigure, PageSection
from prolip.reports.page.formatting import drop_none, format_correlation, format_percentage, format_range
from prolip.reports.page.html import embed_image
from prolip.reports.page.svg import render_panel
from prolip.reports.sheets import read_sample_image

NUM_EXAMPLES = 6
"""Images of the gallery."""


def build_section(result: ImageAmbiguityResult, data: LabeledData | None) -> PageSection:
    """Build the section: uncertainty against the truth, wrong answers, images that are hidden step by step.

    Args:
        result: The result; of a model with uncertainty.
        data: The images of the result; None: no examples are shown.

    Returns:
        The section.
    """
    figures = [
        PageFigure(
            title="Image uncertainty and true ambiguity",
            description=describe_correlation(result),
            svg=render_panel(
                partial(
                    plots.draw_points,
                    result=result,
                    score=UNCERTAINTY,
                    values=result.points.uncertainty or (),
                ),
                f"Uncertainty of {result.n} images against their true log-ambiguity",
            ),
        ),
        *_build_error_figures(result),
        *(_build_sequence_figure(sequence) for sequence in result.sequences),
    ]
    intro = (
        f"{result.n:,} images, each of which hides known facts of its scene: colors, shapes, sizes, positions, or "
        "cells behind curtains. The true ambiguity of an image is the probability that a random scene looks the same. "
        "A model that knows what it doesn't see is the more uncertain, the higher it is."
    )
    return PageSection(
        id="image-ambiguity",
        title="Images that hide something",
        intro=intro,
        blocks=[*_build_examples(data), *figures],
    )


def describe_correlation(result: ImageAmbiguityResult) -> str:
    """Say how well uncertainty and its rivals go with the truth.

    Args:
        result: The result.

    Returns:
        One or two sentences.
    """
    own, rival = result.score(UNCERTAINTY), result.score(PERPLEXITY)
    untrained = drop_none(score.spearman for score in result.scores if score.name.startswith("untrained"))
    others = [] if rival is None else [f"the pool perplexity has {format_correlation(rival.spearman)}"]
    others += [f"untrained models have {format_range(untrained, format_correlation)}"] if untrained else []
    text = f"Rank correlation: {format_correlation(None if own is None else own.spearman)}"
    if own is not None and own.mean_within_veil is not None:
        text += f", on average {format_correlation(own.mean_within_veil)} within one veil"
    return f"{text}." + (f" For comparison, {'; '.join(others)}." if others else "")


def _build_error_figures(result: ImageAmbiguityResult) -> Iterator[PageFigure]:
    """The figure of wrong answers, if images were classified."""
    own, softmax = result.score(UNCERTAINTY), result.score(SOFTMAX)
    if result.accuracy is None or own is None or own.errors is None:
        return
    text = f"Accuracy {format_percentage(result.accuracy.value)}. AUROC of uncertainty for wrong answers: "
    text += "undefined" if own.errors.auroc is None else f"{own.errors.auroc:.2f}"
    if softmax is not None and softmax.errors is not None and softmax.errors.auroc is not None:
        text += f"; of a small largest softmax probability: {softmax.errors.auroc:.2f}"
    yield PageFigure(
        title="Wrong answers",
        description=f"{text}.",
        svg=render_panel(partial(plots.draw_errors, result=result), "AUROC of each score for wrong answers"),
    )


def _build_sequence_figure(sequence: SequenceMetrics) -> PageFigure:
    """The figure of a sequence of images that hide more and more."""
    shares = [
        format_percentage(step.rises.uncertainty.value)
        for step in sequence.steps
        if step.rises is not None and step.rises.uncertainty is not None
    ]
    return PageFigure(
        title=f"Hidden step by step: {sequence.name}",
        description=f"Images whose uncertainty rises at each step: {', '.join(shares)}.",
        svg=render_panel(
            partial(plots.draw_sequence, sequence=sequence),
            f"Mean uncertainty by step of the sequence {sequence.name}",
        ),
    )


def _build_examples(data: LabeledData | None) -> Iterator[Gallery]:
    """Build a gallery of the first images behind random veils, with what they hide and their ambiguity."""
    if data is None:
        return
    items: list[GalleryItem] = []
    for index in range(len(data.source)):
        annotation = parse_image_annotation(collect_metadata(data.source.read(index)).extra)
        if annotation is None or annotation.step is not None:
            continue
        name = f"hidden: {annotation.veil}"
        items.append(
            GalleryItem(
                image=embed_image(read_sample_image(data.source, index), name),
                notes=(name, f"log-ambiguity {f'{annotation.log_ambiguity:.1f}'.replace('-', '−')}"),
            )
        )
        if len(items) == NUM_EXAMPLES:
            break
    if items:
        yield Gallery(title="Examples", items=tuple(items))
