"""How many items of a pool fit: exact over a Gaussian or data on disk, or estimated with an interval in a database."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.choices import Modality
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import has_embeddings
from prolip.embeddings.schema import column_to_tensor
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.match import LogitParameters
from prolip.measures.perplexity import compute_logits, estimate_entropy, log_perplexity, sum_softmax
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.database import Database, has_database, open_database
from prolip.retrieval.index.exact import split_by_query
from prolip.retrieval.index.resident import iter_mean_traces
from prolip.retrieval.index.sql import quote_text
from prolip.retrieval.index.tune import draw_rows, read_rows
from prolip.retrieval.index.vectors import make_query_vectors
from prolip.retrieval.query import choose_effort, get_default_modality, make_condition
from prolip.tensor_checks import describe_type

Pool = Gaussian | EmbeddingDataset | Database | str | Path
"""Items that may fit: in memory; what `prolip embed` wrote; what `prolip index` wrote; or the location of either."""
ITEM_COLUMNS = ("row", "vector", "uncertainty")
"""Columns of a database that logits need."""
NEAREST = 1000
"""Items nearest to the query that an estimate counts exactly."""
SAMPLED = 2000
"""Other items that are drawn for an estimate."""
INTERVAL = 1.96
"""Standard errors on either side of an estimate: 95 % if the error is normal."""


@dataclass(frozen=True, kw_only=True)
class PerplexityEstimate:
    """How many items of a database fit a query.

    Attributes:
        value: exp of the entropy of the softmax of the query's logits over the items: the effective number that fit.
        low, high: Ends of an interval that should hold the exact value in 95 % of the cases; both are `value` if it is
            exact.
        num_items: Number of items that were searched.
        is_exact: Whether every item was compared.
        log_mean: ln of the mean of exp(logit) over the items; None: not computed.
    """

    value: float
    low: float
    high: float
    num_items: int
    is_exact: bool
    log_mean: float | None = None


def perplexity(
    items: Gaussian,
    pool: Pool,
    logits: float | LogitParameters | None = None,
    *,
    k: float = 1.0,
    exclude: Tensor | None = None,
    modality: Modality | None = None,
) -> Tensor:
    """How many items of a pool fit each embedding: exp of the entropy of the softmax of its logits over the pool.

    For a text and a pool of images: the effective number of these images that it describes. It needs no training, and
    with a number for `logits` no variances, so that it works with CLIP and SigLIP too. Exact; the pool is read once,
    part by part, and memory doesn't grow with it.

    Args:
        items: (N, D), of another modality than the pool.
        pool: A Gaussian (M, D); an embedding data set or a database, or its location.
        logits: A number: scale a of the logits a mu . x, by the means alone. `LogitParameters`
            (`ProLIP.logit_parameters`): logits of the match that the model was trained with. None: those in the header
            of a data set or database.
        k: Factor of the logits, at least 0. Small values count more items as fitting; 0 counts all.
        exclude: For each item the row of the pool that it leaves out (its own pair), int64 (N,); -1: none. Rows of a
            data set are counted over all parts, among those of the modality; those of a database have no order.
        modality: Rows of a data set or database that are the pool. None: texts if it has only texts, else images.

    Returns:
        float64 (N,), from 1 (one item fits) to M (all fit equally; M - 1 where one is excluded).

    Raises:
        TypeError, ValueError: An argument doesn't fit the pool, or has a wrong value.
        FileNotFoundError: There are no embeddings and no database at the location.
    """
    if isinstance(pool, Gaussian):
        if logits is None:
            raise ValueError(
                "a pool in memory doesn't know the logits of its model: pass logits=model.logit_parameters, or the "
                "scale of logits by the means alone, such as logits=100.0 for CLIP"
            )
        if modality is not None:
            raise ValueError(
                "modality selects rows of a data set or database; a Gaussian is the pool as it is: leave it out"
            )
        return log_perplexity(items, pool, logits, k=k, exclude=exclude).exp()
    opened = _open_pool(pool)
    if isinstance(opened, Database) and exclude is not None:
        raise ValueError(
            f"exclude needs rows in a fixed order, which {opened.uri} doesn't have: pass the embedding data set that "
            "was indexed"
        )
    parameters = opened.header.logit_parameters if logits is None else logits
    return log_perplexity(items, _iter_parts(opened, modality), parameters, k=k, exclude=exclude).exp()


def estimate_perplexity(
    database: str | Path | Database, queries: Gaussian, config: SearchConfig | None = None, *, seed: int = 0
) -> list[PerplexityEstimate]:
    """How many items of a database fit each query, by the trained match: exact if a search is, else an estimate.

    An estimate counts the NEAREST items that the index finds exactly, and lets SAMPLED random ones stand for all
    others, so that items which the index misses are not lost. The interval comes from the spread among the drawn ones.
    That reads NEAREST items per query, and once for all queries the column `row` and SAMPLED items.

    Args:
        database: What `prolip index` wrote, or its location.
        queries: (Q, D), of another modality than the items.
        config: Its modality, filters and `exact` select the items, and how they are searched. None: the defaults.
        seed: Seed of the draw.

    Returns:
        One estimate per query; none at all if no item passes the filters.
    """
    database, config = open_database(database), config or SearchConfig()
    config = replace(config, modality=config.modality or get_default_modality(database))
    condition = make_condition(database, config)
    effort, _ = choose_effort(database, config, condition)
    num_items = database.count_rows(condition)
    if not num_items:
        return []
    parameters = database.header.logit_parameters
    if effort is None or num_items <= NEAREST + SAMPLED:
        sums = sum_softmax(queries, _iter_database(database, condition), parameters)
        values = sums.entropy.clamp_min(0.0).exp().tolist()
        log_means = (sums.log_sum - math.log(num_items)).tolist()
        return [
            PerplexityEstimate(
                value=value, low=value, high=value, num_items=num_items, is_exact=True, log_mean=log_mean
            )
            for value, log_mean in zip(values, log_means, strict=True)
        ]
    vectors = make_query_vectors(queries.mean.float().numpy())
    # what the index finds needs no refining: any items may be the exact ones, and refining reads many times as many
    quick = replace(effort, refine=1)
    found = database.find_nearest(vectors, NEAREST, columns=ITEM_COLUMNS, where=condition, effort=quick)
    rows = draw_rows(database, condition, SAMPLED, seed)
    drawn = read_rows(database, rows, ITEM_COLUMNS)
    return [
        _estimate(query, nearest, drawn, parameters, num_items)
        for query, nearest in zip(queries, split_by_query(found, len(queries)), strict=True)
    ]


def _estimate(
    query: Gaussian, nearest: Any, drawn: Any, parameters: LogitParameters, num_items: int
) -> PerplexityEstimate:
    """Estimate the perplexity of one query (D,) from its nearest items and drawn ones, tables of a database."""
    is_other = np.isin(drawn["row"].to_numpy(), nearest["row"].to_numpy(), invert=True)
    asked = query[None].mean_trace()
    exact, sampled = (
        compute_logits(asked, _read_items(rows, query.dim), parameters)
        for rows in (nearest, drawn.filter(is_other))
    )
    num_others = num_items - len(nearest)
    entropy, error = estimate_entropy(exact[0], sampled[0], num_others)
    log_sum = exact[0].logsumexp(0)
    if len(sampled[0]):
        log_weight = math.log(num_others / len(sampled[0]))
        log_sum = torch.logaddexp(log_sum, sampled[0].logsumexp(0) + log_weight)
    low, value, high = (
        min(max(math.exp(entropy + z * error), 1.0), num_items) for z in (-INTERVAL, 0.0, INTERVAL)
    )
    log_mean = float(log_sum) - math.log(num_items)
    return PerplexityEstimate(
        value=value, low=low, high=high, num_items=num_items, is_exact=False, log_mean=log_mean
    )


def _open_pool(pool: object) -> EmbeddingDataset | Database:
    """Open a data set or database, unless it is open already."""
    if isinstance(pool, EmbeddingDataset | Database):
        return pool
    if not isinstance(pool, str | Path):
        raise TypeError(
            "pool must be a Gaussian, an EmbeddingDataset, a Database or a location, not "
            f"{describe_type(pool)}"
        )
    if has_embeddings(pool):
        return EmbeddingDataset.open(pool)
    if has_database(pool):
        return Database.open(pool)
    raise FileNotFoundError(
        f"{pool} holds neither embeddings nor a database: `prolip embed` writes embeddings, `prolip index` a database"
    )


def _iter_parts(pool: EmbeddingDataset | Database, modality: Modality | None) -> Iterator[MeanTrace]:
    """The means and traces of all items of a modality, part by part; None: the default modality."""
    if isinstance(pool, Database):
        chosen = modality or get_default_modality(pool)
        yield from _iter_database(pool, f"modality = {quote_text(chosen)}")
        return
    chosen = modality or pool.header.modality or "image"
    yield from pool.iter_mean_traces(chosen)


def _iter_database(database: Database, condition: str | None) -> Iterator[MeanTrace]:
    """The means and traces of the items of a database that pass a condition (None: all), batch by batch."""
    for _, items in iter_mean_traces(database, condition):
        yield items


def _read_items(rows: Any, dim: int) -> MeanTrace:
    """Means (n, D) and traces (n,) of a table of n rows of a database."""
    vectors = column_to_tensor(rows["vector"])
    return MeanTrace(vectors[:, :dim], torch.from_numpy(rows["uncertainty"].to_numpy().copy()))
