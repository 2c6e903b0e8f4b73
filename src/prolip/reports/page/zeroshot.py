"""Section on zero-shot classification: accuracy, calibration, confident errors, prompt weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from prolip.data.sources.labeled import LabeledData
from prolip.evaluation.metrics.confidence import Confidence
from prolip.evaluation.prompts import PromptsResult
from prolip.evaluation.strategies import StrategyFamily, TemplateWeight
from prolip.evaluation.zeroshot_result import SelectiveMetrics, ZeroShotResult
from prolip.reports import zeroshot as plots
from prolip.reports.page.components import (
    Card,
    CardGrid,
    CardLine,
    Gallery,
    GalleryItem,
    PageBlock,
    PageFigure,
    PageSection,
    TableBlock,
)
from prolip.reports.page.formatting import (
    MIN_TREND,
    REVERSED,
    describe_untrained,
    drop_none,
    format_correlation,
    format_percentage,
)
from prolip.reports.page.html import embed_image
from prolip.reports.page.results import HeadlineMetrics
from prolip.reports.page.svg import render_panel
from prolip.reports.sheets import read_sample_image

MAX_ERRORS = 6
"""Wrong predictions that are shown."""
MAX_CLASSES = 8
"""Classes whose prompt weights are shown."""
MAX_PROMPTS = 4
"""Prompts per class."""
FAMILIES: tuple[StrategyFamily, ...] = ("one", "ensemble", "bprw", "control")
"""Families of prompt strategies that the table shows."""


def build_section(
    result: ZeroShotResult,
    data: LabeledData | None,
    prompts: PromptsResult | None,
    prompt_data: LabeledData | None,
    untrained: Sequence[HeadlineMetrics],
) -> PageSection:
    """Build the section: accuracy, calibration, the most confident errors, prompt strategies.

    Args:
        result: Result of zero-shot classification.
        data: Labeled images that it was evaluated on; None: the errors are shown without their images.
        prompts: Comparison of prompt strategies; None: not evaluated.
        prompt_data: Labeled images of that result.
        untrained: Headline numbers of untrained models.

    Returns:
        The section.
    """
    blocks: list[PageBlock] = [*_build_confidence_figures(result)]
    if result.most_confident_errors:
        blocks.append(_build_errors_block(result, data))
    if prompts is not None:
        blocks.append(_build_strategies_table(prompts))
        if prompts.learned and prompts.learned[-1].sort_classes():
            blocks.append(_build_weights_cards(prompts, prompt_data))
    return PageSection(
        id="zeroshot",
        title="Zero-shot classification",
        intro=describe_accuracy(result, drop_none(metrics.zero_shot for metrics in untrained)),
        blocks=blocks,
    )


def describe_accuracy(result: ZeroShotResult, untrained: Sequence[float]) -> str:
    """Compare the accuracy with chance and with untrained models.

    Args:
        result: Result of zero-shot classification.
        untrained: Top-1 accuracy of untrained models.

    Returns:
        What was measured.
    """
    chance = 1 / result.num_classes
    top5 = "" if result.top5 is None else f" ({format_percentage(result.top5.value)} in the top 5)"
    text = (
        f"{format_percentage(result.top1.value)} of {result.n:,} images are assigned "
        f"to the right one of {result.num_classes:,} classes"
        f"{top5}; chance is {format_percentage(chance)}"
    )
    text += describe_untrained(untrained, format_percentage)
    is_worse = result.top1.value <= max([chance, *untrained])
    return f"{text}. This is no better than an untrained model or chance." if is_worse else f"{text}."


def _build_confidence_figures(result: ZeroShotResult) -> list[PageFigure]:
    """Figures of risk and coverage and, if the result has them, of reliability and of accuracy by uncertainty."""
    figures = []
    if calibration := result.calibration:
        softmax = {"raw": calibration.softmax.raw.metrics, "fitted": calibration.softmax.fitted.metrics}
        figures.append(
            PageFigure(
                title="Reliability",
                description=describe_reliability(softmax["raw"].ece, softmax["fitted"].ece),
                svg=render_panel(
                    partial(plots.draw_reliability, title="", curves=softmax), "Accuracy by probability"
                ),
            )
        )
    selective, labels = result.selective, result.confidence_labels()
    figures.append(
        PageFigure(
            title="Risk and coverage",
            description=describe_risk(selective, labels),
            svg=render_panel(
                partial(plots.draw_risk, selective=selective, labels=labels), "Error rate by coverage"
            ),
        )
    )
    if uncertainty := result.uncertainty:
        figures.append(
            PageFigure(
                title="Accuracy by image uncertainty",
                description=describe_deciles(uncertainty.correlation.spearman),
                svg=render_panel(
                    partial(plots.draw_deciles, uncertainty=uncertainty), "Accuracy by decile of uncertainty"
                ),
            )
        )
    return figures


def describe_reliability(raw: float, fitted: float) -> str:
    """Describe the calibration of the softmax probabilities.

    Args:
        raw: Expected calibration error with the model's own temperature.
        fitted: Expected calibration error with a fitted temperature.

    Returns:
        The expectation and what was measured.
    """
    expected = "On the dashed line the probability equals the accuracy."
    verb = "helps" if fitted < raw else "does not help"
    return (
        f"{expected} The expected calibration error is {raw:.3f}. A fitted temperature {verb}: {fitted:.3f}."
    )


def describe_risk(selective: SelectiveMetrics, labels: Mapping[Confidence, str]) -> str:
    """Describe which confidence ranks predictions best, and whether uncertainty ranks them better than chance.

    Args:
        selective: The metrics of each confidence.
        labels: Label of each confidence.

    Returns:
        The expectation and what was measured.
    """
    aurc = {label: metrics.aurc for key, label in labels.items() if (metrics := selective.get(key))}
    best = min(aurc, key=lambda label: aurc[label])
    text = (
        "Predicting only where the model is confident should lower the error rate. "
        f"Here {best} ranks predictions best (AURC {aurc[best]:.3f}; at random {selective.error:.3f})"
    )
    if selective.error == 0:
        return "Predicting only where the model is confident should lower the error rate. Here no prediction is wrong."
    by_uncertainty = selective.uncertainty
    if by_uncertainty is not None and by_uncertainty.aurc >= selective.error:
        return f"{text}; image uncertainty is no better than chance ({by_uncertainty.aurc:.3f})."
    return f"{text}."


def describe_deciles(rho: float | None) -> str:
    """Describe how accuracy depends on image uncertainty.

    Args:
        rho: Spearman correlation of an image's uncertainty and whether it is classified correctly; None: undefined.

    Returns:
        The expectation and what was measured.
    """
    expected = "Uncertain images should be misclassified more often: accuracy should fall to the right."
    if rho is None or abs(rho) < MIN_TREND:
        return f"{expected} Here there is no clear trend (ρ {format_correlation(rho)})."
    return f"{expected} Here it {'falls' if rho < 0 else f'rises, {REVERSED}'} (ρ {format_correlation(rho)})."


def _build_errors_block(result: ZeroShotResult, data: LabeledData | None) -> PageBlock:
    """Gallery of the wrong predictions with the highest confidence, with images of the data; without data a table."""
    title, errors = "Most confident errors", result.most_confident_errors[:MAX_ERRORS]
    if data is None:
        return TableBlock(
            title=title,
            description="The wrong predictions with the highest calibrated confidence.",
            headings=("sample", "true class", "predicted class", "confidence"),
            rows=tuple((e.key, e.true_class, e.predicted_class, f"{e.confidence:.2f}") for e in errors),
        )
    items = tuple(
        GalleryItem(
            image=embed_image(
                read_sample_image(data.source, error.index), f"an image of class {error.true_class}"
            ),
            captions=(f"predicted {error.predicted_class}, true {error.true_class}",),
            notes=(f"confidence {error.confidence:.2f}",),
        )
        for error in errors
    )
    return Gallery(title=title, items=items)


def _build_strategies_table(prompts: PromptsResult) -> TableBlock:
    """Table of the strategies of `FAMILIES`: accuracy and effective number of prompts."""
    rows = tuple(
        (
            row.name,
            format_percentage(row.accuracy.value),
            "" if row.effective_prompts is None else f"{row.effective_prompts:.1f}",
        )
        for row in prompts.rows
        if row.family in FAMILIES and row.accuracy is not None
    )
    return TableBlock(
        title="Strategies that combine prompts into a class",
        description=describe_strategies(prompts),
        headings=("strategy", "accuracy", "effective prompts"),
        rows=rows,
    )


def describe_strategies(prompts: PromptsResult) -> str:
    """Compare the accuracy of BPRW with that of equal weights; a difference counts from two standard errors on.

    A gain that a control reaches too is not due to BPRW, and the text says so.

    Args:
        prompts: Comparison of prompt strategies.

    Returns:
        What was measured.
    """
    accuracies = {
        family: [
            (row.name, row.accuracy)
            for row in prompts.rows
            if row.family == family and row.accuracy is not None
        ]
        for family in FAMILIES
    }
    text = f"{prompts.num_classes} classes, {prompts.num_templates} templates, {prompts.n:,} images."
    if not accuracies["bprw"]:
        return f"{text} This model has no uncertainty, so no weights are learned."
    name, accuracy = accuracies["bprw"][-1]  # the last one learns from the most labeled images
    ensemble = accuracies["ensemble"][0][1]  # the first ensemble has equal weights
    gain = accuracy.value - ensemble.value
    if ensemble.low <= accuracy.value <= ensemble.high:
        verdict = "within noise"
    else:
        verdict = "a gain" if gain > 0 else f"a loss, {REVERSED}"
    points = f"{100 * gain:+.1f}".replace("-", "−")
    text = f"{text} Learned weights ({name}) change accuracy by {points} percentage points: {verdict}"
    control = max(accuracies["control"], key=lambda entry: entry[1].value, default=None)
    if verdict == "a gain" and control is not None and control[1].value > accuracy.low:
        return f"{text}, but {control[0]} reaches {format_percentage(control[1].value)} too."
    return f"{text}."


def _build_weights_cards(prompts: PromptsResult, data: LabeledData | None) -> CardGrid:
    """Cards of the classes with the most peaked learned weights; `data` has their images, None: no images."""
    learned = prompts.learned[-1]
    classes = learned.sort_classes()[:MAX_CLASSES]
    largest_weight = max(top.weight for _, weights in classes for top in weights.top_templates)
    cards = tuple(
        _build_class_card(prompts, index, weights.top_templates, largest_weight, data)
        for index, weights in classes
    )
    uniform = 1 / prompts.num_templates
    return CardGrid(
        title=f"Largest prompt weights by class ({learned.name})",
        description=f"The classes with the most peaked weights come first. Equal weights would be {uniform:.3f}; "
        f"here the largest is {largest_weight:.2f}.",
        cards=cards,
        is_compact=True,
    )


def _build_class_card(
    prompts: PromptsResult,
    class_index: int,
    top_templates: Sequence[TemplateWeight],
    largest_weight: float,
    data: LabeledData | None,
) -> Card:
    """Build the card of a class: its largest prompt weights as bars, with an example image that is read here.

    Args:
        prompts: Comparison of prompt strategies.
        class_index: Index of the class.
        top_templates: Templates of the class, the largest weight first.
        largest_weight: Weight of a full bar.
        data: Labeled images; None: the card has no image.
    """
    lines = tuple(
        CardLine(
            text=prompts.templates[top.template].replace("{c}", "…"),
            value=f"{top.weight:.2f}",
            bar_fraction=top.weight / largest_weight,
        )
        for top in top_templates[:MAX_PROMPTS]
    )
    name, examples = prompts.class_names[class_index], prompts.examples[class_index]
    image = None
    if data is not None and examples:
        image = embed_image(read_sample_image(data.source, examples[0]), f"an image of class {name}")
    return Card(title=name, lines=lines, image=image)
