"""Results of the evaluators on the written sets, reduced to the numbers that the table needs."""

from __future__ import annotations

from typing import Any

from prolip.data.batch import Preprocessor
from prolip.data.source import evenly_spaced
from prolip.data.sources.hierarcaps import read_hierarcaps
from prolip.data.sources.hierarimgs import read_hierarimgs
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import hierarcaps, hierarimgs, prompts, robustness
from prolip.evaluation.corruptions import make_occlusion
from prolip.evaluation.pgd import PGDAttack, attack_images
from prolip.evaluation.strategies import StrategyConfig
from prolip.gaussian import Gaussian
from prolip.zeroshot.prompts import embed_classes, embed_prompts
from reproduction.evaluation_data import EvaluationData, has_variances, replace_with_constant_variance

TASKS = ("color_shape", "unseen", "shape", "color", "position", "count")
HEADLINE = TASKS[0]
OCCLUDED_FRACTIONS = robustness.OCCLUSION[1:]
TOP = (1, 5, 10)
"""K of the least uncertain prompts of each class."""


def evaluate_zero_shot(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Accuracy on each task by CSD: with its first prompt alone ("a {c}"), and with all templates."""
    return {name: _accuracies(embedder, evaluation_data.task(name)) for name in TASKS}


def _accuracies(embedder: Embedder, data: LabeledData) -> dict[str, Any]:
    images = embedder.embed_images(data.source)
    labels = data.labels(images.metadata)

    def accuracy(templates: tuple[str, ...]) -> float | None:
        classes = embed_classes(embedder, data.class_names, templates)
        return robustness.measure_accuracy(images.images, labels, classes)["accuracy"]

    return {
        "n": len(images),
        "classes": len(data.class_names),
        "one_prompt": accuracy(data.templates[:1]),
        "all_prompts": accuracy(data.templates),
    }


def evaluate_occlusion(embedder: Embedder, evaluation_data: EvaluationData) -> list[dict[str, Any]]:
    """Evaluate images with an occluded center.

    Returns:
        For each occluded fraction of the area: {fraction, n, accuracy, uncertainty (mean), rises (fraction of images
        that are more uncertain than when whole; None for a deterministic model)}.
    """
    data = evaluation_data.task(HEADLINE)
    classes = embed_classes(embedder, data.class_names, data.templates)
    whole = embedder.embed_images(data.source)
    labels, rows = data.labels(whole.metadata), []
    for fraction in (0.0, *OCCLUDED_FRACTIONS):
        images = (
            embedder.embed_images(data.source, make_occlusion(fraction)).images if fraction else whole.images
        )
        scores = robustness.measure_accuracy(images, labels, classes)
        rows.append({"fraction": fraction, "n": len(images), **scores, "rises": _rises(whole.images, images)})
    return rows


def evaluate_pgd(embedder: Embedder, evaluation_data: EvaluationData) -> list[dict[str, Any]]:
    """PGD (8/255, steps of 2/255): {steps, n, accuracy, uncertainty, rises}, of images spread over the first task."""
    data, model = evaluation_data.task(HEADLINE), embedder.model
    indices = evenly_spaced(len(data.source), evaluation_data.sizes.num_pgd).tolist()
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.embed_images(data.source)
    labels = data.labels(clean.metadata)[indices]
    prepare = Preprocessor(pixels=model.config.image.preprocessing, tokenizer=None, caption="first")
    pixels = [prepare.process(data.source.read(index), 0).pixels for index in indices]
    attack = PGDAttack(steps=evaluation_data.sizes.pgd_steps)
    found = {0: clean.images[indices]} | attack_images(
        model, pixels, labels, classes, attack, sample_indices=indices, progress=embedder.progress
    )
    return [
        {
            "steps": steps,
            "n": len(images),
            **robustness.measure_accuracy(images, labels, classes),
            "rises": _rises(found[0], images),
        }
        for steps, images in found.items()
    ]


def _rises(whole: Gaussian, changed: Gaussian) -> float | None:
    if not has_variances(whole):
        return None
    return (changed.uncertainty > whole.uncertainty).double().mean().item()


def evaluate_prompts(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """n, and by strategy the accuracy (None where the model can't have it); with equal variances, BPRW of 0, 5 and 9
    images; and the centroid of as many images, without prompts."""
    data, shots = evaluation_data.task(HEADLINE), evaluation_data.shots(HEADLINE)
    plan = StrategyConfig(single_template=0, top_k=TOP, std_multiples=(), runs=evaluation_data.sizes.repeats)
    prompted = embed_prompts(embedder, data.class_names, data.templates)
    tested, learnt = (embedder.embed_images(part.source) for part in (data, shots))
    labels, shot_labels = data.labels(tested.metadata), shots.labels(learnt.metadata)
    result = prompts.compare_strategies(
        prompted, tested.images, labels, train=learnt.images, train_labels=shot_labels, config=plan
    )
    rows = {row["name"]: row["accuracy"] for row in result["rows"]}
    rows["BPRW, 0 images, equal variances"] = None
    if has_variances(prompted):
        flat = [replace_with_constant_variance(z) for z in (prompted, tested.images)]
        equal = prompts.compare_strategies(
            flat[0], flat[1], labels, train=learnt.images, train_labels=shot_labels,
            config=StrategyConfig(single_template=0, top_k=(), std_multiples=(), shots=(), runs=plan.runs),
        )  # fmt: skip
        named = {row["name"]: row["accuracy"] for row in equal["rows"]}
        rows["BPRW, 0 images, equal variances"] = named["BPRW, 0 images"]
    return {"n": result["images"], "rows": rows}


def evaluate_hierarimgs(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """HierarImgs: n; by level, from the largest segment on: included (fraction with H(original in level) > 0),
    more_uncertain, and own: the AUROC of an image's own level against others' by log inclusion."""
    data = read_hierarimgs(evaluation_data.folder / "hierarimgs" / "levels")
    result = hierarimgs.evaluate_hierarimgs(embedder, data, untrained=0)
    return {
        "n": result["images"],
        "levels": [
            {
                "included": row["included"],
                "more_uncertain": row["more_uncertain"],
                "own": (row["own_level_auroc"] or {}).get("log_inclusion"),
            }
            for row in result["by_level"]
        ],
    }


def evaluate_hierarcaps(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """HierarCaps: order {n, adjacent (mean), pairs (fraction of chains whose level k is above level k + 1)}, None for a
    deterministic model; traversal, by root (of the image): precision, recall, root_recall; recall: of the set's own
    protocol."""
    data = read_hierarcaps(evaluation_data.folder / "hierarcaps" / "test.csv")
    result = hierarcaps.evaluate_hierarcaps(embedder, data)
    uncertainty = result["uncertainty"]
    order = None
    if uncertainty is not None:
        pairs = [
            uncertainty["level_pairs"][level][level + 1]
            for level in range(len(uncertainty["level_pairs"]) - 1)
        ]
        order = {"n": result["chains"], "adjacent": uncertainty["adjacent_order"], "pairs": pairs}
    traversals = {
        row["root"]: {name: row[name] for name in ("precision", "recall", "root_recall")}
        for row in result["traversal"]
        if row["root_of"] in (None, "image")
    }
    return {
        "n": result["chains"],
        "order": order,
        "traversal": {root: traversals.get(root) for root in ("null", "inclusion", "inclusion+null")},
        "recall": result["radial"]["recall"],
    }
