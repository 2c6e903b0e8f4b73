"""Result of the evaluation on images of known ambiguity: correlations, errors, nested sequences; its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.table import Table

from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.evaluation.metrics.detection import DetectionMetrics
from prolip.evaluation.result import Mean, Proportion, Result, get_value

UNCERTAINTY, PERPLEXITY, SOFTMAX = "uncertainty", "pool perplexity", "small max softmax"
LESS_INK, SMALLER_FILE = "less ink", "smaller file"
"""Names of the scores. Each should be higher for an image that leaves more open."""


@dataclass(frozen=True, kw_only=True)
class ScoreMetrics:
    """How well a score of images goes with their true ambiguity, and detects wrong answers."""

    name: str
    """uncertainty; pool perplexity (the strongest rival); small max softmax; the controls less ink and smaller file;
    "untrained, seed 0" and so on: the uncertainty of untrained models."""
    spearman: float | None
    """Correlation with the true log-ambiguity; None if one of them is constant."""
    mean_within_veil: float | None
    """Mean of the correlations within a veil, over the veils with enough images; None if there are none."""
    errors: DetectionMetrics | None
    """Detection of the wrong zero-shot answers of the model; None without classes."""


@dataclass(frozen=True, kw_only=True)
class ImageGroup:
    """Images of one veil, of one kind of veil, or with one number of visible objects."""

    name: str
    """The veil, the kind or the number."""
    n: int
    """Number of images."""
    log_ambiguity: float
    """Mean of the true log-ambiguity, in nats."""
    uncertainty: float | None
    """Mean uncertainty; None for a deterministic model."""
    spearman: float | None
    """Correlation of uncertainty with the true log-ambiguity; None if one of them is constant."""
    perplexity_spearman: float | None
    """The same of pool perplexity."""


@dataclass(frozen=True, kw_only=True)
class RisingPairs:
    """Pairs of images of one scene, of which the second leaves more open: how often does a score say so?"""

    n: int
    """Number of pairs whose true ambiguity rises."""
    uncertainty: Proportion | None
    """Fraction whose uncertainty rises; None without pairs, or for a deterministic model."""
    perplexity: Proportion | None
    """Fraction whose pool perplexity rises; None without pairs, or without a pool."""


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """Images of one step of a sequence."""

    step: int
    """The step; 0: the whole image."""
    n: int
    """Number of images."""
    log_ambiguity: float
    """Mean of the true log-ambiguity, in nats."""
    uncertainty: Mean | None
    """Uncertainty; None for a deterministic model."""
    rises: RisingPairs | None
    """Pairs with the image of the step before; None for step 0."""


@dataclass(frozen=True, kw_only=True)
class SequenceMetrics:
    """Images of the same scenes, of which each hides all that the one before hides."""

    name: str
    """Name of the sequence."""
    steps: tuple[StepMetrics, ...]
    """The steps, from the whole image on."""


@dataclass(frozen=True, kw_only=True)
class ImagePoints:
    """Values of some images, evenly spaced in the data, for figures: one per image in each list."""

    log_ambiguity: tuple[float, ...]
    """True log-ambiguity, in nats."""
    kind: tuple[str, ...]
    """Kind of veil, or its name if there are no kinds."""
    uncertainty: tuple[float, ...] | None
    """Uncertainty; None for a deterministic model."""
    perplexity: tuple[float, ...] | None
    """ln of the pool perplexity; None without a pool."""


@dataclass(frozen=True, kw_only=True)
class ImageAmbiguityResult(Result):
    """Image uncertainty against true ambiguity; `n` is the number of images that are in no sequence (of all images if
    all are in one): those of the correlations and of the wrong answers."""

    task: ClassVar[str] = "image-ambiguity"

    num_images: int
    """Number of all images of known ambiguity, with those of sequences."""
    num_pool: int
    """Number of captions in the pool of the perplexity; 0: there is no pool."""
    num_classes: int
    """Number of classes; 0: there are none."""
    accuracy: Proportion | None
    """Zero-shot accuracy, of the images with a label, by the match of the model's loss; None without classes."""
    scores: tuple[ScoreMetrics, ...]
    """Uncertainty, its rivals and the controls."""
    veils: tuple[ImageGroup, ...]
    """Each veil that has enough images, by mean log-ambiguity."""
    kinds: tuple[ImageGroup, ...]
    """Each kind of veil, by mean log-ambiguity; empty if kinds are unknown."""
    visible_objects: tuple[ImageGroup, ...]
    """By number of visible objects; empty if it is unknown."""
    above_whole: RisingPairs
    """Images in no sequence, each with the whole image of its scene."""
    sequences: tuple[SequenceMetrics, ...]
    """The sequences."""
    points: ImagePoints
    """Values of some images."""

    def score(self, name: str) -> ScoreMetrics | None:
        """Find a score by its name.

        Args:
            name: Name of the score.

        Returns:
            Its metrics; None if it was not measured.
        """
        return next((score for score in self.scores if score.name == name), None)

    def tables(self) -> list[Table]:
        """Scores; groups of images; sequences, if there are any."""
        tables = [_score_table(self), _group_table(self)]
        return [*tables, _sequence_table(self)] if self.above_whole.n or self.sequences else tables


def _score_table(result: ImageAmbiguityResult) -> Table:
    """Correlations of each score with the truth, and its detection of errors."""
    title = f"True ambiguity of {result.n:,} images"
    if result.accuracy is not None:
        accuracy = format_percent(result.accuracy.value)
        title += f"; {result.num_classes} classes, accuracy {accuracy} % of {result.accuracy.n:,}"
    headings = ("Spearman", "within a veil", "AUROC of errors", "FPR95 of errors")
    table = make_table(title, ["score"], headings, caption=describe_bad_samples(result.num_bad))
    for score in result.scores:
        errors = (None, None) if score.errors is None else (score.errors.auroc, score.errors.fpr95)
        numbers = (score.spearman, score.mean_within_veil, *errors)
        table.add_row(score.name, *(format_number(number, ".3f") for number in numbers))
    return table


def _group_table(result: ImageAmbiguityResult) -> Table:
    """Kinds of veils, numbers of visible objects, veils."""
    headings = ("images", "true log-ambiguity", "uncertainty", "Spearman", "Spearman, perplexity")
    table = make_table("By veil", ["images"], headings)
    count_names = tuple((group, f"visible objects: {group.name}") for group in result.visible_objects)
    names = (
        *((group, f"hidden: {group.name}") for group in result.kinds),
        *count_names,
        *((group, group.name) for group in result.veils),
    )
    for group, name in names:
        table.add_row(name, f"{group.n:,}", *_format_group(group))
    return table


def _format_group(group: ImageGroup) -> Sequence[str]:
    """The numbers of a group's row."""
    return (
        format_number(group.log_ambiguity, ".2f"),
        format_number(group.uncertainty),
        format_number(group.spearman, ".3f"),
        format_number(group.perplexity_spearman, ".3f"),
    )


def _sequence_table(result: ImageAmbiguityResult) -> Table:
    """How often scores rise where more is hidden, and mean uncertainty and truth by step."""
    headings = ("pairs", "true log-ambiguity", "uncertainty", "uncertainty rises %", "perplexity rises %")
    table = make_table("More is hidden, of the same scene", ["step"], headings)
    if result.above_whole.n:
        table.add_row(
            "whole → behind its veil", f"{result.above_whole.n:,}", "", "", *_format_rises(result.above_whole)
        )
    for sequence in result.sequences:
        for step in sequence.steps:
            count, rises = (
                ("", ("", "")) if step.rises is None else (f"{step.rises.n:,}", _format_rises(step.rises))
            )
            uncertainty = None if step.uncertainty is None else step.uncertainty.value
            truth = format_number(step.log_ambiguity, ".2f")
            table.add_row(f"{sequence.name}: {step.step}", count, truth, format_number(uncertainty), *rises)
    return table


def _format_rises(pairs: RisingPairs) -> tuple[str, str]:
    """Fractions of rising pairs, in percent: by uncertainty, by perplexity."""
    return format_percent(get_value(pairs.uncertainty)), format_percent(get_value(pairs.perplexity))
