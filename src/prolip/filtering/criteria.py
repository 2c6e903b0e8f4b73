"""Criteria that rank image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from prolip.checks import require_choice
from prolip.choices import FilterCriterion


@dataclass(frozen=True)
class FilterScore:
    """A criterion: a score of image-text pairs, by which they are ranked.

    Attributes:
        name: Name of the criterion.
        column: Its column in the table of scores (filtering/scores.py).
        sign: +1 if pairs with large values are kept, -1 if those with small ones are.
        requirement: What a sample must have, for messages.
        description: One line for reports.
    """

    name: FilterCriterion
    column: str
    sign: int
    requirement: str
    description: str


CRITERIA: tuple[FilterScore, ...] = (
    FilterScore("csd", "csd", -1, "an image and a caption", "CSD of image and caption: small is good"),
    FilterScore("cosine", "cosine", 1, "an image and a caption", "cosine of their means: large is good"),
    FilterScore(
        "image-uncertainty", "image_uncertainty", -1, "an image", "uncertainty of the image: small is good"
    ),
    FilterScore(
        "text-uncertainty", "text_uncertainty", -1, "a caption", "uncertainty of the caption: small is good"
    ),
    FilterScore(
        "inclusion",
        "log_inclusion",
        1,
        "an image, a caption and every variance of both (embedded with variances full, by a model with uncertainty)",
        "log inclusion of the image in the caption: large is good",
    ),
    FilterScore(
        "image-perplexity",
        "image_perplexity",
        -1,
        "an image, and captions in the same embeddings",
        "number of captions of the data that fit the image: small is good",
    ),
    FilterScore(
        "text-perplexity",
        "text_perplexity",
        -1,
        "a caption, and images in the same embeddings",
        "number of images of the data that fit the caption: small is good",
    ),
)


def get_criterion(name: FilterCriterion) -> FilterScore:
    """Get a criterion by its name.

    Args:
        name: One of `FilterCriterion`.

    Returns:
        The criterion.
    """
    require_choice(name, get_args(FilterCriterion), "rank_by")
    return next(criterion for criterion in CRITERIA if criterion.name == name)
