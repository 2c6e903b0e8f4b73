"""Results of a search for one query: items of a database with their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from prolip.embeddings.schema import column_to_tensor
from prolip.files import shorten_path
from prolip.gaussian import Gaussian
from prolip.measures.public import log_containment, log_inclusion
from prolip.retrieval.index.vectors import extract_means
from prolip.retrieval.match_probability import MatchProbability

INTERNAL_COLUMNS = ("vector", "log_var", "digest", "query_index", "_distance")
"""Columns of a search in a database that `SearchHits.items` doesn't have."""


@dataclass(frozen=True, eq=False)
class SearchHits:
    """The n items that were found for one query, best first.

    Attributes:
        items: A pyarrow table with all columns of the database but vector, log_var and digest.
        mean: float64 (n, D).
        csd: float64 (n,): closed-form sampled distance to the query.
        cosine: float64 (n,): cosine of the means of item and query.
        match_logit: float64 (n,): logit of the probability that an image and a text match, calibrated if `probability`
            has a calibration; None: the model has none.
        inclusion: float64 (n,): log inclusion, or log containment, of the item in the query, by the measure
            that `rerank` of the search named; None: there was no rerank.
        method: How the items were found, for messages.
        probability: How pairs got their match probability; None: the model has none.
        best_match: Largest match probability that was found, of a result or of an item that a limit excluded; None:
            there was no item, or the search had no limit.
        is_complete: Whether the search had a limit, and these are certainly all items of the database that pass it.
    """

    items: Any
    mean: np.ndarray
    csd: np.ndarray
    cosine: np.ndarray
    match_logit: np.ndarray | None
    inclusion: np.ndarray | None
    method: str
    probability: MatchProbability | None = None
    best_match: float | None = None
    is_complete: bool = False

    def __len__(self) -> int:
        return len(self.csd)

    @property
    def match(self) -> np.ndarray | None:
        """(n,), the probability that an image and a text match; None: the model has none."""
        if self.match_logit is None:
            return None
        return torch.sigmoid(torch.from_numpy(self.match_logit)).numpy()

    @property
    def uncertainty(self) -> np.ndarray:
        """(n,), the trace of each covariance."""
        return np.asarray(self.items["uncertainty"].to_numpy())

    def column(self, name: str) -> list[Any]:
        """Get the values of a column of the database.

        Args:
            name: id, index, modality, caption, path, url, origin, ...

        Returns:
            One value per hit.
        """
        return list(self.items[name].to_pylist())

    @property
    def locations(self) -> list[str | None]:
        """n locations of images, for people: the path, relative to the working directory if below it; or the URL."""
        paths, urls = self.column("path"), self.column("url")
        return [url if path is None else shorten_path(path) for path, url in zip(paths, urls, strict=True)]

    def argsort(self, key: np.ndarray) -> np.ndarray:
        """Compute the indices that sort the hits by a key.

        Args:
            key: (n,), smallest first; equal ones by their row in the database.

        Returns:
            int64 (n,).
        """
        return np.lexsort((self.items["row"].to_numpy(), key))

    def head(self, count: int) -> SearchHits:
        """A copy with the first `count` hits."""
        return self.take(np.arange(min(count, len(self))))

    def take(self, indices: np.ndarray) -> SearchHits:
        """A copy with the hits at these indices, in this order."""
        match_logit, inclusion = (
            None if values is None else values[indices] for values in (self.match_logit, self.inclusion)
        )
        return replace(
            self,
            items=self.items.take(indices),
            mean=self.mean[indices],
            csd=self.csd[indices],
            cosine=self.cosine[indices],
            match_logit=match_logit,
            inclusion=inclusion,
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """Make one dict per hit, ready for JSON: its scores, and all columns of `items`."""
        scores = {"csd": self.csd, "cosine": self.cosine, "match": self.match, "inclusion": self.inclusion}
        columns = {name: values.tolist() for name, values in scores.items() if values is not None}
        columns |= {name: self.column(name) for name in self.items.column_names}  # none is named like a score
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def score_items(rows: Any, query: Gaussian, probability: MatchProbability | None, method: str) -> SearchHits:
    """Compute the scores of items in float64. The hits are not sorted.

    Args:
        rows: A pyarrow table of n items, from `Database.find_nearest`.
        query: (D,).
        probability: How pairs get their match probability; None: the model has none.
        method: How the items were found, for messages.

    Returns:
        n hits, in the order of rows, without inclusion.
    """
    query_mean = query.mean.double().numpy()
    mean = extract_means(column_to_tensor(rows["vector"]).numpy(), query.dim).astype(np.float64)
    trace_sums = rows["uncertainty"].to_numpy().astype(np.float64) + float(query.log_var.double().exp().sum())
    csd = np.square(mean - query_mean).sum(1) + trace_sums
    # |item| |query|; at least tiny, so that a zero mean has cosine 0
    norms = np.maximum(np.linalg.norm(mean, axis=1) * np.linalg.norm(query_mean), np.finfo(np.float64).tiny)
    match_logit = None
    if probability is not None:
        # of stored means, whose lengths may be rounded, CSD gives what the product of unit means would
        product = torch.from_numpy(1 - (csd - trace_sums) / 2)
        query_trace = query.log_var.double().exp().sum()
        item_traces = torch.from_numpy(rows["uncertainty"].to_numpy().astype(np.float64))
        trained_logit = probability.parameters.combine(product, query_trace, item_traces, query.dim).numpy()
        match_logit = probability.calibrate(trained_logit, rows["modality"].to_pylist())
    items = rows.drop_columns([name for name in INTERNAL_COLUMNS if name in rows.column_names])
    return SearchHits(items, mean, csd, mean @ query_mean / norms, match_logit, None, method, probability)


def rows_to_gaussian(rows: Any, dim: int) -> Gaussian:
    """Convert rows of a database to Gaussians.

    Args:
        rows: A pyarrow table of n items with `vector` and `log_var`.
        dim: D, the dimensions of the model.

    Returns:
        (n, D), float32.
    """
    return Gaussian(column_to_tensor(rows["vector"])[:, :dim], column_to_tensor(rows["log_var"]))


def log_inclusion_in_query(
    query: Gaussian, items: Gaussian, measure: Literal["inclusion", "containment"]
) -> np.ndarray:
    """Compute log inclusion, or log containment, of each item in a query.

    Args:
        query: (D,).
        items: (n, D).
        measure: inclusion or containment.

    Returns:
        (n,), float64.
    """
    log_measure = log_inclusion if measure == "inclusion" else log_containment
    values: np.ndarray = log_measure(items.to(torch.float64), query[None].to(torch.float64)).numpy()
    return values
