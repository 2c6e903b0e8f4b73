"""What a model answers for each picture, as a table: which answers to trust, one by one."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.data.labelled import Labelled
from prolip.embed.encode import Encoded
from prolip.evaluate.metrics.calibration import pair_probabilities
from prolip.evaluate.metrics.confidence import Confidences
from prolip.files import write_whole
from prolip.gaussian import Gaussian
from prolip.nearest import Score, similarity

COLUMNS = ("key", "class", "answer", "right", "trust", "match", "max_softmax", "uncertainty")


@torch.no_grad()
def write_answers(
    path: Path,
    encoded: Encoded,
    data: Labelled,
    classes: Gaussian,
    result: dict[str, Any],
    *,
    by: Score,
    temperature: tuple[float, float | None],
) -> Path:
    """A CSV with a row for each picture, by `COLUMNS`. classes: (C, D). result: what `zeroshot.judge` found.

    trust: probability that the answer is right, by the fit to answers on half of the data (empty if there was none).
    match: probability of the pair, by the model's own scale and bias (its similarity, if the model has no bias).
    """
    scores, labels = similarity(encoded.images, classes, by), data.labels(encoded.facts)
    shown = Confidences.of(encoded.images, scores, temperature).shown
    columns = {name: shown.get(name) for name in ("match", "max_softmax", "uncertainty")}
    columns["trust"] = _trust(scores.amax(1).double(), result)
    rows = _rows(encoded, data, labels, scores.argmax(1), columns)

    def fill(aside: Path) -> None:
        with open(aside, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)

    return write_whole(path, fill)


def _rows(
    encoded: Encoded, data: Labelled, labels: Tensor, answers: Tensor, columns: dict[str, Tensor | None]
) -> Iterator[dict[str, object]]:
    values = {name: None if column is None else column.tolist() for name, column in columns.items()}
    for row, (label, answer) in enumerate(zip(labels.tolist(), answers.tolist(), strict=True)):
        numbers = {name: "" if found is None else f"{found[row]:.6g}" for name, found in values.items()}
        yield {
            "key": encoded.facts[row].key,
            "class": data.class_names[label],
            "answer": data.class_names[answer],
            "right": int(label == answer),
            **numbers,
        }


def _trust(best: Tensor, result: dict[str, Any]) -> Tensor | None:
    """By the scale and bias that were fitted to answers."""
    fit = ((result["calibration"] or {}).get("sigmoid") or {}).get("fitted_to_answers")
    return None if fit is None else pair_probabilities(best, fit["scale"], fit["bias"])
