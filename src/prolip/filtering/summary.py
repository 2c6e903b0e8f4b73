"""Counts of kept and dropped samples, the distribution of scores, and agreement with ground truth."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from prolip.choices import DuplicateKind, FilterCriterion
from prolip.configs import build_dataclass
from prolip.filtering.selection import OUTCOME_NAMES, PartFilterOutcomes, SampleOutcome, Selection

VERSION = 1
"""Version of filter.json. A file of another version is refused."""
BINS = 4096
"""Bins of the histogram that quantiles are read from: their error is at most (max - min) / 4096."""
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of scores in B bins.

    Attributes:
        edges: float64 (B + 1,), increasing: values of the criterion's column.
        kept: int64 (B,): kept samples.
        dropped: int64 (B,): all other samples with a finite score.
    """

    edges: np.ndarray
    kept: np.ndarray
    dropped: np.ndarray


@dataclass(frozen=True)
class GroundTruthAgreement:
    """Agreement of the kept samples with a column that is true for matching pairs.

    Attributes:
        column: Name of the column.
        precision: Fraction of kept samples that match.
        recall: Fraction of matching samples that are kept.
        chance_precision, chance_recall: Precision and recall expected if as many samples were kept at random.
        unknown: Number of samples where the column is null; they count for nothing else.
    """

    column: str
    precision: float | None
    recall: float | None
    chance_precision: float | None
    chance_recall: float | None
    unknown: int


@dataclass(frozen=True, eq=False)
class SelectionCounts:
    """Counts of a selection.

    Attributes:
        outcomes: Number of samples by outcome.
        histogram: Distribution of the scores; None if no score is finite.
        ground_truth: Agreement with a column of the data; None if it was not measured.
    """

    outcomes: dict[SampleOutcome, int]
    histogram: Histogram | None
    ground_truth: GroundTruthAgreement | None = None

    @property
    def kept(self) -> int:
        """Number of kept samples."""
        return self.outcomes[SampleOutcome.KEPT]

    @property
    def total(self) -> int:
        """Number of all samples."""
        return sum(self.outcomes.values())

    def name_outcomes(self) -> dict[str, int]:
        """Number of samples by the name of the outcome."""
        return {OUTCOME_NAMES[outcome]: count for outcome, count in self.outcomes.items()}

    def compute_quantiles(self) -> dict[str, dict[str, float] | None] | None:
        """Quantiles of the scores of kept and of dropped samples; None if no score is finite."""
        return None if self.histogram is None else _compute_quantiles(self.histogram)


@dataclass(frozen=True, kw_only=True)
class FilterSummary:
    """The content of filter.json: what was kept of which data, by which rule."""

    version: int = VERSION
    """Version of the file."""
    rank_by: FilterCriterion
    """The criterion."""
    keep_fraction: float
    """The fraction that was to be kept."""
    duplicates: DuplicateKind | None
    """Which near-duplicates were dropped."""
    duplicate_cosine: float | None
    """Minimum cosine of the means of near-duplicates; None: they were not searched."""
    identity: str
    """Hash of the model."""
    fingerprint: str
    """Fingerprint of the data."""
    data: str
    """The data."""
    model: str
    """Name or path of the model."""
    samples: int
    """Number of samples that were embedded."""
    kept: int
    """Number of kept samples."""
    threshold: float | None
    """Value of the criterion's column of the worst kept sample; None if nothing is kept, or if it is infinite."""
    outcomes: dict[str, int]
    """Number of samples by outcome."""
    quantiles: dict[str, dict[str, float] | None] | None
    """Quantiles of the scores of kept and of dropped samples; None if no score is finite."""
    ground_truth: GroundTruthAgreement | None
    """Agreement with a column of the data; None if it was not measured."""
    errors: dict[str, int]
    """Number of bad samples by reason."""
    cluster_recall: dict[str, float | None] | None
    """By what was compared (images, captions): the fraction of similar pairs that clusters find, None if all pairs were
    compared; None if near-duplicates were not searched."""
    written: tuple[str, ...]
    """Names of the outputs in the folder."""

    def to_json(self) -> str:
        """The summary as JSON text, which `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, name: str) -> FilterSummary:
        """Read a summary.

        Args:
            text: Content of filter.json.
            name: The file, for messages.

        Returns:
            The summary.

        Raises:
            ValueError: It has another version, or other values.
        """
        values = json.loads(text)
        version = values.get("version") if isinstance(values, dict) else None
        if version != VERSION:
            raise ValueError(
                f"{name} has version {version!r}, but this prolip reads version {VERSION}. Run `prolip filter` again."
            )
        summary: FilterSummary = build_dataclass(cls, values, name)
        return summary


def summarize_selection(selection: Selection, ground_truth: str | None = None) -> SelectionCounts:
    """Count outcomes and scores, in two passes: the first finds the range of the histogram that the second fills.

    Args:
        selection: The outcome of every sample.
        ground_truth: A column that is true for matching pairs; None: agreement is not measured.

    Returns:
        The counts, the histogram of scores, and the agreement with the ground truth.
    """
    counter = _OutcomeCounter(ground_truth)
    for part in selection.iter_parts([] if ground_truth is None else [ground_truth]):
        counter.add(part)
    limits = None if counter.minimum > counter.maximum else (counter.minimum, counter.maximum)
    return SelectionCounts(
        counter.count_outcomes(),
        None if limits is None else _make_histogram(selection, limits),
        counter.compute_agreement(),
    )


@dataclass
class _OutcomeCounter:
    """Counts over the parts that were added so far.

    Attributes:
        column: Column of the ground truth; None: none.
        counts: Samples by `SampleOutcome`.
        minimum, maximum: Range of the finite scores; minimum > maximum if there is none.
        num_known, num_matching: Samples whose ground truth is known, and those of them that match.
        num_known_kept, num_matching_kept: The same among kept samples.
    """

    column: str | None
    counts: Counter[int] = field(default_factory=Counter)
    minimum: float = np.inf
    maximum: float = -np.inf
    num_known: int = 0
    num_matching: int = 0
    num_known_kept: int = 0
    num_matching_kept: int = 0

    def add(self, part: PartFilterOutcomes) -> None:
        """Count the samples of another part."""
        self.counts.update(dict(enumerate(np.bincount(part.outcome, minlength=len(SampleOutcome)).tolist())))
        finite = part.score[np.isfinite(part.score)]
        if len(finite):
            self.minimum = min(self.minimum, float(finite.min()))
            self.maximum = max(self.maximum, float(finite.max()))
        if self.column is not None:
            self._count_matching(part, self.column)

    def _count_matching(self, part: PartFilterOutcomes, column: str) -> None:
        """Count the samples of a part by the ground truth in a column, and whether they are kept."""
        is_matching, is_known = _read_ground_truth(part.rows[column], column)
        is_kept = part.outcome == SampleOutcome.KEPT
        self.num_known += int(is_known.sum())
        self.num_matching += int(is_matching.sum())
        self.num_known_kept += int((is_known & is_kept).sum())
        self.num_matching_kept += int((is_matching & is_kept).sum())

    def count_outcomes(self) -> dict[SampleOutcome, int]:
        """Number of samples by outcome, 0 included."""
        return {outcome: self.counts[outcome] for outcome in SampleOutcome}

    def compute_agreement(self) -> GroundTruthAgreement | None:
        """Precision and recall of the kept samples, and those of chance; None without a ground truth."""
        if self.column is None:
            return None
        return GroundTruthAgreement(
            self.column,
            precision=_divide(self.num_matching_kept, self.num_known_kept),
            recall=_divide(self.num_matching_kept, self.num_matching),
            chance_precision=_divide(self.num_matching, self.num_known),
            chance_recall=_divide(self.num_known_kept, self.num_known),
            unknown=self.counts.total() - self.num_known,
        )


def _read_ground_truth(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a column of the ground truth, in which any number but 0 is true.

    Args:
        column: A pyarrow column of n booleans or numbers.
        name: Its name, for errors.

    Returns:
        bool (n,) each: whether the pair matches (False if unknown), and whether that is known.

    Raises:
        ValueError: The column has another type.
    """
    kind = str(column.type)
    if kind not in ("bool", "int64", "double"):
        raise ValueError(f"the ground_truth column {name!r} must hold booleans or numbers, not {kind}")
    values = column.cast("double").to_numpy(zero_copy_only=False)  # null is NaN then
    return np.nan_to_num(values) != 0, ~np.isnan(values)


def _divide(count: int, total: int) -> float | None:
    """count / total; None if total is 0."""
    return count / total if total else None


def _make_histogram(selection: Selection, limits: tuple[float, float]) -> Histogram:
    """Count the scores of kept and of dropped samples in `BINS` bins, in one pass over all parts.

    Infinite scores and NaN are excluded.

    `limits`: smallest and largest score. The edges are values of the criterion's column: scores with their sign
    undone.
    """
    sign = selection.criterion.sign
    low, high = sorted(sign * end for end in limits)
    # if all scores are equal, the range is widened a little: edges must increase
    edges = np.linspace(low, high if high > low else low + max(abs(low), 1.0) * 1e-6, BINS + 1)
    kept, dropped = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    for part in selection.iter_parts():
        finite = np.isfinite(part.score)
        for counts, in_group in (
            (kept, part.outcome == SampleOutcome.KEPT),
            (dropped, part.outcome != SampleOutcome.KEPT),
        ):
            counts += np.histogram(sign * part.score[finite & in_group].astype(np.float64), edges)[0]
    return Histogram(edges, kept, dropped)


def _compute_quantiles(histogram: Histogram) -> dict[str, dict[str, float] | None]:
    """Compute the quantiles of the scores of kept and of dropped samples; None where there are none."""
    return {
        name: _compute_binned_quantiles(counts, histogram.edges)
        for name, counts in (("kept", histogram.kept), ("dropped", histogram.dropped))
    }


def _compute_binned_quantiles(counts: np.ndarray, edges: np.ndarray) -> dict[str, float] | None:
    """Compute approximate quantiles of binned values, by quantile ("0.5"); None if there are no values.

    Each is the upper edge of the bin in which the quantile lies; for the minimum (quantile 0), the lower edge.
    """
    total = int(counts.sum())
    if not total:
        return None
    # each quantile is the rank-th smallest value
    ranks = np.maximum(1, np.ceil(np.array(QUANTILES) * total))
    bins = np.searchsorted(np.cumsum(counts), ranks)
    values = np.where(np.array(QUANTILES) == 0, edges[bins], edges[bins + 1])
    return {f"{quantile:g}": float(value) for quantile, value in zip(QUANTILES, values, strict=True)}
