"""Images of known ambiguity: does image uncertainty go with it, and tell wrong answers? With rivals and controls."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.data.source import Source, Subset, evenly_spaced
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, LogitParameters
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation.annotated_images import AnnotatedEmbeddings, embed_annotated
from prolip.evaluation.configs import ImageAmbiguityConfig
from prolip.evaluation.image_ambiguity_result import (
    LESS_INK,
    PERPLEXITY,
    SMALLER_FILE,
    SOFTMAX,
    UNCERTAINTY,
    ImageAmbiguityResult,
    ScoreMetrics,
)
from prolip.evaluation.image_groups import (
    Scores,
    compare_with_whole,
    find_groups,
    make_proportion,
    mean_within,
    sample_points,
    summarize_groups,
    summarize_sequences,
)
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.detection import detection_metrics
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian
from prolip.measures.perplexity import log_perplexity
from prolip.preprocessing.images import read_image
from prolip.zeroshot.prompts import embed_classes

MAX_SIDE = 256
"""Larger images are reduced to this side before ink is counted."""


def evaluate_image_ambiguity(
    embedder: BaseEmbedder, data: LabeledData | Source, config: ImageAmbiguityConfig | None = None
) -> ImageAmbiguityResult:
    """Compare image uncertainty with the true ambiguity of images, and with wrong zero-shot answers.

    Annotations come from an `AnnotatedImages`, or from the json or the columns of a sample (`parse_image_annotation`);
    images without one are not measured. The pool of captions is that of the data: those of its samples, the list
    `captions` of their json, or without both the prompts of the classes.

    Args:
        embedder: The model, and how to embed with it. Embeddings of untrained models are not cached.
        data: The images. With class names, those that have a label are classified too.
        config: The options; None: the defaults.

    Returns:
        The result; of a deterministic model, what needs no uncertainty.

    Raises:
        ValueError: The ambiguity of no image is known.
    """
    config = config or ImageAmbiguityConfig()
    controls = untrained_embedders(embedder, config.controls)  # checks the number before any work
    source = data.source if isinstance(data, LabeledData) else data
    images = embed_annotated(embedder, source)
    classes = answers = None
    if isinstance(data, LabeledData):
        classes = embed_classes(embedder, data.class_names, data.templates)
        answers = _answer(embedder.logit_parameters, data, images, classes)
    pool = _embed_pool(embedder, images, config.pool_size, classes)
    scores = _compute_scores(embedder, images, classes, pool) | _measure_pictures(source, images)
    if embedder.has_uncertainty:
        scores |= _measure_controls(controls, source, images)
    result = _summarize(images, scores, answers, config.min_group)
    return replace(
        result,
        num_pool=0 if pool is None else len(pool),
        num_classes=0 if classes is None else len(classes),
    )


def _embed_pool(
    embedder: BaseEmbedder, images: AnnotatedEmbeddings, max_size: int, classes: Gaussian | None
) -> Gaussian | None:
    """Embed the pool of captions, (M, D): distinct ones, evenly spaced; without captions, the classes."""
    texts = _collect_captions(images.metadata)
    if not texts:
        return classes
    return embedder.embed_texts([texts[i] for i in evenly_spaced(len(texts), max_size)])


def _compute_scores(
    embedder: BaseEmbedder, images: AnnotatedEmbeddings, classes: Gaussian | None, pool: Gaussian | None
) -> dict[str, Tensor]:
    """The model's scores by name, float64 (N,) each, higher for an image that should leave more open."""
    logits = embedder.logit_parameters
    scores = {UNCERTAINTY: images.uncertainty} if embedder.has_uncertainty else {}
    if pool is not None:
        scores[PERPLEXITY] = log_perplexity(images.images, pool, compute_slope(logits, images.images, pool))
    if classes is not None:
        scores[SOFTMAX] = -logits.logits_matrix(images.images, classes).double().softmax(1).amax(1)
    return scores


def _measure_pictures(source: Source, images: AnnotatedEmbeddings) -> dict[str, Tensor]:
    """The controls that need no model, as of `_compute_scores`."""
    indices = images.encoded.indices[images.rows].tolist()
    measured = [_measure_picture(read_image(source.read(index).image)) for index in indices]
    ink, size = torch.tensor(measured, dtype=torch.float64).T
    return {LESS_INK: -ink, SMALLER_FILE: -size}


def _measure_controls(
    controls: Iterable[BaseEmbedder], source: Source, images: AnnotatedEmbeddings
) -> dict[str, Tensor]:
    """Uncertainty by untrained models, as of `_compute_scores`; NaN for images that are not chosen."""
    chosen = images.chosen
    subset = Subset.from_indices(source, images.encoded.indices[images.rows][chosen].numpy())
    scores = {}
    for seed, control in enumerate(controls):
        values = torch.full((len(chosen),), math.nan, dtype=torch.float64)
        values[chosen] = control.embed_images(subset).images.uncertainty.double()
        scores[f"untrained, seed {seed}"] = values
    return scores


def compute_slope(logits: LogitParameters, images: Gaussian, texts: Gaussian) -> float:
    """Compute the slope of a model's logits in the cosine of means, at the median uncertainties.

    Args:
        logits: The model's logits.
        images: (N, D).
        texts: (M, D).

    Returns:
        The logit of cosine 1 minus that of cosine 0, at least 0; of a PPCL model, its scale.
    """
    image_trace, text_trace = (z.uncertainty.double().median() for z in (images, texts))
    cosines = torch.tensor([0.0, 1.0], dtype=torch.float64)
    low, high = logits.combine(cosines, image_trace, text_trace, images.dim)
    return max(0.0, float(high - low))


def _collect_captions(samples: Sequence[SampleMetadata]) -> list[str]:
    """The distinct captions of samples, in order: their own, or those in their json."""
    texts: dict[str, None] = {}
    for sample in samples:
        record = sample.extra.get("json")
        listed = record.get("captions") if isinstance(record, Mapping) else None
        captions = sample.captions or (listed if isinstance(listed, list) else ())
        texts |= dict.fromkeys(text for text in captions if isinstance(text, str))
    return list(texts)


def _measure_picture(picture: Image.Image) -> tuple[float, float]:
    """The fraction of pixels that differ from the most common color, and the bytes of the compressed pixels."""
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    pixels = np.asarray(picture.convert("RGB"))
    _, counts = np.unique(pixels.reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1]), return_counts=True)
    return 1.0 - float(counts.max() / counts.sum()), float(len(zlib.compress(pixels.tobytes())))


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """Zero-shot answers: whether each of N images has a label, and whether its answer is wrong; bool (N,) each."""

    has_label: Tensor
    is_wrong: Tensor


def _answer(
    logits: LogitParameters, data: LabeledData, images: AnnotatedEmbeddings, classes: Gaussian
) -> Answers:
    """Answer with the class of the highest logit, by the match of the model's loss."""
    samples = images.metadata
    has_label = torch.tensor([data.folders is not None or "cls" in sample.extra for sample in samples])
    labels = torch.full((len(samples),), -1)
    labels[has_label] = data.labels([samples[row] for row in has_label.nonzero()[:, 0].tolist()])
    answers = logits.logits_matrix(images.images, classes).argmax(1)
    return Answers(has_label=has_label, is_wrong=answers != labels)


def _summarize(
    images: AnnotatedEmbeddings, scores: Scores, answers: Answers | None, min_group: int
) -> ImageAmbiguityResult:
    """All metrics, without the numbers of captions and classes. scores: as of `_compute_scores`."""
    chosen = images.chosen
    asked = torch.zeros_like(chosen) if answers is None else chosen & answers.has_label
    is_wrong = answers.is_wrong[asked] if answers is not None and bool(asked.any()) else None
    veils = find_groups(images, lambda one: one.veil, min_group)
    counts = find_groups(
        images, lambda one: None if one.visible_objects is None else str(one.visible_objects)
    )
    return ImageAmbiguityResult(
        data=images.encoded.name,
        n=int(chosen.sum()),
        num_bad=len(images.encoded.errors),
        num_images=len(images.annotations),
        num_pool=0,
        num_classes=0,
        accuracy=None if is_wrong is None else make_proportion(~is_wrong),
        scores=tuple(
            ScoreMetrics(
                name=name,
                spearman=spearman(images.truth[chosen], score[chosen]),
                mean_within_veil=mean_within(veils, images.truth, score),
                errors=None if is_wrong is None else detection_metrics(is_wrong, score[asked]),
            )
            for name, score in scores.items()
        ),
        veils=summarize_groups(veils, images, scores),
        kinds=summarize_groups(find_groups(images, lambda one: one.kind), images, scores),
        visible_objects=tuple(
            sorted(summarize_groups(counts, images, scores), key=lambda group: int(group.name))
        ),
        above_whole=compare_with_whole(images, scores),
        sequences=summarize_sequences(images, scores),
        points=sample_points(images, scores),
    )
