"""How sure a search is: how uncertain the query is, and whether its first result is really nearer than the others.

A query is a Gaussian N(mu, Sigma), not a point. For a draw x of it, the distance to an item with mean m and trace t is
|x - m|^2 + t, and the difference of two such distances is linear in x: so it is normal, with the mean CSD_r - CSD_1
and the variance 4 sum_d sigma_d^2 (m_r - m_1)_d^2. So the probability that item r is nearer than the first is known
exactly. A general caption is wide, and for it many items are about as right as the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from prolip.embeddings.dataset import Modality
from prolip.gaussian import Gaussian
from prolip.retrieval.hits import Hits
from prolip.retrieval.index import quantiles
from prolip.retrieval.index.database import Database

AS_RIGHT = 1 / 3
"""An item is as right as the first if it is nearer for at least this share of the draws of the query."""
MANY = 10
"""So many items that are as right as the first make a query general."""
LOOKED = 100
"""Items that should be looked at to tell."""


@dataclass(frozen=True)
class Sureness:
    """
    uncertainty: of the query, its trace; None: a point, of a model without uncertainty.
    above:       the share of the database's rows of the query's modality that are more certain; None: there are none.
    match:       the probability that the first item belongs to the query; None: the model has none, or both are of one
                 modality.
    as_right:    items that are as right as the first, itself included, among the `looked` nearest.
    """

    uncertainty: float | None
    above: float | None
    match: float | None
    as_right: int
    looked: int

    @property
    def general(self) -> bool:
        return self.as_right >= MANY

    def lines(self) -> list[str]:
        """For people."""
        told = []
        if self.match is not None:
            told.append(f"match probability of the first: {self.match:.1%}")
        if self.uncertainty is not None:
            rank = (
                "" if self.above is None else f", above that of {self.above:.1%} of its kind in the database"
            )
            told.append(f"uncertainty of the query: {self.uncertainty:.4g}{rank}")
        if self.general:
            count = (
                f"all {self.looked}"
                if self.as_right == self.looked
                else f"{self.as_right} of the {self.looked}"
            )
            told.append(
                f"the query is so general that {count} nearest results are about as right as the nearest: "
                "take any of them, or say more"
            )
        elif self.as_right > 1:
            told.append(f"{self.as_right} results are about as right as the nearest")
        elif self.looked > 1 and self.uncertainty is not None:
            told.append("the nearest result is clearly nearer than the others")
        return told


def sureness(database: Database, query: Gaussian, hits: Hits, modality: Modality) -> Sureness:
    """query: (D,), of this modality. hits: its nearest items by CSD, best about LOOKED of them."""
    uncertainty = float(query.uncertainty)
    known = database.settings.quantiles.get(modality)
    crossed = len(hits) > 0 and hits.column("modality")[0] != modality
    return Sureness(
        uncertainty=uncertainty or None,
        above=quantiles.share_below(np.array(known), uncertainty) if known and uncertainty else None,
        match=float(hits.match[0]) if hits.match is not None and crossed else None,
        as_right=_as_right(query, hits),
        looked=len(hits),
    )


def _as_right(query: Gaussian, hits: Hits) -> int:
    """Copies of the first don't make a query general: they count with it as one."""
    if not len(hits):
        return 0
    other = np.any(hits.mean != hits.mean[:1], axis=1)
    return 1 + int(np.count_nonzero(other & (nearer_than_first(query, hits) >= AS_RIGHT)))


def nearer_than_first(query: Gaussian, hits: Hits) -> np.ndarray:
    """For each hit the probability that it is nearer than the first one to a draw of the query (D,): (n,), 1/2 for the
    first itself."""
    apart = hits.mean - hits.mean[:1]
    spread = 2 * np.sqrt(np.square(apart) @ query.log_var.double().exp().numpy())
    gap = hits.csd - hits.csd[:1]
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a point that asks has no spread; copies have no gap either
        ratio = np.where(gap == 0, 0.0, -gap / spread)
    nearer: np.ndarray = torch.special.ndtr(torch.from_numpy(ratio)).numpy()
    return nearer
