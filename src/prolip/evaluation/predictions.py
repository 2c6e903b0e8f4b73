"""Zero-shot predictions and their confidence, image by image: CSV table, most confident errors."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import EncodedImages
from prolip.evaluation.metrics.confidence import CONFIDENCES, Confidences, max_softmax
from prolip.evaluation.ranking import Ranking
from prolip.files import atomic_write, escape_formula
from prolip.gaussian import Gaussian
from prolip.measures.nearest import similarity

NUM_ERRORS = 12
"""Wrong predictions that the result lists."""
COLUMNS = (
    "key", "true_class", "predicted_class", "correct", "confidence", "match", "max_softmax", "uncertainty",
    "class_perplexity", "pool_perplexity",
)  # fmt: skip
"""Columns of the CSV, see `write_predictions`."""


@dataclass(frozen=True, kw_only=True)
class ConfidentError:
    """A wrong prediction."""

    index: int
    """Index of the sample in its source."""
    key: str
    """Key of the sample."""
    true_class: str
    """Name of its class."""
    predicted_class: str
    """Name of the nearest class."""
    confidence: float
    """Largest softmax probability, with the scale fitted to half of the data."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Zero-shot predictions for N images among C classes.

    scores:      Similarities of images and classes, (N, C); the prediction is the largest.
    labels:      Index of each image's true class, int64 (N,).
    confidences: Confidence in each prediction.
    ranking:     What the scores are, and how they become logits.
    """

    scores: Tensor
    labels: Tensor
    confidences: Confidences
    ranking: Ranking

    @classmethod
    def from_embeddings(
        cls,
        images: Gaussian,
        labels: Tensor,
        classes: Gaussian,
        ranking: Ranking,
        pool_perplexity: Tensor | None = None,
    ) -> Predictions:
        """Classify images by the most similar class.

        Args:
            images: The images, (N, D).
            labels: Index of each image's true class, int64 (N,).
            classes: The classes, (C, D).
            ranking: Similarity that finds the nearest class, and its logits.
            pool_perplexity: As for `Confidences.from_scores`.

        Returns:
            The predictions and their confidences.
        """
        scores = similarity(images, classes, ranking.metric)
        confidences = Confidences.from_scores(images, scores, ranking.logits, pool_perplexity)
        return cls(scores, labels, confidences, ranking)


def write_predictions(
    path: Path, predictions: Predictions, encoded: EncodedImages, data: LabeledData, scale: float | None
) -> Path:
    """Write a CSV with one row per image and the columns `COLUMNS`.

    confidence: probability that the prediction is correct: the largest softmax, with the scale fitted on half of the
    data (empty for a single image). match: probability of the pair by the model's own scale and bias (the similarity if
    the model has no bias). max_softmax, class_perplexity: with the model's own scale. pool_perplexity: empty without a
    pool.

    Args:
        path: The file; written atomically.
        predictions: Predictions of the images.
        encoded: The images; names their samples.
        data: Names the classes.
        scale: Scale of the softmax that was fitted to the data; None: there was no fit.

    Returns:
        The path.
    """
    columns: dict[str, Tensor | None] = {
        name: predictions.confidences.display.get(name) for name in CONFIDENCES
    }
    columns["confidence"] = None if scale is None else max_softmax(predictions.scores, scale)

    def write(temporary: Path) -> None:
        """Write the whole table to a temporary file."""
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(_iter_rows(predictions, encoded, data, columns))

    return atomic_write(path, write)


def most_confident_errors(
    predictions: Predictions, encoded: EncodedImages, data: LabeledData, scale: float | None
) -> tuple[ConfidentError, ...]:
    """The wrong predictions with the highest confidence, at most `NUM_ERRORS`.

    Args:
        predictions, encoded, data, scale: See `write_predictions`.

    Returns:
        Highest confidence first; empty without a fitted scale.
    """
    if scale is None:
        return ()
    confidence, predicted = max_softmax(predictions.scores, scale), predictions.scores.argmax(1)
    wrong = (predicted != predictions.labels).nonzero()[:, 0]
    rows = wrong[confidence[wrong].argsort(descending=True, stable=True)][:NUM_ERRORS].tolist()
    return tuple(
        ConfidentError(
            index=int(encoded.indices[row]),
            key=encoded.metadata[row].key,
            true_class=data.class_names[predictions.labels[row]],
            predicted_class=data.class_names[predicted[row]],
            confidence=float(confidence[row]),
        )
        for row in rows
    )


def _iter_rows(
    predictions: Predictions, encoded: EncodedImages, data: LabeledData, columns: dict[str, Tensor | None]
) -> Iterator[dict[str, object]]:
    """Yield a CSV row (the keys are `COLUMNS`) for each image.

    columns: name -> value of each image, (N,); None for a column without values, which stays empty.
    """
    values = {name: None if column is None else column.tolist() for name, column in columns.items()}
    class_pairs = zip(predictions.labels.tolist(), predictions.scores.argmax(1).tolist(), strict=True)
    for row, (label, predicted) in enumerate(class_pairs):
        numbers = {name: "" if column is None else f"{column[row]:.6g}" for name, column in values.items()}
        yield {
            "key": escape_formula(encoded.metadata[row].key),
            "true_class": escape_formula(data.class_names[label]),
            "predicted_class": escape_formula(data.class_names[predicted]),
            "correct": int(label == predicted),
            **numbers,
        }
