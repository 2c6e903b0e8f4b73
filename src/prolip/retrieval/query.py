"""The search: which items of a database are nearest to a query, or included in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from prolip.checks import require_choice, require_count
from prolip.embeddings.dataset import Modality
from prolip.gaussian import Gaussian, checked
from prolip.retrieval.hits import Hits, compared, gaussian_of, included_by
from prolip.retrieval.index import exact as exactly
from prolip.retrieval.index import quantiles
from prolip.retrieval.index.database import Database, Distance
from prolip.retrieval.index.settings import Effort, Settings
from prolip.retrieval.index.sql import all_of, quoted
from prolip.retrieval.index.vectors import asked

By = Literal["csd", "cosine", "match"]
"""csd: by the closed-form sampled distance. cosine: by the means alone. match: csd's order, for those who read
probabilities."""
Rerank = Literal["inclusion", "containment"]
"""By log inclusion, or by log containment, of the item in the query: the items that the query includes come first."""

MOST = 100_000
"""Results of a query."""
FEW = 0.05
"""If fewer rows pass a filter, all of them are compared: an index finds them badly, and it takes about as long."""
HALF_ROUNDING = 1e-3
"""By how much the length of a float16 mean may be off: products and cosines then differ by as much."""


def search(
    database: Database,
    queries: Gaussian,
    k: int = 20,
    *,
    by: By = "csd",
    where: str | None = None,
    modality: Modality | None = None,
    max_uncertainty: float | None = None,
    rerank: Rerank | None = None,
    included: Gaussian | None = None,
    candidates: int | None = None,
    exact: bool = False,
) -> list[Hits]:
    """The k best items for each query (Q, D), by float64; equally good ones in the order of their rows.

    where:           SQL on the database's columns: "uncertainty < 0.02 AND width > 256".
    modality:        only images, or only texts.
    max_uncertainty: a share: 0.9 leaves out the most uncertain tenth of the images, and of the texts.
    rerank:          the `candidates` nearest by CSD (None: ten for each of the k, at least 200), sorted by this.
    included:        the embedding of "", (1, D), which includes everything a little: of the candidates only those that
                     the query includes more, by log inclusion.
    exact:           compare with every item. Without an index that is done anyway.

    With an index, csd and match take what the index finds at the database's effort, and cosine sorts the candidates
    that are nearest by CSD. `Hits.method` says what was done.
    """
    ranking = Ranking(by=by, rerank=rerank, null=included)
    queries = queries.detach()
    _check(database, queries, k, ranking)
    pool = _pool(k, candidates, ranking)
    condition = all_of(_user(database, where), _modality(modality), _certain(database, max_uncertainty))
    filtered = where is not None or max_uncertainty is not None
    effort, told = (None, "exact") if exact else _effort(database.settings, filtered)
    if filtered and effort is not None and database.count(condition) < FEW * database.count():
        effort, told = None, "exact, since few rows pass the filter"
    pooled = ranking.judged or (by == "cosine" and effort is not None)
    count = max(k, pool) if pooled else k
    distance: Distance = "dot" if by == "cosine" and not pooled else "l2"
    columns = [name for name in database.columns if name != "log_var" or ranking.judged]
    found = _found(database, asked(queries.mean.float().numpy()), count, distance, columns, condition, effort)
    method = f"the {count} nearest by CSD ({told}), {ranking.told}" if pooled else told
    temperature = temperature_of(database)
    return [
        _best(rows, query, compared(rows, query, temperature, method), k, count if pooled else None, ranking)
        for rows, query in zip(found, queries, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is best: see `search`."""

    by: By
    rerank: Rerank | None
    null: Gaussian | None

    @property
    def judged(self) -> bool:
        """Whether every variance is looked at, which no index can do."""
        return self.rerank is not None or self.null is not None

    @property
    def told(self) -> str:
        """What was done with candidates, for people."""
        return f"{'' if self.null is None else 'those that the query includes, '}sorted by {self.rerank or self.by}"


def temperature_of(database: Database) -> tuple[float, float] | None:
    """The scale and bias of match probability, if the model has one."""
    header = database.header
    return None if header.scale is None or header.bias is None else (header.scale, header.bias)


def _pool(k: int, candidates: int | None, ranking: Ranking) -> int:
    """How many of the nearest are sorted again."""
    if candidates is None:
        return max(200, 10 * k)
    require_count(candidates, "candidates")
    if not ranking.judged and ranking.by != "cosine":
        raise ValueError("candidates are for rerank, included and cosine: the nearest by CSD need none")
    if candidates < k:
        raise ValueError(f"of {candidates} candidates no {k} can be found: ask for more candidates")
    return candidates


def _effort(settings: Settings, filtered: bool) -> tuple[Effort | None, str]:
    """How hard to search, and how well that went when it was measured, for people."""
    effort = settings.filtered if filtered else settings.effort
    recall = settings.filtered_recall if filtered else settings.recall
    if effort is None or recall is None:
        return None, "exact"
    return effort, f"approximate, recall@10 {recall:.3f} when measured{' with a filter' if filtered else ''}"


def _found(
    database: Database,
    vectors: np.ndarray,
    count: int,
    distance: Distance,
    columns: Sequence[str],
    where: str | None,
    effort: Effort | None,
) -> list[Any]:
    """For each query a pyarrow table of items, the `count` nearest among them."""
    if effort is not None:
        rows = database.nearest(vectors, count, columns=columns, where=where, effort=effort)
        return exactly.split(rows, len(vectors))
    half = distance == "dot" and database.header.precision == "float16"
    rounding = HALF_ROUNDING if half else exactly.ROUNDING
    return exactly.nearest(
        database, vectors, count, columns=columns, distance=distance, where=where, rounding=rounding
    )


def _best(rows: Any, query: Gaussian, hits: Hits, k: int, pool: int | None, ranking: Ranking) -> Hits:
    """Of what was found for one query (D,) the k best, sorted. hits: the rows, compared. pool: so many of them, the
    nearest by CSD, are candidates; None: all."""
    if pool is not None:
        near = hits.order(hits.csd)[:pool]
        rows, hits = rows.take(near), hits.take(near)
    key = -hits.cosine if ranking.by == "cosine" else hits.csd
    keep = np.ones(len(hits), dtype=bool)
    if len(hits) and ranking.judged:
        items = gaussian_of(rows, query.dim)
        if ranking.null is not None:
            keep = included_by(query, items, "inclusion") > included_by(ranking.null[0], items, "inclusion")
        if ranking.rerank is not None:
            inside = included_by(query, items, ranking.rerank)
            hits, key = replace(hits, inclusion=inside), -inside
    order = hits.order(key)
    return hits.take(order[keep[order]][:k])


def _check(database: Database, queries: Gaussian, k: int, ranking: Ranking) -> None:
    header = database.header
    if checked(queries, "queries").mean.ndim != 2 or queries.dim != header.dim:
        raise ValueError(
            f"queries must be (Q, {header.dim}) as the items of {database.uri}, not {tuple(queries.shape)}"
        )
    require_count(k, "k", most=MOST)
    require_choice(ranking.by, get_args(By), "by")
    if ranking.by == "match" and temperature_of(database) is None:
        raise ValueError(
            f"{header.model} was trained with a softmax and has no match probability: search by csd or cosine"
        )
    if ranking.null is not None and checked(ranking.null, "included").shape != (1, header.dim):
        raise ValueError(
            f"included must be one embedding, (1, {header.dim}), not {tuple(ranking.null.shape)}"
        )
    if ranking.rerank is not None and ranking.by == "cosine":
        raise ValueError(f"results are sorted by cosine, or by {ranking.rerank}: leave one out")
    if ranking.rerank is not None:
        require_choice(ranking.rerank, get_args(Rerank), "rerank")
    if ranking.judged and header.variances != "full":
        raise ValueError(
            f"{database.uri} holds the trace of each covariance alone, and inclusion needs every variance: embed with "
            "variances full"
        )


def _user(database: Database, where: str | None) -> str | None:
    if where is not None:
        database.check_filter(where)
    return where


def _modality(modality: Modality | None) -> str | None:
    if modality is None:
        return None
    require_choice(modality, get_args(Modality), "modality")
    return f"modality = {quoted(modality)}"


def _certain(database: Database, share: float | None) -> str | None:
    """SQL for the most certain share of each modality."""
    if share is None:
        return None
    known = database.settings.quantiles
    if not known:
        raise ValueError(
            f"{database.uri} knows no quantiles of uncertainty yet: run `prolip index` to its end"
        )
    cuts = {name: quantiles.cut(np.array(values), share) for name, values in known.items()}
    return " OR ".join(f"modality = {quoted(name)} AND uncertainty <= {cut!r}" for name, cut in cuts.items())
