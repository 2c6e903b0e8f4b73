"""Zero-shot classification: accuracy, calibration, selective prediction, out-of-distribution data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from prolip.data.source import Source, Subset
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages, LogitParameters
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import has_embeddings
from prolip.evaluation.configs import ZeroShotConfig
from prolip.evaluation.metrics import accuracy, bins, detection, selective
from prolip.evaluation.metrics.confidence import Confidence, Confidences
from prolip.evaluation.metrics.conformal import ConformalMetrics, evaluate_class_sets
from prolip.evaluation.metrics.recalibration import evaluate_calibration
from prolip.evaluation.predictions import Predictions, most_confident_errors, write_predictions
from prolip.evaluation.ranking import resolve_ranking
from prolip.evaluation.result import Mean, Proportion
from prolip.evaluation.zeroshot_result import (
    ConfidenceMetrics,
    ImageUncertainty,
    OODHistograms,
    OODMetrics,
    SelectiveMetrics,
    ZeroShotResult,
)
from prolip.gaussian import Gaussian
from prolip.measures.nearest import similarity
from prolip.retrieval.index.database import Database
from prolip.retrieval.perplexity import Pool, perplexity
from prolip.zeroshot.prompts import embed_classes

HISTOGRAM_BINS = 30
"""Bins of the histograms of confidence."""


def evaluate_zeroshot(
    embedder: BaseEmbedder,
    data: LabeledData,
    config: ZeroShotConfig | None = None,
    *,
    classes: Gaussian | None = None,
    ood_source: Source | None = None,
    predictions_csv: Path | None = None,
    pool: Pool | None = None,
) -> ZeroShotResult:
    """Evaluate zero-shot classification of a model on labeled data.

    Args:
        embedder: The model, and how to embed with it.
        data: Images, labels, class names and templates.
        config: The options; None: the defaults.
        classes: Embedded classes, (C, D); None: the class names in the templates are embedded, and pooled with
            `config.variance`.
        ood_source: Images of none of the classes (out-of-distribution); None: no such metrics.
        pool: Texts of the same model: how many of them fit an image is one more confidence. None: no such metrics.
        predictions_csv: File to write, see `write_predictions`; None: none is written.

    Returns:
        The result.
    """
    config = config or ZeroShotConfig()
    ranking = resolve_ranking(config.rank_by, embedder.logit_parameters)
    if classes is None:
        classes = embed_classes(embedder, data.class_names, data.templates, config.variance)
    encoded = embedder.embed_images(data.limited(config.limit).source)
    if config.limit is not None:  # indices are those of the whole source
        indices = torch.from_numpy(Subset(data.source, config.limit).indices)[encoded.indices]
        encoded = replace(encoded, indices=indices)
    ood = None if ood_source is None else embedder.embed_images(ood_source)
    _check_sizes(encoded.images, classes, None if ood is None else ood.images)
    fitting, ood_fitting = (
        None if pool is None or one is None else _count_fitting_texts(embedder, one.images, pool)
        for one in (encoded, ood)
    )
    labels = data.labels(encoded.metadata)
    predictions = Predictions.from_embeddings(encoded.images, labels, classes, ranking, fitting)
    result = _compute_metrics(predictions, encoded.images, classes, config)
    if ood is not None:
        metrics = _compute_ood_metrics(predictions, classes, ood.images, ood.name, ood_fitting)
        result = replace(result, ood=metrics)
    return _add_samples(result, predictions, encoded, data, predictions_csv)


def _count_fitting_texts(embedder: BaseEmbedder, images: Gaussian, pool: Pool) -> Tensor:
    """Pool perplexity of images (N, D) over texts of the same model; ValueError if they are another model's."""
    if isinstance(pool, str | Path) and has_embeddings(pool):
        pool = EmbeddingDataset.open(pool)
    if isinstance(pool, EmbeddingDataset | Database) and pool.header.identity != embedder.identity:
        raise ValueError(
            f"pool: these texts were embedded by {pool.header.model} ({pool.header.identity}), not by the model that "
            f"is evaluated ({embedder.identity}): embed them with it"
        )
    is_stored = not isinstance(pool, Gaussian)
    return perplexity(images, pool, embedder.logit_parameters, modality="text" if is_stored else None)


def _add_samples(
    result: ZeroShotResult,
    predictions: Predictions,
    encoded: EncodedImages,
    data: LabeledData,
    predictions_csv: Path | None,
) -> ZeroShotResult:
    """The result with what is known of the data: names, counts and the most confident errors; write the CSV."""
    scale = None if result.calibration is None else result.calibration.softmax.fitted.scale
    if predictions_csv is not None:
        write_predictions(predictions_csv, predictions, encoded, data, scale)
    return replace(
        result,
        data=encoded.name,
        num_bad=len(encoded.errors),
        templates=tuple(data.templates),
        num_duplicate_names=len(data.class_names) - len(set(data.class_names)),
        most_confident_errors=most_confident_errors(predictions, encoded, data, scale),
    )


def compute_zeroshot_metrics(
    images: Gaussian,
    labels: Tensor,
    classes: Gaussian,
    config: ZeroShotConfig | None = None,
    *,
    logits: LogitParameters,
    ood: Gaussian | None = None,
) -> ZeroShotResult:
    """Metrics of zero-shot classification from embeddings. Memory: a few times N x C numbers.

    Args:
        images: The images, (N, D).
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D), at least two.
        config: The options; None: the defaults. The classes are pooled already.
        logits: Parameters of the model's match logits.
        ood: Images of none of the classes, (M, D); None: there are none.

    Returns:
        The result, without names of data, classes and samples.
    """
    config = config or ZeroShotConfig()
    _check_sizes(images, classes, ood)
    ranking = resolve_ranking(config.rank_by, LogitParameters(*logits))
    predictions = Predictions.from_embeddings(images, labels, classes, ranking)
    result = _compute_metrics(predictions, images, classes, config)
    if ood is None:
        return result
    return replace(result, ood=_compute_ood_metrics(predictions, classes, ood, "embeddings"))


def _check_sizes(images: Gaussian, classes: Gaussian, ood: Gaussian | None) -> None:
    """Raise ValueError unless there are at least two classes, one image and, if `ood` is given, one such image."""
    if len(classes) < 2 or len(images) == 0:
        raise ValueError(
            f"classification needs at least two classes and one image, not {len(classes)} and {len(images)}"
        )
    if ood is not None and len(ood) == 0:
        raise ValueError("ood holds no images. Pass other out-of-distribution data, or pass None instead")


@torch.no_grad()
def _compute_metrics(
    predictions: Predictions, images: Gaussian, classes: Gaussian, config: ZeroShotConfig
) -> ZeroShotResult:
    """Compute the metrics of the predictions for images, (N, D), among classes, (C, D)."""
    scores, labels, ranking = predictions.scores, predictions.labels, predictions.ranking
    correct = accuracy.label_ranks(scores, labels) == 0
    top5 = accuracy.top_k_accuracy(scores, labels, 5)
    return ZeroShotResult(
        data="embeddings",
        n=len(images),
        rank_by=ranking.rank_by,
        seed=config.seed,
        num_classes=len(classes),
        num_empty_classes=len(classes) - len(labels.unique()),
        logit_scale=ranking.logits.scale,
        logit_bias=ranking.logits.bias,
        top1=Proportion.from_mean(correct.double().mean().item(), len(images)),
        top5=None if top5 is None else Proportion.from_mean(top5, len(images)),
        mean_per_class_recall=accuracy.mean_per_class_recall(scores, labels),
        uncertainty=_compute_uncertainty(images, classes, correct, labels),
        calibration=evaluate_calibration(scores, labels, ranking.logits, config.seed),
        selective=_compute_selective(correct, predictions.confidences),
        conformal=None if config.coverage is None else _compute_conformal(predictions, images, config),
        ood=None,
    )


def _compute_uncertainty(
    images: Gaussian, classes: Gaussian, correct: Tensor, labels: Tensor
) -> ImageUncertainty | None:
    """`uncertainty` of the result; None for a deterministic model. correct: bool (N,). labels: int64 (N,)."""
    uncertainty = images.uncertainty.double()
    if not bool(uncertainty.any()):
        return None
    return ImageUncertainty(
        mean=Mean.from_values(uncertainty),
        std=uncertainty.std(correction=0).item(),
        class_mean=classes.uncertainty.double().mean().item(),
        deciles=bins.accuracy_by_uncertainty(correct, uncertainty),
        correlation=bins.accuracy_correlations(correct, uncertainty),
        nearest_image=detection.r_auroc(images, labels) if len(images) > 1 else None,
    )


def _compute_conformal(
    predictions: Predictions, images: Gaussian, config: ZeroShotConfig
) -> ConformalMetrics:
    """`conformal` of the result, by the softmax with the model's own scale: a fitted one would break the guarantee."""
    assert config.coverage is not None
    uncertainty = images.uncertainty.double()
    probabilities = torch.softmax(predictions.ranking.logits.scale * predictions.scores.double(), 1)
    return evaluate_class_sets(
        probabilities, predictions.labels, uncertainty if bool(uncertainty.any()) else None,
        config.coverage, config.seed,
    )  # fmt: skip


def _compute_selective(correct: Tensor, confidences: Confidences) -> SelectiveMetrics:
    """`selective` of the result. correct: bool (N,)."""
    ranking = confidences.ranking
    return SelectiveMetrics(
        error=1.0 - correct.double().mean().item(),
        oracle_aurc=selective.aurc(correct, correct.double()),
        uncertainty=_rank_by_confidence(correct, ranking["uncertainty"])
        if "uncertainty" in ranking
        else None,
        match=_rank_by_confidence(correct, ranking["match"]),
        max_softmax=_rank_by_confidence(correct, ranking["max_softmax"]),
        class_perplexity=_rank_by_confidence(correct, ranking["class_perplexity"]),
        pool_perplexity=_rank_by_confidence(correct, ranking["pool_perplexity"])
        if "pool_perplexity" in ranking
        else None,
    )


def _rank_by_confidence(correct: Tensor, values: Tensor) -> ConfidenceMetrics:
    """AURC, AUROC and curve of one confidence. correct: bool (N,); values: (N,), higher is surer."""
    return ConfidenceMetrics(
        aurc=selective.aurc(correct, values),
        excess_aurc=selective.excess_aurc(correct, values),
        auroc=selective.auroc(correct, values),
        curve=selective.sample_risk_coverage(correct, values),
        fpr95=detection.fpr_at_tpr(~correct, -values),
    )


@torch.no_grad()
def _compute_ood_metrics(
    predictions: Predictions, classes: Gaussian, ood: Gaussian, name: str, fitting: Tensor | None = None
) -> OODMetrics:
    """`ood` of the result.

    Args:
        predictions: Of the images of the classes.
        classes: (C, D).
        ood: Images of none of the classes, (M, D).
        name: Of their data.
        fitting: Their pool perplexity, (M,); None: there is no pool.
    """
    inside, ranking = predictions.confidences, predictions.ranking
    outside = Confidences.from_scores(ood, similarity(ood, classes, ranking.metric), ranking.logits, fitting)
    has_uncertainty = "uncertainty" in inside.ranking and "uncertainty" in outside.ranking
    return OODMetrics(
        data=name,
        n=len(ood),
        mean_uncertainty=Mean.from_values(outside.display["uncertainty"]) if has_uncertainty else None,
        uncertainty=_compare_confidences("uncertainty", inside, outside) if has_uncertainty else None,
        match=_compare_confidences("match", inside, outside),
        max_softmax=_compare_confidences("max_softmax", inside, outside),
        class_perplexity=_compare_confidences("class_perplexity", inside, outside),
        pool_perplexity=None if fitting is None else _compare_confidences("pool_perplexity", inside, outside),
    )


def _compare_confidences(name: Confidence, inside: Confidences, outside: Confidences) -> OODHistograms:
    """AUROC and histograms of a confidence, inside and outside of the distribution.

    The bins cover the middle 99 % of all values; the first and the last also hold what lies beyond them.
    """
    ranking = torch.cat([inside.ranking[name], outside.ranking[name]])
    is_ood = torch.arange(len(ranking)) >= len(inside.ranking[name])
    sorted_values = torch.cat([inside.display[name], outside.display[name]]).sort().values
    last = len(sorted_values) - 1
    low, high = sorted_values[int(0.005 * last)], sorted_values[round(0.995 * last)]
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(0.0, 1.0, HISTOGRAM_BINS + 1, dtype=torch.float64) * (high - low) + low
    in_fractions, out_fractions = (
        torch.bincount(torch.bucketize(values, edges[1:-1]), minlength=HISTOGRAM_BINS) / len(values)
        for values in (inside.display[name], outside.display[name])
    )
    return OODHistograms(
        auroc=selective.auroc(is_ood, -ranking),
        edges=tuple(edges.tolist()),
        in_distribution=tuple(in_fractions.tolist()),
        out_of_distribution=tuple(out_fractions.tolist()),
    )
