"""Robustness: zero-shot accuracy and uncertainty under occlusion, corruptions and PGD attacks.

After the paper's appendix "Uncertainty by image manipulation".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.data.batch import Preprocessor
from prolip.data.source import evenly_spaced
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder, EncodedImages, ImageTransform
from prolip.evaluation import paper_numbers
from prolip.evaluation.corruptions import CORRUPTIONS, Corruption, make_corruption, make_occlusion
from prolip.evaluation.pgd import EPSILON, STEP_SIZE, PGDAttack, StartPoint, attack_images
from prolip.gaussian import Gaussian
from prolip.measures.nearest import SimilarityMetric, similarity
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes

OCCLUSION = (0.0, 0.025, 0.05, 0.075, 0.1)
"""The occluded fractions of the area that the paper reports."""
PGD_STEPS = (0, 1, 5, 10, 40)
"""The numbers of PGD steps that the paper reports."""


def evaluate_robustness(
    embedder: Embedder,
    data: LabeledData,
    *,
    occlusion_fractions: Sequence[float] = OCCLUSION,
    corruptions: Sequence[Corruption] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    pgd_steps: Sequence[int] = PGD_STEPS,
    epsilon: float = EPSILON,
    step_size: float = STEP_SIZE,
    start: StartPoint = "random",
    pgd_images: int = 1000,
    metric: SimilarityMetric = "csd",
) -> dict[str, Any]:
    """Measure accuracy and mean image uncertainty under occlusion, corruptions and PGD.

    Args:
        embedder: The model, and how to embed with it. Embeddings of transformed images are cached too: with the
            defaults about 35 transforms x N images x 8 D bytes.
        data: Images, labels, class names and templates.
        occlusion_fractions: Fractions of the area that are hidden; may be empty.
        corruptions, severities: Each corruption at each severity (1 to 5); may be empty.
        pgd_steps: Numbers of PGD steps; 0 is the clean image; may be empty.
        epsilon, step_size, start: See `PGDAttack`.
        pgd_images: Number of images that PGD attacks, evenly spaced in the data.
        metric: Similarity that finds the nearest class.

    Returns:
        data (name), images, bad (samples skipped), classes (numbers), metric;
        clean: {accuracy, uncertainty (None for a deterministic model)}; each ... below stands for these two;
        occlusion: [{fraction, ...}];
        corruptions: {kind: [{severity, ...}]};
        pgd: {images, epsilon, step_size, start, rows [{steps, ...}]}; None if no number of steps is above 0.
    """
    require_positive_int(pgd_images, "pgd_images")
    # invalid arguments are rejected here, before hours of work
    corruption_transforms = [
        make_corruption(kind, severity) for kind in corruptions for severity in severities
    ]
    occlusions = [make_occlusion(fraction) if fraction else None for fraction in occlusion_fractions]
    attack = _make_attack(pgd_steps, epsilon, step_size, start, metric)
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.embed_images(data.source)

    def measure_transformed(transform: ImageTransform | None) -> dict[str, Any]:
        """Accuracy and uncertainty on the transformed images; None: on the unchanged images."""
        encoded = clean if transform is None else embedder.embed_images(data.source, transform)
        return measure_accuracy(encoded.images, data.labels(encoded.metadata), classes, metric)

    # by kind, then by severity
    corrupted = iter([measure_transformed(transform) for transform in corruption_transforms])
    return {
        "data": data.source.name,
        "images": len(clean),
        "bad": len(clean.errors),
        "classes": len(classes),
        "metric": metric,
        "clean": measure_transformed(None),
        "occlusion": [
            {"fraction": fraction, **measure_transformed(transform)}
            for fraction, transform in zip(occlusion_fractions, occlusions, strict=True)
        ],
        "corruptions": {
            kind: [{"severity": severity, **next(corrupted)} for severity in severities]
            for kind in corruptions
        },
        "pgd": _evaluate_pgd(embedder, data, clean, classes, attack, pgd_steps, pgd_images),
    }


def measure_accuracy(
    images: Gaussian, labels: Tensor, classes: Gaussian, metric: SimilarityMetric = "csd"
) -> dict[str, float | None]:
    """Measure zero-shot accuracy and mean image uncertainty.

    Args:
        images: The images, (N, D).
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D).
        metric: Similarity that finds the nearest class.

    Returns:
        accuracy (0 to 1), and uncertainty (mean over images; None for a deterministic model).
    """
    uncertainty = images.uncertainty.double().mean().item()
    correct = similarity(images, classes, metric).argmax(1) == labels
    # a mean uncertainty of 0 is that of a deterministic model
    return {"accuracy": correct.double().mean().item(), "uncertainty": uncertainty or None}


def robustness_tables(result: Mapping[str, Any]) -> list[Table]:
    """Make the tables of a robustness evaluation, with the paper's values where it has them.

    Args:
        result: What `evaluate_robustness` returned.

    Returns:
        Tables of occlusion, PGD and corruptions, as far as they were evaluated.
    """
    tables = []
    if result["occlusion"]:
        rows = [(f"{100 * row['fraction']:g} %", row) for row in result["occlusion"]]
        tables.append(_make_comparison_table("occluded center", rows, paper_numbers.OCCLUSION))
    if result["pgd"]:
        pgd = result["pgd"]
        title = (
            f"PGD on {pgd['images']} images: epsilon {255 * pgd['epsilon']:g}/255, "
            f"step {255 * pgd['step_size']:g}/255, {pgd['start']} start"
        )
        tables.append(
            _make_comparison_table(
                title, [(str(row["steps"]), row) for row in pgd["rows"]], paper_numbers.PGD
            )
        )
    if result["corruptions"]:
        tables += _corruption_tables(result)
    if tables:
        tables[0].caption = describe_bad_samples(result["bad"])
    return tables


def _make_attack(
    steps: Sequence[int], epsilon: float, step_size: float, start: StartPoint, metric: SimilarityMetric
) -> PGDAttack | None:
    """The attack for all numbers of steps but 0, which stands for the clean images; None if all of them are 0."""
    distinct_steps = tuple(dict.fromkeys(count for count in steps if count != 0))
    if not distinct_steps:
        return None
    return PGDAttack(steps=distinct_steps, epsilon=epsilon, step_size=step_size, start=start, metric=metric)


def _evaluate_pgd(
    embedder: Embedder,
    data: LabeledData,
    clean: EncodedImages,
    classes: Gaussian,
    attack: PGDAttack | None,
    steps: Sequence[int],
    num_images: int,
) -> dict[str, Any] | None:
    """`pgd` of `evaluate_robustness`: attack evenly spaced images and measure each of `steps`; None without an attack.

    clean:      all images, embedded without an attack; they are the result for 0 steps.
    classes:    (C, D).
    num_images: how many images are attacked.
    """
    if attack is None:
        return None
    images, labels = clean.images, data.labels(clean.metadata)
    rows = torch.from_numpy(evenly_spaced(len(images), num_images))
    indices = clean.indices[rows].tolist()
    attacked = attack_images(
        embedder.model, _LazyPixels(embedder.model, data, indices), labels[rows], classes, attack,
        sample_indices=indices, batch_size=embedder.batch_size, progress=embedder.progress,
    )  # fmt: skip
    attacked[0] = images[rows]  # no steps: the clean images
    return {
        "images": len(rows),
        "epsilon": attack.epsilon,
        "step_size": attack.step_size,
        "start": attack.start,
        "rows": [
            {"steps": count, **measure_accuracy(attacked[count], labels[rows], classes, attack.metric)}
            for count in steps
        ],
    }


class _LazyPixels(Sequence[Tensor]):
    """The preprocessed pixels of some samples, uint8 (3, S, S), read on access."""

    def __init__(self, model: ProLIP, data: LabeledData, indices: Sequence[int]) -> None:
        """Nothing is read yet. indices: of the samples in the source of `data`."""
        self._preprocessor = Preprocessor(
            pixels=model.config.image.preprocessing, tokenizer=None, caption="first"
        )
        self._source, self._indices = data.source, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:
        """The pixels at an index, or a list of those of a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._preprocessor.process(self._source.read(self._indices[index]), 0).pixels


def _make_comparison_table(
    title: str, rows: Sequence[tuple[str, Mapping[str, Any]]], paper: paper_numbers.PaperTable
) -> Table:
    """Table of accuracy and uncertainty beside the paper's values.

    rows:  (name, {accuracy, uncertainty}); the paper's values are those of its row of this name, if there is one.
    paper: a table of the paper with the columns imagenet and image_uncertainty.
    """
    table = make_table(title, [""], ("accuracy %", "uncertainty", "paper: accuracy %", "paper: uncertainty"))
    for name, row in rows:
        paper_row = paper.row(name) if name in paper.rows else {}
        table.add_row(
            name, format_percent(row["accuracy"]), format_number(row["uncertainty"]),
            format_percent(paper_row.get("imagenet")), format_number(paper_row.get("image_uncertainty")),
        )  # fmt: skip
    return table


def _corruption_tables(result: Mapping[str, Any]) -> list[Table]:
    """A table of accuracy by corruption and severity, and one of uncertainty unless the model is deterministic.

    Two tables, so that both fit a narrow terminal.
    """
    formats: dict[str, tuple[str, Callable[[float | None], str]]]
    formats = {"accuracy": ("accuracy %", format_percent), "uncertainty": ("uncertainty", format_number)}
    tables = []
    for key, (name, format_value) in formats.items():
        if result["clean"][key] is None:
            continue
        severities = [str(row["severity"]) for row in next(iter(result["corruptions"].values()))]
        table = make_table(f"{name} by severity", ["corruption"], ["clean", *severities])
        for kind, rows in result["corruptions"].items():
            table.add_row(
                kind.replace("_", " "),
                format_value(result["clean"][key]),
                *(format_value(row[key]) for row in rows),
            )
        tables.append(table)
    return tables
