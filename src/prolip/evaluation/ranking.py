"""Ranking: what an evaluation ranks by, and how its similarities become logits of the model."""

from __future__ import annotations

from typing import NamedTuple

from prolip.choices import RankBy
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import RankingMetric


class Ranking(NamedTuple):
    """What an evaluation ranks by.

    Attributes:
        rank_by: The choice, by name.
        metric: What `find_nearest` and `similarity` take. The match of a likelihood model is its PMI; that of PPCL and
            SigLIP is CSD, of which it is a rising function, and that of frozen means the cosine.
        logits: Logits of these similarities are scale x similarity + bias. The bias is None where there is no match
            probability: of a softmax model, and of a likelihood model by CSD or cosine, which it has no scale for (1).
    """

    rank_by: RankBy
    metric: RankingMetric
    logits: LogitParameters


def resolve_ranking(rank_by: RankBy | None, logits: LogitParameters) -> Ranking:
    """Find what an evaluation ranks by.

    Args:
        rank_by: The choice of a config; None: the order that the model was trained for, match for a likelihood model,
            cosine where widths were added to frozen means, and CSD for all others.
        logits: The model's own parameters, `BaseEmbedder.logit_parameters`.

    Returns:
        The ranking.

    Raises:
        ValueError: By match, but the model was trained with a softmax.
    """
    rank_by = rank_by or logits.default_rank_by
    if rank_by == "match" and logits.bias is None:
        raise ValueError(
            "the model was trained with a softmax and has no match probability: use rank_by csd or cosine"
        )
    if logits.similarity_metric is not None:
        return Ranking(rank_by, logits.similarity_metric if rank_by == "match" else rank_by, logits)
    if rank_by == "match":
        return Ranking(rank_by, logits._replace(bias=0.0), LogitParameters(1.0, logits.bias))
    return Ranking(rank_by, rank_by, LogitParameters(1.0, None))
