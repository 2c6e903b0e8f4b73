"""Image-text retrieval in both directions: recall@k, mAP@R, R-Precision.

All searches use `prolip.measures.nearest`, so memory grows with queries x k, not with queries x items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import format_percent, make_table
from prolip.data.source import Source
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.positives import Positives, flatten_captions, read_positives
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, find_nearest

RECALL_KS = (1, 5, 10)
"""The k of recall@k."""
METRIC_NAMES = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_at_r": "mAP@R", "r_precision": "R-Precision"}
"""Metric -> its name in tables."""
BLOCK_ITEMS = 2**22
"""Retrieved items that are in memory at one time: 50 MB of indices and similarities."""


def find_hits(
    queries: Gaussian, items: Gaussian, positives: Positives, k: int, metric: SimilarityMetric = "csd"
) -> Tensor:
    """Find the k nearest items of each query, and which of them are positives.

    Args:
        queries: The queries, (Q, D).
        items: The items that are searched, (M, D).
        positives: Positives of Q queries and M items.
        k: Number of nearest items per query.
        metric: Similarity that ranks items.

    Returns:
        bool (Q, min(k, M)), the nearest first.
    """
    _require_matching(queries, items, positives)
    keys, k = positives.keys, min(k, len(items))
    hits = torch.empty((len(queries), k), dtype=torch.bool)
    for rows in torch.arange(len(queries)).split(max(1, BLOCK_ITEMS // k)):
        hits[rows] = _find_block_hits(rows, queries, items, keys, k, metric)
    return hits


def _require_matching(queries: Gaussian, items: Gaussian, positives: Positives) -> None:
    """Raise ValueError unless `positives` is for as many queries and items as there are embeddings of them."""
    if len(queries) + 1 != len(positives.offsets) or len(items) != positives.item_count:
        raise ValueError(
            f"{len(queries)} queries and {len(items)} items, but positives are for {len(positives.counts)} and "
            f"{positives.item_count}"
        )


def _find_block_hits(
    rows: Tensor, queries: Gaussian, items: Gaussian, keys: Tensor, k: int, metric: SimilarityMetric
) -> Tensor:
    """`find_hits` for some queries: bool (B, k).

    rows: int64 (B,), the queries. keys: `Positives.keys`.
    """
    _, indices = find_nearest(queries[rows], items, k, metric=metric)
    return _is_in(rows[:, None] * len(items) + indices, keys)


def _is_in(values: Tensor, keys: Tensor) -> Tensor:
    """Which values are among the sorted keys: bool, in the shape of `values`."""
    if not len(keys):
        return torch.zeros_like(values, dtype=torch.bool)
    index = torch.searchsorted(keys, values).clamp_max(len(keys) - 1)
    return keys[index] == values


def recall_at_k(
    queries: Gaussian,
    items: Gaussian,
    positives: Positives,
    ks: Sequence[int] = RECALL_KS,
    metric: SimilarityMetric = "csd",
) -> dict[str, float | None]:
    """Recall@k: fraction of queries with any positive among their k nearest items.

    Args:
        queries: The queries, (Q, D).
        items: The items that are searched, (M, D).
        positives: Positives of Q queries and M items. Queries without positives don't count.
        ks: Values of k.
        metric: Similarity that ranks items.

    Returns:
        {"r1": ..., "r5": ...}; None for each if no query has positives.
    """
    has_positive = positives.counts > 0
    if not bool(has_positive.any()):
        return {f"r{k}": None for k in ks}
    hits = find_hits(queries, items, positives, max(ks), metric)[has_positive]
    return {f"r{k}": _mean(hits[:, :k].any(1)) for k in ks}


def precision_metrics(
    queries: Gaussian, items: Gaussian, positives: Positives, metric: SimilarityMetric = "csd"
) -> dict[str, float | None]:
    """mAP@R and R-Precision, as ECCV Caption defines them, and R@1. R is the number of positives of a query.

    Args:
        queries: The queries, (Q, D).
        items: The items that are searched, (M, D).
        positives: Positives of Q queries and M items.
        metric: Similarity that ranks items.

    Returns:
        r_precision: positives among the first R items, divided by R.
        map_at_r: sum over i <= R of precision@i where item i is a positive, divided by R.
        r1: whether the first item is a positive.
        Each is the mean over the queries that have positives; None if there are none.
    """
    _require_matching(queries, items, positives)
    counts, keys = positives.counts, positives.keys
    # rows of the queries that have positives, those with the most first
    remaining = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
    if not len(remaining):
        return {"map_at_r": None, "r_precision": None, "r1": None}
    metrics_of_blocks = []
    while len(remaining):
        # sorted by R, so that a block is as wide as its first query needs: a few queries with a large R don't make
        # all blocks wide
        max_positives = int(counts[remaining[0]])
        size = max(1, BLOCK_ITEMS // max_positives)
        rows, remaining = remaining[:size], remaining[size:]
        metrics_of_blocks.append(
            _compute_query_metrics(
                _find_block_hits(rows, queries, items, keys, max_positives, metric), counts[rows]
            )
        )
    average_precisions, r_precisions, first_hits = torch.cat(metrics_of_blocks).unbind(1)
    return {
        "map_at_r": _mean(average_precisions),
        "r_precision": _mean(r_precisions),
        "r1": _mean(first_hits),
    }


def _compute_query_metrics(hits: Tensor, counts: Tensor) -> Tensor:
    """AP@R, R-Precision and whether the first item is a positive, of each query: (Q, 3).

    hits:   bool (Q, K), whether each of the K nearest items is a positive; K at least the largest R.
    counts: int64 (Q,), R, the number of positives of each query.
    """
    rank = torch.arange(1, hits.shape[1] + 1)
    hits_up_to_r = hits & (rank <= counts[:, None])
    precision_at_rank = hits_up_to_r.cumsum(1).double() / rank
    average_precision = precision_at_rank.mul_(hits_up_to_r).sum(1) / counts
    return torch.stack([average_precision, hits_up_to_r.sum(1).double() / counts, hits[:, 0].double()], 1)


def image_text_recall(
    images: Gaussian, texts: Gaussian, image_of_text: Tensor, metric: SimilarityMetric = "csd"
) -> dict[str, Any]:
    """Recall@1, 5 and 10 in both directions.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        image_of_text: Row of each text's image, int64 (T,).
        metric: Similarity that ranks items.

    Returns:
        {"image_to_text": {r1, r5, r10}, "text_to_image": {r1, r5, r10}, "mean_r1": mean of both r1}.
    """
    images_of_texts = Positives.from_pairs(torch.arange(len(texts)), image_of_text, len(texts), len(images))
    to_text = recall_at_k(images, texts, images_of_texts.transpose(), metric=metric)
    to_image = recall_at_k(texts, images, images_of_texts, metric=metric)
    return {
        "image_to_text": to_text,
        "text_to_image": to_image,
        "mean_r1": _mean_of_two(to_text["r1"], to_image["r1"]),
    }


def many_to_many_metrics(
    images: Gaussian, texts: Gaussian, positives: Positives, metric: SimilarityMetric = "csd"
) -> dict[str, Any]:
    """`precision_metrics` in both directions.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        positives: The texts of each image (queries are images, items are texts).
        metric: Similarity that ranks items.

    Returns:
        {"image_to_text": {map_at_r, r_precision, r1}, "text_to_image": {...}}.
    """
    return {
        "image_to_text": precision_metrics(images, texts, positives, metric),
        "text_to_image": precision_metrics(texts, images, positives.transpose(), metric),
    }


def evaluate_retrieval(
    embedder: Embedder,
    source: Source,
    *,
    positives: str | Path | None = None,
) -> dict[str, Any]:
    """Evaluate retrieval on images with one or several captions each, by CSD and by cosine.

    Args:
        embedder: The model, and how to embed with it.
        source: Images with captions.
        positives: A file with all true pairs, for mAP@R and R-Precision, see `read_positives`.

    Returns:
        data (name), images, texts, bad (numbers; bad samples are skipped), csd and cosine (`image_text_recall`).
        With a file of positives, csd and cosine also have many_to_many (`many_to_many_metrics`), and positives is
        {pairs, not_found (pairs of the file whose image or caption was not found)}.
    """
    encoded = embedder.embed_images(source)
    captions, image_of_text = flatten_captions(encoded)
    texts = embedder.embed_texts(captions)
    result: dict[str, Any] = {
        "data": encoded.name, "images": len(encoded), "texts": len(captions), "bad": len(encoded.errors),
    }  # fmt: skip
    metrics: tuple[SimilarityMetric, ...] = ("csd", "cosine")
    for metric in metrics:
        result[metric] = image_text_recall(encoded.images, texts, image_of_text, metric)
    if positives is not None:
        pairs, not_found = read_positives(Path(positives), encoded)
        result["positives"] = {"pairs": len(pairs.indices), "not_found": not_found}
        for metric in metrics:
            result[metric]["many_to_many"] = many_to_many_metrics(encoded.images, texts, pairs, metric)
    return result


def retrieval_tables(result: Mapping[str, Any]) -> list[Table]:
    """Make the table of a retrieval evaluation, in percent.

    Args:
        result: What `evaluate_retrieval` returned.

    Returns:
        One table.
    """
    title = f"Retrieval: {result['images']:,} images, {result['texts']:,} texts (percent)"
    columns = [name for name in METRIC_NAMES if "positives" in result or not name.startswith(("map", "r_"))]
    table = make_table(title, ("metric", "direction"), [METRIC_NAMES[name] for name in columns])
    for metric in ("csd", "cosine"):
        for direction in ("image_to_text", "text_to_image"):
            many_to_many = result[metric].get("many_to_many", {}).get(direction, {})
            # both have r1; the one of an image's own captions is shown
            values = {**many_to_many, **result[metric][direction]}
            table.add_row(
                metric, direction.replace("_", " "), *(format_percent(values[name]) for name in columns)
            )
    return [table]


def _mean(values: Tensor) -> float:
    return values.double().mean().item()


def _mean_of_two(a: float | None, b: float | None) -> float | None:
    """The mean of a and b; None if one of them is None."""
    return None if a is None or b is None else (a + b) / 2
