"""Robustness: zero-shot accuracy and uncertainty under occlusion, corruptions and PGD attacks.

After the paper's appendix "Uncertainty by image manipulation".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prolip.data.batch import Preprocessor
from prolip.data.source import evenly_spaced
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages, ImageTransform
from prolip.evaluation.configs import RobustnessConfig
from prolip.evaluation.corruptions import make_corruption, make_occlusion
from prolip.evaluation.pgd import PGDAttack, attack_images, require_gradients
from prolip.evaluation.ranking import resolve_ranking
from prolip.evaluation.result import Mean, Proportion
from prolip.evaluation.robustness_result import (
    AccuracyUncertainty,
    CorruptionRow,
    OcclusionRow,
    PGDMetrics,
    PGDRow,
    RobustnessResult,
)
from prolip.gaussian import Gaussian
from prolip.measures.nearest import RankingMetric, similarity
from prolip.model.prolip import ProLIP
from prolip.zeroshot.prompts import embed_classes


def evaluate_robustness(
    embedder: BaseEmbedder, data: LabeledData, config: RobustnessConfig | None = None
) -> RobustnessResult:
    """Measure accuracy and mean image uncertainty under occlusion, corruptions and PGD.

    Args:
        embedder: The model, and how to embed with it. Embeddings of transformed images are cached too: with the
            defaults about 35 transforms x N images x 8 D bytes.
        data: Images, labels, class names and templates.
        config: The options; None: the defaults.

    Returns:
        The result.
    """
    config = config or RobustnessConfig()
    data = data.limited(config.limit)
    # invalid arguments are rejected here, before hours of work
    corruptions = {
        kind: [(severity, make_corruption(kind, severity)) for severity in config.severities]
        for kind in config.corruptions
    }
    occlusions = [(part, make_occlusion(part) if part else None) for part in config.occluded]
    ranking = resolve_ranking(config.rank_by, embedder.logit_parameters)
    attack = _make_attack(config, ranking.metric)
    if attack is not None:
        require_gradients(embedder.require_model("a PGD attack"))
    classes = embed_classes(embedder, data.class_names, data.templates)
    clean = embedder.embed_images(data.source)

    def measure(transform: ImageTransform | None) -> AccuracyUncertainty:
        """Accuracy and uncertainty of the transformed images; None: of the unchanged images."""
        encoded = clean if transform is None else embedder.embed_images(data.source, transform)
        return measure_accuracy(encoded.images, data.labels(encoded.metadata), classes, ranking.metric)

    return RobustnessResult(
        data=data.source.name,
        n=len(clean),
        num_bad=len(clean.errors),
        rank_by=ranking.rank_by,
        num_classes=len(classes),
        clean=measure(None),
        occlusion=tuple(
            OcclusionRow.extend(measure(occlusion), fraction=part) for part, occlusion in occlusions
        ),
        corruptions={
            kind: tuple(
                CorruptionRow.extend(measure(corruption), severity=level) for level, corruption in levels
            )
            for kind, levels in corruptions.items()
        },
        pgd=None if attack is None else _evaluate_pgd(embedder, data, clean, classes, attack, config),
    )


def measure_accuracy(
    images: Gaussian, labels: Tensor, classes: Gaussian, metric: RankingMetric = "csd"
) -> AccuracyUncertainty:
    """Measure zero-shot accuracy and mean image uncertainty.

    Args:
        images: The images, (N, D).
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D).
        metric: Similarity that finds the nearest class.

    Returns:
        Accuracy and uncertainty.
    """
    correct = similarity(images, classes, metric).argmax(1) == labels
    uncertainty = images.uncertainty.double()
    return AccuracyUncertainty(
        accuracy=Proportion.from_mean(correct.double().mean().item(), len(images)),
        uncertainty=Mean.from_values(uncertainty) if bool(uncertainty.any()) else None,
    )


def _make_attack(config: RobustnessConfig, metric: RankingMetric) -> PGDAttack | None:
    """The attack for all numbers of steps but 0, which stands for the clean images; None if all of them are 0."""
    distinct_steps = tuple(dict.fromkeys(count for count in config.pgd_steps if count != 0))
    if not distinct_steps:
        return None
    return PGDAttack(
        steps=distinct_steps, epsilon=config.epsilon, step_size=config.step_size, start=config.start,
        metric=metric,
    )  # fmt: skip


def _evaluate_pgd(
    embedder: BaseEmbedder,
    data: LabeledData,
    clean: EncodedImages,
    classes: Gaussian,
    attack: PGDAttack,
    config: RobustnessConfig,
) -> PGDMetrics:
    """Attack evenly spaced images and measure each number of steps.

    clean:   all images, embedded without an attack; they are the result for 0 steps.
    classes: (C, D).
    """
    images, labels = clean.images, data.labels(clean.metadata)
    rows = torch.from_numpy(evenly_spaced(len(images), config.pgd_images))
    indices = clean.indices[rows].tolist()
    model = embedder.require_model("a PGD attack")
    attacked = attack_images(
        model, _LazyPixels(model, data, indices), labels[rows], classes, attack,
        sample_indices=indices, batch_size=embedder.batch_size, progress=embedder.progress,
    )  # fmt: skip
    attacked[0] = images[rows]  # no steps: the clean images

    def measure(steps: int) -> PGDRow:
        """Accuracy and uncertainty after some steps."""
        measured = measure_accuracy(attacked[steps], labels[rows], classes, attack.metric)
        return PGDRow.extend(measured, steps=steps)

    return PGDMetrics(
        n=len(rows), epsilon=attack.epsilon, step_size=attack.step_size, start=attack.start,
        rows=tuple(measure(steps) for steps in config.pgd_steps),
    )  # fmt: skip


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
