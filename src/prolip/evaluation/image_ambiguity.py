"""Images of known ambiguity: does image uncertainty go with it, and tell wrong answers? With rivals and controls."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prolip.data.image_annotations import parse_image_annotation
from prolip.data.source import AnnotatedImages, ImageAnnotation, Source, evenly_spaced
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages, LogitParameters
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation.configs import ImageAmbiguityConfig
from prolip.evaluation.image_ambiguity_result import (
    LESS_INK,
    PERPLEXITY,
    SMALLER_FILE,
    SOFTMAX,
    UNCERTAINTY,
    ImageAmbiguityResult,
    ImageGroup,
    ImagePoints,
    RisingPairs,
    ScoreMetrics,
    SequenceMetrics,
    StepMetrics,
)
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.detection import detection_metrics
from prolip.evaluation.result import Mean, Proportion
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian
from prolip.measures.perplexity import log_pool_perplexity
from prolip.preprocessing.images import read_image
from prolip.zeroshot.prompts import embed_classes

POINTS = 4000
"""Images that a figure draws as points."""
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
    images = _embed_annotated(embedder, data)
    classes = embed_classes(embedder, data.class_names, data.templates) if isinstance(data, LabeledData) else None
    scores, num_pool = _compute_scores(embedder, data, images, classes, config.pool)
    if embedder.has_uncertainty:
        for seed, control in enumerate(controls):
            scores[f"untrained, seed {seed}"] = _embed_annotated(control, data).uncertainty
    answers = None if classes is None else _answer(embedder.logit_parameters, data, images, classes)
    return _summarize(images, scores, answers, config, num_pool=num_pool, num_classes=0 if classes is None else len(classes))


@dataclass(frozen=True, eq=False, kw_only=True)
class AnnotatedEmbeddings:
    """N embedded images of known ambiguity.

    Attributes:
        encoded: All embedded images of the source.
        rows: int64 (N,): rows of those whose ambiguity is known.
        annotations: What is known of each.
    """

    encoded: EncodedImages
    rows: Tensor
    annotations: tuple[ImageAnnotation, ...]

    @property
    def images(self) -> Gaussian:
        """The embeddings, (N, D)."""
        return self.encoded.images[self.rows]

    @property
    def uncertainty(self) -> Tensor:
        """The uncertainties, float64 (N,)."""
        return self.images.uncertainty.double()

    @property
    def metadata(self) -> list[SampleMetadata]:
        """The metadata of each image."""
        return [self.encoded.metadata[row] for row in self.rows.tolist()]

    @property
    def truth(self) -> Tensor:
        """The true log-ambiguities, float64 (N,)."""
        return torch.tensor([one.log_ambiguity for one in self.annotations], dtype=torch.float64)


def _embed_annotated(embedder: BaseEmbedder, data: LabeledData | Source) -> AnnotatedEmbeddings:
    """Embed the images and find their annotations; ValueError if there are none."""
    source = data.source if isinstance(data, LabeledData) else data
    encoded = embedder.embed_images(source)
    found = [
        source.image_annotation(index) if isinstance(source, AnnotatedImages) else parse_image_annotation(sample.extra)
        for index, sample in zip(encoded.indices.tolist(), encoded.metadata, strict=True)
    ]
    rows = [row for row, annotation in enumerate(found) if annotation is not None]
    if not rows:
        raise ValueError(
            f"{source.name}: the ambiguity of no image is known. Each sample needs a .json file with the field "
            "image_log_ambiguity, or a column of this name"
        )
    return AnnotatedEmbeddings(
        encoded=encoded,
        rows=torch.tensor(rows),
        annotations=tuple(annotation for annotation in found if annotation is not None),
    )


def _compute_scores(
    embedder: BaseEmbedder,
    data: LabeledData | Source,
    images: AnnotatedEmbeddings,
    classes: Gaussian | None,
    max_pool: int,
) -> tuple[dict[str, Tensor], int]:
    """Scores by name, float64 (N,) each, higher for an image that should leave more open; and the size of the pool."""
    scores = {UNCERTAINTY: images.uncertainty} if embedder.has_uncertainty else {}
    texts = _collect_captions(images.metadata)
    pool = classes
    if texts:
        pool = embedder.embed_texts([texts[i] for i in evenly_spaced(len(texts), max_pool)])
    if pool is not None:
        slope = compute_slope(embedder.logit_parameters, images.images, pool)
        scores[PERPLEXITY] = log_pool_perplexity(images.images, pool, slope)
    if classes is not None:
        logits = embedder.logit_parameters.logits_matrix(images.images, classes).double()
        scores[SOFTMAX] = -logits.softmax(1).amax(1)
    source = data.source if isinstance(data, LabeledData) else data
    indices = images.encoded.indices[images.rows].tolist()
    pictures = [_measure_picture(read_image(source.read(index).image)) for index in indices]
    ink, size = torch.tensor(pictures, dtype=torch.float64).T
    return scores | {LESS_INK: -ink, SMALLER_FILE: -size}, 0 if pool is None else len(pool)


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
    low, high = logits.combine(
        torch.tensor([0.0, 1.0], dtype=torch.float64), image_trace, text_trace, images.dim
    ).tolist()
    return max(0.0, high - low)


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
    logits: LogitParameters, data: LabeledData | Source, images: AnnotatedEmbeddings, classes: Gaussian
) -> Answers:
    """Answer with the class of the highest logit, by the match of the model's loss."""
    assert isinstance(data, LabeledData)
    samples = images.metadata
    has_label = torch.tensor([data.folders is not None or "cls" in sample.extra for sample in samples])
    labels = torch.full((len(samples),), -1)
    labels[has_label] = data.labels([samples[row] for row in has_label.nonzero()[:, 0].tolist()])
    answers = logits.logits_matrix(images.images, classes).argmax(1)
    return Answers(has_label=has_label, is_wrong=answers != labels)


def _summarize(
    images: AnnotatedEmbeddings,
    scores: Mapping[str, Tensor],
    answers: Answers | None,
    config: ImageAmbiguityConfig,
    *,
    num_pool: int,
    num_classes: int,
) -> ImageAmbiguityResult:
    """All metrics. scores: as of `_compute_scores`."""
    annotations = images.annotations
    chosen = torch.tensor([one.step is None for one in annotations])
    chosen = chosen if bool(chosen.any()) else ~chosen
    asked = None if answers is None else chosen & answers.has_label
    asked = asked if asked is not None and bool(asked.any()) else None
    group = _Grouping(images, scores, chosen)
    veils = group.by(lambda one: one.veil, config.min_group)
    return ImageAmbiguityResult(
        data=images.encoded.name,
        n=int(chosen.sum()),
        num_bad=len(images.encoded.errors),
        num_images=len(annotations),
        num_pool=num_pool,
        num_classes=num_classes,
        accuracy=None if answers is None or asked is None else _fraction(~answers.is_wrong[asked]),
        scores=tuple(
            ScoreMetrics(
                name=name,
                spearman=spearman(images.truth[chosen], score[chosen]),
                mean_within_veil=group.mean_within(lambda one: one.veil, score, config.min_group),
                errors=None
                if answers is None or asked is None
                else detection_metrics(answers.is_wrong[asked], score[asked]),
            )
            for name, score in scores.items()
        ),
        veils=veils,
        kinds=group.by(lambda one: one.kind),
        visible_objects=tuple(
            sorted(
                group.by(lambda one: None if one.visible_objects is None else str(one.visible_objects)),
                key=lambda entry: int(entry.name),
            )
        ),
        above_whole=_compare_with_whole(images, scores, chosen),
        sequences=_summarize_sequences(images, scores),
        points=_sample_points(images, scores, chosen),
    )


Key = Callable[[ImageAnnotation], str | None]
"""Annotation -> name of its group; None: in no group."""


@dataclass(frozen=True, eq=False)
class _Grouping:
    """The chosen images (bool (N,)) and their scores, to be split into groups."""

    images: AnnotatedEmbeddings
    scores: Mapping[str, Tensor]
    chosen: Tensor

    def iter_groups(self, key: Key, min_size: int = 1) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the mask, bool (N,), of each group with enough images, in the order of the data."""
        names = [key(annotation) for annotation in self.images.annotations]
        for name in dict.fromkeys(names):
            mask = torch.tensor([other == name for other in names]) & self.chosen
            if name is not None and int(mask.sum()) >= min_size:
                yield name, mask

    def by(self, key: Key, min_size: int = 1) -> tuple[ImageGroup, ...]:
        """Summarize each group with enough images, by mean log-ambiguity."""
        groups = [self._summarize_group(*entry) for entry in self.iter_groups(key, min_size)]
        return tuple(sorted(groups, key=lambda entry: entry.log_ambiguity))

    def mean_within(self, key: Key, score: Tensor, min_size: int) -> float | None:
        """Mean over the groups with enough images of the correlation of a score, (N,), with the truth."""
        values = [
            spearman(self.images.truth[mask], score[mask]) for _, mask in self.iter_groups(key, min_size)
        ]
        defined = [value for value in values if value is not None]
        return float(np.mean(defined)) if defined else None

    def _summarize_group(self, name: str, mask: Tensor) -> ImageGroup:
        """Summarize one group. mask: bool (N,)."""
        truth = self.images.truth[mask]
        found = {score: values[mask] for score, values in self.scores.items()}
        uncertainty, perplexity = found.get(UNCERTAINTY), found.get(PERPLEXITY)
        return ImageGroup(
            name=name,
            n=int(mask.sum()),
            log_ambiguity=float(truth.mean()),
            uncertainty=None if uncertainty is None else float(uncertainty.mean()),
            spearman=None if uncertainty is None else spearman(truth, uncertainty),
            perplexity_spearman=None if perplexity is None else spearman(truth, perplexity),
        )


def _compare_with_whole(
    images: AnnotatedEmbeddings, scores: Mapping[str, Tensor], chosen: Tensor
) -> RisingPairs:
    """Compare the chosen images, bool (N,), with the whole images of their scenes."""
    whole = {one.scene: row for row, one in enumerate(images.annotations) if one.step == 0}
    pairs = [
        (whole[one.scene], row)
        for row, one in enumerate(images.annotations)
        if chosen[row] and one.step != 0 and one.scene is not None and one.scene in whole
    ]
    return _count_rising(images, scores, pairs)


def _count_rising(
    images: AnnotatedEmbeddings, scores: Mapping[str, Tensor], pairs: Sequence[tuple[int, int]]
) -> RisingPairs:
    """Count how often a score rises among the pairs (row, row) whose true ambiguity rises."""
    truth = images.truth
    rows = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    before, after = rows[truth[rows[:, 1]] > truth[rows[:, 0]]].T

    def count(name: str) -> Proportion | None:
        """The fraction of pairs in which a score rises; None without the score or without pairs."""
        if name not in scores or not len(before):
            return None
        return _fraction(scores[name][after] > scores[name][before])

    return RisingPairs(n=len(before), uncertainty=count(UNCERTAINTY), perplexity=count(PERPLEXITY))


def _summarize_sequences(
    images: AnnotatedEmbeddings, scores: Mapping[str, Tensor]
) -> tuple[SequenceMetrics, ...]:
    """Summarize the steps of each sequence; step 0 is the whole image of each scene that has the sequence."""
    annotations = images.annotations
    whole = {one.scene: row for row, one in enumerate(annotations) if one.step == 0}
    result = []
    for name in dict.fromkeys(one.sequence for one in annotations if one.sequence is not None and one.step):
        rows = {(one.scene, one.step): row for row, one in enumerate(annotations) if one.sequence == name and one.step}
        rows |= {(scene, 0): whole[scene] for scene, _ in tuple(rows) if scene in whole}
        steps = sorted({step for _, step in rows if step is not None})
        result.append(
            SequenceMetrics(name=name, steps=tuple(_summarize_step(images, scores, rows, step) for step in steps))
        )
    return tuple(result)


def _summarize_step(
    images: AnnotatedEmbeddings,
    scores: Mapping[str, Tensor],
    rows: Mapping[tuple[str | None, int | None], int],
    step: int,
) -> StepMetrics:
    """Summarize a step of a sequence. rows: row of each (scene, step)."""
    here = torch.tensor([row for (_, other), row in rows.items() if other == step])
    pairs = [
        (rows[scene, step - 1], row)
        for (scene, other), row in rows.items()
        if other == step and (scene, step - 1) in rows
    ]
    return StepMetrics(
        step=step,
        n=len(here),
        log_ambiguity=float(images.truth[here].mean()),
        uncertainty=Mean.from_values(scores[UNCERTAINTY][here]) if UNCERTAINTY in scores else None,
        rises=_count_rising(images, scores, pairs) if step else None,
    )


def _sample_points(images: AnnotatedEmbeddings, scores: Mapping[str, Tensor], chosen: Tensor) -> ImagePoints:
    """The values of some of the chosen images, bool (N,)."""
    rows = chosen.nonzero()[:, 0]
    rows = rows[torch.from_numpy(evenly_spaced(len(rows), POINTS))]

    def select(name: str) -> tuple[float, ...] | None:
        """The values of a score; None if it was not measured."""
        return tuple(scores[name][rows].tolist()) if name in scores else None

    annotations = [images.annotations[row] for row in rows.tolist()]
    return ImagePoints(
        log_ambiguity=tuple(one.log_ambiguity for one in annotations),
        kind=tuple(one.kind or one.veil for one in annotations),
        uncertainty=select(UNCERTAINTY),
        perplexity=select(PERPLEXITY),
    )


def _fraction(mask: Tensor) -> Proportion:
    """The fraction of cases, bool (n,), for which something holds."""
    return Proportion.from_mean(mask.double().mean().item(), len(mask))
