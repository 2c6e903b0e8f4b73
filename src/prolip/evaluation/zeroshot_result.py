"""ZeroShotResult: what zero-shot classification found, with its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.table import Table

from prolip.choices import RankBy
from prolip.console import MISSING, format_number, format_percent, make_table
from prolip.evaluation import paper_numbers
from prolip.evaluation.metrics.bins import AccuracyBin, AccuracyCorrelations
from prolip.evaluation.metrics.calibration import CalibrationMetrics, PairCalibration
from prolip.evaluation.metrics.confidence import Confidence, confidence_labels
from prolip.evaluation.metrics.conformal import ConformalMetrics
from prolip.evaluation.metrics.detection import DetectionMetrics
from prolip.evaluation.metrics.recalibration import Recalibration
from prolip.evaluation.metrics.selective import RiskCurve
from prolip.evaluation.predictions import ConfidentError
from prolip.evaluation.result import Mean, Proportion, Result


@dataclass(frozen=True, kw_only=True)
class ImageUncertainty:
    """Uncertainty of the images, and how accuracy depends on it."""

    mean: Mean
    """Mean uncertainty of the images."""
    std: float
    """Standard deviation over images."""
    class_mean: float
    """Mean uncertainty of the classes' Gaussians."""
    deciles: tuple[AccuracyBin, ...]
    """Accuracy by decile of uncertainty, from the least uncertain images on."""
    correlation: AccuracyCorrelations
    """Correlations of accuracy with uncertainty."""
    nearest_image: DetectionMetrics | None = None
    """Detection, by uncertainty, of images whose nearest other image (by cosine) is of another class; `auroc` is the
    R-AUROC. None for a single image."""


@dataclass(frozen=True, kw_only=True)
class ConfidenceMetrics:
    """How well a confidence ranks predictions."""

    aurc: float
    """Area under the risk-coverage curve; 0 is best, random confidence gives the error rate."""
    excess_aurc: float
    """`aurc` minus that of an oracle."""
    auroc: float | None
    """Of correct against wrong predictions; None if all are correct or all are wrong."""
    curve: RiskCurve
    """The risk-coverage curve."""
    fpr95: float | None = None
    """Fraction of the correct predictions that is rejected where 95 % of the wrong ones are; 0.95 is chance. None if
    all are correct or all are wrong."""


@dataclass(frozen=True, kw_only=True)
class SelectiveMetrics:
    """Selective prediction: the error rate if only the most confident predictions count."""

    error: float
    """Error rate of all predictions: the risk at full coverage."""
    oracle_aurc: float
    """AURC of an oracle, which ranks all correct predictions above all wrong ones."""
    uncertainty: ConfidenceMetrics | None
    """By the uncertainty of the image; None for a deterministic model."""
    match: ConfidenceMetrics
    """By the probability of the pair with the predicted class (Eq. 2); without a bias by the similarity, which ranks
    equally."""
    max_softmax: ConfidenceMetrics
    """By the largest probability of the softmax over classes."""
    class_perplexity: ConfidenceMetrics | None = None
    """By the perplexity of that softmax: the effective number of classes that fit the image."""
    pool_perplexity: ConfidenceMetrics | None = None
    """By the number of texts of a pool that fit the image; None without a pool."""

    def get(self, confidence: Confidence) -> ConfidenceMetrics | None:
        """The metrics of a confidence; None if the model doesn't have it."""
        metrics: ConfidenceMetrics | None = getattr(self, confidence)
        return metrics


@dataclass(frozen=True, kw_only=True)
class OODHistograms:
    """Values of a confidence in and out of distribution."""

    auroc: float | None
    """Of out-of-distribution against in-distribution images."""
    edges: tuple[float, ...]
    """Edges of common bins of the value: one more than there are bins."""
    in_distribution: tuple[float, ...]
    """Fraction of the images of the classes in each bin."""
    out_of_distribution: tuple[float, ...]
    """Fraction of the images of none of the classes in each bin."""


@dataclass(frozen=True, kw_only=True)
class OODMetrics:
    """Detection of images that belong to none of the classes (out-of-distribution)."""

    data: str
    """Name of these images."""
    n: int
    """Number of these images."""
    mean_uncertainty: Mean | None
    """Their mean uncertainty; None for a deterministic model."""
    uncertainty: OODHistograms | None
    """By the uncertainty of the image; None for a deterministic model."""
    match: OODHistograms
    """By the probability of the pair with the predicted class; without a bias by the similarity."""
    max_softmax: OODHistograms
    """By the largest probability of the softmax over classes."""
    class_perplexity: OODHistograms | None = None
    """By the perplexity of that softmax."""
    pool_perplexity: OODHistograms | None = None
    """By the number of texts of a pool that fit the image; None without a pool."""

    def get(self, confidence: Confidence) -> OODHistograms | None:
        """The histograms of a confidence; None if the model doesn't have it."""
        histograms: OODHistograms | None = getattr(self, confidence)
        return histograms


@dataclass(frozen=True, kw_only=True)
class ZeroShotResult(Result):
    """Result of zero-shot classification. All values come from one matrix of similarities by `rank_by`."""

    task: ClassVar[str] = "zeroshot"

    rank_by: RankBy
    """Similarity that found the nearest class."""
    seed: int
    """Seed of the split for calibration."""
    num_classes: int
    """Number of classes."""
    num_empty_classes: int
    """Classes without images."""
    num_duplicate_names: int = 0
    """Class names that another class has too."""
    templates: tuple[str, ...] = ()
    """Prompt templates of the classes."""
    logit_scale: float
    """Scale of the similarities in the model's logits, not its logarithm; 1 for a likelihood model."""
    logit_bias: float | None
    """Bias of the model's logits; None where similarities have no match probability: of a model trained with a softmax,
    and of a likelihood model by CSD or cosine."""
    top1: Proportion
    """Images whose nearest class is the true one."""
    top5: Proportion | None
    """Images whose true class is among the five nearest; None for fewer than five classes."""
    mean_per_class_recall: float
    """Mean over the classes that have images of the fraction of their images that are classified correctly."""
    uncertainty: ImageUncertainty | None
    """Uncertainty and accuracy; None for a deterministic model."""
    calibration: Recalibration | None
    """Calibration before and after a fit; None for a single image."""
    selective: SelectiveMetrics
    """Selective prediction by each confidence."""
    conformal: ConformalMetrics | None = None
    """Conformal sets of classes; None unless the config has a coverage."""
    ood: OODMetrics | None
    """Out-of-distribution detection; None without such images."""
    most_confident_errors: tuple[ConfidentError, ...] = ()
    """The wrong predictions with the highest confidence."""

    def confidence_labels(self) -> dict[Confidence, str]:
        """Label of each confidence: it depends on whether the logits have a bias, as those of a sigmoid."""
        return confidence_labels(self.logit_bias is not None)

    def tables(self) -> list[Table]:
        """Tables of accuracy, of calibration before and after the fit and of conformal sets (if evaluated), and
        of confidences."""
        calibration = [] if self.calibration is None else [_make_calibration_table(self.calibration)]
        conformal = [] if self.conformal is None else [_make_conformal_table(self.conformal)]
        return [_make_accuracy_table(self), *calibration, _make_confidence_table(self), *conformal]


def _make_accuracy_table(result: ZeroShotResult) -> Table:
    """Table of accuracies, counts of what is unusual (if not 0), and uncertainty with its correlation with accuracy."""
    title = f"{result.n:,} images, {result.num_classes:,} classes, {result.rank_by}"
    if result.templates:
        more = f" and {len(result.templates) - 1} more" if result.templates[1:] else ""
        title += f", templates: {result.templates[0]!r}{more}"
    table = make_table(title, [""], [""])
    table.show_header = False
    table.add_row("top-1, % (95 % interval)", format_proportion(result.top1))
    table.add_row("top-5, % (95 % interval)", format_proportion(result.top5))
    table.add_row("mean per-class recall, %", format_percent(result.mean_per_class_recall))
    for count, name in (
        (result.num_bad, "bad images, skipped"),
        (result.num_duplicate_names, "class names that another class has"),
        (result.num_empty_classes, "classes without images"),
    ):
        if count:
            table.add_row(name, f"{count:,}")
    if uncertainty := result.uncertainty:
        paper = ", ".join(f"{name} {value:+.2f}" for name, value in paper_numbers.DECILE_CORRELATION.items())
        table.add_row("mean uncertainty, images", f"{uncertainty.mean.value:.4g}")
        table.add_row("mean uncertainty, classes", f"{uncertainty.class_mean:.4g}")
        table.add_row(
            f"correlation of uncertainty and accuracy, by deciles (paper: {paper})",
            format_number(uncertainty.correlation.deciles, "+.3f"),
        )
        table.add_row(
            "the same by images (Spearman); below 0: uncertain images are wrong more often",
            format_number(uncertainty.correlation.spearman, "+.3f"),
        )
        if (nearest := uncertainty.nearest_image) is not None:
            table.add_row(
                f"R-AUROC: the nearest other image is of another class ({nearest.num_positive:,} of {nearest.n:,})",
                format_number(nearest.auroc, ".3f"),
            )
    return table


def format_proportion(proportion: Proportion | None, digits: int = 1) -> str:
    """Format a proportion and its interval in percent.

    Args:
        proportion: The proportion; None: undefined.
        digits: Digits of the value after the point; the ends of the interval have one.

    Returns:
        "75.0 (40.9 to 92.9)".
    """
    if proportion is None:
        return MISSING
    value = f"{100 * proportion.value:.{digits}f}"
    return f"{value} ({format_percent(proportion.low)} to {format_percent(proportion.high)})"


def _make_calibration_table(calibration: Recalibration) -> Table:
    """Table of calibration error and log loss before and after the fit."""
    title = f"calibration: fitted on {calibration.n_fit:,} images, tested on {calibration.n_test:,}"
    table = make_table(title, ["probability"], ["ECE raw", "fitted", "log loss raw", "fitted"])
    softmax, sigmoid = calibration.softmax, calibration.sigmoid
    rows: dict[str, tuple[CalibrationMetrics | PairCalibration, CalibrationMetrics | PairCalibration | None]]
    rows = {"softmax over classes": (softmax.raw.metrics, softmax.fitted.metrics)}
    if sigmoid is not None:
        to_predictions = sigmoid.fitted_to_predictions
        rows["match with the prediction, fitted to predictions"] = (
            sigmoid.raw.predicted,
            None if to_predictions is None else to_predictions.predicted,
        )
        rows["match of any pair, fitted to pairs"] = (sigmoid.raw.pairs, sigmoid.fitted.pairs)
    for name, (raw, fitted) in rows.items():
        ece = (raw.ece, None if fitted is None else fitted.ece)
        log_loss = (raw.log_loss, None if fitted is None else fitted.log_loss)
        table.add_row(name, *(format_number(value, ".4f") for value in (*ece, *log_loss)))
    return table


def _make_conformal_table(conformal: ConformalMetrics) -> Table:
    """Table of coverage and sizes of the sets by both scores."""
    table = make_table(
        f"sets of classes with coverage {conformal.coverage:g}: thresholds of {conformal.n_fit:,} images, tested on "
        f"{conformal.n_test:,}",
        ["score"],
        ["coverage, %", "mean size", "empty, %", "surest tenth", "least sure tenth"],
        caption="the last two columns: mean size for the images of least and of largest uncertainty",
    )
    for score, sets in conformal.by_score().items():
        ends = (None, None) if sets.deciles is None else (sets.deciles[0], sets.deciles[-1])
        sizes = [sets.mean_size, *(None if end is None else end.mean_size for end in ends)]
        size, *by_end = (format_number(value, ".2f") for value in sizes)
        table.add_row(score, format_proportion(sets.coverage), size, format_percent(sets.empty), *by_end)
    return table


def _make_confidence_table(result: ZeroShotResult) -> Table:
    """Table of AURC and AUROC by confidence, and AUROC for out-of-distribution images if there are any."""
    selective, ood = result.selective, result.ood
    bounds = f"oracle {selective.oracle_aurc:.4f}, random {selective.error:.4f}"
    columns = [
        "AURC",
        "AUROC, correct vs. wrong",
        "FPR95 of errors",
        *(["AUROC, OOD vs. in-distribution"] if ood else []),
    ]
    table = make_table(
        f"selective prediction (AURC, lower is better: {bounds})", ["confidence"], columns,
        caption="AUROC: 0.5 is chance; FPR95: 0.95 is chance, lower is better",
    )  # fmt: skip
    for confidence, name in result.confidence_labels().items():
        if metrics := selective.get(confidence):
            values = [
                format_number(metrics.aurc, ".4f"),
                format_number(metrics.auroc, ".3f"),
                format_number(metrics.fpr95, ".3f"),
            ]
            if ood is not None:
                histograms = ood.get(confidence)
                values.append(format_number(None if histograms is None else histograms.auroc, ".3f"))
            table.add_row(name, *values)
    return table
