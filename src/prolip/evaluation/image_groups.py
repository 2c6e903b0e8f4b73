"""Groups, pairs and sequences of images of known ambiguity: how scores go with the truth in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from prolip.data.source import ImageAnnotation, evenly_spaced
from prolip.evaluation.annotated_images import AnnotatedEmbeddings
from prolip.evaluation.image_ambiguity_result import (
    PERPLEXITY,
    UNCERTAINTY,
    ImageGroup,
    ImagePoints,
    RisingPairs,
    SequenceMetrics,
    StepMetrics,
)
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.result import Mean, Proportion

POINTS = 4000
"""Images that a figure draws as points."""
ROUNDING = 1e-5
"""Differences of log-ambiguities below it are none: files hold six decimals."""

Scores = Mapping[str, Tensor]
"""Name of a score -> float64 (N,), one value per image."""
Groups = Mapping[str, Tensor]
"""Name of a group -> its rows, int64."""
SceneStep = tuple[str, int]
"""A scene, and a step of a sequence."""


def find_groups(
    images: AnnotatedEmbeddings, name_of: Callable[[ImageAnnotation], str | None], min_size: int = 1
) -> Groups:
    """Group the images of the correlations.

    Args:
        images: The images.
        name_of: Annotation -> name of its group; None: in no group.
        min_size: Groups of fewer images are dropped.

    Returns:
        The groups, in the order of their first images.
    """
    groups: dict[str, list[int]] = {}
    for row in images.chosen.nonzero()[:, 0].tolist():
        name = name_of(images.annotations[row])
        if name is not None:
            groups.setdefault(name, []).append(row)
    return {name: torch.tensor(rows) for name, rows in groups.items() if len(rows) >= min_size}


def mean_within(groups: Groups, truth: Tensor, score: Tensor) -> float | None:
    """Mean of the correlations within groups.

    Args:
        groups: The groups.
        truth: True log-ambiguity of each image, (N,).
        score: A score of each image, (N,).

    Returns:
        The mean over the groups in which neither is constant; None if there is no such group.
    """
    values = [spearman(truth[rows], score[rows]) for rows in groups.values()]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def summarize_groups(groups: Groups, images: AnnotatedEmbeddings, scores: Scores) -> tuple[ImageGroup, ...]:
    """Summarize groups.

    Args:
        groups: The groups.
        images: The images.
        scores: Their scores.

    Returns:
        The summaries, by mean log-ambiguity.
    """
    entries = [_summarize_group(name, rows, images.truth, scores) for name, rows in groups.items()]
    return tuple(sorted(entries, key=lambda entry: entry.log_ambiguity))


def _summarize_group(name: str, rows: Tensor, truth: Tensor, scores: Scores) -> ImageGroup:
    """Summarize a group. truth: (N,)."""
    uncertainty, perplexity = (
        scores[score][rows] if score in scores else None for score in (UNCERTAINTY, PERPLEXITY)
    )
    return ImageGroup(
        name=name,
        n=len(rows),
        log_ambiguity=float(truth[rows].mean()),
        uncertainty=None if uncertainty is None else float(uncertainty.mean()),
        spearman=None if uncertainty is None else spearman(truth[rows], uncertainty),
        perplexity_spearman=None if perplexity is None else spearman(truth[rows], perplexity),
    )


def compare_with_whole(images: AnnotatedEmbeddings, scores: Scores) -> RisingPairs:
    """Compare the images in no sequence with the whole images of their scenes.

    Args:
        images: The images.
        scores: Their scores.

    Returns:
        How often a score is higher than that of the whole image.
    """
    whole = _find_whole_images(images)
    pairs = [
        (whole[one.scene], row)
        for row, one in enumerate(images.annotations)
        if one.step is None and one.scene in whole
    ]
    return _count_rising(images, scores, pairs)


def _find_whole_images(images: AnnotatedEmbeddings) -> dict[str | None, int]:
    """The row of the whole image of each scene."""
    return {
        one.scene: row
        for row, one in enumerate(images.annotations)
        if one.step == 0 and one.scene is not None
    }


def _count_rising(
    images: AnnotatedEmbeddings, scores: Scores, pairs: Sequence[tuple[int, int]]
) -> RisingPairs:
    """Count how often a score rises among the pairs (row, row) whose true ambiguity rises."""
    truth = images.truth
    rows = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    before, after = rows[truth[rows[:, 1]] > truth[rows[:, 0]] + ROUNDING].T

    def count(name: str) -> Proportion | None:
        """The fraction of pairs in which a score rises; None without the score or without pairs."""
        if name not in scores or not len(before):
            return None
        return make_proportion(scores[name][after] > scores[name][before])

    return RisingPairs(n=len(before), uncertainty=count(UNCERTAINTY), perplexity=count(PERPLEXITY))


def summarize_sequences(images: AnnotatedEmbeddings, scores: Scores) -> tuple[SequenceMetrics, ...]:
    """Summarize the steps of each sequence.

    Args:
        images: The images.
        scores: Their scores.

    Returns:
        The sequences; their step 0 is the whole image of each scene that has the sequence.
    """
    whole = _find_whole_images(images)
    rows_by_sequence: dict[str, dict[SceneStep, int]] = {}
    for row, one in enumerate(images.annotations):
        if one.sequence is not None and one.step and one.scene is not None:
            rows = rows_by_sequence.setdefault(one.sequence, {})
            rows[one.scene, one.step] = row
            if one.scene in whole:
                rows[one.scene, 0] = whole[one.scene]
    return tuple(
        SequenceMetrics(
            name=name,
            steps=tuple(
                _summarize_step(images, scores, rows, step) for step in sorted({step for _, step in rows})
            ),
        )
        for name, rows in rows_by_sequence.items()
    )


def _summarize_step(
    images: AnnotatedEmbeddings,
    scores: Scores,
    rows: Mapping[SceneStep, int],
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


def sample_points(images: AnnotatedEmbeddings, scores: Scores) -> ImagePoints:
    """Choose some of the images of the correlations, for figures.

    Args:
        images: The images.
        scores: Their scores.

    Returns:
        The values of at most POINTS images.
    """
    rows = images.chosen.nonzero()[:, 0]
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


def make_proportion(mask: Tensor) -> Proportion:
    """Compute the fraction of cases for which something holds.

    Args:
        mask: Whether it holds, bool (n,), n at least 1.

    Returns:
        The fraction with its interval.
    """
    return Proportion.from_mean(mask.double().mean().item(), len(mask))
