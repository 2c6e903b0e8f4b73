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
"""Last number of the seed of `RandomDraws` for mismatched images."""


def measure_matching(embedded: EmbeddedScenes) -> dict[str, Any]:
    """Compare images with their own captions, and captions with images of which they are false.

    Returns:
        captions, pairs: number of captions, and of those that are false of some image (`sample_mismatched`).
        image_uncertainty, text_uncertainty: {mean, error} of tr(Sigma).
        text_above_image: fraction of captions that are more uncertain than their image.
        included: fraction of captions with H(image in text) > 0.
        matched: by score {auroc, wins} of a caption's own image against one of which it is false.
        constant_variance: {auroc, wins} of log inclusion, with every log-variance replaced by the mean.
        A deterministic model has None for all but the numbers and the score csd.
    """
    rows, mismatched = sample_mismatched(embedded)

    def discriminate(score: str, images: Gaussian, texts: Gaussian) -> dict[str, float | None]:
        """{auroc, wins} of a score: own images of the captions against mismatched ones."""
        own_images, other_images = images[embedded.image_of[rows]], images[mismatched]
        return compute_discrimination(
            _compute_score(score, own_images, texts[rows]), _compute_score(score, other_images, texts[rows])
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
        "image_uncertainty": _compute_mean_and_error(embedded.images.uncertainty),
        "text_uncertainty": _compute_mean_and_error(captions.uncertainty),
        "text_above_image": _compute_fraction(captions.uncertainty > images.uncertainty),
        "included": _compute_fraction(public.inclusion(images, captions) > 0),
        "constant_variance": discriminate("log_inclusion", *constant),
    }


def sample_mismatched(embedded: EmbeddedScenes) -> tuple[Tensor, Tensor]:
    """Draw for each caption a random image of which it is false, if there is one.

    Returns:
        Rows of `captions`, and for each the row of its mismatched image in `images`, int64 (K,) each.
    """
    return sample_negatives(
        len(embedded.captions),
        len(embedded.scenes),
        lambda row, image: not is_true(embedded.captions[row].meaning, embedded.scenes[image]),
        RandomDraws(embedded.source.seed, MISMATCH_STREAM),
    )


def _compute_score(name: str, images: Gaussian, texts: Gaussian) -> Tensor:
    """A score of pairs, row by row (N,), larger for a better match: minus CSD, or a measure of `prolip.measures`."""
    return -public.csd(images, texts) if name == "csd" else getattr(public, name)(images, texts)


def _compute_mean_and_error(values: Tensor) -> dict[str, float]:
    """{mean, error (the standard error of the mean)} of values (N,)."""
    return {
        "mean": values.double().mean().item(),
        "error": (values.double().std() / len(values) ** 0.5).item(),
    }


def _compute_fraction(condition: Tensor) -> float:
    """Fraction of the rows of which a condition, bool (N,), is true."""
    return condition.double().mean().item()
