"""Image-text retrieval in both directions: recall@k, mAP@R, R-Precision.

All searches use `prolip.measures.nearest`, so memory grows with queries x k, not with queries x items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from rich.table import Table
from torch import Tensor

from prolip.choices import RankBy
from prolip.console import MISSING, describe_bad_samples, format_number, format_percent, make_table
from prolip.data.source import Source, Subset
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation.configs import RetrievalConfig
from prolip.evaluation.metrics.bins import AccuracyBin, accuracy_by_uncertainty
from prolip.evaluation.metrics.detection import DetectionMetrics, detection_metrics
from prolip.evaluation.metrics.match_calibration import LIKELY, MatchCalibration, match_calibration
from prolip.evaluation.positives import Positives, flatten_captions, read_positives
from prolip.evaluation.result import Mean, Proportion, Result, get_value
from prolip.gaussian import Gaussian
from prolip.measures.nearest import RankingMetric, find_nearest

RECALL_KS = (1, 5, 10)
"""The k of recall@k."""
METRIC_NAMES = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_at_r": "mAP@R", "r_precision": "R-Precision"}
"""Metric -> its name in tables."""
BLOCK_ITEMS = 2**22
"""Retrieved items that are in memory at one time: 50 MB of indices and similarities."""

Direction = Literal["image_to_text", "text_to_image"]
"""Queries and items of a search."""


@dataclass(frozen=True, kw_only=True)
class Recalls:
    """Recall@k: fraction of queries with any positive among their k nearest items. None: no query has positives."""

    r1: Proportion | None
    """Recall@1."""
    r5: Proportion | None
    """Recall@5."""
    r10: Proportion | None
    """Recall@10."""


@dataclass(frozen=True, kw_only=True)
class PrecisionMetrics:
    """Metrics of queries with several positives; R is the number of positives of a query. None: no query has any."""

    map_at_r: Mean | None
    """Sum over i <= R of precision@i where item i is a positive, divided by R; mean over queries."""
    r_precision: Mean | None
    """Positives among the first R items, divided by R; mean over queries."""
    r1: Proportion | None
    """Fraction of queries whose first item is a positive."""


@dataclass(frozen=True, kw_only=True)
class ManyToManyMetrics:
    """mAP@R and R-Precision in both directions, as ECCV Caption defines them."""

    image_to_text: PrecisionMetrics
    """Images are the queries."""
    text_to_image: PrecisionMetrics
    """Texts are the queries."""


@dataclass(frozen=True, kw_only=True)
class RecallByUncertainty:
    """Recall@1 of the queries that have positives, by their uncertainty."""

    deciles: tuple[AccuracyBin, ...]
    """Recall@1 by decile of the query's uncertainty, from the least uncertain queries on."""
    errors: DetectionMetrics
    """Detection, by the query's uncertainty, of queries whose nearest item is not a positive."""


@dataclass(frozen=True, kw_only=True)
class DirectionsByUncertainty:
    """Recall@1 by the uncertainty of the query, in both directions. None: no query has positives."""

    image_to_text: RecallByUncertainty | None
    """Images are the queries."""
    text_to_image: RecallByUncertainty | None
    """Texts are the queries."""


@dataclass(frozen=True, kw_only=True)
class RetrievalMetrics:
    """Retrieval in both directions by one similarity."""

    image_to_text: Recalls
    """Images are the queries; their own captions are the positives."""
    text_to_image: Recalls
    """Texts are the queries; their own image is the positive."""
    mean_r1: float | None
    """Mean of recall@1 of both directions."""
    many_to_many: ManyToManyMetrics | None = None
    """With a file of positives: metrics of all true pairs."""
    by_uncertainty: DirectionsByUncertainty | None = None
    """Recall@1 by the uncertainty of the query; None for a deterministic model."""

    def by_name(self, direction: Direction) -> dict[str, Proportion | Mean | None]:
        """All metrics of a direction.

        Args:
            direction: "image_to_text" or "text_to_image".

        Returns:
            By the keys of `METRIC_NAMES`; without mAP@R and R-Precision if there was no file of positives. Both kinds
            of metrics have R@1: this is the one of an image's own captions.
        """
        recalls: Recalls = getattr(self, direction)
        metrics: dict[str, Proportion | Mean | None] = {
            "r1": recalls.r1,
            "r5": recalls.r5,
            "r10": recalls.r10,
        }
        if self.many_to_many is not None:
            precision: PrecisionMetrics = getattr(self.many_to_many, direction)
            metrics |= {"map_at_r": precision.map_at_r, "r_precision": precision.r_precision}
        return metrics


@dataclass(frozen=True, kw_only=True)
class PositivesCount:
    """What was read from a file of positives."""

    num_pairs: int
    """Pairs of an image and a text."""
    num_not_found: int
    """Pairs of the file whose image or caption was not found, because it is a bad sample's."""


@dataclass(frozen=True, kw_only=True)
class RetrievalResult(Result):
    """Result of image-text retrieval; `n` is the number of images."""

    task: ClassVar[str] = "retrieval"

    num_texts: int
    """Number of captions of all images."""
    csd: RetrievalMetrics
    """Nearest by CSD."""
    cosine: RetrievalMetrics
    """Nearest by the cosine of the means."""
    match: RetrievalMetrics | None = None
    """Of a likelihood model: nearest by its match probability. None for all others: the match of PPCL and SigLIP has
    the order of CSD, and a softmax model has no match probability."""
    positives: PositivesCount | None = None
    """With a file of positives: how many pairs it had."""
    match_calibration: MatchCalibration | None = None
    """Calibration of match probabilities in batches of images with one caption each; None for a softmax model, and if
    there are fewer images than in a batch."""

    @property
    def rank_by(self) -> RankBy:
        """The order that the model was trained for: match for a likelihood model, else CSD."""
        return "csd" if self.match is None else "match"

    @property
    def trained(self) -> RetrievalMetrics:
        """The metrics by the order that the model was trained for."""
        return self.csd if self.match is None else self.match

    def by_metric(self) -> dict[RankBy, RetrievalMetrics]:
        """The metrics by similarity."""
        metrics: dict[RankBy, RetrievalMetrics] = {"csd": self.csd, "cosine": self.cosine}
        return metrics if self.match is None else {**metrics, "match": self.match}

    def tables(self) -> list[Table]:
        """All metrics, in percent; recall@1 by uncertainty unless the model is deterministic; match probabilities."""
        title = f"Retrieval: {self.n:,} images, {self.num_texts:,} texts (percent)"
        names = list(self.csd.by_name("image_to_text"))
        table = make_table(
            title, ("metric", "direction"), [METRIC_NAMES[name] for name in names],
            caption=describe_bad_samples(self.num_bad),
        )  # fmt: skip
        directions: tuple[Direction, ...] = ("image_to_text", "text_to_image")
        for metric, metrics in self.by_metric().items():
            for direction in directions:
                values = metrics.by_name(direction)
                cells = (format_percent(get_value(values[name])) for name in names)
                table.add_row(metric, direction.replace("_", " "), *cells)
        tables = [table] if self.csd.by_uncertainty is None else [table, _make_uncertainty_table(self)]
        found = self.match_calibration
        return tables if found is None else [*tables, _make_calibration_table(found)]


def _make_uncertainty_table(result: RetrievalResult) -> Table:
    """Table of recall@1 of the surest and the least sure tenth of the queries, and of the detection of errors."""
    table = make_table(
        "R@1 by the uncertainty of the query (percent)", ("metric", "direction"),
        ("n", "surest tenth", "least sure tenth", "AUROC of errors", "FPR95"),
        caption="AUROC: does uncertainty tell that the nearest item is wrong? 0.5 is chance; FPR95: 0.95 is chance",
    )  # fmt: skip
    directions: tuple[Direction, ...] = ("image_to_text", "text_to_image")
    for metric, metrics in result.by_metric().items():
        for direction in directions:
            found: RecallByUncertainty | None = getattr(metrics.by_uncertainty, direction, None)
            cells = [MISSING] * 5
            if found is not None:
                ends = (format_percent(found.deciles[end].accuracy.value) for end in (0, -1))
                errors = found.errors
                cells = [f"{errors.n:,}", *ends]
                cells += [format_number(value, ".3f") for value in (errors.auroc, errors.fpr95)]
            table.add_row(metric, direction.replace("_", " "), *cells)
    return table


def _make_calibration_table(found: MatchCalibration) -> Table:
    """Table of the calibration of match probabilities, over all pairs and over the likely ones."""
    table = make_table(
        f"Match probability: {found.n:,} captions with their images, in batches of {found.batch_size:,}",
        ("pairs of a batch",),
        ("n", "ECE", "Brier score", "log loss"),
        caption="a caption matches its own image only; the batch size should be that of training (--match-batch)",
    )
    rows = (
        ("all", found.n * found.batch_size, found.pairs),
        (f"with a probability above {LIKELY:g}", found.num_likely, found.likely),
    )
    for name, count, metrics in rows:
        values = () if metrics is None else (metrics.ece, metrics.brier, metrics.log_loss)
        cells = [format_number(value, ".4f") for value in values] or [MISSING] * 3
        table.add_row(name, f"{count:,}", *cells)
    return table


def find_hits(
    queries: Gaussian, items: Gaussian, positives: Positives, k: int, metric: RankingMetric = "csd"
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
    rows: Tensor, queries: Gaussian, items: Gaussian, keys: Tensor, k: int, metric: RankingMetric
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
    metric: RankingMetric = "csd",
) -> dict[str, Proportion | None]:
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
    return _compute_recalls(hits, ks)


def _compute_recalls(hits: Tensor, ks: Sequence[int] = RECALL_KS) -> dict[str, Proportion | None]:
    """Recall@k of the hits, bool (Q, K), of queries that have positives."""
    return {f"r{k}": Proportion.from_mean(_mean(hits[:, :k].any(1)), len(hits)) for k in ks}


def recall_by_uncertainty(hits: Tensor, uncertainty: Tensor) -> RecallByUncertainty:
    """Recall@1 by the uncertainty of the query.

    Args:
        hits: Whether the nearest item of each query is a positive, bool (Q,), Q at least 1.
        uncertainty: Uncertainty of each query, (Q,).

    Returns:
        Recall@1 by decile, and the detection of errors.
    """
    return RecallByUncertainty(
        deciles=accuracy_by_uncertainty(hits, uncertainty), errors=detection_metrics(~hits, uncertainty)
    )


def precision_metrics(
    queries: Gaussian, items: Gaussian, positives: Positives, metric: RankingMetric = "csd"
) -> PrecisionMetrics:
    """mAP@R and R-Precision, as ECCV Caption defines them, and R@1. R is the number of positives of a query.

    Args:
        queries: The queries, (Q, D).
        items: The items that are searched, (M, D).
        positives: Positives of Q queries and M items.
        metric: Similarity that ranks items.

    Returns:
        The metrics, over the queries that have positives.
    """
    _require_matching(queries, items, positives)
    counts, keys = positives.counts, positives.keys
    # rows of the queries that have positives, those with the most first
    remaining = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
    if not len(remaining):
        return PrecisionMetrics(map_at_r=None, r_precision=None, r1=None)
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
    return PrecisionMetrics(
        map_at_r=Mean.from_values(average_precisions),
        r_precision=Mean.from_values(r_precisions),
        r1=Proportion.from_mean(_mean(first_hits), len(first_hits)),
    )


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
    images: Gaussian, texts: Gaussian, image_of_text: Tensor, metric: RankingMetric = "csd"
) -> RetrievalMetrics:
    """Recall@1, 5 and 10 in both directions.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        image_of_text: Row of each text's image, int64 (T,).
        metric: Similarity that ranks items.

    Returns:
        The recalls, and the mean of both recalls at 1.
    """
    images_of_texts = Positives.from_pairs(torch.arange(len(texts)), image_of_text, len(texts), len(images))
    to_text, text_recall = _search_direction(images, texts, images_of_texts.transpose(), metric)
    to_image, image_recall = _search_direction(texts, images, images_of_texts, metric)
    has_uncertainty = bool(images.uncertainty.any()) and bool(texts.uncertainty.any())
    return RetrievalMetrics(
        image_to_text=to_text,
        text_to_image=to_image,
        mean_r1=_mean_of_two(get_value(to_text.r1), get_value(to_image.r1)),
        by_uncertainty=DirectionsByUncertainty(image_to_text=text_recall, text_to_image=image_recall)
        if has_uncertainty
        else None,
    )


def _search_direction(
    queries: Gaussian, items: Gaussian, positives: Positives, metric: RankingMetric
) -> tuple[Recalls, RecallByUncertainty | None]:
    """Recalls of one direction, and recall@1 by uncertainty, from one search; None if no query has positives."""
    has_positive = positives.counts > 0
    if not bool(has_positive.any()):
        return Recalls(r1=None, r5=None, r10=None), None
    hits = find_hits(queries, items, positives, max(RECALL_KS), metric)[has_positive]
    uncertainty = queries.uncertainty[has_positive].double()
    return Recalls(**_compute_recalls(hits)), recall_by_uncertainty(hits[:, 0], uncertainty)


def many_to_many_metrics(
    images: Gaussian, texts: Gaussian, positives: Positives, metric: RankingMetric = "csd"
) -> ManyToManyMetrics:
    """`precision_metrics` in both directions.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        positives: The texts of each image (queries are images, items are texts).
        metric: Similarity that ranks items.

    Returns:
        The metrics of each direction.
    """
    return ManyToManyMetrics(
        image_to_text=precision_metrics(images, texts, positives, metric),
        text_to_image=precision_metrics(texts, images, positives.transpose(), metric),
    )


def evaluate_retrieval(
    embedder: BaseEmbedder, source: Source, config: RetrievalConfig | None = None
) -> RetrievalResult:
    """Evaluate retrieval on images with one or several captions each: by CSD, by cosine, and by a likelihood's match.

    Args:
        embedder: The model, and how to embed with it.
        source: Images with captions.
        config: The options; None: the defaults.

    Returns:
        The result; with many-to-many metrics if the config names a file of positives, see `read_positives`.
    """
    config = config or RetrievalConfig()
    encoded = embedder.embed_images(source if config.limit is None else Subset(source, config.limit))
    captions, image_of_text = flatten_captions(encoded)
    texts = embedder.embed_texts(captions)
    pairs = count = None
    if config.positives is not None:
        pairs, num_not_found = read_positives(config.positives, encoded)
        count = PositivesCount(num_pairs=len(pairs.indices), num_not_found=num_not_found)

    def evaluate(metric: RankingMetric) -> RetrievalMetrics:
        """All metrics by one similarity."""
        metrics = image_text_recall(encoded.images, texts, image_of_text, metric)
        if pairs is None:
            return metrics
        return replace(metrics, many_to_many=many_to_many_metrics(encoded.images, texts, pairs, metric))

    logits = embedder.logit_parameters
    return RetrievalResult(
        data=encoded.name, n=len(encoded), num_bad=len(encoded.errors), num_texts=len(captions),
        csd=evaluate("csd"), cosine=evaluate("cosine"), match=None if logits.gamma is None else evaluate(logits),
        positives=count,
        match_calibration=match_calibration(
            encoded.images, texts, image_of_text, logits, config.match_batch, config.seed
        ),
    )  # fmt: skip


def _mean(values: Tensor) -> float:
    return values.double().mean().item()


def _mean_of_two(a: float | None, b: float | None) -> float | None:
    """The mean of a and b; None if one of them is None."""
    return None if a is None or b is None else (a + b) / 2
