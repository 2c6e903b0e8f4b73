"""HierarImgs: inclusion of an image in the images of only some of its segments.

The paper's test is H(original in level k) > 0. The sign of H depends on the variances only; the distance of the means
only scales it. So two more things are measured: the same test for untrained models, and whether a measure separates an
image's own level from those of other images (negatives).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, describe_bad_samples, format_number, format_percent, make_table
from prolip.data.source import evenly_spaced
from prolip.data.sources.folder import ImageList
from prolip.data.sources.hierarimgs import HierarImgs
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.configs import HierarImgsConfig
from prolip.evaluation.metrics.selective import auroc
from prolip.evaluation.result import Mean, Proportion, Result
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian
from prolip.measures import public

BINS = 40
"""Bins of a histogram."""
MAX_NEGATIVES = 1000
"""Images, evenly spaced in the data, whose levels are compared with each other."""

PairedMeasure = Callable[[Gaussian, Gaussian], Tensor]
"""Two Gaussians (N, D) -> one value per row, (N,)."""


@dataclass(frozen=True, kw_only=True)
class LevelHistogram:
    """A histogram of equal bins that cover all values; 0 is an edge."""

    edges: tuple[float, ...]
    """Edges of the bins."""
    counts: tuple[int, ...]
    """Number of images in each bin."""


@dataclass(frozen=True, kw_only=True)
class DirectedMedians:
    """Medians over images of an asymmetric measure, in both directions."""

    original_in_level: float
    """Of (original in level)."""
    level_in_original: float
    """Of (level in original)."""


@dataclass(frozen=True, kw_only=True)
class OwnLevelAUROC:
    """AUROC of (original i, level i) against the negatives (original i, level j); None for one image."""

    h: float | None
    """By H."""
    log_inclusion: float | None
    """By log inclusion."""
    log_containment: float | None
    """By containment."""


@dataclass(frozen=True, kw_only=True)
class LevelInclusion:
    """Uncertainty and inclusion of one level, for a model with uncertainty."""

    uncertainty: float
    """Mean uncertainty of the level."""
    difference: Mean
    """uncertainty(level) - uncertainty(original)."""
    difference_histogram: LevelHistogram
    """Histogram of the difference."""
    more_uncertain: Proportion
    """Fraction of images whose difference is above 0."""
    included: Proportion
    """Fraction with H(original in level) > 0, the paper's test."""
    inverse: Proportion
    """Fraction with H(level in original) > 0."""
    h_mean: Mean
    """H(original in level)."""
    h_median: float
    """Its median."""
    h_histogram: LevelHistogram
    """Its histogram. (Those of the inverse are mirrored: H is antisymmetric.)"""
    log_inclusion: DirectedMedians
    """Log inclusion."""
    log_containment: DirectedMedians
    """Containment."""
    own_level_auroc: OwnLevelAUROC
    """Whether a measure separates an image's own level from those of others."""
    untrained_included: tuple[Proportion, ...] = ()
    """`included` of each untrained model, with the seeds 0, 1, ..."""


@dataclass(frozen=True, kw_only=True)
class LevelMetrics:
    """Metrics of one level."""

    inclusion: LevelInclusion | None
    """Uncertainty and inclusion; None for a deterministic model."""
    own_level_auroc_csd: float | None
    """AUROC of an image's own level by CSD, which deterministic models have too; None for one image."""


@dataclass(frozen=True, kw_only=True)
class HierarImgsResult(Result):
    """Result of HierarImgs; `n` is the number of images whose original and levels could all be used."""

    task: ClassVar[str] = "hierarimgs"

    uncertainty: float | None
    """Mean uncertainty of the originals; None for a deterministic model."""
    levels: tuple[LevelMetrics, ...]
    """The levels, from the one with the fewest segments on."""
    failures: tuple[int, ...] | None
    """Data indices of the images whose original is not included in level 0, the worst first; None for a deterministic
    model."""

    def tables(self) -> list[Table]:
        """One table by level: the paper's test, untrained models, AUROCs."""
        title = f"{self.n} images (paper: over {100 * paper_numbers.HIERARIMGS_INCLUDED:.0f} % included)"
        aurocs = (f"AUROC by {name}" for name in ("H", "log inclusion", "containment", "CSD"))
        headings = ("included %", "untrained %, range", "uncertainty", "difference", *aurocs)
        table = make_table(title, ["level"], headings, caption=describe_bad_samples(self.num_bad))
        for number, level in enumerate(self.levels):
            table.add_row(
                str(number),
                *_format_inclusion(level.inclusion),
                format_number(level.own_level_auroc_csd),
            )
        return [table]


def evaluate_hierarimgs(
    embedder: BaseEmbedder, data: HierarImgs, config: HierarImgsConfig | None = None
) -> HierarImgsResult:
    """Evaluate a model on HierarImgs, and untrained models of the same config on the paper's test.

    Args:
        embedder: The model, and how to embed with it. Embeddings of untrained models are not cached.
        data: The originals and their levels.
        config: The options; None: the defaults.

    Returns:
        The result; without untrained models if the model has no uncertainty.
    """
    config = config or HierarImgsConfig()
    controls = untrained_embedders(embedder, config.controls)  # checks the number before any work
    original, levels, indices = _embed_levels(embedder, data)
    result = compute_inclusion_metrics(original, levels, indices, name=str(data.path))
    result = replace(result, num_bad=len(data.originals) - len(indices))
    if not config.controls or result.uncertainty is None:
        return result
    by_seed = [_included_fractions(*_embed_levels(control, data)[:2]) for control in controls]
    by_level = zip(*by_seed, strict=True)
    return replace(
        result,
        levels=tuple(
            _add_untrained(level, included) for level, included in zip(result.levels, by_level, strict=True)
        ),
    )


def compute_inclusion_metrics(
    original: Gaussian, levels: Sequence[Gaussian], indices: Tensor | None = None, name: str = "images"
) -> HierarImgsResult:
    """Measure whether originals are included in their levels, and whether a measure finds an image's own level.

    Args:
        original: The original images, (N, D).
        levels: The images of each level, (N, D) each, in the order of the originals.
        indices: Index of each image in its data, int64 (N,); None: 0 to N - 1.
        name: Name of the data.

    Returns:
        The result, without untrained models.
    """
    indices = torch.arange(len(original)) if indices is None else indices
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (original, *levels))
    return HierarImgsResult(
        data=name,
        n=len(original),
        uncertainty=original.uncertainty.double().mean().item() if probabilistic else None,
        levels=tuple(_level_metrics(original, level, probabilistic) for level in levels),
        failures=_find_failures(original, levels[0], indices) if probabilistic else None,
    )


def _format_inclusion(inclusion: LevelInclusion | None) -> tuple[str, ...]:
    """The cells of a level's row that need uncertainty."""
    if inclusion is None:
        return (MISSING,) * 7
    auroc_by = inclusion.own_level_auroc
    numbers = (
        inclusion.uncertainty, inclusion.difference.value, auroc_by.h, auroc_by.log_inclusion, auroc_by.log_containment
    )  # fmt: skip
    return (
        format_percent(inclusion.included.value),
        _format_range(inclusion.untrained_included),
        *map(format_number, numbers),
    )


def _add_untrained(level: LevelMetrics, included: Sequence[Proportion]) -> LevelMetrics:
    """A level with the fractions of untrained models."""
    if level.inclusion is None:
        return level
    return replace(level, inclusion=replace(level.inclusion, untrained_included=tuple(included)))


def _level_metrics(original: Gaussian, level: Gaussian, probabilistic: bool) -> LevelMetrics:
    """Metrics of one level: original and level are (N, D), row i being image i.

    AUROCs compare at most MAX_NEGATIVES images with each other.
    """
    rows = torch.from_numpy(evenly_spaced(len(original), MAX_NEGATIVES))
    originals, candidates = original[rows], level[rows]  # (n, D) each
    by_csd = _own_level_auroc(-public.csd_matrix(originals, candidates))
    if not probabilistic:
        return LevelMetrics(inclusion=None, own_level_auroc_csd=by_csd)
    h = public.inclusion(original, level).double()
    difference = (level.uncertainty - original.uncertainty).double()
    inclusion = LevelInclusion(
        uncertainty=level.uncertainty.double().mean().item(),
        difference=Mean.from_values(difference),
        difference_histogram=_histogram(difference),
        more_uncertain=_fraction(difference > 0),
        included=_fraction(h > 0),
        inverse=_fraction(h < 0),
        h_mean=Mean.from_values(h),
        h_median=h.median().item(),
        h_histogram=_histogram(h),
        log_inclusion=_medians_both_directions(public.log_inclusion, original, level),
        log_containment=_medians_both_directions(public.log_containment, original, level),
        own_level_auroc=OwnLevelAUROC(
            h=_own_level_auroc(public.inclusion_matrix(originals, candidates)),
            log_inclusion=_own_level_auroc(public.log_inclusion_matrix(originals, candidates)),
            log_containment=_own_level_auroc(public.log_containment_matrix(originals, candidates)),
        ),
    )
    return LevelMetrics(inclusion=inclusion, own_level_auroc_csd=by_csd)


def _fraction(mask: Tensor) -> Proportion:
    """Fraction of images, bool (N,), for which something holds."""
    return Proportion.from_mean(mask.double().mean().item(), len(mask))


def _medians_both_directions(measure: PairedMeasure, original: Gaussian, level: Gaussian) -> DirectedMedians:
    """Medians of a measure of (original in level) and of (level in original), over the N images."""
    there, back = measure(original, level), measure(level, original)
    return DirectedMedians(
        original_in_level=there.double().median().item(), level_in_original=back.double().median().item()
    )


def _own_level_auroc(scores: Tensor) -> float | None:
    """AUROC of the diagonal (an image's own level) against the rest (negatives) of (n, n); None for one image."""
    is_own_level = torch.eye(len(scores), dtype=torch.bool)
    return auroc(is_own_level.flatten(), scores.double().flatten())


def _find_failures(original: Gaussian, level: Gaussian, indices: Tensor) -> tuple[int, ...]:
    """Data indices of the images with H(original in level) <= 0, the smallest H first."""
    h = public.inclusion(original, level)
    order = h.argsort(stable=True)
    return tuple(int(indices[row]) for row in order[h[order] <= 0])


def _histogram(values: Tensor) -> LevelHistogram:
    """Histogram of BINS (at most one more) bins of equal width that cover all values; 0 is an edge."""
    low, high = min(0.0, values.min().item()), max(0.0, values.max().item())
    width = (high - low) / BINS or 1.0
    # numbers of bins below and above 0; at least one in all, also if every value is 0
    num_below, num_above = math.ceil(-low / width), max(math.ceil(high / width), 1 if low == 0 else 0)
    edges = torch.arange(-num_below, num_above + 1, dtype=torch.float64) * width
    edges[0], edges[-1] = min(edges[0].item(), low), max(edges[-1].item(), high)  # despite rounding
    counts = tuple(int(count) for count in torch.histogram(values, edges).hist)
    return LevelHistogram(edges=tuple(edges.tolist()), counts=counts)


def _embed_levels(embedder: BaseEmbedder, data: HierarImgs) -> tuple[Gaussian, list[Gaussian], Tensor]:
    """Embed the originals and every level; drop the images whose original or a level could not be read.

    Returns the originals (N, D), the levels (N, D) each, and the indices of the N images in the data, int64 (N,).
    """
    encoded = [embedder.embed_images(ImageList(data.path, files)) for files in (data.originals, *data.levels)]
    indices = encoded[0].indices
    for encoded_level in encoded[1:]:
        indices = indices[torch.isin(indices, encoded_level.indices)]
    original, *levels = [images.images[torch.isin(images.indices, indices)] for images in encoded]
    return original, levels, indices


def _included_fractions(original: Gaussian, levels: Sequence[Gaussian]) -> list[Proportion]:
    """Fraction of originals with H(original in level) > 0, the paper's test, for each level."""
    return [_fraction(public.inclusion(original, level) > 0) for level in levels]


def _format_range(fractions: Sequence[Proportion]) -> str:
    """Format the smallest and largest fraction over the untrained models, in percent.

    A range, not a mean: the fractions may lie far apart.
    """
    values = [fraction.value for fraction in fractions]
    return f"{format_percent(min(values))} – {format_percent(max(values))}" if values else MISSING
