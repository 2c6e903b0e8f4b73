"""Variants of the recipe: their descriptions and default numbers of seeds."""

from __future__ import annotations

from dataclasses import dataclass

HEADLINE, NO_INCLUSION = "prolip", "no-inclusion"
"""The variant that is the paper's method, and the one without its inclusion terms."""
LIKELIHOOD = "likelihood"
"""Our variant that learns ambiguity from pairs alone."""
UNTRAINED, COST = "untrained", "cost"
UNTRAINED_VARIANTS = (UNTRAINED, COST)
"""Variants without training: untrained models of the headline's config, and the time of a training step."""


@dataclass(frozen=True)
class Variant:
    """A variant of the recipe: its description, and the number of seeds that are run by default."""

    description: str
    seeds: int = 1


VARIANTS = {
    HEADLINE: Variant(
        "ProLIP with both inclusion terms; a masked text is a true, more general caption", seeds=3
    ),
    "mask": Variant("the same with the paper's own masking of texts: [MASK]"),
    "drop": Variant(
        "the same without a lexicon: tokens are dropped, some from half of all captions, more from masked views"
    ),
    "clip": Variant("CLIP: the same towers without variances, softmax"),
    "siglip": Variant(
        "SigLIP: the same towers without variances; sigmoids, after the same stages of softmax"
    ),
    NO_INCLUSION: Variant("the same without inclusion terms: softmax, then PPCL"),
    "image-in-text": Variant("the same with the inclusion of images in texts only"),
    "whole-in-masked": Variant("the same with the inclusion of whole inputs in masked ones only"),
    "ppcl-alone": Variant("PPCL from the first step on, without softmax and inclusion"),
    "pml-alone": Variant(
        "PCME++'s loss (PML) from the first step on, with [UNC], without softmax and inclusion"
    ),
    LIKELIHOOD: Variant(
        "ours: the likelihood of vMF posteriors instead of PPCL, one width per sample, no masked texts, no lexicon",
        seeds=3,
    ),
    "ppcl-matched": Variant("the control of likelihood: all the same, but PPCL"),
    "nll": Variant("PPCL with the isotropic NLL of own pairs; all else as in likelihood"),
    UNTRAINED: Variant("fresh weights of the same config", seeds=3),
    COST: Variant("seconds of a training step: [UNC], deterministic, multi-head"),
}


def get_variant(name: str) -> Variant:
    """Get a variant by name; one that is not in VARIANTS has its name as description and one seed."""
    return VARIANTS.get(name, Variant(name))
