"""What the evaluators find on the written sets, cut down to the few numbers that the table needs."""

from __future__ import annotations

from typing import Any

from prolip.data.batch import Preparation
from prolip.data.sources.hierarcaps import read_hierarcaps
from prolip.data.sources.hierarimgs import read_hierarimgs
from prolip.data.sources.labeled import Labelled
from prolip.data.subset import evenly
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import hierarcaps, hierarimgs, prompts, robustness
from prolip.evaluation.corruptions import occlusion
from prolip.evaluation.pgd import Attack, attack_all
from prolip.evaluation.strategies import Plan
from prolip.gaussian import Gaussian
from prolip.zeroshot.prompts import embed_classes, embed_prompts
from reproduction.evaluation_sets import Ground, has_variances, with_constant_variance

TASKS = ("colour_shape", "unseen", "shape", "colour", "place", "count")
HEADLINE = TASKS[0]
OCCLUDED = robustness.OCCLUSION[1:]
TOP = (1, 5, 10)
"""K of the prompts that are kept of each class by their uncertainty."""


def zero_shot(embedder: Embedder, ground: Ground) -> dict[str, Any]:
    """Accuracy on each task by CSD: with its first prompt alone ("a {c}"), and with all templates."""
    return {name: _accuracies(embedder, ground.task(name)) for name in TASKS}


def _accuracies(embedder: Embedder, data: Labelled) -> dict[str, Any]:
    images = embedder.images(data.source)
    labels = data.labels(images.facts)

    def accuracy(templates: tuple[str, ...]) -> float | None:
        classes = embed_classes(embedder, data.class_names, templates)
        return robustness.judge(images.images, labels, classes)["accuracy"]

    return {
        "n": len(images),
        "classes": len(data.class_names),
        "one_prompt": accuracy(data.templates[:1]),
        "all_prompts": accuracy(data.templates),
    }


def hidden(embedder: Embedder, ground: Ground) -> list[dict[str, Any]]:
    """The centre hidden: {share (of the area), n, accuracy, uncertainty (mean), rises (share of pictures that are more
    uncertain than when whole; None for a deterministic model)}."""
    data = ground.task(HEADLINE)
    classes = embed_classes(embedder, data.class_names, data.templates)
    whole = embedder.images(data.source)
    labels, rows = data.labels(whole.facts), []
    for share in (0.0, *OCCLUDED):
        images = embedder.images(data.source, occlusion(share)).images if share else whole.images
        told = robustness.judge(images, labels, classes)
        rows.append({"share": share, "n": len(images), **told, "rises": _rises(whole.images, images)})
    return rows


def attacked(embedder: Embedder, ground: Ground) -> list[dict[str, Any]]:
    """PGD (8/255, steps of 2/255): {steps, n, accuracy, uncertainty, rises}, of pictures spread over the first task."""
    data, model = ground.task(HEADLINE), embedder.model
    numbers = evenly(len(data.source), ground.samples.attacked).tolist()
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.images(data.source)
    labels = data.labels(clean.facts)[numbers]
    prepare = Preparation(pixels=model.config.image.pixels, tokenizer=None, caption="first")
    pixels = [prepare.item(data.source.read(number), 0).pixels for number in numbers]
    attack = Attack(steps=ground.samples.attack)
    found = {0: clean.images[numbers]} | attack_all(
        model, pixels, labels, classes, attack, numbers=numbers, progress=embedder.progress
    )
    return [
        {
            "steps": steps,
            "n": len(images),
            **robustness.judge(images, labels, classes),
            "rises": _rises(found[0], images),
        }
        for steps, images in found.items()
    ]


def _rises(whole: Gaussian, changed: Gaussian) -> float | None:
    if not has_variances(whole):
        return None
    return (changed.uncertainty > whole.uncertainty).double().mean().item()


def prompt_rows(embedder: Embedder, ground: Ground) -> dict[str, Any]:
    """n, and by strategy the accuracy (None where the model can't have it); with equal variances, BPRW of 0, 5 and 9
    images; and the centroid of as many images, without prompts."""
    data, shots = ground.task(HEADLINE), ground.shots(HEADLINE)
    plan = Plan(single=0, lowest=TOP, spreads=(), runs=ground.samples.repeats)
    prompted = embed_prompts(embedder, data.class_names, data.templates)
    tested, learnt = (embedder.images(part.source) for part in (data, shots))
    labels, shot_labels = data.labels(tested.facts), shots.labels(learnt.facts)
    result = prompts.compare(
        prompted, tested.images, labels, train=learnt.images, train_labels=shot_labels, plan=plan
    )
    rows = {row["name"]: row["accuracy"] for row in result["rows"]}
    rows["BPRW, 0 images, equal variances"] = None
    if has_variances(prompted):
        flat = [with_constant_variance(z) for z in (prompted, tested.images)]
        equal = prompts.compare(
            flat[0], flat[1], labels, train=learnt.images, train_labels=shot_labels,
            plan=Plan(single=0, lowest=(), spreads=(), few=(), runs=plan.runs),
        )  # fmt: skip
        named = {row["name"]: row["accuracy"] for row in equal["rows"]}
        rows["BPRW, 0 images, equal variances"] = named["BPRW, 0 images"]
    return {"n": result["images"], "rows": rows}


def segments(embedder: Embedder, ground: Ground) -> dict[str, Any]:
    """HierarImgs: n; by level, from the largest segment on: included (share with H(original in level) > 0),
    more_uncertain, and own: the AUROC of a picture's own level against others' by log inclusion."""
    data = read_hierarimgs(ground.folder / "hierarimgs" / "levels")
    result = hierarimgs.evaluate(
        embedder.model, data, controls=0, cache=embedder.cache, progress=embedder.progress
    )
    return {
        "n": result["images"],
        "levels": [
            {
                "included": row["included"],
                "more_uncertain": row["more_uncertain"],
                "own": (row["own_against_others"] or {}).get("log_inclusion"),
            }
            for row in result["by_level"]
        ],
    }


def chains(embedder: Embedder, ground: Ground) -> dict[str, Any]:
    """HierarCaps: order {n, adjacent (mean), pairs (share of chains whose level k is above level k + 1)}, None for a
    deterministic model; traversal, by root (of the image): precision, recall, root_recall; recall: of the set's own
    protocol."""
    data = read_hierarcaps(ground.folder / "hierarcaps" / "test.csv")
    result = hierarcaps.evaluate(embedder.model, data, cache=embedder.cache, progress=embedder.progress)
    told = result["uncertainty"]
    order = None
    if told is not None:
        pairs = [told["level_pairs"][level][level + 1] for level in range(len(told["level_pairs"]) - 1)]
        order = {"n": result["chains"], "adjacent": told["adjacent_order"], "pairs": pairs}
    walks = {
        row["root"]: {name: row[name] for name in ("precision", "recall", "root_recall")}
        for row in result["traversal"]
        if row["of"] in (None, "image")
    }
    return {
        "n": result["chains"],
        "order": order,
        "traversal": {root: walks.get(root) for root in ("null", "inclusion", "inclusion+null")},
        "recall": result["hierarcaps"]["recall"],
    }
