"""calibrate: match probabilities that mean something in search, fitted to held-out pairs or to judgements."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prolip.checks import join_names
from prolip.data.source import Source, Subset, compute_fingerprint
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.embeddings.identity import model_identity
from prolip.evaluation.configs import CalibrateConfig
from prolip.evaluation.metrics.calibration import bin_by_confidence, pair_calibration
from prolip.evaluation.metrics.conformal import conformal_quantile
from prolip.evaluation.metrics.fit import fit_scale_and_bias
from prolip.evaluation.positives import flatten_captions
from prolip.measures.nearest import similarity
from prolip.retrieval.calibration import NUM_THRESHOLDS, Calibration, CoverageCheck, ProbabilityErrors
from prolip.retrieval.index.database import Database, has_database
from prolip.weights.load import load

MIN_IMAGES = 20
"""Fewest images with captions, or judgements: half of them are fitted."""
SHOWN = 10
"""Images per text that count as shown by a search."""
CHECKED_COVERAGES = (0.5, 0.8, 0.9, 0.95)
"""Coverages that are measured on the held-out half."""
JUDGEMENT_COLUMNS = ("key", "caption", "score")
"""Columns of a CSV of judgements; others are ignored."""


@dataclass(frozen=True, kw_only=True)
class CalibrationSubject:
    """What is calibrated, and on what.

    Attributes:
        identity: Hash of the model.
        data: Name of the held-out data.
        fingerprint: Hash of it.
        has_probability: Whether sigmoid(trained logit) is a probability of the model: not of a softmax model.
    """

    identity: str
    data: str
    fingerprint: str
    has_probability: bool


def calibrate(embedder: BaseEmbedder, source: Source, config: CalibrateConfig | None = None) -> Calibration:
    """Calibrate a model's match probabilities on data that it was not trained on.

    The errors before and after are those of one half of the images, with a fit to the other half; the fit that is
    returned is to all of them.

    Args:
        embedder: The model, and how to embed with it.
        source: Images; with captions, unless there are judgements.
        config: The options; None: the defaults.

    Returns:
        The calibration; its `write` keeps it in the folder of a database or a model.

    Raises:
        ValueError: There are too few pairs or judgements, all of them match, none does, or matches don't have the
            larger logits.
    """
    config = config or CalibrateConfig()
    encoded = embedder.embed_images(source if config.limit is None else Subset(source, config.limit))
    parameters = embedder.logit_parameters
    judged = None if config.judgements is None else read_judgements(config.judgements, encoded)
    subject = CalibrationSubject(
        identity=embedder.identity,
        data=encoded.name if config.judgements is None else f"{encoded.name}, {config.judgements.name}",
        fingerprint=compute_fingerprint(
            source.fingerprint(), config.limit, None if judged is None else judged.to_rows()
        ),
        has_probability=parameters.bias is not None,
    )
    if judged is not None:
        texts = embedder.embed_texts(judged.captions)
        logits = parameters.logits(encoded.images[judged.image_rows], texts[judged.text_rows])
        return calibrate_judgements(logits, judged.scores, judged.image_rows, subject, config.seed)
    captions, image_of_text = flatten_captions(encoded)
    texts = embedder.embed_texts(captions)
    has_caption, image_of_text = image_of_text.unique(return_inverse=True)
    if len(has_caption) < MIN_IMAGES:
        raise ValueError(
            f"{encoded.name} has {len(has_caption)} images with captions: a calibration needs at least {MIN_IMAGES}, "
            "and some hundreds for probabilities below 0.01"
        )
    logits = similarity(encoded.images[has_caption], texts, parameters)
    return calibrate_pairs(logits, image_of_text, subject, config.seed)


def require_calibrated_folder(location: str, identity: str) -> None:
    """Check that a location can keep the calibration of a model.

    Args:
        location: Folder or address of a database, or folder of a model or a training run.
        identity: Hash of the model.

    Raises:
        ValueError: It is neither, or of another model.
    """
    if has_database(location):
        found = Database.open(location).header.identity
    elif Path(location).is_dir():
        found = model_identity(load(location, device="cpu"))
    else:
        raise ValueError(
            f"{location} is neither a database nor the folder of a model: a calibration is kept with one of them"
        )
    if found != identity:
        raise ValueError(
            f"{location} is of another model ({found}, not {identity}): calibrate the model that it is of"
        )


# -- pairs ---------------------------------------------------------------------------------------------------------


def calibrate_pairs(
    logits: Tensor, image_of_text: Tensor, subject: CalibrationSubject, seed: int = 0
) -> Calibration:
    """Calibrate on images with captions: a text matches its own image, and no other.

    Args:
        logits: Trained logits of all pairs, (N, T).
        image_of_text: Row of each text's image, int64 (T,); every image has a text.
        subject: What is calibrated.
        seed: Seed of the halves, and of the text of each image that sets thresholds.

    Returns:
        The calibration.

    Raises:
        ValueError: As `calibrate`.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(logits), generator=generator)
    pairs = _Pairs(logits, image_of_text, _draw_texts(image_of_text, generator))
    fitted, tested = (pairs.take(rows.sort().values) for rows in (order[::2], order[1::2]))
    scale, bias = fitted.fit()
    shift, is_probability = bias + _log_odds(1 / len(tested.logits)), subject.has_probability
    full_scale, full_bias = pairs.fit()
    return Calibration(
        identity=subject.identity, data=subject.data, fingerprint=subject.fingerprint, labels="pairs",
        num_images=len(logits), num_pairs=len(image_of_text), texts_per_image=len(image_of_text) / len(logits),
        prior=1 / len(logits), scale=full_scale, bias=full_bias,
        errors_before=tested.measure() if is_probability else None,
        shown_before=tested.measure(count=SHOWN) if is_probability else None,
        errors_after=tested.measure(scale, shift), shown_after=tested.measure(scale, shift, SHOWN),
        thresholds=tuple(
            pairs.find_threshold(percent / 100) for percent in range(1, NUM_THRESHOLDS + 1)
        ),
        coverage=tuple(
            tested.check_coverage(coverage, threshold)
            for coverage in CHECKED_COVERAGES
            if (threshold := fitted.find_threshold(coverage)) is not None
        ),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All pairs of N images and T texts.

    logits:        Trained logits, (N, T).
    image_of_text: Row of each text's image, int64 (T,).
    drawn:         One text of each image, int64 (N,): texts of one image are not independent of each other.
    """

    logits: Tensor
    image_of_text: Tensor
    drawn: Tensor

    def take(self, rows: Tensor) -> _Pairs:
        """The pairs of some images, int64 (n,), increasing, and of their texts."""
        new_row = torch.full((len(self.logits),), -1)
        new_row[rows] = torch.arange(len(rows))
        texts = (new_row[self.image_of_text] >= 0).nonzero()[:, 0]
        drawn = torch.searchsorted(texts, self.drawn[rows])
        return _Pairs(self.logits[rows][:, texts], new_row[self.image_of_text[texts]], drawn)

    @property
    def is_match(self) -> Tensor:
        """Whether the pairs match, bool (N, T)."""
        return torch.arange(len(self.logits))[:, None] == self.image_of_text

    def fit(self) -> tuple[float, float]:
        """Scale and bias of the log likelihood ratio."""
        return _fit_likelihood_ratio(self.logits, self.is_match, None)

    def measure(self, scale: float = 1.0, bias: float = 0.0, count: int | None = None) -> ProbabilityErrors:
        """Errors of sigmoid(scale x logit + bias): of all pairs, or of the `count` best images of each text."""
        logits, is_match = self.logits, self.is_match
        if count is not None:
            logits, best = logits.topk(min(count, len(logits)), dim=0)
            is_match = is_match.gather(0, best)
        found = pair_calibration(
            (scale * block.double() + bias, matches)
            for block, matches in zip(logits.split(256), is_match.split(256), strict=True)
        )
        return ProbabilityErrors(ece=found.ece, brier=found.brier, log_loss=found.log_loss)

    def find_threshold(self, coverage: float) -> float | None:
        """The logit that a new text's own image reaches with a probability of at least `coverage`; None: too few."""
        own = self.logits[torch.arange(len(self.drawn)), self.drawn]
        threshold = -conformal_quantile(-own, coverage)
        return threshold if math.isfinite(threshold) else None

    def check_coverage(self, coverage: float, threshold: float) -> CoverageCheck:
        """How often, and how large, are the sets of images of the drawn texts with a threshold of other images?"""
        is_in_set = self.logits[:, self.drawn] >= threshold
        return CoverageCheck(
            coverage=coverage,
            measured=is_in_set.diagonal().double().mean().item(),
            mean_size=is_in_set.sum(0).double().mean().item(),
            num_images=len(self.logits),
        )


def _draw_texts(image_of_text: Tensor, generator: torch.Generator) -> Tensor:
    """One random text of each image: int64 (N,)."""
    order = torch.randperm(len(image_of_text), generator=generator)
    drawn = torch.empty(int(image_of_text.max()) + 1, dtype=torch.int64)
    for text in order.tolist():  # the last one stays
        drawn[image_of_text[text]] = text
    return drawn


def _fit_likelihood_ratio(logits: Tensor, is_match: Tensor, weights: Tensor | None) -> tuple[float, float]:
    """Fit scale and bias of log p(logit | match) / p(logit | no match) to pairs of any shape; checks the result."""
    fit = fit_scale_and_bias(logits, is_match, weights)
    weight = torch.ones(is_match.shape).double() if weights is None else weights
    counts = weight > 0
    if logits[is_match & counts].min() > logits[~is_match & counts].max():
        raise ValueError(
            "the logits of all matches are larger than those of all other pairs, so that the scale has no largest "
            "value: calibrate on more, or harder, pairs"
        )
    if fit.scale <= 0 or not fit.converged:
        raise ValueError(
            "matches don't have larger logits than other pairs: the data is not what the model was made for, or the "
            "captions are assigned to the wrong images"
        )
    prior = ((weight * is_match).sum() / weight.sum()).item()
    return fit.scale, fit.bias - _log_odds(prior)


def _log_odds(p: float) -> float:
    """Logit of a probability between 0 and 1."""
    return math.log(p / (1.0 - p))


# -- judgements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judgements of n pairs of an image and a caption.

    captions:   The different captions.
    image_rows: Row of each judgement's image, int64 (n,).
    text_rows:  Row of its caption, int64 (n,).
    scores:     Score from 0 to 1, float64 (n,).
    """

    captions: list[str]
    image_rows: Tensor
    text_rows: Tensor
    scores: Tensor

    def to_rows(self) -> list[tuple[int, str, float]]:
        """Row of the image, caption and score of each judgement, for a fingerprint."""
        texts = [self.captions[row] for row in self.text_rows.tolist()]
        return list(zip(self.image_rows.tolist(), texts, self.scores.tolist(), strict=True))


def read_judgements(path: Path, encoded: EncodedImages) -> JudgedPairs:
    """Read a CSV of judgements, with a header and the columns key, caption and score.

    Args:
        path: The file.
        encoded: The images that it names by their keys.

    Returns:
        The judgements, in the order of the file.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: A column is missing, an image is not in the data, or a score is no number from 0 to 1.
    """
    row_of_key = {sample.key: row for row, sample in enumerate(encoded.metadata)}
    row_of_text: dict[str, int] = {}
    images, texts, scores = [], [], []
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the file of judgements does not exist") from None
    for number, row in enumerate(rows, start=2):
        key, caption, score = (row.get(name) for name in JUDGEMENT_COLUMNS)
        if key is None or caption is None or score is None:
            raise ValueError(
                f"{path}: row {number} needs the columns {', '.join(JUDGEMENT_COLUMNS)}, but the header has "
                f"{join_names([str(name) for name in row])}"
            )
        if key not in row_of_key:
            raise ValueError(f"{path}: row {number}: no image of {encoded.name} has the key {key!r}")
        images.append(row_of_key[key])
        texts.append(row_of_text.setdefault(caption, len(row_of_text)))
        scores.append(_parse_score(score, f"{path}: row {number}"))
    if len(scores) < MIN_IMAGES:
        raise ValueError(f"{path} has {len(scores)} judgements: a calibration needs at least {MIN_IMAGES}")
    return JudgedPairs(
        list(row_of_text),
        torch.tensor(images),
        torch.tensor(texts),
        torch.tensor(scores, dtype=torch.float64),
    )


def _parse_score(text: str, where: str) -> float:
    """A number from 0 to 1; ValueError for anything else, also NaN."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 1:
        raise ValueError(f"{where}: score must be a number from 0 to 1, not {text!r}")
    return score


def calibrate_judgements(
    logits: Tensor, scores: Tensor, image_rows: Tensor, subject: CalibrationSubject, seed: int = 0
) -> Calibration:
    """Calibrate on judged pairs: the probability is the expected score of a pair like those that were judged.

    Args:
        logits: Trained logits of the judged pairs, (n,).
        scores: Their scores, from 0 to 1, (n,).
        image_rows: Row of each pair's image, int64 (n,): judgements of one image are in the same half.
        subject: What is calibrated.
        seed: Seed of the halves.

    Returns:
        The calibration, without thresholds of coverage.

    Raises:
        ValueError: As `calibrate`.
    """
    if not 0 < scores.mean() < 1:
        raise ValueError(
            f"all {len(scores)} judgements have the score {scores.mean():g}: a calibration needs both pairs that match "
            "and pairs that don't"
        )
    order = torch.randperm(int(image_rows.max()) + 1, generator=torch.Generator().manual_seed(seed))
    judged, half = image_rows.unique(return_inverse=True)
    is_tested = (order[judged] % 2 == 1)[half]
    if not 0 < scores[~is_tested].mean() < 1:
        raise ValueError(
            "one half of the images has judgements of one kind only: a calibration needs more of them"
        )
    scale, bias = _fit_scores(logits[~is_tested], scores[~is_tested])
    shift = bias + _log_odds(scores[~is_tested].mean().item())
    tested = logits[is_tested].double(), scores[is_tested]
    full_scale, full_bias = _fit_scores(logits, scores)
    return Calibration(
        identity=subject.identity, data=subject.data, fingerprint=subject.fingerprint, labels="judgements",
        num_images=len(judged), num_pairs=len(scores), texts_per_image=len(scores) / len(judged),
        prior=scores.mean().item(), scale=full_scale, bias=full_bias,
        errors_before=_measure_scores(*tested) if subject.has_probability else None,
        errors_after=_measure_scores(scale * tested[0] + shift, tested[1]),
    )  # fmt: skip


def _fit_scores(logits: Tensor, scores: Tensor) -> tuple[float, float]:
    """Fit scale and bias to scores (n,): each pair is a match with the weight s, and none with the weight 1 - s."""
    is_match = torch.arange(2 * len(scores)) < len(scores)
    return _fit_likelihood_ratio(torch.cat([logits, logits]), is_match, torch.cat([scores, 1.0 - scores]))


def _measure_scores(logits: Tensor, scores: Tensor) -> ProbabilityErrors:
    """Errors of sigmoid(logits) as expected scores; both (n,), float64."""
    p = torch.sigmoid(logits)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, scores)
    return ProbabilityErrors(
        ece=bin_by_confidence(p, scores).error,
        brier=(p - scores).square().mean().item(),
        log_loss=losses.item(),
    )
