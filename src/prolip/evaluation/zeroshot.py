"""Zero-shot classification judged: accuracy, what uncertainty says of it, calibration, selective prediction, OOD.

`judge` gives one dict (shares from 0 to 1; None where a thing is undefined):

    n, classes, classes_without_images, by, seed, temperature {scale, bias (or None)}
    top1, top5, mean_per_class_recall
    uncertainty   None for a deterministic model; else mean, std and class_mean (of the classes' Gaussians),
                  deciles [{bin, n, uncertainty, accuracy}], correlation {bins, spearman, point_biserial}
    calibration   None for a single sample; else n_fit, n_judged (disjoint, by seed; all numbers are of the second),
                  softmax {raw, fitted}, each {scale, ece, ece_mass, brier, log_loss, bins}; fitted also {converged};
                  sigmoid {raw, fitted (to all pairs), fitted_to_answers}, each {scale, bias, predicted, pairs}, see
                  `sigmoid_calibration`; None without a bias. Two fits, for two questions: is this class in this image,
                  and is the best of C classes the right one? The best is the luckiest, too: an honest answer to the
                  first is no honest answer to the second. fitted_to_answers: None where all answers are right or wrong
    selective     error (the risk at full coverage), oracle_aurc, and by each confidence
                  {aurc, excess_aurc, auroc (right against wrong), curve {coverage, risk}}
    ood           None without such images; else n, mean_uncertainty, and by each confidence
                  {auroc (outside against inside), edges, inside, outside (shares of images by bins of the value)}

The confidences: `uncertainty` (of the image; None for a deterministic model), `match` (probability of the pair with the
predicted class, Eq. 2; for a model without a bias the similarity, which ranks them alike), `max_softmax`.
All of it is made of one matrix of similarities, those of `by`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.source import Source
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.formatting import format_number, format_percent
from prolip.evaluation.metrics import accuracy, bins, selective
from prolip.evaluation.metrics.confidence import CONFIDENCES, Confidences, confidence_labels
from prolip.evaluation.metrics.posthoc import evaluate_calibration
from prolip.evaluation.predictions import Predictions, most_confident_errors, write_predictions
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity
from prolip.mixture import PooledVariance
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes

HISTOGRAM_BINS = 30


def evaluate_zeroshot(
    model: ProLIP,
    data: LabeledData,
    *,
    classes: Gaussian | None = None,
    variance: PooledVariance = "average",
    by: SimilarityMetric = "csd",
    ood_source: Source | None = None,
    seed: int = 0,
    answers: Path | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Encode the data, then `judge` it; with data, templates, bad (samples left out), equal_names (class names that
    another class has too), most_confident_errors (the wrong answers with the most trust) and ood_data beside.

    classes: (C, D), if they are made already; None: the data's class names in its templates, pooled with `variance`.
    ood_source: pictures of none of the classes. answers: a CSV to write, a row a picture (`write_predictions`).
    cache, batch_size, max_bad_fraction, progress: as in `encode_images`.
    """
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    if classes is None:
        classes = embed_classes(embedder, data.class_names, data.templates, variance)
    sources = [data.source] if ood_source is None else [data.source, ood_source]
    inside, *outside = map(embedder.embed_images, sources)
    ood = outside[0].images if outside else None
    _check(inside.images, classes, ood)
    given = Predictions.from_embeddings(inside.images, data.labels(inside.metadata), classes, by, get_logit_parameters(model))
    result = _judged(given, inside.images, classes, by, ood, seed)
    if answers is not None:
        write_predictions(answers, given, inside, data, result)
    told: dict[str, Any] = {"data": inside.name, "templates": list(data.templates), "bad": len(inside.errors)}
    told["most_confident_errors"] = most_confident_errors(given, inside, data, result)
    told["equal_names"] = len(data.class_names) - len(set(data.class_names))
    return told | {"ood_data": outside[0].name if outside else None} | result


def get_logit_parameters(model: ProLIP) -> tuple[float, float | None]:
    """The model's scale and bias; None for the bias of one that was trained with a softmax."""
    return model.temperature.scale.item(), None if model.logit_bias is None else model.logit_bias.item()


def compute_zeroshot_metrics(
    images: Gaussian,
    labels: Tensor,
    classes: Gaussian,
    *,
    by: SimilarityMetric = "csd",
    temperature: tuple[float, float | None],
    ood: Gaussian | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """images: (N, D). labels: int64 (N,). classes: (C, D), two at least. ood: (M, D), images of no class.

    temperature: scale and bias of the model's logits. seed: of the halves that fits are made and judged on.
    Memory: a few times N x C numbers. Returns the dict that is described above.
    """
    _check(images, classes, ood)
    return _judged(Predictions.from_embeddings(images, labels, classes, by, temperature), images, classes, by, ood, seed)


def _check(images: Gaussian, classes: Gaussian, ood: Gaussian | None) -> None:
    if len(classes) < 2 or len(images) == 0:
        raise ValueError(
            f"classification needs two classes and one image at least, not {len(classes)} and {len(images)}"
        )
    if ood is not None and len(ood) == 0:
        raise ValueError("there are no images among those of no class (ood); leave it out instead")


@torch.no_grad()
def _judged(
    answers: Predictions, images: Gaussian, classes: Gaussian, by: SimilarityMetric, ood: Gaussian | None, seed: int
) -> dict[str, Any]:
    scores, labels, temperature = answers.scores, answers.labels, answers.temperature
    correct = accuracy.label_ranks(scores, labels) == 0
    return {
        "n": len(images),
        "classes": len(classes),
        "classes_without_images": len(classes) - len(labels.unique()),
        "by": by,
        "seed": seed,
        "temperature": dict(zip(("scale", "bias"), temperature, strict=True)),
        "top1": correct.double().mean().item(),
        "top5": accuracy.top_k_accuracy(scores, labels, 5),
        "mean_per_class_recall": accuracy.mean_per_class_recall(scores, labels),
        "uncertainty": _uncertainty(images, classes, correct),
        "calibration": evaluate_calibration(scores, labels, temperature, seed),
        "selective": _selective(correct, answers.confidences),
        "ood": None
        if ood is None
        else _ood(
            images, ood, answers.confidences, Confidences.from_scores(ood, similarity(ood, classes, by), temperature)
        ),
    }


def _uncertainty(images: Gaussian, classes: Gaussian, correct: Tensor) -> dict[str, Any] | None:
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


def _selective(correct: Tensor, confidences: Confidences) -> dict[str, Any]:
    best = selective.aurc(correct, correct.double())
    result: dict[str, Any] = {"error": 1.0 - correct.double().mean().item(), "oracle_aurc": best}
    for name in CONFIDENCES:
        values = confidences.ranking.get(name)
        result[name] = None if values is None else _by_confidence(correct, values)
    return result


def _by_confidence(correct: Tensor, values: Tensor) -> dict[str, Any]:
    return {
        "aurc": selective.aurc(correct, values),
        "excess_aurc": selective.excess_aurc(correct, values),
        "auroc": selective.auroc(correct, values),
        "curve": selective.sample_risk_coverage(correct, values),
    }


def _ood(images: Gaussian, ood: Gaussian, inside: Confidences, outside: Confidences) -> dict[str, Any]:
    is_outside = torch.cat([torch.zeros(len(images)), torch.ones(len(ood))]).bool()
    result: dict[str, Any] = {"n": len(ood), "mean_uncertainty": None}
    if "uncertainty" in outside.shown:
        result["mean_uncertainty"] = outside.shown["uncertainty"].mean().item()
    for name in CONFIDENCES:
        if name not in inside.ranking or name not in outside.ranking:
            result[name] = None
            continue
        doubt = -torch.cat([inside.ranking[name], outside.ranking[name]])
        result[name] = {"auroc": selective.auroc(is_outside, doubt)}
        result[name] |= _histograms(inside.shown[name], outside.shown[name])
    return result


def _histograms(inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    """Shares of each set in shared bins over the middle 99 % of values; what lies beyond counts in the end bins."""
    both = torch.cat([inside, outside]).sort().values
    low, high = both[int(0.005 * (len(both) - 1))], both[round(0.995 * (len(both) - 1))]
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(0.0, 1.0, HISTOGRAM_BINS + 1, dtype=torch.float64) * (high - low) + low
    shares = (
        torch.bincount(torch.bucketize(values, edges[1:-1]), minlength=HISTOGRAM_BINS) / len(values)
        for values in (inside, outside)
    )
    return dict(zip(("edges", "inside", "outside"), (t.tolist() for t in (edges, *shares)), strict=True))


def zeroshot_tables(result: dict[str, Any]) -> list[Table]:
    """The result for people: accuracy; calibration before and after the fit; what each confidence is good for."""
    return [
        part
        for part in (_accuracy_table(result), _calibration_table(result), _confidence_table(result))
        if part is not None
    ]


def _accuracy_table(result: dict[str, Any]) -> Table:
    title = f"{result['n']:,} images, {result['classes']:,} classes, by {result['by']}"
    if templates := result.get("templates"):
        title += f", templates: {templates[0]!r}" + (
            f" and {len(templates) - 1} more" if templates[1:] else ""
        )
    drawn = _table(title, "", "")
    error = math.sqrt(result["top1"] * (1 - result["top1"]) / result["n"])
    drawn.add_row("top-1, % (± a standard error)", f"{format_percent(result['top1'])} ± {format_percent(error)}")
    for key, name in (
        ("top5", "top-5, %"),
        ("mean_per_class_recall", "mean recall of classes, %"),
    ):
        drawn.add_row(name, format_percent(result[key]))
    for key, name in (
        ("bad", "bad pictures, left out"),
        ("equal_names", "class names that another class has"),
        ("classes_without_images", "classes without a picture"),
    ):
        if result.get(key):
            drawn.add_row(name, f"{result[key]:,}")
    if uncertainty := result["uncertainty"]:
        told = ", ".join(f"{name} {value:+.2f}" for name, value in paper_numbers.DECILE_CORRELATION.items())
        drawn.add_row("mean uncertainty, images", f"{uncertainty['mean']:.4g}")
        drawn.add_row("mean uncertainty, classes", f"{uncertainty['class_mean']:.4g}")
        for key, name in (
            ("bins", f"correlation of uncertainty and accuracy, by tenths (paper: {told})"),
            ("spearman", "the same by pictures (Spearman); below 0: the uncertain ones are wrong"),
        ):
            drawn.add_row(name, format_number(uncertainty["correlation"][key], "+.3f"))
    return drawn


def _calibration_table(result: dict[str, Any]) -> Table | None:
    if not (parts := result["calibration"]):
        return None
    title = f"calibration, fitted on {parts['n_fit']:,}, judged on {parts['n_judged']:,}"
    drawn = _table(title, "probability", "ECE raw", "fitted", "log loss raw", "fitted")
    rows = {"softmax over classes": (parts["softmax"]["raw"], parts["softmax"]["fitted"])}
    if sigmoid := parts["sigmoid"]:
        raw, answers = sigmoid["raw"], sigmoid["fitted_to_answers"] or {"predicted": {}}
        rows["match with the answer, fitted to answers"] = (raw["predicted"], answers["predicted"])
        rows["match of any pair, fitted to pairs"] = (raw["pairs"], sigmoid["fitted"]["pairs"])
    for name, pair in rows.items():
        drawn.add_row(name, *(format_number(part.get(key), ".4f") for key in ("ece", "log_loss") for part in pair))
    return drawn


def _confidence_table(result: dict[str, Any]) -> Table:
    parts, outside = result["selective"], result["ood"]
    bounds = f"at best {parts['oracle_aurc']:.4f}, by chance {parts['error']:.4f}"
    title = f"which answers to trust (AURC, lower is better: {bounds})"
    columns = ["AUROC, right from wrong", *(["AUROC, outside from inside"] if outside else [])]
    drawn = _table(title, "by", "AURC", *columns)
    drawn.caption = "AUROC: 0.5 is chance"
    for key, name in confidence_labels(result["temperature"]["bias"] is not None).items():
        if part := parts[key]:
            cells = [format_number(part["aurc"], ".4f"), format_number(part["auroc"], ".3f")]
            far = outside[key] if outside else None
            drawn.add_row(name, *cells, *([format_number(far["auroc"] if far else None, ".3f")] if outside else []))
    return drawn


def _table(title: str, *columns: str) -> Table:
    drawn = Table(title=title, title_justify="left", show_header=any(columns))
    for place, column in enumerate(columns):
        drawn.add_column(column, justify="right" if place else "left")
    return drawn
