"""What a search has found for one query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from prolip.embeddings.schema import matrix
from prolip.gaussian import Gaussian
from prolip.measures.public import log_containment, log_inclusion
from prolip.retrieval.index.vectors import mean_of

HIDDEN = ("vector", "log_var", "digest", "query_index", "_distance")
"""Columns that are not for people."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Items, the best first, as many as there are.

    items:     the pyarrow table of them, with all columns of the database but vector, log_var and digest.
    mean:      (n, D), float64. uncertainty: (n,), the trace.
    csd:       (n,), to the query. cosine: (n,), of the means. match: (n,), the probability that a picture and a text
               belong together; None: the model has none.
    inclusion: (n,), of the item in the query, by what was ranked by; None: it was not asked for.
    method:    for people: how they were found.
    """

    items: Any
    mean: np.ndarray
    csd: np.ndarray
    cosine: np.ndarray
    match: np.ndarray | None
    inclusion: np.ndarray | None
    method: str

    def __len__(self) -> int:
        return len(self.csd)

    @property
    def uncertainty(self) -> np.ndarray:
        return np.asarray(self.items["uncertainty"].to_numpy())

    def column(self, name: str) -> list[Any]:
        """A column of the database, of any name: id, number, modality, caption, path, url, origin, ..."""
        return list(self.items[name].to_pylist())

    def order(self, key: np.ndarray) -> np.ndarray:
        """Places from the smallest key (n,) on; equal ones by their rows in the database."""
        return np.lexsort((self.items["row"].to_numpy(), key))

    def head(self, count: int) -> Hits:
        """The first of them."""
        return self.take(np.arange(min(count, len(self))))

    def take(self, places: np.ndarray) -> Hits:
        """Those at these places, in this order."""
        match, inclusion = (None if part is None else part[places] for part in (self.match, self.inclusion))
        return replace(
            self,
            items=self.items.take(places),
            mean=self.mean[places],
            csd=self.csd[places],
            cosine=self.cosine[places],
            match=match,
            inclusion=inclusion,
        )

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each, of kinds that JSON knows: the scores, and all columns but vectors."""
        scores = {"csd": self.csd, "cosine": self.cosine, "match": self.match, "inclusion": self.inclusion}
        told = {name: values.tolist() for name, values in scores.items() if values is not None}
        told |= {name: self.column(name) for name in self.items.column_names}  # none is called like a score
        return [dict(zip(told, values, strict=True)) for values in zip(*told.values(), strict=True)]


def compared(found: Any, query: Gaussian, temperature: tuple[float, float] | None, method: str) -> Hits:
    """Items as the database gave them, (n,) rows, with their scores in float64. query: (D,).

    temperature: the scale and bias of match probability. Not yet sorted.
    """
    own, dim = query.mean.double().numpy(), query.dim
    mean = mean_of(matrix(found["vector"]).numpy(), dim).astype(np.float64)
    traces = found["uncertainty"].to_numpy().astype(np.float64) + float(query.log_var.double().exp().sum())
    csd = np.square(mean - own).sum(1) + traces
    lengths = np.maximum(np.linalg.norm(mean, axis=1) * np.linalg.norm(own), np.finfo(np.float64).tiny)
    match = None if temperature is None else _sigmoid(temperature[0] * (1 - csd / 2) + temperature[1])
    items = found.drop_columns([name for name in HIDDEN if name in found.column_names])
    return Hits(items, mean, csd, mean @ own / lengths, match, None, method)


def gaussian_of(found: Any, dim: int) -> Gaussian:
    """Items that came with `vector` and `log_var` as Gaussians (n, D), float32."""
    return Gaussian(matrix(found["vector"])[:, :dim], matrix(found["log_var"]))


def included_by(query: Gaussian, items: Gaussian, measure: Literal["inclusion", "containment"]) -> np.ndarray:
    """log inclusion, or log containment, of each item (n, D) in the query (D,): (n,), float64."""
    compare = log_inclusion if measure == "inclusion" else log_containment
    values: np.ndarray = compare(items.to(torch.float64), query[None].to(torch.float64)).numpy()
    return values


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return torch.sigmoid(torch.from_numpy(values)).numpy()
