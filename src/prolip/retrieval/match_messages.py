"""Sentences on the match probabilities of search results: what they are, and what a limit on them has excluded."""

from __future__ import annotations

from prolip.choices import Modality
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.hits import SearchHits
from prolip.retrieval.match_probability import MatchProbability


def describe_match(hits: SearchHits, modality: Modality, config: SearchConfig) -> list[str]:
    """Say what the match probabilities are, and what `matching` and `coverage` have excluded.

    Args:
        hits: Results of a search for a query of the other modality.
        modality: Modality of the results.
        config: Of the search.

    Returns:
        Sentences; none if the model has no match probability.
    """
    if hits.match is None:
        return []
    lines = [_describe_calibration(hits.probability, modality)]
    which = "of this database" if not config.is_filtered else "that passes the filter"
    if config.matching is not None and not len(hits):
        best = "" if hits.best_match is None else f"; the best has {format_probability(hits.best_match)}"
        lines.append(f"no {modality} {which} matches with a probability of at least {config.matching}{best}")
    elif config.matching is not None and hits.is_complete:
        lines.append(f"no other {modality} {which} matches with a probability of at least {config.matching}")
    if config.coverage is not None and config.matching is None:
        lines.append(_describe_coverage(hits, modality, config.coverage))
    return lines


def _describe_calibration(probability: MatchProbability | None, modality: Modality) -> str:
    """Say whether and how the match probabilities of results were calibrated."""
    if probability is None or probability.calibration is None:
        return "match probabilities: not calibrated (prolip calibrate), they are those of a training batch"
    calibration, prior = probability.calibration, probability.priors[modality]
    meaning = f"if 1 {modality} in {1 / prior:,.0f} matches" if calibration.labels == "pairs" else "as judged"
    return f"match probabilities: {calibration.describe()}, {meaning}"


def _describe_coverage(hits: SearchHits, modality: Modality, coverage: float) -> str:
    """Say what the set of results promises."""
    if not hits.is_complete:
        return (
            f"the set with coverage {coverage} has more than these {len(hits)} {modality}s, or the search is "
            "approximate: ask for more results and an exact search"
        )
    items = f"this {modality} is" if len(hits) == 1 else f"these {len(hits)} {modality}s are"
    return (
        f"{items} the set with coverage {coverage}: sets like this hold the {modality} that belongs to the query for "
        f"{coverage:.0%} of queries like the held-out ones"
    )


def format_probability(value: float) -> str:
    """Format a probability with two digits: 0.031, 0.0000012."""
    return f"{value:.2g}"
