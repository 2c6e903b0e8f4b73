"""Zero-shot classification: accuracy, calibration, selective prediction, out-of-distribution data.

`compute_zeroshot_metrics` returns one dict (fractions from 0 to 1; None where a value is undefined):

    n, classes, classes_without_images, metric, seed, logits {scale, bias (or None)}
    top1, top5, mean_per_class_recall
    uncertainty   None for a deterministic model; else mean, std and class_mean (of the classes' Gaussians),
                  deciles [{bin, n, uncertainty, accuracy}], correlation {deciles, spearman, point_biserial}
    calibration   None for a single sample; else n_fit, n_test (disjoint, by seed; all values are of the test half),
                  softmax {raw, fitted}, each {scale, ece, ece_mass, brier, log_loss, bins}; fitted also {converged};
                  sigmoid {raw, fitted (to all pairs), fitted_to_predictions}, each {scale, bias, predicted, pairs}, see
                  `sigmoid_calibration`; None without a bias. The two fits are for two questions: does this class match
                  this image, and is the most similar of C classes correct? The most similar class is selected for its
                  high score, so a fit to all pairs is overconfident for it. fitted_to_predictions is None where all
                  predictions are correct or all are wrong
    selective     error (the risk at full coverage), oracle_aurc, and for each confidence
                  {aurc, excess_aurc, auroc (correct against wrong), curve {coverage, risk}}
    ood           None without such images; else n, mean_uncertainty, and for each confidence
                  {auroc (out-of-distribution against in-distribution), edges, in_distribution, out_of_distribution
                  (fractions of images in bins of the value)}

The confidences: `uncertainty` (of the image; None for a deterministic model), `match` (probability of the pair with the
predicted class, Eq. 2; for a model without a bias the similarity, which ranks equally), `max_softmax`.
All values come from one matrix of similarities by `metric`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import format_number, format_percent, make_table
from prolip.data.source import Source
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.metrics import accuracy, bins, selective
from prolip.evaluation.metrics.confidence import (
    CONFIDENCES,
    Confidences,
    LogitParameters,
    confidence_labels,
)
from prolip.evaluation.metrics.recalibration import evaluate_calibration
from prolip.evaluation.predictions import Predictions, most_confident_errors, write_predictions
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity
from prolip.mixture import PooledVariance
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes

HISTOGRAM_BINS = 30
"""Bins of the histograms of confidence."""


def evaluate_zeroshot(
    embedder: Embedder,
    data: LabeledData,
    *,
    classes: Gaussian | None = None,
    variance: PooledVariance = "average",
    metric: SimilarityMetric = "csd",
    ood_source: Source | None = None,
    seed: int = 0,
    predictions_csv: Path | None = None,
) -> dict[str, Any]:
    """Evaluate zero-shot classification of a model on labeled data.

    Args:
        embedder: The model, and how to embed with it.
        data: Images, labels, class names and templates.
        classes: Embedded classes, (C, D); None: the class names in the templates are embedded, and pooled with
            `variance`.
        variance: Variance of pooled prompts, see `prolip.mixture.pool`.
        metric: Similarity that finds the nearest class.
        ood_source: Images of none of the classes (out-of-distribution); None: no such metrics.
        seed: Seed of the split for calibration.
        predictions_csv: File to write, see `write_predictions`; None: none is written.

    Returns:
        The dict of `compute_zeroshot_metrics`, and data (name), templates, bad (number of samples skipped),
        most_confident_errors (see there), duplicate_names (number of class names that another class has too), ood_data
        (name, or None).
    """
    if classes is None:
        classes = embed_classes(embedder, data.class_names, data.templates, variance)
    encoded = embedder.embed_images(data.source)
    ood = None if ood_source is None else embedder.embed_images(ood_source)
    ood_images = None if ood is None else ood.images
    _check_sizes(encoded.images, classes, ood_images)
    predictions = Predictions.from_embeddings(
        encoded.images, data.labels(encoded.metadata), classes, metric, get_logit_parameters(embedder.model)
    )
    result = _compute_metrics(predictions, encoded.images, classes, metric, ood_images, seed)
    if predictions_csv is not None:
        write_predictions(predictions_csv, predictions, encoded, data, result)
    return {
        "data": encoded.name,
        "templates": list(data.templates),
        "bad": len(encoded.errors),
        "most_confident_errors": most_confident_errors(predictions, encoded, data, result),
        "duplicate_names": len(data.class_names) - len(set(data.class_names)),
        "ood_data": None if ood is None else ood.name,
        **result,
    }


def get_logit_parameters(model: ProLIP) -> LogitParameters:
    """Get the scale (not its logarithm) and bias of the model's logits.

    Args:
        model: The model.

    Returns:
        Scale and bias as floats; the bias is None if the model has none.
    """
    bias = None if model.logit_bias is None else model.logit_bias.item()
    return LogitParameters(model.temperature.scale.item(), bias)


def compute_zeroshot_metrics(
    images: Gaussian,
    labels: Tensor,
    classes: Gaussian,
    *,
    metric: SimilarityMetric = "csd",
    logits: LogitParameters,
    ood: Gaussian | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of zero-shot classification from embeddings. Memory: a few times N x C numbers.

    Args:
        images: The images, (N, D).
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D), at least two.
        metric: Similarity that finds the nearest class.
        logits: Scale and bias of the model's logits.
        ood: Images of none of the classes, (M, D); None: there are none.
        seed: Seed of the split for calibration.

    Returns:
        The dict that the module docstring describes.
    """
    _check_sizes(images, classes, ood)
    predictions = Predictions.from_embeddings(images, labels, classes, metric, LogitParameters(*logits))
    return _compute_metrics(predictions, images, classes, metric, ood, seed)


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
    predictions: Predictions,
    images: Gaussian,
    classes: Gaussian,
    metric: SimilarityMetric,
    ood: Gaussian | None,
    seed: int,
) -> dict[str, Any]:
    """Compute the dict that the module docstring describes.

    images: (N, D), those of `predictions`. classes: (C, D). ood: (M, D), images of no class; None: there are none.
    metric: similarity of the predictions. seed: seed of the split for calibration.
    """
    scores, labels, logits = predictions.scores, predictions.labels, predictions.logits
    correct = accuracy.label_ranks(scores, labels) == 0
    ood_metrics = None
    if ood is not None:
        ood_confidences = Confidences.from_scores(ood, similarity(ood, classes, metric), logits)
        ood_metrics = _ood_metrics(images, ood, predictions.confidences, ood_confidences)
    return {
        "n": len(images),
        "classes": len(classes),
        "classes_without_images": len(classes) - len(labels.unique()),
        "metric": metric,
        "seed": seed,
        "logits": logits._asdict(),
        "top1": correct.double().mean().item(),
        "top5": accuracy.top_k_accuracy(scores, labels, 5),
        "mean_per_class_recall": accuracy.mean_per_class_recall(scores, labels),
        "uncertainty": _uncertainty_metrics(images, classes, correct),
        "calibration": evaluate_calibration(scores, labels, logits, seed),
        "selective": _selective_metrics(correct, predictions.confidences),
        "ood": ood_metrics,
    }


def _uncertainty_metrics(images: Gaussian, classes: Gaussian, correct: Tensor) -> dict[str, Any] | None:
    """`uncertainty` of the result; None for a deterministic model. correct: bool (N,), one per image."""
    uncertainty = images.uncertainty.double()
    if not bool(uncertainty.any()):
        return None
    return {
        "mean": uncertainty.mean().item(),
        "std": uncertainty.std(correction=0).item(),
        "class_mean": classes.uncertainty.double().mean().item(),
        "deciles": bins.accuracy_by_uncertainty(correct, uncertainty),
        "correlation": bins.accuracy_correlations(correct, uncertainty),
    }


def _selective_metrics(correct: Tensor, confidences: Confidences) -> dict[str, Any]:
    """`selective` of the result; a confidence that the model doesn't have is None. correct: bool (N,)."""
    oracle = selective.aurc(correct, correct.double())
    result: dict[str, Any] = {"error": 1.0 - correct.double().mean().item(), "oracle_aurc": oracle}
    for name in CONFIDENCES:
        values = confidences.ranking.get(name)
        result[name] = None if values is None else _confidence_metrics(correct, values)
    return result


def _confidence_metrics(correct: Tensor, values: Tensor) -> dict[str, Any]:
    """AURC, AUROC and curve of one confidence. correct: bool (N,); values: (N,), higher is surer."""
    return {
        "aurc": selective.aurc(correct, values),
        "excess_aurc": selective.excess_aurc(correct, values),
        "auroc": selective.auroc(correct, values),
        "curve": selective.sample_risk_coverage(correct, values),
    }


def _ood_metrics(
    images: Gaussian, ood: Gaussian, in_distribution: Confidences, out_of_distribution: Confidences
) -> dict[str, Any]:
    """`ood` of the result.

    images, ood: (N, D), images of the classes; (M, D), images of none of them.
    in_distribution, out_of_distribution: the confidences in the predictions for `images` and for `ood`.
    """
    is_ood = torch.cat([torch.zeros(len(images)), torch.ones(len(ood))]).bool()
    result: dict[str, Any] = {"n": len(ood), "mean_uncertainty": None}
    if "uncertainty" in out_of_distribution.display:
        result["mean_uncertainty"] = out_of_distribution.display["uncertainty"].mean().item()
    for name in CONFIDENCES:
        if name not in in_distribution.ranking or name not in out_of_distribution.ranking:
            result[name] = None
            continue
        confidence = torch.cat([in_distribution.ranking[name], out_of_distribution.ranking[name]])
        result[name] = {"auroc": selective.auroc(is_ood, -confidence)}
        result[name] |= _compare_histograms(in_distribution.display[name], out_of_distribution.display[name])
    return result


def _compare_histograms(in_distribution: Tensor, out_of_distribution: Tensor) -> dict[str, list[float]]:
    """Fractions of both sets of values in common bins: {edges, in_distribution, out_of_distribution}.

    The bins cover the middle 99 % of all values; the first and the last also hold what lies beyond them.
    """
    sorted_values = torch.cat([in_distribution, out_of_distribution]).sort().values
    last = len(sorted_values) - 1
    low, high = sorted_values[int(0.005 * last)], sorted_values[round(0.995 * last)]
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(0.0, 1.0, HISTOGRAM_BINS + 1, dtype=torch.float64) * (high - low) + low
    in_fractions, out_fractions = (
        torch.bincount(torch.bucketize(values, edges[1:-1]), minlength=HISTOGRAM_BINS) / len(values)
        for values in (in_distribution, out_of_distribution)
    )
    return {
        "edges": edges.tolist(),
        "in_distribution": in_fractions.tolist(),
        "out_of_distribution": out_fractions.tolist(),
    }


def zeroshot_tables(result: dict[str, Any]) -> list[Table]:
    """Make the tables of a zero-shot evaluation.

    Args:
        result: What `evaluate_zeroshot` returned.

    Returns:
        Tables of accuracy, of calibration before and after the fit (if it was evaluated), and of confidences.
    """
    tables = (_accuracy_table(result), _calibration_table(result), _confidence_table(result))
    return [table for table in tables if table is not None]


def _accuracy_table(result: dict[str, Any]) -> Table:
    """Table of accuracies, counts of what is unusual (if not 0), and uncertainty with its correlation with accuracy."""
    title = f"{result['n']:,} images, {result['classes']:,} classes, {result['metric']}"
    if templates := result.get("templates"):
        title += f", templates: {templates[0]!r}" + (
            f" and {len(templates) - 1} more" if templates[1:] else ""
        )
    table = make_table(title, [""], [""])
    table.show_header = False
    error = math.sqrt(result["top1"] * (1 - result["top1"]) / result["n"])
    table.add_row(
        "top-1, % (± standard error)", f"{format_percent(result['top1'])} ± {format_percent(error)}"
    )
    table.add_row("top-5, %", format_percent(result["top5"]))
    table.add_row("mean per-class recall, %", format_percent(result["mean_per_class_recall"]))
    for key, name in (
        ("bad", "bad images, skipped"),
        ("duplicate_names", "class names that another class has"),
        ("classes_without_images", "classes without images"),
    ):
        if result.get(key):
            table.add_row(name, f"{result[key]:,}")
    if uncertainty := result["uncertainty"]:
        paper = ", ".join(f"{name} {value:+.2f}" for name, value in paper_numbers.DECILE_CORRELATION.items())
        table.add_row("mean uncertainty, images", f"{uncertainty['mean']:.4g}")
        table.add_row("mean uncertainty, classes", f"{uncertainty['class_mean']:.4g}")
        for key, name in (
            ("deciles", f"correlation of uncertainty and accuracy, by deciles (paper: {paper})"),
            ("spearman", "the same by images (Spearman); below 0: uncertain images are wrong more often"),
        ):
            table.add_row(name, format_number(uncertainty["correlation"][key], "+.3f"))
    return table


def _calibration_table(result: dict[str, Any]) -> Table | None:
    """Table of calibration error and log loss before and after the fit; None if there were too few images to fit."""
    if not (calibration := result["calibration"]):
        return None
    title = f"calibration: fitted on {calibration['n_fit']:,} images, tested on {calibration['n_test']:,}"
    table = make_table(title, ["probability"], ["ECE raw", "fitted", "log loss raw", "fitted"])
    rows = {"softmax over classes": (calibration["softmax"]["raw"], calibration["softmax"]["fitted"])}
    if sigmoid := calibration["sigmoid"]:
        raw, fitted = sigmoid["raw"], sigmoid["fitted_to_predictions"] or {"predicted": {}}
        rows["match with the prediction, fitted to predictions"] = (raw["predicted"], fitted["predicted"])
        rows["match of any pair, fitted to pairs"] = (raw["pairs"], sigmoid["fitted"]["pairs"])
    for name, raw_and_fitted in rows.items():
        values = (
            format_number(metrics.get(key), ".4f")
            for key in ("ece", "log_loss")
            for metrics in raw_and_fitted
        )
        table.add_row(name, *values)
    return table


def _confidence_table(result: dict[str, Any]) -> Table:
    """Table of AURC and AUROC by confidence, and AUROC for out-of-distribution images if there are any."""
    selective_metrics, ood = result["selective"], result["ood"]
    bounds = f"oracle {selective_metrics['oracle_aurc']:.4f}, random {selective_metrics['error']:.4f}"
    columns = ["AURC", "AUROC, correct vs. wrong", *(["AUROC, OOD vs. in-distribution"] if ood else [])]
    table = make_table(
        f"selective prediction (AURC, lower is better: {bounds})", ["confidence"], columns,
        caption="AUROC: 0.5 is chance",
    )  # fmt: skip
    for key, name in confidence_labels(result["logits"]["bias"] is not None).items():
        if metrics := selective_metrics[key]:
            values = [format_number(metrics["aurc"], ".4f"), format_number(metrics["auroc"], ".3f")]
            if ood:
                values.append(format_number(ood[key]["auroc"] if ood[key] else None, ".3f"))
            table.add_row(name, *values)
    return table
