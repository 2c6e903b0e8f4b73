"""The pool as teacher of widths: ln of the fraction of a pool of the other modality that fits each image and text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from prolip.choices import Modality
from prolip.data.feature_pairs import FeaturePairs
from prolip.data.order import derive_seed, permute
from prolip.gaussian import Gaussian
from prolip.losses.objective import INITIAL_TEMPERATURES
from prolip.measures.perplexity import log_perplexity
from prolip.model.prolip import ProLIP

FOLDS = 5
"""Parts of the training images: the pool of a part is drawn from the others."""
FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""Values of k that are tried."""
SIZES = (1000, 2000, 4000, 8000)
"""Sizes of the pool that are tried, as far as there are images."""
TOLERANCE = 0.02
"""Differences of correlations that some hundred held-out images can't tell from noise."""
MODALITIES: tuple[Modality, Modality] = ("image", "text")
MIN_STD = 1e-6
"""Widths or fractions that vary less than this, in nats, are constant."""
MAX_JUDGED = 1000
"""Held-out images by which k and the size are chosen."""
BLOCK = 4096
"""Rows that are embedded at a time."""


@dataclass(frozen=True)
class Pool:
    """The items that perplexities are taken over: as many images as captions, of the same samples."""

    images: Gaussian  # (M, D)
    texts: Gaussian  # (M, D)

    def head(self, size: int) -> Pool:
        """The first items of both modalities."""
        return Pool(self.images[:size], self.texts[:size])


@dataclass(frozen=True, kw_only=True)
class Blend:
    """How the widths of a likelihood and the pool of its means become one target, for one modality.

    Both are standardized, since a likelihood's ln uncertainty may vary a hundred times less than the perplexity, and
    added; the sum is mapped back to the mean and the standard deviation that the likelihood's widths have.

    Attributes:
        width_mean, width_std: Of ln uncertainty of whole inputs, before.
        fraction_mean, fraction_std: Of ln of the fraction of the pool that fits them.
        weight: Of the fraction.
    """

    width_mean: float
    width_std: float
    fraction_mean: float
    fraction_std: float
    weight: float

    @classmethod
    def fit(cls, log_width: Tensor, log_fraction: Tensor, weight: float) -> Blend:
        """Measure means and standard deviations.

        Args:
            log_width: ln uncertainty of whole inputs, (N,).
            log_fraction: ln of the fraction of the pool that fits each, (N,).
            weight: Of the fraction.

        Returns:
            The blend.
        """
        width, fraction = log_width.double(), log_fraction.double()
        return cls(
            width_mean=float(width.mean()), width_std=max(float(width.std()), MIN_STD),
            fraction_mean=float(fraction.mean()), fraction_std=max(float(fraction.std()), MIN_STD),
            weight=weight,
        )  # fmt: skip

    def compute_target(self, log_width: Tensor, log_fraction: Tensor) -> Tensor:
        """Blend: standardized ln uncertainty plus weight times the standardized ln of the fraction, (N,)."""
        width = (log_width.double() - self.width_mean) / self.width_std
        return width + self.weight * (log_fraction.double() - self.fraction_mean) / self.fraction_std

    def restore(self, target: Tensor) -> Tensor:
        """ln uncertainty of a target, (N,)."""
        return self.width_mean + self.width_std * target


@dataclass(frozen=True, kw_only=True)
class PoolTeacher:
    """How the uncertainty of an embedding is read off a pool: perplexity of softmax(k scale mu . x), divided by M.

    Attributes:
        scale: Of the model's logits.
        image_k, text_k: Factor of the scale, k, for images over captions and for captions over images.
        size: Items of the pool, M.
        seed: Seed of the folds and of the pool.
        image_blend, text_blend: How widths that learned from a likelihood go into the targets; None: not at all.
    """

    scale: float
    image_k: float
    text_k: float
    size: int
    seed: int
    image_blend: Blend | None = None
    text_blend: Blend | None = None

    def get_blend(self, modality: Modality) -> Blend | None:
        """The blend of a modality."""
        return self.image_blend if modality == "image" else self.text_blend

    def compute_target(self, queries: Gaussian, pool: Pool, modality: Modality) -> Tensor:
        """What the widths of some inputs should learn: `compute_log_fraction`, or the blend with their own widths.

        Args:
            queries: (N, D).
            pool: As for `compute_log_fraction`.
            modality: Of the queries.

        Returns:
            float64 (N,).
        """
        fraction, blend = self.compute_log_fraction(queries, pool, modality), self.get_blend(modality)
        return fraction if blend is None else blend.compute_target(queries.uncertainty.log(), fraction)

    def compute_log_fraction(self, queries: Gaussian, pool: Pool, modality: Modality) -> Tensor:
        """ln of the fraction of a pool that fits each query.

        Args:
            queries: (N, D); only the means are used.
            pool: M images and M captions; it must not hold the queries' own pairs.
            modality: Of the queries.

        Returns:
            float64 (N,), from -ln M to 0.
        """
        items, k = (pool.texts, self.image_k) if modality == "image" else (pool.images, self.text_k)
        return log_perplexity(queries, items, self.scale, k=k) - math.log(len(items))


def assign_folds(num_images: int, seed: int) -> np.ndarray:
    """Assign images to folds of equal size.

    Args:
        num_images: N.
        seed: Seed of the choice.

    Returns:
        int64 (N,), from 0 to `FOLDS` - 1.
    """
    return permute(np.arange(num_images), num_images, derive_seed(seed, "folds")) % FOLDS


def get_max_size(num_images: int) -> int:
    """The largest size that the pools of all folds can have, at most the largest of `SIZES`."""
    return min(num_images - -(-num_images // FOLDS), SIZES[-1])


def draw_pool_rows(
    pairs: FeaturePairs, size: int, seed: int, fold: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the items of a pool: images, and of each one of its captions.

    Args:
        pairs: Feature pairs of the training images.
        size: M, at most `get_max_size`.
        seed: Seed of folds, order and captions.
        fold: Its images and their captions are left out. None: no image is.

    Returns:
        Rows of images and rows of texts, int64 (M,) each; those of a smaller size are the first of a larger one.
    """
    order = permute(np.arange(len(pairs)), len(pairs), derive_seed(seed, "pool"))
    if fold is not None:
        order = order[assign_folds(len(pairs), seed)[order] != fold]
    images = order[:size]
    generator = np.random.Generator(np.random.Philox(derive_seed(seed, "pool captions")))
    counts = np.diff(pairs.offsets)
    captions = pairs.offsets[:-1] + (generator.random(len(pairs)) * counts).astype(np.int64)
    return images, captions[images]


def embed_pool(model: ProLIP, pairs: FeaturePairs, size: int, seed: int, fold: int | None) -> Pool:
    """Embed a pool, see `draw_pool_rows`.

    Args:
        model: With frozen encoders; its widths are not read.
        pairs, size, seed, fold: As for `draw_pool_rows`.

    Returns:
        The pool.
    """
    images, texts = draw_pool_rows(pairs, size, seed, fold)
    return Pool(
        embed_rows(model, pairs.images[images, 0], "image"), embed_rows(model, pairs.texts[texts, 0], "text")
    )


@torch.no_grad()
def embed_rows(model: ProLIP, array: np.ndarray, modality: Modality) -> Gaussian:
    """Embed rows of feature pairs.

    Args:
        model: With frozen encoders, in eval mode.
        array: (n, K).
        modality: Whose features they are.

    Returns:
        (n, D), on the model's device.
    """
    return Gaussian.cat(
        [
            model.encode_components(torch.from_numpy(block.astype(np.float32)).to(model.device), modality)
            for block in np.array_split(array, max(1, -(-len(array) // BLOCK)))
        ]
    )


def choose_teacher(
    model: ProLIP, train: FeaturePairs, held_out: FeaturePairs, factor: float | None, seed: int
) -> PoolTeacher:
    """Choose k of each modality, then the size of the pool, on held-out images.

    The choice is that whose perplexities best predict how many wrong items come before the right one: by their
    correlation with ln(1 + that number), for the size averaged over both modalities. Of those that are not worse than
    the best by more than `TOLERANCE` it is the largest: a larger k asks more of what counts as fitting, and the entropy
    over a larger pool has less noise.

    Args:
        model: Whose means are finished.
        train: The pool is drawn from these.
        held_out: These judge.
        factor: k of both modalities; None: chosen from `FACTORS`.
        seed: Seed of the pool.

    Returns:
        The teacher.
    """
    judge = _HeldOutJudge(model, held_out)
    max_size = get_max_size(len(train))
    pool = embed_pool(model, train, max_size, seed, fold=None)
    scale, factors = get_cosine_scale(model), FACTORS if factor is None else (factor,)
    teachers = [PoolTeacher(scale=scale, image_k=k, text_k=k, size=max_size, seed=seed) for k in factors]
    image_k, text_k = (
        _choose_largest({teacher.text_k: judge.score(teacher, pool, modality) for teacher in teachers})
        for modality in MODALITIES
    )
    best = replace(teachers[0], image_k=image_k, text_k=text_k)
    sizes = [size for size in SIZES if size < max_size] + [max_size]
    scores = {}
    for size in sizes:
        teacher = replace(best, size=size)
        scores[size] = sum(judge.score(teacher, pool, modality) for modality in MODALITIES) / 2
    return replace(best, size=_choose_largest(scores))


def add_blends(
    teacher: PoolTeacher, model: ProLIP, train: FeaturePairs, held_out: FeaturePairs, weight: float
) -> PoolTeacher:
    """Let a teacher blend the pool with the widths that a model has learned from a likelihood.

    Args:
        teacher: k and the size of the pool.
        model: Means and widths.
        train: The pool is drawn from these.
        held_out: Means and standard deviations are those of at most `MAX_JUDGED` whole images of these, and their
            captions.
        weight: Of the pool.

    Returns:
        The teacher with blends.
    """
    pool = embed_pool(model, train, teacher.size, teacher.seed, fold=None)
    count = min(MAX_JUDGED, len(held_out))
    images = embed_rows(model, held_out.images[:count, 0], "image")
    texts = embed_rows(model, held_out.texts[: held_out.offsets[count], 0], "text")
    image_blend, text_blend = (
        Blend.fit(queries.uncertainty.log(), teacher.compute_log_fraction(queries, pool, modality), weight)
        for queries, modality in zip((images, texts), MODALITIES, strict=True)
    )
    return replace(teacher, image_blend=image_blend, text_blend=text_blend)


def get_cosine_scale(model: ProLIP) -> float:
    """The factor of the cosine in a model's logits; of a likelihood model, which has none, CLIP's initial one."""
    parameters = model.logit_parameters
    return parameters.scale if parameters.gamma is None else INITIAL_TEMPERATURES["clip"][0]


Number = TypeVar("Number", int, float)


def _choose_largest(scores: dict[Number, float]) -> Number:
    """The largest value whose score is at most `TOLERANCE` below the best."""
    return max(value for value, score in scores.items() if score >= max(scores.values()) - TOLERANCE)


class _HeldOutJudge:
    """Scores teachers by held-out images and their captions.

    Args:
        model: Whose means are finished.
        pairs: Held-out feature pairs.
    """

    def __init__(self, model: ProLIP, pairs: FeaturePairs) -> None:
        count = min(MAX_JUDGED, len(pairs))
        offsets = pairs.offsets[: count + 1]
        images = embed_rows(model, pairs.images[:count, 0], "image")
        texts = embed_rows(model, pairs.texts[: offsets[-1], 0], "text")
        own = torch.from_numpy(np.repeat(np.arange(count), np.diff(offsets))).to(model.device)
        ranks = _count_nearer(images.mean @ texts.mean.mT, own)
        self._queries: dict[Modality, Gaussian] = {"image": images, "text": texts}
        self._log_ranks: dict[Modality, Tensor] = {
            "image": ranks[0].double().log1p(),
            "text": ranks[1].double().log1p(),
        }

    def score(self, teacher: PoolTeacher, pool: Pool, modality: Modality) -> float:
        """Correlation of the uncertainties of a modality with ln(1 + rank); -1 if either is constant."""
        fractions = teacher.compute_log_fraction(self._queries[modality], pool.head(teacher.size), modality)
        matrix = torch.corrcoef(torch.stack([fractions, self._log_ranks[modality]]))
        return float(matrix[0, 1].nan_to_num(-1.0))


def _count_nearer(cosine: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Count the wrong items that are nearer than the right one, or the nearest of several right ones.

    Args:
        cosine: (N, M) of images and texts.
        own: int64 (M,): the image of each text.

    Returns:
        int64 (N,), captions for each image; int64 (M,), images for each text.
    """
    is_own = torch.arange(len(cosine), device=own.device)[:, None] == own
    best = cosine.masked_fill(~is_own, -torch.inf).amax(1)
    right = cosine.gather(0, own[None])
    return (cosine > best[:, None]).sum(1), (cosine > right).sum(0)
