"""Scores that compare each image or caption with all others: its perplexity over the items of the other modality."""

from __future__ import annotations

from typing import Any

import numpy as np

from prolip.choices import Modality
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.schema import read_mean_traces
from prolip.extras import import_extra
from prolip.measures.perplexity import log_perplexity

POOLS: dict[str, tuple[Modality, Modality]] = {
    "image_perplexity": ("image", "text"),
    "text_perplexity": ("text", "image"),
}
"""By column of the scores: the modality of the queries, and that of the pool."""


def fill_perplexity(scores: Any, column: str, embeddings: EmbeddingDataset, part: int) -> Any:
    """Fill a perplexity column of the scores of a part: how many items of the whole data set fit each query.

    Exact, by the match that the model was trained with; an item's own pair counts like the others. It reads the
    embeddings of the other modality once, part by part: N queries and M items take time N M D.

    Args:
        scores: Table of the part, of `compute_scores`.
        column: A key of `POOLS`.
        embeddings: All embeddings.
        part: Index of the part.

    Returns:
        The table with the column: null where there is no query, and everywhere if there is no pool.
    """
    arrow = import_extra("pyarrow", "data")
    modality, pool_modality = POOLS[column]
    rows = scores[f"{modality}_row"].fill_null(-1).to_numpy()
    values = np.full(len(rows), np.nan, np.float32)
    # an image with several captions has several rows
    queries, query_of_row = np.unique(rows[rows >= 0], return_inverse=True)
    if len(queries) and _has_items(embeddings, pool_modality):
        vectors = embeddings.read_part(part, ["mean", "uncertainty"]).take(arrow.array(queries))
        log_counts = log_perplexity(
            read_mean_traces(vectors),
            embeddings.iter_mean_traces(pool_modality),
            embeddings.header.logit_parameters,
        )
        values[rows >= 0] = log_counts.exp().float().numpy()[query_of_row]
    index = scores.schema.get_field_index(column)
    return scores.set_column(index, scores.schema.field(index), arrow.array(values, mask=np.isnan(values)))


def _has_items(embeddings: EmbeddingDataset, modality: Modality) -> bool:
    """Whether a data set has an embedding of a modality."""
    return any(len(rows) for _, rows in embeddings.iter_parts(modality, ["index"]))
