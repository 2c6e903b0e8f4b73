"""Retrieval: does the nearest caption belong to the image, and the nearest image to the caption?

All of it goes through `prolip.measures.nearest`, so that memory grows with queries x k, not with queries x items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.source import Source
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.formatting import format_percent, table
from prolip.evaluation.positives import Positives, flatten_captions, read_positives
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.model.prolip import ProLIP

KS = (1, 5, 10)
NAMES = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_at_r": "mAP@R", "r_precision": "R-Precision"}
"""Metrics, for people."""
FOUND = 2**22
"""Found items that are held at one time: 50 MB of indices and similarities."""


def find_hits(queries: Gaussian, items: Gaussian, positives: Positives, k: int, by: SimilarityMetric = "csd") -> Tensor:
    """Whether each of the k nearest items of a query is a positive: bool (Q, k), best first (M columns if k > M)."""
    _require_fit(queries, items, positives)
    keys, k = positives.keys, min(k, len(items))
    found = torch.empty((len(queries), k), dtype=torch.bool)
    for rows in torch.arange(len(queries)).split(max(1, FOUND // k)):
        found[rows] = _hits_of(rows, queries, items, keys, k, by)
    return found


def _require_fit(queries: Gaussian, items: Gaussian, positives: Positives) -> None:
    if len(queries) + 1 != len(positives.offsets) or len(items) != positives.item_count:
        raise ValueError(
            f"{len(queries)} queries and {len(items)} items, but positives for {len(positives.counts)} and "
            f"{positives.item_count}"
        )


def _hits_of(rows: Tensor, queries: Gaussian, items: Gaussian, keys: Tensor, k: int, by: SimilarityMetric) -> Tensor:
    """`hits` of some queries: bool (len(rows), k). keys: of the positives."""
    _, places = find_nearest(queries[rows], items, k, metric=by)
    return _among(rows[:, None] * len(items) + places, keys)


def _among(wanted: Tensor, keys: Tensor) -> Tensor:
    """Which of the wanted numbers are among the keys (increasing): bool, in the shape of `wanted`."""
    if not len(keys):
        return torch.zeros_like(wanted, dtype=torch.bool)
    at = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return keys[at] == wanted


def recall_at_k(
    queries: Gaussian, items: Gaussian, positives: Positives, ks: Sequence[int] = KS, by: SimilarityMetric = "csd"
) -> dict[str, float | None]:
    """R@k: share of queries with any positive among their k nearest items. {"r1": ..., "r5": ...}.

    Queries without a positive don't count; None if there is no other.
    """
    asked = positives.counts > 0
    if not bool(asked.any()):
        return {f"r{k}": None for k in ks}
    found = find_hits(queries, items, positives, max(ks), by)[asked]
    return {f"r{k}": _mean(found[:, :k].any(1)) for k in ks}


def precision_metrics(
    queries: Gaussian, items: Gaussian, positives: Positives, by: SimilarityMetric = "csd"
) -> dict[str, float | None]:
    """mAP@R and R-Precision, as ECCV Caption defines them, and R@1. R: the number of positives of the query.

    r_precision: positives among the first R, divided by R. map_at_r: sum over i <= R of precision@i where the i-th is
    a positive, divided by R. Both are means over the queries that have positives; None if there is none.
    """
    _require_fit(queries, items, positives)
    counts, keys = positives.counts, positives.keys
    left = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
    if not len(left):
        return {"map_at_r": None, "r_precision": None, "r1": None}
    parts = []
    while len(left):
        # the largest R comes first, and alone says how wide and so how long a block is: a few queries with a large R
        # don't make all others wide
        most = int(counts[left[0]])
        rows, left = left[: max(1, FOUND // most)], left[max(1, FOUND // most) :]
        parts.append(_ranked(_hits_of(rows, queries, items, keys, most, by), counts[rows]))
    averages, precisions, firsts = torch.cat(parts).unbind(1)
    return {"map_at_r": _mean(averages), "r_precision": _mean(precisions), "r1": _mean(firsts)}


def _ranked(found: Tensor, counts: Tensor) -> Tensor:
    """AP@R, R-Precision and whether the first is right, of each query: (Q, 3). found: bool (Q, max R), counts: R."""
    places = torch.arange(1, found.shape[1] + 1)
    right = found & (places <= counts[:, None])
    averages = (right.cumsum(1).double() / places).mul_(right).sum(1) / counts
    return torch.stack([averages, right.sum(1).double() / counts, found[:, 0].double()], 1)


def image_text_recall(
    images: Gaussian, texts: Gaussian, image_of_text: Tensor, by: SimilarityMetric = "csd"
) -> dict[str, Any]:
    """R@1, 5, 10 both ways, each text belonging to one image. image_of_text: int64 (T,), the image's row.

    {"image_to_text": {"r1", "r5", "r10"}, "text_to_image": {...}, "mean_r1"}.
    """
    own = Positives.from_pairs(torch.arange(len(texts)), image_of_text, len(texts), len(images))
    to_text = recall_at_k(images, texts, own.transpose(), by=by)
    to_image = recall_at_k(texts, images, own, by=by)
    return {
        "image_to_text": to_text,
        "text_to_image": to_image,
        "mean_r1": _middle(to_text["r1"], to_image["r1"]),
    }


def many_to_many_metrics(
    images: Gaussian, texts: Gaussian, positives: Positives, by: SimilarityMetric = "csd"
) -> dict[str, Any]:
    """`precision_metrics` both ways. positives: the texts of each image; the same pairs serve both ways."""
    return {
        "image_to_text": precision_metrics(images, texts, positives, by),
        "text_to_image": precision_metrics(texts, images, positives.transpose(), by),
    }


def evaluate_retrieval(
    model: ProLIP,
    source: Source,
    *,
    positives: str | Path | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Retrieval on pictures with captions, one or several each, by CSD and by cosine.

    positives: a table of all that is true, beyond each picture's own captions, for mAP@R and R-Precision: see
    `read_positives`.
    Returns {"data", "images", "texts", "bad", "csd": `image_text_recall`, "cosine": ...}; with positives each score also has
    "many_to_many", and "positives" tells how many pairs there are and how many names of the table were not found.
    """
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    encoded = embedder.embed_images(source)
    captions, image_of_text = flatten_captions(encoded)
    texts = embedder.embed_texts(captions)
    result: dict[str, Any] = {
        "data": encoded.name, "images": len(encoded), "texts": len(captions), "bad": len(encoded.errors),
    }  # fmt: skip
    scores: tuple[SimilarityMetric, ...] = ("csd", "cosine")
    for by in scores:
        result[by] = image_text_recall(encoded.images, texts, image_of_text, by)
    if positives is not None:
        truth, unknown = read_positives(Path(positives), encoded)
        result["positives"] = {"pairs": len(truth.indices), "not_found": unknown}
        for by in scores:
            result[by]["many_to_many"] = many_to_many_metrics(encoded.images, texts, truth, by)
    return result


def retrieval_tables(result: Mapping[str, Any]) -> list[Table]:
    """What `evaluate` found, for people; percent."""
    title = f"Retrieval: {result['images']:,} images, {result['texts']:,} texts (percent)"
    columns = [name for name in NAMES if "positives" in result or not name.startswith(("map", "r_"))]
    shown = table(title, ("score", "way"), [NAMES[name] for name in columns])
    for by in ("csd", "cosine"):
        for way in ("image_to_text", "text_to_image"):
            values = {**result[by].get("many_to_many", {}).get(way, {}), **result[by][way]}
            shown.add_row(by, way.replace("_", " "), *(format_percent(values[name]) for name in columns))
    return [shown]


def _mean(values: Tensor) -> float:
    return values.double().mean().item()


def _middle(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else (a + b) / 2
