"""Images and captions: which are more uncertain, and do inclusion scores separate true captions?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.scenes.meaning import is_true
from prolip.scenes.random_draws import RandomDraws
from reproduction.evaluation_data import EmbeddedScenes, replace_with_constant_variance
from reproduction.negatives import compute_discrimination, sample_negatives

VARIANCE_SCORES = ("log_inclusion", "log_containment", "inclusion")
"""Scores that need variances."""
MISMATCH_STREAM = 12
"""Last number of the seed that draws mismatched images."""


def measure(embedded: EmbeddedScenes) -> dict[str, Any]:
    """Compare images with their own captions.

    image_uncertainty, text_uncertainty: {mean, error} of tr(Sigma).
    text_above_image: fraction of all T captions more uncertain than their image. included: with H(image in text) > 0.
    matched: over captions that are false of some image, by each score {auroc, wins} of the own image against one of
             which the caption is false. constant_variance: that of the log inclusion without learned variances.
    None for a deterministic model, but for matched.csd.
    """
    rows, others = sample_mismatched(embedded)

    def discriminate(score: str, images: Gaussian, texts: Gaussian) -> dict[str, float | None]:
        own, others_images = images[embedded.image_of[rows]], images[others]
        return compute_discrimination(
            _score(score, own, texts[rows]), _score(score, others_images, texts[rows])
        )

    result: dict[str, Any] = {
        "captions": len(embedded.captions), "pairs": len(rows), "image_uncertainty": None, "text_uncertainty": None,
        "text_above_image": None, "included": None, "constant_variance": None,
        "matched": {**dict.fromkeys(VARIANCE_SCORES), "csd": discriminate("csd", embedded.images, embedded.texts)},
    }  # fmt: skip
    if not embedded.probabilistic:
        return result
    images, captions = embedded.images[embedded.image_of], embedded.texts
    for name in VARIANCE_SCORES:
        result["matched"][name] = discriminate(name, embedded.images, embedded.texts)
    constant = [replace_with_constant_variance(z) for z in (embedded.images, embedded.texts)]
    return result | {
        "image_uncertainty": _mean_and_error(embedded.images.uncertainty),
        "text_uncertainty": _mean_and_error(captions.uncertainty),
        "text_above_image": _compute_fraction(captions.uncertainty > images.uncertainty),
        "included": _compute_fraction(public.inclusion(images, captions) > 0),
        "constant_variance": discriminate("log_inclusion", *constant),
    }


def sample_mismatched(embedded: EmbeddedScenes) -> tuple[Tensor, Tensor]:
    """Captions, and for each a random image of which it is false: rows of `captions` and of `images`, int64 (K,)."""
    return sample_negatives(
        len(embedded.captions),
        len(embedded.scenes),
        lambda row, image: not is_true(embedded.captions[row].meaning, embedded.scenes[image]),
        RandomDraws(embedded.source.seed, MISMATCH_STREAM),
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


def _compute_fraction(true: Tensor) -> float:
    return true.double().mean().item()
