"""Confidence of a search: the query's uncertainty, how many items fit it, how many are as good as the nearest.

How many items fit is the perplexity of the query over them (retrieval/perplexity.py). It needs the logits of an image
and a text; where texts search texts, or images images, the number of equally good results stands in for it.

These numbers compare items with each other, so they say little of a query that the model doesn't know, or that no item
fits. Two signs of that are looked for, and then claims are withheld: words that never occurred in training, and a low
relative match. A likelihood model's exp(logit) is the density of the item given the query over its density overall, so
that its mean over items like those of training is 1, for any query. For "" it is 1 of every item. Relative match is
that mean over that of "", and close to 0 if what the query describes is not among the items.

A query is a Gaussian N(mu, Sigma), not a point. For a draw x of it, the distance to an item with mean m and trace t is
|x - m|^2 + t, and the difference of two such distances is linear in x. So it is normal, with the mean CSD_r - CSD_1
and the variance 4 sum_d sigma_d^2 (m_r - m_1)_d^2, and the probability that item r is nearer than the first is known
exactly. A general caption is uncertain, and for it many items are about as good as the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from prolip.choices import Modality
from prolip.gaussian import Gaussian
from prolip.retrieval.hits import SearchHits
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.quantiles import fraction_below
from prolip.retrieval.perplexity import PerplexityEstimate

EQUALLY_GOOD = 1 / 3
"""An item is as good as the first if it is nearer for at least this fraction of the draws of the query."""
GENERAL_COUNT = 10
"""From this many fitting items on, or equally good ones, the query counts as general."""
LOW_MATCH = 0.1
"""A relative match below this counts as low (docs/search.md has the choice)."""
COMPARED = 100
"""How many nearest items should be compared with the first."""
COPY_TOLERANCE = 1e-5
"""How far the means (by any dimension) and the CSDs of copies may be apart: copies that were embedded in batches of
different sizes differ by rounding."""


@dataclass(frozen=True, kw_only=True)
class SearchConfidence:
    """How sure a search is of its first result.

    Attributes:
        query_modality: Modality of the query.
        uncertainty: Trace of the query's covariance; None: the query is a point, of a model without uncertainty.
        uncertainty_quantile: Fraction of the database's rows of the query's modality that are more certain; None:
            the database has no quantiles of it, or the query is a point.
        match: Probability that the first item matches the query; None: the model has none, or both have the same
            modality.
        equally_good: Number of items that are as good as the first, itself included but not its copies, among the
            `compared` nearest.
        copies: Number of items with the same mean and the same CSD as the first, itself not included, among the
            `compared` nearest.
        compared: Number of nearest items that were compared with the first.
        fitting: How many of the searched items fit the query; None: there are none, or query and items have the same
            modality.
        unknown_words: Words of the query that the model never met in training (`ProLIP.find_unknown_words`).
        relative_match: How well the searched items match the query, as a multiple of how well they match ""; None: the
            model is not of likelihood, or query and items have the same modality.
        nothing_matches: Whether a limit on the match probability has excluded every item; then nothing is said of how
            many fit, or are as good as the first.
    """

    query_modality: Modality
    uncertainty: float | None
    uncertainty_quantile: float | None
    match: float | None
    equally_good: int
    copies: int
    compared: int
    fitting: PerplexityEstimate | None = None
    unknown_words: tuple[str, ...] = ()
    relative_match: float | None = None
    nothing_matches: bool = False

    @property
    def is_low(self) -> bool:
        """Whether the items match the query much less well than ""."""
        return self.relative_match is not None and self.relative_match < LOW_MATCH

    @property
    def is_qualified(self) -> bool:
        """Whether claims that compare items or queries with each other are withheld or qualified."""
        return self.is_low or bool(self.unknown_words)

    @property
    def num_doubts(self) -> int:
        """How many of the sentences of `describe`, the first ones, are doubts."""
        return len(self._describe_doubts())

    @property
    def is_general(self) -> bool:
        """Whether the query is so general that many items fit it."""
        return (self.equally_good if self.fitting is None else self.fitting.value) >= GENERAL_COUNT

    @property
    def _advice(self) -> str:
        """What to do about a general query; "" for an image, which can't be worded more specifically."""
        return "; a more specific query narrows them down" if self.query_modality == "text" else ""

    def describe(self) -> list[str]:
        """Describe the confidence for a user, one sentence per line."""
        lines = self._describe_doubts()
        if self.match is not None:
            match = "below 0.1%" if self.match < 0.0005 else f"{self.match:.1%}"
            lines.append(f"match probability of the first result: {match}")
        if self.uncertainty is not None:
            comparison = (
                ""
                if self.uncertainty_quantile is None or self.is_qualified
                else f", higher than that of {100 * self.uncertainty_quantile:.1f} % of the {self.query_modality}s in "
                "the database"
            )
            lines.append(f"uncertainty of the query: {self.uncertainty:.4g}{comparison}")
        if self.nothing_matches:
            return lines
        if self.copies:
            others = "1 other result is" if self.copies == 1 else f"{self.copies} other results are"
            lines.append(f"{others} identical to the nearest")
        if self.fitting is not None:
            return lines if self.is_low else [*lines, self._describe_fitting(self.fitting)]
        return lines if self.is_qualified else lines + self._describe_others()

    def _describe_doubts(self) -> list[str]:
        """Say which words the model never met, and whether no item matches: up to two sentences."""
        lines = []
        if self.unknown_words:
            words = ", ".join(f'"{word}"' for word in self.unknown_words)
            it = "it" if len(self.unknown_words) == 1 else "them"
            lines.append(f"the model never met {words} in training: no result shows that it understands {it}")
        if self.is_low:
            items = "images" if self.query_modality == "text" else "texts"
            lines.append(
                f"probably none of the {items} matches: together they match the query {self.relative_match:.2g} times "
                'as well as they match the empty text ""'
            )
        return lines

    def _describe_fitting(self, fitting: PerplexityEstimate) -> str:
        """Describe how many items fit: a sentence."""
        count = format_count(fitting.value)
        interval = (
            "" if fitting.is_exact else f" ({format_count(fitting.low)} to {format_count(fitting.high)})"
        )
        target = (
            f"{'image' if self.query_modality == 'text' else 'text'}{'' if fitting.num_items == 1 else 's'}"
        )
        if self._fits_all_though_specific(fitting):
            return (
                f"no {target.removesuffix('s')} stands out: about {count}{interval} of {fitting.num_items:,} {target} "
                f"fit the query, though it is less uncertain than most {self.query_modality}s in the database"
            )
        is_known = not self.unknown_words
        advice = self._advice if self.is_general and is_known else ""
        verb = "fits" if count == "1" else "fit"
        query = "the query" if is_known else "what the model knows of the query"
        return f"about {count}{interval} of {fitting.num_items:,} {target} {verb} {query}{advice}"

    def _fits_all_though_specific(self, fitting: PerplexityEstimate) -> bool:
        """Whether a specific query fits most items: rather it describes none of them than all."""
        quantile = self.uncertainty_quantile
        is_specific = quantile is not None and quantile < 0.5 and not self.unknown_words
        return is_specific and self.is_general and fitting.value > 0.5 * fitting.num_items

    def _describe_others(self) -> list[str]:
        """Describe how the nearest result, with its copies, compares with the others: a sentence, or none."""
        num_good = self.equally_good + self.copies
        if self.is_general:
            count = "all" if num_good == self.compared else f"{num_good} of the"
            return [
                f"the query is general: {count} {self.compared} nearest results are about as good as the nearest"
                f"{self._advice}"
            ]
        if self.equally_good > 1:
            return [f"{num_good} results are about as good as the nearest"]
        if self.compared > num_good and self.uncertainty is not None:
            nearest = {0: "the nearest result is", 1: "both are"}.get(self.copies, f"all {num_good} are")
            return [f"{nearest} clearly nearer than the others"]
        return []


def format_count(value: float) -> str:
    """Format an estimated number of items: whole, with two significant digits from 100 on.

    Args:
        value: The number.

    Returns:
        Such as 7, 43 or 1,300.
    """
    return f"{round(value, min(0, 1 - math.floor(math.log10(max(value, 1))))):,.0f}"


def compute_confidence(
    database: Database,
    query: Gaussian,
    hits: SearchHits,
    modality: Modality,
    fitting: PerplexityEstimate | None = None,
) -> SearchConfidence:
    """Compute how sure a search is of its first result.

    Args:
        database: The database that was searched.
        query: (D,).
        hits: The query's nearest items by CSD, ideally COMPARED of them.
        modality: Modality of the query.
        fitting: How many items fit the query; None: unknown.

    Returns:
        The query's uncertainty, the match probability of the first hit, and the number of equally good hits.
    """
    uncertainty = float(query.uncertainty)  # 0: the query is a point
    quantiles = database.settings.quantiles.get(modality)
    is_cross_modal = len(hits) > 0 and hits.column("modality")[0] != modality
    quantile = fraction_below(np.array(quantiles), uncertainty) if quantiles and uncertainty else None
    return SearchConfidence(
        query_modality=modality,
        uncertainty=uncertainty or None,
        uncertainty_quantile=quantile,
        match=float(hits.match[0]) if hits.match is not None and is_cross_modal else None,
        equally_good=_count_equally_good(query, hits),
        copies=_count_copies(hits),
        compared=len(hits),
        fitting=fitting,
    )


def probability_nearer_than_first(query: Gaussian, hits: SearchHits) -> np.ndarray:
    """Compute for each hit the probability that it is nearer than the first hit to a draw of the query.

    Args:
        query: (D,).
        hits: n hits.

    Returns:
        (n,), float64; 1/2 for the first hit itself.
    """
    # the difference of the two distances is normal, see the top of this file: its mean is gap, its deviation std
    difference = hits.mean - hits.mean[:1]
    std = 2 * np.sqrt(np.square(difference) @ query.log_var.double().exp().numpy())
    gap = hits.csd - hits.csd[:1]
    with np.errstate(divide="ignore", invalid="ignore"):  # a point query has std 0; copies have gap 0, too
        ratio = np.where(gap == 0, 0.0, -gap / std)
    probability: np.ndarray = torch.special.ndtr(torch.from_numpy(ratio)).numpy()
    return probability


def _count_equally_good(query: Gaussian, hits: SearchHits) -> int:
    """Count the hits that are as good as the first, itself included; 0 without hits.

    Hits with the same mean as the first don't make a query general, so they are not counted.
    """
    if not len(hits):
        return 0
    is_other = ~_has_mean_of_first(hits)
    return 1 + int(np.count_nonzero(is_other & (probability_nearer_than_first(query, hits) >= EQUALLY_GOOD)))


def _count_copies(hits: SearchHits) -> int:
    """Count the hits with the same mean and CSD as the first, itself not included; 0 without hits."""
    is_copy = _has_mean_of_first(hits) & (np.abs(hits.csd - hits.csd[:1]) <= COPY_TOLERANCE)
    return max(int(np.count_nonzero(is_copy)) - 1, 0)


def _has_mean_of_first(hits: SearchHits) -> np.ndarray:
    """Whether each of n hits has the mean of the first one, but for rounding: bool (n,)."""
    is_same: np.ndarray = np.all(np.abs(hits.mean - hits.mean[:1]) <= COPY_TOLERANCE, axis=1)
    return is_same
