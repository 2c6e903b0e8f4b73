"""The tab Classify: an image among classes and how far to trust it; weights of prompts learned from a few images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prolip.app.inputs import MAX_EXAMPLES, MAX_PROMPTS, InputError, NamedImage, check_texts
from prolip.app.workspace import ModelWorkspace
from prolip.data.sources.labeled import check_templates
from prolip.evaluation.configs import PromptsConfig
from prolip.evaluation.metrics.confidence import Confidences
from prolip.evaluation.prompts import compare_strategies
from prolip.evaluation.ranking import resolve_ranking
from prolip.evaluation.result import Proportion
from prolip.gaussian import Gaussian
from prolip.measures.nearest import similarity
from prolip.mixture import pool
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, few_shot_config, few_shot_weights, zero_shot_weights
from prolip.zeroshot.prompts import make_prompt_texts

SHOTS = 5
"""Labeled images per class that weights are learned from, at most."""
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The classes of one image, the best first."""

    image: str
    """Name of the image."""
    classes: tuple[str, ...]
    """Class names, the most similar first."""
    match: tuple[float, ...] | None
    """Match probability of each; None: the model has none."""
    max_softmax: float
    """Largest softmax over the classes."""
    class_perplexity: float
    """Effective number of classes that fit the image."""
    uncertainty: float | None
    """Trace of the image's covariance; None: the model has none."""


@dataclass(frozen=True, kw_only=True)
class LearnedPrompts:
    """Weights of the templates of each class, learned by BPRW."""

    has_labels: bool
    """Whether the images had labels; else the nearest images stood for each class."""
    images: int
    """Number of example images."""
    weights: tuple[tuple[float, ...], ...]
    """(C, T)."""
    tested: int = 0
    """Labeled images that accuracy was measured on: not those that its weights were learned from."""
    before: Proportion | None = None
    """Accuracy with equal weights; None: not measured."""
    after: Proportion | None = None
    """Accuracy with learned weights; None: not measured."""
    not_measured: str = ""
    """Why there is no accuracy."""


@dataclass(frozen=True, kw_only=True)
class ClassifyResult:
    """Images among classes."""

    class_names: tuple[str, ...]
    """The C classes."""
    templates: tuple[str, ...]
    """The T templates."""
    predictions: tuple[Prediction, ...]
    """With the learned weights, if there are any, else with equal ones."""
    learned: LearnedPrompts | None
    """What was learned from example images; None: there were none."""


@dataclass(frozen=True)
class Examples:
    """Images to learn weights of prompts from.

    Attributes:
        images: The images.
        labels: The class name of each; empty: there are no labels.
    """

    images: Sequence[NamedImage] = ()
    labels: Sequence[str] = ()


def classify(
    workspace: ModelWorkspace,
    images: Sequence[NamedImage],
    class_names: Sequence[str],
    templates: Sequence[str],
    examples: Examples | None = None,
) -> ClassifyResult:
    """Classify images, with weights of prompts that are learned from examples if there are any.

    Args:
        workspace: The model.
        images: The images.
        class_names: At least two.
        templates: With {c} or {} for the class name.
        examples: Images to learn from.

    Returns:
        The classes of each image, the weights, and the accuracy before and after if labels are known.

    Raises:
        InputError: There are too few classes, too many prompts, or labels that are no class.
        ValueError: A template has no place for the class name, or the model has no uncertainty to learn weights with.
    """
    names = check_texts(class_names, "class", MAX_PROMPTS)
    checked = check_templates(check_texts(templates, "template", MAX_PROMPTS))
    if len(names) < 2:
        raise InputError("Type at least two class names, one per line.")
    if len(names) * len(checked) > MAX_PROMPTS:
        raise InputError(
            f"{len(names)} classes times {len(checked)} templates are {len(names) * len(checked):,} prompts. At most "
            f"{MAX_PROMPTS:,} are possible."
        )
    flat = workspace.embed_texts(make_prompt_texts(names, checked))
    shape = (len(names), len(checked), flat.dim)
    prompts = Gaussian(flat.mean.reshape(shape), flat.log_var.reshape(shape))
    learned = _learn(workspace, prompts, names, examples) if examples and examples.images else None
    classes = pool(prompts, None if learned is None else torch.tensor(learned.weights, dtype=torch.float64))
    return ClassifyResult(
        class_names=tuple(names),
        templates=checked,
        predictions=_predict(workspace, images, names, classes) if images else (),
        learned=learned,
    )


def _predict(
    workspace: ModelWorkspace, images: Sequence[NamedImage], names: Sequence[str], classes: Gaussian
) -> tuple[Prediction, ...]:
    """Classify images by the most similar class, by the similarity that the model was trained for."""
    z = workspace.embed_images([one.image for one in images])
    ranking = resolve_ranking(None, workspace.model.logit_parameters)
    scores = similarity(z, classes, ranking.metric)
    confidences = Confidences.from_scores(z, scores, ranking.logits).display
    has_match = workspace.model.logit_bias is not None
    match = workspace.model.match_probability_matrix(z, classes) if has_match else None
    uncertainty = confidences.get("uncertainty")
    predictions = []
    for row, (one, order) in enumerate(zip(images, scores.argsort(1, descending=True), strict=True)):
        predictions.append(
            Prediction(
                image=one.name,
                classes=tuple(names[index] for index in order.tolist()),
                match=None if match is None else tuple(match[row, order].tolist()),
                max_softmax=float(confidences["max_softmax"][row]),
                class_perplexity=float(confidences["class_perplexity"][row]),
                uncertainty=None if uncertainty is None else float(uncertainty[row]),
            )
        )
    return tuple(predictions)


def _learn(
    workspace: ModelWorkspace, prompts: Gaussian, names: Sequence[str], examples: Examples
) -> LearnedPrompts:
    """Learn weights of prompts (C, T, D) from example images, with or without labels."""
    if len(examples.images) > MAX_EXAMPLES:
        raise InputError(
            f"There are {len(examples.images)} example images. At most {MAX_EXAMPLES} are possible."
        )
    z = workspace.embed_images([one.image for one in examples.images])
    generator = torch.Generator().manual_seed(SEED)
    if not examples.labels:
        settings = replace(
            ZERO_SHOT_CONFIG, nearest_images=min(ZERO_SHOT_CONFIG.nearest_images or 10, len(z))
        )
        weights = zero_shot_weights(
            prompts, z, settings, generator, resolve_ranking(None, workspace.model.logit_parameters).metric
        ).weights
        return LearnedPrompts(
            has_labels=False,
            images=len(z),
            weights=_to_rows(weights),
            not_measured="the images have no labels",
        )
    labels = _index_labels(examples, names)
    weights = few_shot_weights(prompts, z, labels, SHOTS, few_shot_config(SHOTS), generator).weights
    learned = LearnedPrompts(has_labels=True, images=len(z), weights=_to_rows(weights))
    return _measure_accuracy(workspace, prompts, z, labels, learned)


def _measure_accuracy(
    workspace: ModelWorkspace, prompts: Gaussian, images: Gaussian, labels: Tensor, learned: LearnedPrompts
) -> LearnedPrompts:
    """Measure accuracy with equal and with learned weights, on images that are held out of learning."""
    if int(torch.bincount(labels).max()) < 2:
        return replace(learned, not_measured="no class has two images, one to learn from and one to test on")
    config = PromptsConfig(
        shots=(SHOTS,), std_multiples=(), top_k=(), runs=1, seed=SEED, nearest_images=min(10, len(images))
    )
    result = compare_strategies(
        prompts, images, labels, config=config, logits=workspace.model.logit_parameters
    )
    accuracy = {row.name: row.accuracy for row in result.rows}
    return replace(
        learned, tested=result.n, before=accuracy["all prompts"], after=accuracy[f"BPRW, {SHOTS} images"]
    )


def _index_labels(examples: Examples, names: Sequence[str]) -> Tensor:
    """Index of the class of each example, int64 (N,); InputError if a label is no class."""
    if len(examples.labels) != len(examples.images):
        raise InputError(
            f"There are {len(examples.labels)} labels for {len(examples.images)} example images. Type one label per "
            "image, in the order of the images, or none."
        )
    index_by_name = {name.casefold(): index for index, name in enumerate(names)}
    unknown = next((label for label in examples.labels if label.casefold() not in index_by_name), None)
    if unknown is not None:
        raise InputError(f'The label "{unknown}" is none of the class names.')
    return torch.tensor([index_by_name[label.casefold()] for label in examples.labels])


def _to_rows(weights: Tensor) -> tuple[tuple[float, ...], ...]:
    """Weights (C, T) as tuples."""
    return tuple(tuple(row) for row in weights.tolist())
