"""What the table says of each variant of the recipe, and how many seeds of it there are by default."""

from __future__ import annotations

from dataclasses import dataclass

HEADLINE, NO_INCLUSION = "prolip", "no-inclusion"
UNTRAINED, COST = "untrained", "cost"
PSEUDO = (UNTRAINED, COST)
"""Cells that nothing is trained for: fresh models of the headline's config, and the time of a training step."""


@dataclass(frozen=True)
class Variant:
    """sentence: what it is. seeds: how many are run by default."""

    sentence: str
    seeds: int = 1


KNOWN = {
    HEADLINE: Variant(
        "ProLIP with both inclusion terms; a masked text is a true, more general caption", seeds=3
    ),
    "mask": Variant("the same with the paper's own masking of texts: [MASK]"),
    "drop": Variant(
        "the same without a lexicon: tokens are dropped, some from half of all captions, more from twins"
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
    UNTRAINED: Variant("fresh weights of the same config", seeds=3),
    COST: Variant("seconds of a training step: [UNC], deterministic, multi-head"),
}


def variant(name: str) -> Variant:
    """What is known of a variant; one that the recipe has and this file doesn't know is told by its name."""
    return KNOWN.get(name, Variant(name))
