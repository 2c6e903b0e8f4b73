"""Search in a database: the items nearest to a query, or included in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.choices import Modality
from prolip.gaussian import Gaussian, check_gaussian
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.hits import SearchHits, log_inclusion_in_query, rows_to_gaussian, score_items
from prolip.retrieval.index.database import Database, Distance, open_database
from prolip.retrieval.index.exact import (
    ROUNDING,
    find_best_matches_exact,
    find_nearest_exact,
    split_by_query,
)
from prolip.retrieval.index.quantiles import value_at_fraction
from prolip.retrieval.index.settings import IndexSettings, SearchEffort
from prolip.retrieval.index.sql import join_conditions, quote_text
from prolip.retrieval.index.vectors import make_query_vectors
from prolip.retrieval.match_probability import MatchProbability, get_match_probability

MIN_INDEXED_FRACTION = 0.05
"""If a smaller fraction of the rows passes a filter, all of them are compared: an index misses many of them, and takes
about as long."""
HALF_ROUNDING = 1e-3
"""By how much the length of a float16 mean may be off: products and cosines then differ by as much."""


def search_gaussians(
    database: str | Path | Database,
    queries: Gaussian,
    config: SearchConfig | None = None,
    *,
    null: Gaussian | None = None,
) -> list[SearchHits]:
    """Find the k best items for each query, compared in float64.

    With an index, csd (and match, if it has the order of CSD) takes what the index finds at the database's effort;
    cosine, and the match of a likelihood model, sort the candidates that are nearest by CSD. `SearchHits.method`
    describes what was done.

    Args:
        database: What `prolip index` wrote, or its location.
        queries: (Q, D), of the database's model.
        config: What to search for. Without a modality both are searched; without rank_by the order is that of CSD,
            since the modality of the queries is not known; the device is not used.
        null: (1, D), the embedding of "", which includes everything a little. If it is given, only those candidates
            are results that the query includes more than null does, by log inclusion.

    Returns:
        One `SearchHits` per query. Equally good items are in the order of their rows.

    Raises:
        ValueError: The queries don't fit the database, a filter is invalid, or the database lacks what is needed.
    """
    database = open_database(database)
    config = choose_rank_by(database, SearchConfig() if config is None else config)
    queries = queries.detach()
    _check_inputs(database, queries, config, null)
    condition = make_condition(database, config)
    probability = get_match_probability(database, config.model)
    _check_match(database, config, probability)
    effort, description = choose_effort(database, config, condition)
    needs_variances = config.rerank is not None or null is not None  # no index ranks by every variance
    is_reranked = needs_variances or _is_candidate_search(database, config, effort)
    num_candidates = config.candidates or max(200, 10 * config.k)
    count = num_candidates if is_reranked else config.k + (1 if config.has_match_limit else 0)
    columns = [name for name in database.columns if name != "log_var" or needs_variances]
    if not is_reranked and config.rank_by == "match" and database.header.gamma is not None:
        parameters = database.header.logit_parameters
        tables = find_best_matches_exact(
            database, queries, count, parameters, columns=columns, where=condition
        )
    else:
        distance: Distance = "dot" if config.rank_by == "cosine" and not is_reranked else "l2"
        vectors = make_query_vectors(queries.mean.float().numpy())
        tables = _fetch_nearest(database, vectors, count, distance, columns, condition, effort)
    if is_reranked:
        filter_note = "" if null is None else "those that the query includes, "
        sorted_by = config.rerank or config.rank_by or "csd"
        description = f"the {count} nearest by CSD ({description}), {filter_note}sorted by {sorted_by}"
    min_logits = None if probability is None else probability.get_min_logits(config)
    is_match_order = effort is None and (not is_reranked or database.header.gamma is None)
    limit = None if min_logits is None else _MatchLimit(min_logits, count, is_match_order and null is None)
    considered = count if is_reranked else None
    return [
        _select_best(
            rows,
            query,
            score_items(rows, query, probability, description),
            config,
            considered,
            null,
            limit,
        )
        for rows, query in zip(tables, queries, strict=True)
    ]


@dataclass(frozen=True)
class _MatchLimit:
    """A limit on the match probability of results.

    Attributes:
        min_logits: The least logit of an item, by its modality.
        count: Items that were requested for each query.
        is_match_order: Whether these certainly are the items with the largest match probability.
    """

    min_logits: dict[Modality, float]
    count: int
    is_match_order: bool

    def select(self, hits: SearchHits) -> np.ndarray:
        """Which of n hits pass: bool (n,)."""
        assert hits.match_logit is not None
        limits = np.array([self.min_logits[name] for name in hits.column("modality")])
        is_passing: np.ndarray = hits.match_logit >= limits
        return is_passing

    def is_complete(self, num_fetched: int, num_passing: int, k: int) -> bool:
        """Whether all items of the database that pass were fetched, and not more than k."""
        return self.is_match_order and num_passing <= k and num_passing < max(num_fetched, self.count)


def _check_match(database: Database, config: SearchConfig, probability: MatchProbability | None) -> None:
    """Raise a ValueError if the config needs match probabilities, and the database has none."""
    if probability is None and (config.rank_by == "match" or config.has_match_limit):
        advice = "use rank_by csd or cosine, or " if config.rank_by == "match" else ""
        raise ValueError(
            f"{database.header.model} was trained with a softmax and has no match probability: {advice}run "
            f"`prolip calibrate PAIRS --model MODEL --out {database.uri}`"
        )


def choose_rank_by(database: Database, config: SearchConfig) -> SearchConfig:
    """Set `rank_by` where a config leaves it open.

    Args:
        database: Its header says whether matches read variances.
        config: What to search for.

    Returns:
        The config; by cosine if widths were added to finished means, else by CSD. Candidates for `rerank`, which
        compares variances, are those by CSD.
    """
    if config.rank_by is not None:
        return config
    by_means = not database.header.reads_variances and config.rerank is None
    return replace(config, rank_by="cosine" if by_means else "csd")


def get_default_modality(database: Database) -> Modality:
    """Choose the modality to search.

    Args:
        database: The database.

    Returns:
        image if the database has any image, else text.
    """
    image_batches = database.iter_batches(["row"], "modality = 'image'")
    return "image" if any(len(batch) for batch in image_batches) else "text"


def make_condition(database: Database, config: SearchConfig) -> str | None:
    """Make the SQL for all filters of a config together.

    Args:
        database: The database.
        config: What to search for.

    Returns:
        The condition; None: there is no filter.

    Raises:
        ValueError: A filter is invalid.
    """
    if config.where is not None:
        database.check_filter(config.where)
    modality = None if config.modality is None else f"modality = {quote_text(config.modality)}"
    return join_conditions(
        config.where, modality, _make_uncertainty_condition(database, config.max_uncertainty)
    )


def _make_uncertainty_condition(database: Database, max_uncertainty: float | None) -> str | None:
    """Make the SQL for the most certain fraction of each modality; None: no limit.

    Raises:
        ValueError: The database has no quantiles.
    """
    if max_uncertainty is None:
        return None
    quantiles = database.settings.quantiles
    if not quantiles:
        raise ValueError(
            f"{database.uri}: max_uncertainty needs quantiles of uncertainty, which the database doesn't have (it is "
            f"empty, or `prolip index` was interrupted). Run `prolip index EMBEDDINGS --out {database.uri}` again."
        )
    limits = {
        name: value_at_fraction(np.array(values), max_uncertainty) for name, values in quantiles.items()
    }
    return " OR ".join(
        f"modality = {quote_text(name)} AND uncertainty <= {limit!r}" for name, limit in limits.items()
    )


def choose_effort(
    database: Database, config: SearchConfig, condition: str | None
) -> tuple[SearchEffort | None, str]:
    """Choose how hard to search, and describe it with the recall that was measured.

    Args:
        database: The database.
        config: Says whether the search must be exact, and whether it is filtered.
        condition: SQL of all filters; None: none.

    Returns:
        The effort, None: an exact search; and the description.
    """
    if config.exact:
        return None, "exact"
    effort, description = _get_measured_effort(database.settings, config.is_filtered)
    if config.is_filtered and effort is not None:
        num_passing = database.count_rows(condition)
        if num_passing < MIN_INDEXED_FRACTION * database.count_rows():
            return None, "exact, since few rows pass the filter"
    return effort, description


def _get_measured_effort(settings: IndexSettings, is_filtered: bool) -> tuple[SearchEffort | None, str]:
    """Get the effort that `build_index` found for searches with or without a filter, and a description with its recall.

    The effort is None, an exact search, if there is no index or no effort reached the target recall.
    """
    effort = settings.filtered_effort if is_filtered else settings.effort
    recall = settings.filtered_recall if is_filtered else settings.recall
    if effort is None or recall is None:
        return None, "exact"
    return effort, f"approximate, measured recall@10 {recall:.3f}{' with a filter' if is_filtered else ''}"


def _fetch_nearest(
    database: Database,
    vectors: np.ndarray,
    count: int,
    distance: Distance,
    columns: Sequence[str],
    where: str | None,
    effort: SearchEffort | None,
) -> list[Any]:
    """Fetch the `count` nearest items of each query; an exact search may fetch more.

    Args:
        database: The database.
        vectors: float32 (Q, vector_size), of `make_query_vectors`.
        count: Items per query.
        distance: l2 or dot, of an exact search; an approximate search always uses l2.
        columns: Columns to return.
        where: SQL of all filters; None: none.
        effort: Effort of an approximate search; None: exact.

    Returns:
        A pyarrow table per query. An exact search also returns items that float32 can't distinguish from the last.
    """
    if effort is not None:
        rows = database.find_nearest(vectors, count, columns=columns, where=where, effort=effort)
        return split_by_query(rows, len(vectors))
    is_half = distance == "dot" and database.header.precision == "float16"
    rounding = HALF_ROUNDING if is_half else ROUNDING
    return find_nearest_exact(
        database, vectors, count, columns=columns, distance=distance, where=where, rounding=rounding
    )


def _select_best(
    rows: Any,
    query: Gaussian,
    hits: SearchHits,
    config: SearchConfig,
    num_candidates: int | None,
    null: Gaussian | None,
    limit: _MatchLimit | None,
) -> SearchHits:
    """Select and sort the k best of the items that were fetched for one query.

    Args:
        rows: The items, a pyarrow table.
        query: (D,).
        hits: The same items with their scores, in the same order.
        config: What to search for.
        num_candidates: Only this many items, the nearest by CSD, are considered; None: all.
        null: As in `search`.
        limit: On the match probability; None: no limit.

    Returns:
        At most k hits, best first; with inclusion if the config has a rerank.
    """
    if num_candidates is not None:
        nearest = hits.argsort(hits.csd)[:num_candidates]
        rows, hits = rows.take(nearest), hits.take(nearest)
    sort_key = _get_sort_key(hits, config)
    is_selected = np.ones(len(hits), dtype=bool)
    if len(hits) and (config.rerank is not None or null is not None):
        items = rows_to_gaussian(rows, query.dim)
        if null is not None:
            in_query, in_null = (log_inclusion_in_query(z, items, "inclusion") for z in (query, null[0]))
            is_selected = in_query > in_null
        if config.rerank is not None:
            inclusion = log_inclusion_in_query(query, items, config.rerank)
            hits, sort_key = replace(hits, inclusion=inclusion), -inclusion
    if limit is not None:
        is_passing = limit.select(hits)
        hits = replace(
            hits,
            best_match=None if hits.match is None or not len(hits) else float(hits.match.max()),
            is_complete=limit.is_complete(len(hits), int(is_passing.sum()), config.k),
        )
        is_selected &= is_passing
    order = hits.argsort(sort_key)
    return hits.take(order[is_selected[order]][: config.k])


def _is_candidate_search(database: Database, config: SearchConfig, effort: SearchEffort | None) -> bool:
    """Whether the nearest by CSD are only candidates, which are sorted by something else or may not match."""
    is_likelihood = database.header.gamma is not None
    if config.rank_by == "match":
        return is_likelihood and effort is not None
    if config.rank_by == "cosine":
        return effort is not None or config.has_match_limit
    return is_likelihood and config.has_match_limit


def _get_sort_key(hits: SearchHits, config: SearchConfig) -> np.ndarray:
    """The key (n,) by which hits are sorted, smallest first. Of PPCL, the order by match is that of CSD."""
    if config.rank_by == "cosine":
        return -hits.cosine
    if config.rank_by == "match" and hits.match_logit is not None:
        return -hits.match_logit
    return hits.csd


def _check_inputs(database: Database, queries: Gaussian, config: SearchConfig, null: Gaussian | None) -> None:
    """Raise a ValueError if queries or null don't fit the database, or the config needs what the database lacks."""
    header = database.header
    if check_gaussian(queries, "queries").mean.ndim != 2 or queries.dim != header.dim:
        raise ValueError(
            f"queries must be (Q, {header.dim}) as the items of {database.uri}, not {tuple(queries.shape)}"
        )
    if config.only_included and null is None:
        raise ValueError('only_included needs null, the embedding of ""')
    if null is not None and check_gaussian(null, "null").shape != (1, header.dim):
        raise ValueError(f"null must be one embedding, (1, {header.dim}), not {tuple(null.shape)}")
    needs_variances = config.rerank is not None or null is not None
    if config.candidates is not None and not needs_variances and config.rank_by in (None, "csd"):
        raise ValueError(
            "candidates has no effect without rerank, only_included (in Python: null) or rank_by cosine: leave out "
            "candidates, or add one of these"
        )
    if needs_variances and header.variances != "full":
        raise ValueError(
            f"{database.uri} holds only the trace of each covariance, and inclusion needs every variance: embed the "
            "data again with --variances full, and index that"
        )
