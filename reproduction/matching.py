"""Images and their captions: who is wider, and do inclusion and containment tell a true caption from a false one?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.scenes.meaning import holds
from prolip.scenes.random_draws import Draws
from reproduction.apart import false_partners, told_apart
from reproduction.evaluation_sets import Told, with_constant_variance

OF_VARIANCES = ("log_inclusion", "log_containment", "inclusion")
"""Scores that only a model with variances has."""
MISMATCHED = 12
"""Of the numbers that draw other things."""


def measure(told: Told) -> dict[str, Any]:
    """What images and their own captions have to do with each other.

    image_uncertainty, text_uncertainty: {mean, error} of tr(Sigma).
    text_above_image: share of all T captions more uncertain than their image. included: with H(image in text) > 0.
    matched: over captions that are false of some image, by each score {auroc, wins} of the own image against one of
             which the caption is false. constant_variance: that of the log inclusion without learned variances.
    None for a deterministic model, but for matched.csd.
    """
    rows, others = mismatched(told)

    def apart(score: str, images: Gaussian, texts: Gaussian) -> dict[str, float | None]:
        own, strangers = images[told.image_of[rows]], images[others]
        return told_apart(_score(score, own, texts[rows]), _score(score, strangers, texts[rows]))

    result: dict[str, Any] = {
        "captions": len(told.captions), "pairs": len(rows), "image_uncertainty": None, "text_uncertainty": None,
        "text_above_image": None, "included": None, "constant_variance": None,
        "matched": {**dict.fromkeys(OF_VARIANCES), "csd": apart("csd", told.images, told.texts)},
    }  # fmt: skip
    if not told.probabilistic:
        return result
    images, captions = told.images[told.image_of], told.texts
    for name in OF_VARIANCES:
        result["matched"][name] = apart(name, told.images, told.texts)
    constant = [with_constant_variance(z) for z in (told.images, told.texts)]
    return result | {
        "image_uncertainty": _mean_and_error(told.images.uncertainty),
        "text_uncertainty": _mean_and_error(captions.uncertainty),
        "text_above_image": _share(captions.uncertainty > images.uncertainty),
        "included": _share(public.inclusion(images, captions) > 0),
        "constant_variance": apart("log_inclusion", *constant),
    }


def mismatched(told: Told) -> tuple[Tensor, Tensor]:
    """Captions, and for each a random image of which it is false: rows of `captions` and of `images`, int64 (K,)."""
    return false_partners(
        len(told.captions),
        len(told.scenes),
        lambda row, image: not holds(told.captions[row].meaning, told.scenes[image]),
        Draws(told.source.seed, MISMATCHED),
    )


def _score(name: str, images: Gaussian, texts: Gaussian) -> Tensor:
    """Larger: the image lies more in the text."""
    return -public.csd(images, texts) if name == "csd" else getattr(public, name)(images, texts)


def _mean_and_error(values: Tensor) -> dict[str, float]:
    """error: the standard error of the mean."""
    return {
        "mean": values.double().mean().item(),
        "error": (values.double().std() / len(values) ** 0.5).item(),
    }


def _share(true: Tensor) -> float:
    return true.double().mean().item()
