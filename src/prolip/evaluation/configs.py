"""Configs of the evaluations: what `prolip evaluate TASK` and its function take; free of torch, for `--help`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from prolip.checks import require_fraction, require_positive, require_positive_int
from prolip.choices import (
    Corruption,
    Form,
    PooledVariance,
    Prior,
    RankBy,
    SceneWorld,
    SimilarityMetric,
    StartPoint,
)
from prolip.configs import Advanced, require_literals


@dataclass(frozen=True, kw_only=True)
class ZeroShotConfig:
    """Zero-shot classification: see `prolip.evaluation.zeroshot`."""

    rank_by: RankBy | None = None
    """Assign the nearest class by CSD, by the cosine of the means, or by the match probability of the loss that
    the model was trained with. None: by match for a likelihood model, else by CSD."""
    variance: PooledVariance = "average"
    """Variance of pooled prompts: average of the variances, or variance of a mean of independent samples."""
    seed: int = 0
    """Seed of the split into the halves that fit and test the calibration."""
    coverage: float | None = None
    """Measure conformal sets of classes that hold the true one with this probability. None: they are not measured."""
    limit: int | None = None
    """Maximum number of images, evenly spaced over the data. None: all."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_literals(self)
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise ValueError(f"coverage must be above 0 and below 1, not {self.coverage!r}")
        require_seed(self.seed)
        require_limit(self.limit)


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """Image-text retrieval: see `prolip.evaluation.retrieval`."""

    positives: Path | None = None
    """Which captions match which images, many to many (docs/evaluation.md has the two formats)."""
    match_batch: int = 128
    """Images per batch, each with one of its captions, in which match probabilities are tested: as many as in training,
    because the model's bias holds the prior of one match in a training batch."""
    seed: int = 0
    """Seed of these batches."""
    limit: int | None = None
    """Maximum number of images, evenly spaced over the data. None: all."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_positive_int(self.match_batch, "match_batch")
        require_seed(self.seed)
        require_limit(self.limit)


@dataclass(frozen=True, kw_only=True)
class RobustnessConfig:
    """Occlusion, corruptions and PGD attacks: see `prolip.evaluation.robustness`. Any of the three may be empty."""

    rank_by: RankBy | None = None
    """Assign the nearest class by CSD, by the cosine of the means, or by the match probability of the loss that
    the model was trained with. None: by match for a likelihood model, else by CSD."""
    occluded: tuple[float, ...] = (0.0, 0.025, 0.05, 0.075, 0.1)
    """Fractions of the area that a centered box hides: by default those that the paper reports."""
    corruptions: tuple[Corruption, ...] = get_args(Corruption)
    """Kinds of corruption."""
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Severities of each corruption, from 1 to 5."""
    pgd_steps: tuple[int, ...] = (0, 1, 5, 10, 40)
    """Numbers of PGD steps, by default those that the paper reports; 0 is no attack."""
    epsilon: float = 8 / 255
    """Maximum change of a pixel value by PGD, as a fraction of full scale."""
    step_size: float = 2 / 255
    """Change of a pixel value per step of PGD."""
    start: StartPoint = "random"
    """Start of PGD: a random point of the epsilon ball, or the clean image."""
    pgd_images: int = 1000
    """Number of images that PGD attacks, evenly spaced in the data."""
    limit: int | None = None
    """Maximum number of images, evenly spaced over the data. None: all."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the choices and the number of images are valid; the rest is checked by its user."""
        require_literals(self)
        require_positive_int(self.pgd_images, "pgd_images")
        require_limit(self.limit)


@dataclass(frozen=True, kw_only=True)
class ControlsConfig:
    """Controls of the uncertainty of captions: see `prolip.evaluation.controls`."""

    controls: int = 3
    """Number of untrained models of the same size that are evaluated too, with the seeds 0, 1, ..."""
    unigram_captions: str | None = None
    """Captions whose words are counted, such as those of the training data. None: the evaluated captions."""
    perplexity_k: Advanced[float] = 1.0
    """Factor of the scale of the softmax over the pool of images."""
    perplexity_scale: Advanced[float | None] = None
    """Scale of this softmax. None: the one with the largest likelihood of the captions' own images."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_literals(self)
        require_positive(self.perplexity_k, "perplexity_k")
        if self.perplexity_scale is not None:
            require_positive(self.perplexity_scale, "perplexity_scale")


@dataclass(frozen=True, kw_only=True)
class UncertaintyConfig(ControlsConfig):
    """The uncertainty report: see `prolip.evaluation.uncertainty`."""

    limit: int | None = None
    """Maximum number of images, evenly spaced over the data. None: all."""
    world: SceneWorld | None = None
    """The captions describe scenes of this world: their true ambiguity is computed from the words."""
    num_examples: int = 12
    """Samples per list of examples, and per sheet."""
    view_images: int = 0
    """Images that are embedded again with a box hidden, with most patches hidden, and cropped: does their uncertainty
    rise? Evenly spaced over the data. 0: none."""
    plane_images: int = 10
    """Images that are projected to the plane: the first one and those nearest to it."""
    seed: int = 0
    """Seed of random choices."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        super().__post_init__()
        if self.limit is not None:
            require_positive_int(self.limit, "limit", maximum=2**40)
        require_positive_int(self.num_examples, "num_examples", maximum=10_000)
        require_positive_int(self.plane_images, "plane_images", maximum=1000)
        if self.view_images != 0:
            require_positive_int(self.view_images, "view_images", maximum=2**40)
        require_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class HierarCapsConfig(ControlsConfig):
    """Chains of captions from general to specific: see `prolip.evaluation.hierarcaps`."""

    rank_by: SimilarityMetric | None = None
    """Nearest by CSD, or by the cosine of the means (as the release does here). None: cosine for a model whose matches
    read means only, else csd. There is no match: the points of a traversal lie between embeddings, and are neither
    images nor texts."""
    form: Form = "exact"
    """Form of the log inclusion that finds roots: exact, or as published."""
    steps: int = 50
    """Points per traversal, and thresholds of the radial protocol."""
    negatives: int = 10
    """Captions of other chains, for each caption of a chain, among which entailment must find it."""
    world: SceneWorld | None = None
    """The captions describe scenes of this world: which caption entails which is computed from the words."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        super().__post_init__()
        require_positive_int(self.steps, "steps", maximum=100_000)
        require_positive_int(self.negatives, "negatives", maximum=100_000)


@dataclass(frozen=True, kw_only=True)
class HierarImgsConfig:
    """Images built up segment by segment: see `prolip.evaluation.hierarimgs`."""

    controls: int = 3
    """Number of untrained models of the same size that are evaluated too, with the seeds 0, 1, ..."""


@dataclass(frozen=True, kw_only=True)
class ImageAmbiguityConfig:
    """Images of known ambiguity: see `prolip.evaluation.image_ambiguity`."""

    min_group: int = 20
    """Fewest images of a veil for a correlation within it."""
    pool_size: int = 2000
    """Most captions in the pool over which the perplexity of an image is computed."""
    controls: int = 3
    """Number of untrained models of the same size that are evaluated too, with the seeds 0, 1, ..."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_positive_int(self.min_group, "min_group")
        require_positive_int(self.pool_size, "pool_size")


def require_limit(limit: int | None) -> None:
    """Check the maximum number of images of an evaluation.

    Args:
        limit: At least 1; None: no limit.

    Raises:
        ValueError: It is out of range.
    """
    if limit is not None:
        require_positive_int(limit, "limit")


@dataclass(frozen=True, kw_only=True)
class PromptsConfig:
    """Which prompt strategies are compared: see `prolip.evaluation.prompts`."""

    rank_by: RankBy | None = None
    """Assign the nearest class by CSD, by the cosine of the means, or by the match probability of the loss that
    the model was trained with. None: by match for a likelihood model, else by CSD."""
    shots: tuple[int, ...] = (5, 9)
    """Labeled images per class, for BPRW; none: only what needs no labels."""
    max_uncertainties: tuple[float, ...] = ()
    """Fixed limits of uncertainty, each for a filter of its own."""
    nearest_images: int = 10
    """Images that stand for a class where BPRW has no labels."""
    prior: Prior = "initial"
    """Use of 1/uncertainty of a prompt in BPRW: initial weights, or concentrations of a Dirichlet prior."""
    variance: PooledVariance = "average"
    """Of pooled prompts: weighted average, or variance of a sum of independent samples (the release's)."""
    runs: int = 3
    """Repetitions of what is random (draws, choice of images), for mean and standard deviation."""
    seed: int = 0
    """Seed of what is random."""
    single_template: Advanced[int | None] = None
    """Index of the template that is used alone. None: "a photo of a {c}." if present, else 0."""
    std_multiples: Advanced[tuple[float, ...]] = (0.0, 1.0, 2.0)
    """k of the filters by mean + k standard deviations of uncertainty."""
    top_k: Advanced[tuple[int, ...]] = (1, 5, 10, 20, 40)
    """K of top-K; those below the number of templates are used."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_literals(self)
        require_positive_int(self.runs, "runs")
        require_positive_int(self.nearest_images, "nearest_images")
        for name in ("shots", "top_k"):
            for count in getattr(self, name):
                require_positive_int(count, f"each of {name}")
        require_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class BackgroundConfig:
    """Images with and without their background: see `prolip.evaluation.background`."""

    canvas: int = 255
    """Gray level, 0 to 255, that replaces the background."""
    controls: int = 3
    """Number of untrained models of the same size that are evaluated too, with the seeds 0, 1, ..."""


@dataclass(frozen=True, kw_only=True)
class JudgementsConfig:
    """Agreement with human judgements of pairs: see `prolip.evaluation.judgements`."""

    key_column: str | None = None
    """Column of the key of the image. None: key, image_key, image_id or image."""
    caption_column: str | None = None
    """Column of the caption. None: caption, captions, title, text or txt."""
    score_column: str | None = None
    """Column of the human score. None: score, share_yes, mean_score or rating; without one, the mean of
    --judge-columns."""
    count_column: str | None = None
    """Column of the number of people behind a score. None: judges or num_judges, if there is one."""
    judge_columns: tuple[str, ...] = ()
    """Columns with the scores of single judges; a cell may be blank."""
    own_column: str | None = None
    """Column that says whether the caption was written for the image, 1 or 0. None: own, if there is one."""
    scale: tuple[float, float] | None = None
    """Lowest and highest possible score. None: 0 to 1 if all scores are in it, else the lowest and highest score."""
    threshold: float | None = None
    """People say yes to a pair whose score is above it. None: the middle of the scale, so that of shares of people who
    said yes the majority decides."""
    max_skipped: float = 0.05
    """Fraction of the rows that may be skipped, because the caption or score is blank or no image has the key."""
    resamples: int = 1000
    """Draws of the bootstrap over images."""
    seed: int = 0
    """Seed of the bootstrap, and of the halves that fit and test the calibration."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        if self.scale is not None and not -math.inf < self.scale[0] < self.scale[1] < math.inf:
            raise ValueError(f"scale must be two finite numbers, the lower one first, not {self.scale}")
        if len(set(self.judge_columns)) < len(self.judge_columns) or len(self.judge_columns) == 1:
            raise ValueError(
                f"judge_columns must name two or more different columns, not {self.judge_columns}. A table with one "
                "score has it in score_column"
            )
        if self.judge_columns and self.count_column is not None:
            raise ValueError(
                "count_column and judge_columns both give the number of judges: name one of them only"
            )
        require_fraction(self.max_skipped, "max_skipped")
        require_positive_int(self.resamples, "resamples", maximum=100_000)
        require_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """DataComp's tasks: see `prolip.evaluation.suite`."""

    tasks: tuple[str, ...] | None = None
    """Ids of tasks, or groups: imagenet, shifts, vtab, retrieval. None: all 38; missing ones are reported."""
    rank_by: RankBy | None = None
    """Nearest by CSD, by the cosine of the means, or by the match probability of the loss that the model was trained
    with. None: by match for a likelihood model, else by CSD."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the similarity is one of the choices."""
        require_literals(self)


def require_seed(seed: int) -> int:
    """Check the seed of an evaluation.

    Args:
        seed: From 0 to 2^32 - 1.

    Returns:
        The seed.

    Raises:
        ValueError: It is out of range.
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to {2**32 - 1}, not {seed}")
    return seed


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Calibration of match probabilities: see `prolip.evaluation.calibrate`."""

    judgements: Path | None = None
    """CSV of judgements with the columns key (of an image), caption and score (0 to 1: the fraction of judges who say
    that it matches). None: an image matches its own captions, and no others."""
    limit: int | None = 2000
    """Maximum number of images, evenly spaced over the data; all their pairs are compared. None: all."""
    seed: int = 0
    """Seed of the halves that are fitted and tested, and of the caption of each image that sets thresholds."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all settings are in range."""
        require_seed(self.seed)
        require_limit(self.limit)
