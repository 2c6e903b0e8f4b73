"""Variants of the runs: what they change in the recipe, their world, and default numbers of seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prolip.choices import SceneWorld

HEADLINE, NO_INCLUSION = "prolip", "no-inclusion"
"""The variant that is the paper's method, and the one without its inclusion terms."""
LIKELIHOOD, VEILED = "likelihood", "likelihood-veiled"
"""Our variants that learn ambiguity from pairs alone: of texts, and of images too, some of them behind veils."""
MATCHED, MATCHED_VEILED = "ppcl-matched", "ppcl-veiled"
"""The controls of LIKELIHOOD and VEILED: PPCL with all else equal."""
VEILED_FRACTION = 0.5
"""Fraction of the images behind veils, in the last stage of VEILED and its control."""
UNTRAINED, COST = "untrained", "cost"
VARIED: Final = "varied"
STYLED: Final = "styled"
"""Worlds of further variants: the ambiguities of broad captions differ; images are hard to classify."""


@dataclass(frozen=True)
class Variant:
    """A variant of the runs.

    Attributes:
        description: What it is, in words.
        seeds: Number of seeds that are run by default.
        recipe: The variant of the recipe "miniature" that is trained; None: the one with the name of this variant.
        world: World of the scenes, in training and in evaluation.
        veiled: Fraction of the training images behind veils, in the last stage.
        is_trained: Whether there is a training. If not, `recipe` gives the config of the model.
    """

    description: str
    seeds: int = 1
    recipe: str | None = None
    world: SceneWorld = "simple"
    veiled: float = 0.0
    is_trained: bool = True


VARIANTS = {
    HEADLINE: Variant(
        "ProLIP with both inclusion terms; a masked text is a true, more general caption", seeds=3
    ),
    "mask": Variant("the same with the paper's own masking of texts: [MASK]", seeds=3),
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
    MATCHED: Variant("the control of likelihood: all the same, but PPCL", seeds=3),
    "nll": Variant("PPCL with the isotropic NLL of own pairs; all else as in likelihood"),
    VEILED: Variant("likelihood with images behind veils", 3, LIKELIHOOD, veiled=VEILED_FRACTION),
    MATCHED_VEILED: Variant("its control: all the same, but PPCL", 1, MATCHED, veiled=VEILED_FRACTION),
    f"{LIKELIHOOD}-{VARIED}": Variant(
        "likelihood in a world in which the ambiguities of broad captions differ", 3, LIKELIHOOD, VARIED
    ),
    **{
        f"{name}-{STYLED}": Variant(f"{name} in a world of strong drawing styles", 2, name, STYLED)
        for name in (HEADLINE, "clip", "siglip", LIKELIHOOD)
    },
    UNTRAINED: Variant("fresh weights of the same config", 3, HEADLINE, is_trained=False),
    f"{UNTRAINED}-{VARIED}": Variant(
        "fresh weights, evaluated in the world of likelihood-varied", 3, HEADLINE, VARIED, is_trained=False
    ),
    COST: Variant(
        "seconds of a training step: [UNC], deterministic, multi-head", 1, HEADLINE, is_trained=False
    ),
}
UNTRAINED_VARIANTS = tuple(name for name, variant in VARIANTS.items() if not variant.is_trained)
"""Variants without training: untrained models, and the time of a training step."""


def get_variant(name: str) -> Variant:
    """Get a variant by name; one that is not in VARIANTS has its name as description and one seed."""
    return VARIANTS.get(name, Variant(name))
