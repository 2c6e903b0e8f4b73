"""Results of the evaluators on the written sets, reduced to the numbers that the table needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from prolip.data.batch import Preprocessor
from prolip.data.source import evenly_spaced
from prolip.data.sources.hierarcaps import HierarCaps, read_hierarcaps
from prolip.data.sources.hierarimgs import read_hierarimgs
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import hierarcaps, hierarimgs, prompts, robustness
from prolip.evaluation.chains import EndScores
from prolip.evaluation.configs import HierarCapsConfig, HierarImgsConfig, PromptsConfig, RobustnessConfig
from prolip.evaluation.corruptions import make_occlusion
from prolip.evaluation.entailment import Entailment
from prolip.evaluation.order_controls import OrderControl
from prolip.evaluation.pgd import PGDAttack, attack_images
from prolip.evaluation.result import get_value
from prolip.gaussian import Gaussian
from prolip.measures.nearest import RankingMetric
from prolip.scenes.meaning import is_true
from prolip.scenes.parsing import parse_caption
from prolip.scenes.writer import TEST
from prolip.zeroshot.prompts import embed_classes, embed_prompts
from reproduction.evaluation_data import EvaluationData, has_variances, replace_with_constant_variance

TASKS = ("color_shape", "unseen", "shape", "color", "position", "count")
"""Zero-shot tasks that `EvaluationData.prepare` writes."""
MAIN_TASK = TASKS[0]
"""Task of all evaluations but zero-shot accuracy."""
OCCLUDED_FRACTIONS = RobustnessConfig().occluded[1:]
LEVEL_SCORES = ("log_inclusion", "log_containment", "inclusion", "match", "cosine", "uncertainty", "words")
"""Scores whose AUROC of entailment is kept for each level."""
TOP_K = (1, 5, 10)
"""Numbers of least uncertain prompts that make up a class."""


def evaluate_zero_shot(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Evaluate zero-shot accuracy on each task, by CSD and by the match that was trained.

    Returns:
        By task {n, classes, one_prompt (accuracy by CSD with the first template, "a {c}"), one_prompt_match (by match;
        for PPCL equal to one_prompt; None for a softmax model), all_prompts (by CSD with all templates)}.
    """
    return {name: _compute_accuracies(embedder, evaluation_data.task(name)) for name in TASKS}


def _compute_accuracies(embedder: Embedder, data: LabeledData) -> dict[str, Any]:
    """The entry of one task, as of `evaluate_zero_shot`."""
    images = embedder.embed_images(data.source)
    labels, logits = data.labels(images.metadata), embedder.logit_parameters

    def compute_accuracy(templates: tuple[str, ...], metric: RankingMetric = "csd") -> float:
        classes = embed_classes(embedder, data.class_names, templates)
        return robustness.measure_accuracy(images.images, labels, classes, metric).accuracy.value

    return {
        "n": len(images),
        "classes": len(data.class_names),
        "one_prompt": compute_accuracy(data.templates[:1]),
        "one_prompt_match": None if logits.bias is None else compute_accuracy(data.templates[:1], logits),
        "all_prompts": compute_accuracy(data.templates),
    }


def evaluate_occlusion(embedder: Embedder, evaluation_data: EvaluationData) -> list[dict[str, Any]]:
    """Evaluate images of the main task with an occluded center.

    Returns:
        For each occluded fraction of the area, from 0: {fraction, n, accuracy, uncertainty (mean), rises (fraction of
        images that are more uncertain than when whole; None for a deterministic model)}.
    """
    data = evaluation_data.task(MAIN_TASK)
    classes = embed_classes(embedder, data.class_names, data.templates)
    whole = embedder.embed_images(data.source)
    labels, rows = data.labels(whole.metadata), []
    for fraction in (0.0, *OCCLUDED_FRACTIONS):
        images = (
            embedder.embed_images(data.source, make_occlusion(fraction)).images if fraction else whole.images
        )
        scores = _measure(images, labels, classes)
        rows.append(
            {
                "fraction": fraction,
                "n": len(images),
                **scores,
                "rises": _compute_rising_fraction(whole.images, images),
            }
        )
    return rows


def evaluate_pgd(embedder: Embedder, evaluation_data: EvaluationData) -> list[dict[str, Any]]:
    """Evaluate images of the main task, evenly spaced, after a PGD attack (epsilon 8/255, steps of 2/255).

    Returns:
        For each number of steps, from 0: {steps, n, accuracy, uncertainty, rises} as of `evaluate_occlusion`.
    """
    data, model = evaluation_data.task(MAIN_TASK), embedder.model
    indices = evenly_spaced(len(data.source), evaluation_data.sizes.num_pgd).tolist()
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.embed_images(data.source)
    labels = data.labels(clean.metadata)[indices]
    preprocessor = Preprocessor(pixels=model.config.image.preprocessing, tokenizer=None, caption="first")
    pixels = [preprocessor.process(data.source.read(index), 0).pixels for index in indices]
    attack = PGDAttack(steps=evaluation_data.sizes.pgd_steps)
    images_by_steps = {0: clean.images[indices]} | attack_images(
        model, pixels, labels, classes, attack, sample_indices=indices, progress=embedder.progress
    )
    return [
        {
            "steps": steps,
            "n": len(images),
            **_measure(images, labels, classes),
            "rises": _compute_rising_fraction(images_by_steps[0], images),
        }
        for steps, images in images_by_steps.items()
    ]


def _measure(images: Gaussian, labels: Tensor, classes: Gaussian) -> dict[str, float | None]:
    """{accuracy, uncertainty (mean; None for a deterministic model)} of images, (N, D), among classes, (C, D)."""
    measured = robustness.measure_accuracy(images, labels, classes)
    return {"accuracy": measured.accuracy.value, "uncertainty": get_value(measured.uncertainty)}


def _compute_rising_fraction(whole: Gaussian, changed: Gaussian) -> float | None:
    """Fraction of images that are more uncertain after a change, row by row; None for a deterministic model."""
    if not has_variances(whole):
        return None
    return (changed.uncertainty > whole.uncertainty).double().mean().item()


def evaluate_prompts(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Compare strategies that combine prompts into a class, on the main task.

    Returns:
        n: number of images. rows: accuracy by name of the strategy, None for one that needs the variances that a
        deterministic model lacks. Controls are BPRW with equal variances, also without labeled images, and the centroid
        of the labeled images without prompts.
    """
    data, shots = evaluation_data.task(MAIN_TASK), evaluation_data.shots(MAIN_TASK)
    config = PromptsConfig(
        single_template=0, top_k=TOP_K, std_multiples=(), runs=evaluation_data.sizes.repeats
    )
    prompt_embeddings = embed_prompts(embedder, data.class_names, data.templates)
    test, train = (embedder.embed_images(labeled.source) for labeled in (data, shots))
    labels, shot_labels = data.labels(test.metadata), shots.labels(train.metadata)
    result = prompts.compare_strategies(
        prompt_embeddings, test.images, labels, train=train.images, train_labels=shot_labels, config=config
    )
    rows = {row.name: get_value(row.accuracy) for row in result.rows}
    rows["BPRW, 0 images, equal variances"] = None
    if has_variances(prompt_embeddings):
        # compare_strategies has this control for labeled images only
        flat_prompts, flat_images = (
            replace_with_constant_variance(z) for z in (prompt_embeddings, test.images)
        )
        flat_result = prompts.compare_strategies(
            flat_prompts, flat_images, labels, train=train.images, train_labels=shot_labels,
            config=PromptsConfig(single_template=0, top_k=(), std_multiples=(), shots=(), runs=config.runs),
        )  # fmt: skip
        flat_rows = {row.name: get_value(row.accuracy) for row in flat_result.rows}
        rows["BPRW, 0 images, equal variances"] = flat_rows["BPRW, 0 images"]
    return {"n": result.n, "rows": rows}


def evaluate_hierarimgs(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Evaluate HierarImgs.

    Returns:
        n: number of images. levels: for each level, from the largest segment on, {included (fraction of images with
        H(original in level) > 0), more_uncertain (fraction), own (AUROC of an image's own level against other images'
        levels, by log inclusion)}.
    """
    data = read_hierarimgs(evaluation_data.folder / "hierarimgs" / "levels")
    result = hierarimgs.evaluate_hierarimgs(embedder, data, HierarImgsConfig(controls=0))
    return {"n": result.n, "levels": [_describe_level(level.inclusion) for level in result.levels]}


def _describe_level(inclusion: hierarimgs.LevelInclusion | None) -> dict[str, float | None]:
    """The entry of a level, as of `evaluate_hierarimgs`; all values are None for a deterministic model."""
    if inclusion is None:
        return {"included": None, "more_uncertain": None, "own": None}
    return {
        "included": inclusion.included.value,
        "more_uncertain": inclusion.more_uncertain.value,
        "own": inclusion.own_level_auroc.log_inclusion,
    }


def evaluate_hierarcaps(embedder: Embedder, evaluation_data: EvaluationData) -> dict[str, Any]:
    """Evaluate HierarCaps.

    Returns:
        n: number of chains.
        order: {n, adjacent, pairs}: the fraction of adjacent levels whose more general caption is more uncertain, over
            all levels and by level; None for a deterministic model.
        order_controls: by name of a score (uncertainty, words, pieces, unigram, perplexity, match_perplexity;
            a deterministic model lacks the first) {adjacent, pairs, spearman (with the true
            log-ambiguity, over all levels), equal (pairs of adjacent levels of equally many word pieces: {n, fraction,
            p}; None without such pairs)}. Ties count half.
        entailment: by query (image: is a caption true of it? caption: is a caption of a lower level entailed by the
            most specific one?) {n, positives, auroc, average_precision, levels}; auroc and average_precision are by
            score, over all levels; levels: for each level, the AUROC by LEVEL_SCORES. The truth is exact.
        traversal: {precision, recall, root_recall} by root of the traversal.
        ends: by root {true_and_general (fraction of paths that end at a true caption of level 0 or 1), true, level
            (mean), distinct (number of different ends)}; None for a root that needs the variances of the model.
        recall: that of the radial protocol, which HierarCaps itself uses.
    """
    data = read_hierarcaps(evaluation_data.folder / "hierarcaps" / "test.csv")
    # which caption entails which is decided on their words, the same in all worlds
    config = HierarCapsConfig(world="simple", controls=0)  # untrained models are a variant of their own
    result = hierarcaps.evaluate_hierarcaps(embedder, data, config, _make_truth(evaluation_data, data))
    uncertainty, controls = result.uncertainty, result.order_controls
    assert controls is not None
    order = None
    if uncertainty is not None:
        pairs = [get_value(row[level + 1]) for level, row in enumerate(uncertainty.level_pairs[:-1])]
        order = {"n": result.n, "adjacent": get_value(uncertainty.adjacent_order), "pairs": pairs}
    traversals = {
        row.root: {
            "precision": row.visited.precision.value,
            "recall": row.visited.recall.value,
            "root_recall": row.at_root.recall.value,
        }
        for row in result.traversal or ()
        if row.root_of in (None, "image")
    }
    ends = {
        row.root: _describe_ends(row.ends) for row in result.traversal or () if row.root_of in (None, "image")
    }
    return {
        "n": result.n,
        "order": order,
        "order_controls": {score.name: _describe_order(score) for score in controls.scores},
        "entailment": {entry.query: _describe_entailment(entry) for entry in result.entailment},
        "traversal": {root: traversals.get(root) for root in ("null", "inclusion", "inclusion+null")},
        "ends": {root: ends.get(root) for root in ("null", "inclusion+null", "general-match")},
        "recall": None if result.radial is None else result.radial.recall.value,
    }


def _make_truth(evaluation_data: EvaluationData, data: HierarCaps) -> Callable[[int, str], bool]:
    """The function (index in `data.images`, caption) -> whether the caption is true of the scene that is shown."""
    seed = evaluation_data.derive_seed(TEST)
    # `write_dataset` names files by the index of their scene
    scenes = [evaluation_data.world.draw_scene(seed, int(path.stem)) for path in data.images]
    return lambda image, caption: is_true(parse_caption(caption), scenes[image])


def _describe_ends(ends: EndScores | None) -> dict[str, Any] | None:
    """The entry of a root, as of `ends` of `evaluate_hierarcaps`."""
    if ends is None:
        return None
    return {
        "true_and_general": ends.true_and_general.value,
        "true": ends.true.value,
        "level": ends.level.value,
        "distinct": ends.num_distinct,
    }


def _describe_order(score: OrderControl) -> dict[str, Any]:
    """The entry of a score, as of `order_controls` of `evaluate_hierarcaps`."""
    test = score.equal_pieces
    return {
        "adjacent": get_value(score.adjacent_order),
        "pairs": [get_value(row[level + 1]) for level, row in enumerate(score.level_pairs[:-1])],
        "spearman": None if score.ambiguity is None else score.ambiguity.spearman,
        "equal": None
        if test is None
        else {"n": test.in_order.n, "fraction": test.in_order.value, "p": test.p_value},
    }


def _describe_entailment(entry: Entailment) -> dict[str, Any]:
    """The entry of a query, as of `entailment` of `evaluate_hierarcaps`."""
    scores = {
        name: metrics for name, metrics in entry.all_levels.scores.items() if name != "match_perplexity"
    }
    first = next(iter(scores.values()))
    return {
        "n": first.n,
        "positives": first.num_positive,
        "auroc": {name: metrics.auroc for name, metrics in scores.items()},
        "average_precision": {name: metrics.average_precision for name, metrics in scores.items()},
        "levels": {
            str(level.level): {
                name: metrics.auroc for name, metrics in level.scores.items() if name in LEVEL_SCORES
            }
            for level in entry.levels
        },
    }
