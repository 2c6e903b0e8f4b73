"""What a model answers for each picture, and how far to trust it; as a table, one by one."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import EncodedImages
from prolip.evaluation.metrics.confidence import Confidences, max_softmax
from prolip.files import atomic_write
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity

SHOWN = 12
"""Wrong answers that the result names."""
COLUMNS = ("key", "class", "answer", "right", "trust", "match", "max_softmax", "uncertainty")


@dataclass(frozen=True, eq=False)
class Predictions:
    """scores: similarities (N, C). labels: int64 (N,). confidences: in the nearest class. temperature: scale and bias
    of the model's logits, None for a bias that it doesn't have."""

    scores: Tensor
    labels: Tensor
    confidences: Confidences
    temperature: tuple[float, float | None]

    @classmethod
    def from_embeddings(
        cls,
        images: Gaussian,
        labels: Tensor,
        classes: Gaussian,
        by: SimilarityMetric,
        temperature: tuple[float, float | None],
    ) -> Predictions:
        """images: (N, D), classes: (C, D)."""
        scores = similarity(images, classes, by)
        return cls(scores, labels, Confidences.from_scores(images, scores, temperature), temperature)


def write_predictions(
    path: Path, answers: Predictions, encoded: EncodedImages, data: LabeledData, result: dict[str, Any]
) -> Path:
    """A CSV with a row for each picture, by `COLUMNS`. result: what `zeroshot.judge` found.

    trust: probability that the answer is right: the largest softmax, with the scale that was fitted on half of the data
    (empty for a single picture). match: probability of the pair, by the model's own scale and bias (its similarity, if
    it has no bias). max_softmax: with the model's own scale.
    """
    columns = {name: answers.confidences.shown.get(name) for name in ("match", "max_softmax", "uncertainty")}
    columns["trust"] = _trust(answers, result)

    def fill(aside: Path) -> None:
        with open(aside, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(_rows(answers, encoded, data, columns))

    return atomic_write(path, fill)


def most_confident_errors(
    answers: Predictions, encoded: EncodedImages, data: LabeledData, result: dict[str, Any]
) -> list[dict[str, Any]]:
    """The wrong answers with the most trust, the surest first: {number (in the source), key, class, answer, trust}."""
    trust, predicted = _trust(answers, result), answers.scores.argmax(1)
    if trust is None:
        return []
    wrong = (predicted != answers.labels).nonzero()[:, 0]
    order = wrong[trust[wrong].argsort(descending=True, stable=True)][:SHOWN].tolist()
    return [
        {
            "number": int(encoded.indices[row]),
            "key": encoded.metadata[row].key,
            "class": data.class_names[answers.labels[row]],
            "answer": data.class_names[predicted[row]],
            "trust": float(trust[row]),
        }
        for row in order
    ]


def _rows(
    answers: Predictions, encoded: EncodedImages, data: LabeledData, columns: dict[str, Tensor | None]
) -> Iterator[dict[str, object]]:
    values = {name: None if column is None else column.tolist() for name, column in columns.items()}
    pairs = zip(answers.labels.tolist(), answers.scores.argmax(1).tolist(), strict=True)
    for row, (label, answer) in enumerate(pairs):
        numbers = {name: "" if found is None else f"{found[row]:.6g}" for name, found in values.items()}
        yield {
            "key": encoded.metadata[row].key,
            "class": data.class_names[label],
            "answer": data.class_names[answer],
            "right": int(label == answer),
            **numbers,
        }


def _trust(answers: Predictions, result: dict[str, Any]) -> Tensor | None:
    if result["calibration"] is None:
        return None
    scale = result["calibration"]["softmax"]["fitted"]["scale"]
    return max_softmax(answers.scores, scale)
