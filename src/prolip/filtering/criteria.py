"""By what pairs are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from prolip.checks import require_choice

By = Literal["csd", "cosine", "image-uncertainty", "text-uncertainty", "inclusion"]


@dataclass(frozen=True)
class Criterion:
    """column: of the scores. sign: +1 if large values are good, -1 if small ones are. needs: what it is made of."""

    name: By
    column: str
    sign: int
    needs: str
    says: str


CRITERIA: tuple[Criterion, ...] = (
    Criterion("csd", "csd", -1, "an image and a caption", "CSD of image and caption: small is good"),
    Criterion("cosine", "cosine", 1, "an image and a caption", "cosine of their means: large is good"),
    Criterion(
        "image-uncertainty", "image_uncertainty", -1, "an image", "uncertainty of the image: small is good"
    ),
    Criterion(
        "text-uncertainty", "text_uncertainty", -1, "a caption", "uncertainty of the caption: small is good"
    ),
    Criterion(
        "inclusion",
        "log_inclusion",
        1,
        "an image, a caption and every variance of both (embedded with variances full, by a model with uncertainty)",
        "log inclusion of the image in the caption: large is good",
    ),
)


def criterion(by: By) -> Criterion:
    require_choice(by, get_args(By), "by")
    return next(one for one in CRITERIA if one.name == by)
