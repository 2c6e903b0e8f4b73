"""The uncertainty report: uncertainty of images and captions, and what it correlates with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, describe_bad_samples, format_number, format_percent, make_table
from prolip.data.source import Source
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation.caption_correlations import (
    AmbiguityCorrelations,
    ScoreCorrelations,
    UncertaintyControls,
    correlate_caption_ambiguity,
    make_correlation_table,
    measure_controls,
)
from prolip.evaluation.captions import EmbeddedPairs
from prolip.evaluation.configs import UncertaintyConfig
from prolip.evaluation.controls import embed_untrained
from prolip.evaluation.examples import UncertaintyExamples, select_examples
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.plane import ProjectedPairs, project_similar_images
from prolip.evaluation.pool_perplexity import DifficultyReport, embed_annotated_pairs, measure_difficulty
from prolip.evaluation.regression import Regressions, analyze_regressions
from prolip.evaluation.result import Proportion, Result
from prolip.evaluation.view_uncertainty import ViewReport, measure_views
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters

BINS = 60
"""Bins of the histogram."""
POINTS = 4000
"""Captions that a figure draws as points."""
MIN_BIN_SIZE = 20
"""Fewest captions in a bin of lengths."""


@dataclass(frozen=True, kw_only=True)
class DistributionSummary:
    """Summary of a distribution."""

    n: int
    """Number of values."""
    mean: float
    """Mean."""
    std: float
    """Standard deviation, with divisor n."""
    min: float
    """Smallest value."""
    max: float
    """Largest value."""
    q05: float
    """5 % quantile."""
    q25: float
    """25 % quantile."""
    median: float
    """Median."""
    q75: float
    """75 % quantile."""
    q95: float
    """95 % quantile."""


@dataclass(frozen=True, kw_only=True)
class LengthBin(DistributionSummary):
    """Uncertainty of the captions whose length is in a range."""

    low: int
    """Smallest length, in tokens."""
    high: int
    """Largest length, inclusive."""


@dataclass(frozen=True, kw_only=True)
class LevelSummary(DistributionSummary):
    """Uncertainty of the captions of one level."""

    level: int
    """The level of generality, 0 for the most general."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyByLength:
    """Uncertainty of captions by their length, in tokens as the text tower sees them."""

    spearman: float | None
    """Correlation of uncertainty and length; None if one of them is constant."""
    bins: tuple[LengthBin, ...]
    """Bins that cover all lengths."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyByLevel:
    """Uncertainty of captions by their level of generality."""

    spearman: float | None
    """Correlation of uncertainty and level; None if one of them is constant."""
    levels: tuple[LevelSummary, ...]
    """The levels, from general to specific."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyHistogram:
    """Counts over equal steps of ln tr(Sigma), since images and captions may lie decades apart."""

    edges: tuple[float, ...]
    """Edges of the bins, in ln tr(Sigma)."""
    image: tuple[int, ...]
    """Number of images in each bin."""
    text: tuple[int, ...]
    """Number of captions in each bin."""


@dataclass(frozen=True, kw_only=True)
class CaptionPoints:
    """Values of a random subset of captions, for figures: one per caption in each list."""

    image: tuple[float, ...]
    """Uncertainty of the caption's image."""
    text: tuple[float, ...]
    """Uncertainty of the caption."""
    length: tuple[int, ...]
    """Length in tokens."""
    level: tuple[int, ...] | None
    """Level of generality; None: unknown."""
    log_ambiguity: tuple[float | None, ...] | None
    """True log-ambiguity, None where it is unknown; None: unknown for all."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyResult(Result):
    """The uncertainty report; `n` is the number of images."""

    task: ClassVar[str] = "uncertainty"

    num_captions: int
    """Number of captions of all images."""
    num_distinct_captions: int
    """Number of distinct texts among them."""
    image: DistributionSummary
    """Uncertainty tr(Sigma) of the images."""
    text: DistributionSummary
    """Uncertainty of the captions."""
    text_above_own_image: Proportion
    """Fraction of captions that are more uncertain than their image. The interval is that of as many cases as there are
    images, since captions of one image are not independent."""
    histogram: UncertaintyHistogram
    """Histograms of both."""
    by_length: UncertaintyByLength
    """Captions by length."""
    by_level: UncertaintyByLevel | None
    """Captions by level; None if levels are unknown."""
    ambiguity: AmbiguityCorrelations | None
    """Against the true ambiguity; None if it is unknown."""
    regression: Regressions
    """What uncertainty adds to length and token frequency."""
    examples: UncertaintyExamples
    """The most and the least uncertain samples."""
    points: CaptionPoints
    """Values of some captions."""
    plane: ProjectedPairs
    """Some images and captions, projected to a plane."""
    controls: UncertaintyControls | None = None
    """The same correlations of words, word pieces and other controls; None: not measured."""
    difficulty: DifficultyReport | None = None
    """Whether uncertainty and pool perplexity tell hard queries; None: not measured."""
    views: ViewReport | None = None
    """Whether the uncertainty of images rises when a part is hidden; None: not measured."""

    def tables(self) -> list[Table]:
        """Tables: modalities, correlations, regressions, hard queries, image views."""
        tables = [_modality_table(self), _correlation_table(self), _regression_table(self.regression)]
        more = (self.difficulty, self.views)
        return tables + [report.table() for report in more if report is not None]


def require_uncertainty(embedder: BaseEmbedder) -> None:
    """Reject a deterministic model.

    Args:
        embedder: Embedder of the model.

    Raises:
        ValueError: Its embeddings have no uncertainty.
    """
    if not embedder.has_uncertainty:
        raise ValueError(
            "this model is deterministic (CLIP, SigLIP): it has no variances to report. Choose a ProLIP model, or "
            "evaluate_perplexity, which needs none"
        )


def evaluate_uncertainty(
    embedder: BaseEmbedder, source: Source, config: UncertaintyConfig | None = None
) -> UncertaintyResult:
    """Make the uncertainty report of a model on images with captions.

    Args:
        embedder: The model, and how to embed with it.
        source: Images with captions, see `embed_pairs`.
        config: The options; None: the defaults.

    Returns:
        The result.

    Raises:
        ValueError: The model is deterministic.
    """
    config = config or UncertaintyConfig()
    require_uncertainty(embedder)
    pairs = embed_annotated_pairs(embedder, source, config)
    untrained = embed_untrained(embedder, pairs.captions.texts, config.controls)
    result = analyze_uncertainty(pairs, config, logits=embedder.logit_parameters, untrained=untrained)
    if not config.view_images:
        return result
    return replace(result, views=measure_views(embedder, source, config.view_images, config.seed))


def analyze_uncertainty(
    pairs: EmbeddedPairs,
    config: UncertaintyConfig | None = None,
    *,
    logits: LogitParameters | None = None,
    untrained: Iterable[Tensor] = (),
) -> UncertaintyResult:
    """Make the uncertainty report of embedded images and captions.

    Args:
        pairs: Images and captions, embedded by `embed_pairs`.
        config: The options; limit, world and controls are not used here. None: the defaults.
        logits: Of the model, for the pool perplexity by its trained match; None: unknown.
        untrained: Uncertainty of the captions by each of some untrained models, (T,).

    Returns:
        The result.

    Raises:
        ValueError: Some embeddings have no variance.
    """
    config = config or UncertaintyConfig()
    _require_variance(pairs.images, pairs.texts)
    captions = pairs.captions
    image, text = (z.uncertainty.double() for z in (pairs.images, pairs.texts))
    own_image = image[captions.image_index]  # (T,): the uncertainty of each caption's image
    fraction_above = float((text > own_image).double().mean())
    return UncertaintyResult(
        data=pairs.name,
        n=len(image),
        num_bad=pairs.num_bad,
        num_captions=len(text),
        num_distinct_captions=len(captions.first_occurrences()),
        image=summarize(image),
        text=summarize(text),
        text_above_own_image=Proportion.from_mean(fraction_above, len(captions.image_index.unique())),
        histogram=_log_histogram(image, text),
        by_length=_summarize_by_length(captions.lengths, text),
        by_level=None if captions.levels is None else _summarize_by_level(captions.levels, text),
        ambiguity=correlate_caption_ambiguity(pairs.captions, text),
        regression=analyze_regressions(pairs.images, pairs.texts, captions, seed=config.seed),
        examples=select_examples(pairs, config.num_examples),
        points=_sample_points(pairs, own_image, text, config.seed),
        plane=project_similar_images(pairs, num_images=config.plane_images, seed=config.seed),
        controls=measure_controls(pairs, config, logits, untrained),
        difficulty=measure_difficulty(pairs, config, logits),
    )


def summarize(values: Tensor) -> DistributionSummary:
    """Summarize a distribution.

    Args:
        values: Values to summarize, (n,), n at least 1.

    Returns:
        Its summary.
    """
    array = values.double().numpy()
    q05, q25, median, q75, q95 = np.quantile(array, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
    return DistributionSummary(
        n=len(array), mean=float(array.mean()), std=float(array.std()), min=float(array.min()), max=float(array.max()),
        q05=q05, q25=q25, median=median, q75=q75, q95=q95,
    )  # fmt: skip


def _require_variance(*gaussians: Gaussian) -> None:
    """Raise ValueError if any embedding has zero variance, as all embeddings of a deterministic model do."""
    if any(not bool((z.uncertainty > 0).all()) for z in gaussians):
        raise ValueError(
            "some embeddings have zero variance, as those of a deterministic model (CLIP, SigLIP) have. It has no "
            "uncertainty to report. Choose a ProLIP model"
        )


def _log_histogram(image: Tensor, text: Tensor) -> UncertaintyHistogram:
    """Histogram of the uncertainties of images (N,) and captions (T,)."""
    logs = [values.log().numpy() for values in (image, text)]
    edges = np.histogram_bin_edges(np.concatenate(logs), BINS)
    image_counts, text_counts = (tuple(np.histogram(values, edges)[0].tolist()) for values in logs)
    return UncertaintyHistogram(edges=tuple(edges.tolist()), image=image_counts, text=text_counts)


def _summarize_by_length(lengths: Tensor, text: Tensor) -> UncertaintyByLength:
    """Summarize uncertainty by length. lengths: in tokens, int64 (T,). text: uncertainty of each caption, (T,)."""
    bins = []
    for low, high in _make_length_bins(lengths):
        inside = (lengths >= low) & (lengths <= high)
        bins.append(LengthBin(low=low, high=high, **asdict(summarize(text[inside]))))
    return UncertaintyByLength(spearman=spearman(lengths, text), bins=tuple(bins))


def _make_length_bins(lengths: Tensor) -> list[tuple[int, int]]:
    """Bins (low, high), both inclusive, that cover all lengths and hold at least MIN_BIN_SIZE captions each.

    Successive lengths are joined until there are enough captions. One bin of fewer if there are fewer captions in all.
    """
    distinct_lengths, counts = (v.tolist() for v in lengths.unique(return_counts=True))
    bins: list[tuple[int, int]] = []
    low, size = None, 0  # lowest length and number of captions of the bin that is being filled
    for length, count in zip(distinct_lengths, counts, strict=True):
        low, size = length if low is None else low, size + count
        if size >= MIN_BIN_SIZE:
            bins.append((low, length))
            low, size = None, 0
    if low is not None:  # the longest captions are too few for a bin: they join the last one
        bins = [*bins[:-1], (bins[-1][0] if bins else low, distinct_lengths[-1])]
    return bins


def _summarize_by_level(levels: Tensor, text: Tensor) -> UncertaintyByLevel:
    """Summarize uncertainty by level. levels: int64 (T,). text: uncertainty of each caption, (T,)."""
    summaries = tuple(
        LevelSummary(level=int(level), **asdict(summarize(text[levels == level])))
        for level in levels.unique()
    )
    return UncertaintyByLevel(spearman=spearman(levels, text), levels=summaries)


def _sample_points(pairs: EmbeddedPairs, own_image: Tensor, text: Tensor, seed: int) -> CaptionPoints:
    """The values of POINTS random captions.

    own_image, text: uncertainty of each caption's image and of the caption, (T,) each.
    """
    captions = pairs.captions
    rows = torch.randperm(len(text), generator=torch.Generator().manual_seed(seed))[:POINTS].sort().values
    ambiguity = captions.log_ambiguity
    return CaptionPoints(
        image=tuple(own_image[rows].tolist()),
        text=tuple(text[rows].tolist()),
        length=tuple(captions.lengths[rows].tolist()),
        level=None if captions.levels is None else tuple(captions.levels[rows].tolist()),
        log_ambiguity=None
        if ambiguity is None
        else tuple(None if math.isnan(value) else value for value in ambiguity[rows].tolist()),
    )


def _modality_table(result: UncertaintyResult) -> Table:
    """Table of uncertainty: a row for images, one for captions, and one for each level of captions."""
    title = f"Uncertainty, {result.n:,} images and {result.num_captions:,} captions"
    above = f"{format_percent(result.text_above_own_image.value)} % of captions are more uncertain than their image"
    caption = "; ".join(part for part in (above, describe_bad_samples(result.num_bad)) if part)
    rows: dict[str, DistributionSummary] = {"image": result.image, "text": result.text}
    if result.by_level is not None:
        rows |= {f"text, level {entry.level}": entry for entry in result.by_level.levels}
    table = make_table(title, [""], ("mean", "q05", "median", "q95"), caption=caption)
    for name, summary in rows.items():
        values = (summary.mean, summary.q05, summary.median, summary.q95)
        table.add_row(name, *map(format_number, values))
    return table


def _correlation_table(result: UncertaintyResult) -> Table:
    """Table of the correlations of caption uncertainty and its controls; without controls, of uncertainty alone."""
    if result.controls is not None:
        return make_correlation_table(result.controls, _describe_wrong_order(result))
    own = ScoreCorrelations(
        name="uncertainty",
        length=result.by_length.spearman,
        level=None if result.by_level is None else result.by_level.spearman,
        ambiguity=result.ambiguity,
        equal_pieces=None,
    )
    bare = UncertaintyControls(scores=(own,), unigram_captions="", perplexity_scale=None, num_untrained=0)
    return make_correlation_table(bare, _describe_wrong_order(result))


def _describe_wrong_order(result: UncertaintyResult) -> str | None:
    """A warning if uncertainty falls with the true ambiguity, or rises with the level; None if it doesn't."""
    # None, also of a correlation that is undefined, counts as 0: no warning
    ambiguity = 0.0 if result.ambiguity is None else result.ambiguity.spearman or 0.0
    level = 0.0 if result.by_level is None else result.by_level.spearman or 0.0
    if ambiguity < 0 or level > 0:
        return "General captions are less uncertain than specific ones here, contrary to what is expected"
    return None


def _regression_table(regressions: Regressions) -> Table:
    """Table of regressions: R^2 without and with uncertainty, their difference, its interval, the weight."""
    table = make_table(
        "What uncertainty adds to length and token frequency",
        ["R² on held-out captions"],
        ("without", "with", "gain", "95 %", "weight"),
        caption="weight: of log uncertainty, in standard deviations of the target. Both targets are larger for more "
        "ambiguous captions",
    )
    comparisons = {
        "ln rank of the own image": regressions.own_image,
        "true log-ambiguity": regressions.ambiguity,
    }
    for title, comparison in comparisons.items():
        if comparison is None:
            continue
        if (fit := comparison.fit) is None:
            table.add_row(title, *[MISSING] * 5)
            continue
        numbers = map(_format_correlation, (fit.r2_without, fit.r2_with, fit.difference))
        interval = f"{_format_correlation(fit.interval.low)} to {_format_correlation(fit.interval.high)}"
        table.add_row(title, *numbers, interval, _format_correlation(fit.uncertainty_coefficient))
    return table


def _format_correlation(value: float | None) -> str:
    """Format a correlation or an R^2 with three decimals."""
    return format_number(value, ".3f")
