"""Pictures made worse: what becomes of zero-shot accuracy and of uncertainty.

The centre hidden, common corruptions, and PGD, after the paper's "Uncertainty by image manipulation" (its appendix).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.data.batch import Preprocessor
from prolip.data.sources.labeled import LabeledData
from prolip.data.subset import evenly_spaced
from prolip.embeddings.embedder import ImageTransform, Embedder, EncodedImages
from prolip.evaluation import paper_numbers
from prolip.evaluation.corruptions import CORRUPTIONS, Corruption, make_corruption, make_occlusion
from prolip.evaluation.formatting import describe_bad_samples, format_number, format_percent, table
from prolip.evaluation.pgd import EPSILON, STEP, PGDAttack, Start, attack_images
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes

OCCLUSION = (0.0, 0.025, 0.05, 0.075, 0.1)
PGD_STEPS = (0, 1, 5, 10, 40)
"""The paper's."""


def evaluate_robustness(
    model: ProLIP,
    data: LabeledData,
    *,
    occluded: Sequence[float] = OCCLUSION,
    corruptions: Sequence[Corruption] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    pgd_steps: Sequence[int] = PGD_STEPS,
    epsilon: float = EPSILON,
    step: float = STEP,
    start: Start = "random",
    limit: int = 1000,
    by: SimilarityMetric = "csd",
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Accuracy and mean image uncertainty (None for a deterministic model) under each kind of damage.

    occluded: shares of the area. pgd_steps, epsilon, step, start: see `attack.Attack`; 0 steps are the clean pictures.
    limit: how many pictures PGD is run on, evenly spread over the data. Any of the lists may be empty.
    cache, batch_size, max_bad_fraction, progress: as in `encode_images`. Embeddings of changed pictures are kept in the cache
    too: with the defaults about 35 changes x N images x 8 D bytes.
    Layout: data, images, bad (samples left out), classes, by; clean {accuracy, uncertainty}; occlusion [{share, ...}];
    corruptions {kind: [{severity, ...}]}; pgd {images, epsilon, step, start, rows [{steps, ...}]} or None.
    """
    require_positive_int(limit, "limit")
    changes = [make_corruption(kind, severity) for kind in corruptions for severity in severities]
    hidden = [make_occlusion(share) if share else None for share in occluded]
    attack = _attack(pgd_steps, epsilon, step, start, by)  # what is wrong is told before hours of work
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.embed_images(data.source)

    def told(change: ImageTransform | None) -> dict[str, Any]:
        done = clean if change is None else embedder.embed_images(data.source, change)
        return measure_accuracy(done.images, data.labels(done.metadata), classes, by)

    by_change = iter([told(change) for change in changes])
    return {
        "data": data.source.name,
        "images": len(clean),
        "bad": len(clean.errors),
        "classes": len(classes),
        "by": by,
        "clean": told(None),
        "occlusion": [
            {"share": share, **told(change)} for share, change in zip(occluded, hidden, strict=True)
        ],
        "corruptions": {
            kind: [{"severity": severity, **next(by_change)} for severity in severities]
            for kind in corruptions
        },
        "pgd": _pgd(embedder, data, clean, classes, attack, pgd_steps, limit),
    }


def measure_accuracy(images: Gaussian, labels: Tensor, classes: Gaussian, by: SimilarityMetric = "csd") -> dict[str, float | None]:
    """Accuracy of the nearest class, and the mean uncertainty of the images (None if they have none)."""
    uncertainty = images.uncertainty.double().mean().item()
    correct = similarity(images, classes, by).argmax(1) == labels
    return {"accuracy": correct.double().mean().item(), "uncertainty": uncertainty or None}


def robustness_tables(result: Mapping[str, Any]) -> list[Table]:
    """For people: one table for each kind of damage, with the paper's numbers where it has them."""
    made = []
    if result["occlusion"]:
        rows = [(f"{100 * row['share']:g} %", row) for row in result["occlusion"]]
        made.append(_table("centre hidden", rows, paper_numbers.OCCLUSION))
    if result["pgd"]:
        facts = result["pgd"]
        title = (
            f"PGD on {facts['images']} images: epsilon {255 * facts['epsilon']:g}/255, "
            f"step {255 * facts['step']:g}/255, {facts['start']} start"
        )
        made.append(_table(title, [(str(row["steps"]), row) for row in facts["rows"]], paper_numbers.PGD))
    if result["corruptions"]:
        made += _corruption_tables(result)
    for first in made[:1]:
        first.caption = describe_bad_samples(result["bad"])
    return made


def _attack(steps: Sequence[int], epsilon: float, step: float, start: Start, by: SimilarityMetric) -> PGDAttack | None:
    counts = tuple(dict.fromkeys(count for count in steps if count != 0))
    return PGDAttack(steps=counts, epsilon=epsilon, step_size=step, start=start, by=by) if counts else None


def _pgd(
    embedder: Embedder,
    data: LabeledData,
    clean: EncodedImages,
    classes: Gaussian,
    attack: PGDAttack | None,
    steps: Sequence[int],
    limit: int,
) -> dict[str, Any] | None:
    if attack is None:
        return None
    images, labels = clean.images, data.labels(clean.metadata)
    rows = torch.from_numpy(evenly_spaced(len(images), limit))
    chosen = clean.indices[rows].tolist()
    found = attack_images(
        embedder.model, _Pixels(embedder.model, data, chosen), labels[rows], classes, attack,
        numbers=chosen, batch_size=embedder.batch_size, progress=embedder.progress,
    )  # fmt: skip
    found[0] = images[rows]
    return {
        "images": len(rows),
        "epsilon": attack.epsilon,
        "step": attack.step_size,
        "start": attack.start,
        "rows": [
            {"steps": count, **measure_accuracy(found[count], labels[rows], classes, attack.by)} for count in steps
        ],
    }


class _Pixels(Sequence[Tensor]):
    """The model's own pixels of some samples, uint8 (3, S, S), read when they are asked for."""

    def __init__(self, model: ProLIP, data: LabeledData, numbers: Sequence[int]) -> None:
        self._preparation = Preprocessor(pixels=model.config.image.preprocessing, tokenizer=None, caption="first")
        self._source, self._numbers = data.source, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return self._preparation.item(self._source.read(self._numbers[index]), 0).pixels


def _table(
    title: str, rows: Sequence[tuple[str, Mapping[str, Any]]], printed: paper_numbers.PaperTable
) -> Table:
    made = table(title, [""], ("accuracy %", "uncertainty", "paper: accuracy %", "paper: uncertainty"))
    for name, row in rows:
        theirs = printed.row(name) if name in printed.rows else {}
        made.add_row(
            name, format_percent(row["accuracy"]), format_number(row["uncertainty"]),
            format_percent(theirs.get("imagenet")), format_number(theirs.get("image_uncertainty")),
        )  # fmt: skip
    return made


def _corruption_tables(result: Mapping[str, Any]) -> list[Table]:
    """Accuracy, and uncertainty if there is any, by severity: apart, so that both fit a narrow terminal."""
    shown: dict[str, tuple[str, Callable[[float | None], str]]]
    shown = {"accuracy": ("accuracy %", format_percent), "uncertainty": ("uncertainty", format_number)}
    tables = []
    for key, (name, form) in shown.items():
        if result["clean"][key] is None:
            continue
        severities = [str(row["severity"]) for row in next(iter(result["corruptions"].values()))]
        made = table(f"{name} by severity", ["corruption"], ["clean", *severities])
        for kind, rows in result["corruptions"].items():
            made.add_row(
                kind.replace("_", " "), form(result["clean"][key]), *(form(row[key]) for row in rows)
            )
        tables.append(made)
    return tables
