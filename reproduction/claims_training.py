"""Claims on losses and towers: accuracy, what trains, the effect of inclusion terms, the cost of [UNC]."""

from __future__ import annotations

import math

from prolip.evaluation import paper_numbers
from reproduction.claim import Claim, Control
from reproduction.observations import (
    observe_fraction,
    observe_fraction_below,
    observe_log_ratio,
    observe_mean,
    observe_saving,
)
from reproduction.paper_values import format_comparison, format_percent, get_number
from reproduction.variants import COST, HEADLINE, NO_INCLUSION, STYLED, UNTRAINED

ACCURACY, NUM_IMAGES = "zero_shot/color_shape/one_prompt", "zero_shot/color_shape/n"
CHANCE = 1 / 64
"""Accuracy of a random choice among the 64 color-shape classes."""
TRAINED_ACCURACY = 10 * CHANCE
"""Accuracy from which on a model has learned something."""
TRAVERSAL_RECALL = "hierarcaps/traversal/inclusion+null/recall"
ZERO_SHOT = (
    'Zero-shot accuracy on 1000 fresh images, 64 color-shape classes, the prompt "a {c}" alone, by CSD; '
    "same towers, data and budget."
)
LOG_UNCERTAINTY_RATIO = observe_log_ratio("matching/text_uncertainty", "matching/image_uncertainty")


def _make_zero_shot_claim(rival: str, name: str) -> Claim:
    """The claim that ProLIP's accuracy is above that of a rival variant, which the paper calls `name`."""
    return Claim(
        id=f"zero-shot-{rival}",
        statement=f"ProLIP's zero-shot accuracy is above {name}'s",
        definition=f"{ZERO_SHOT} In the world styled, where classes are hard to distinguish. "
        f"Effect: ProLIP less {name}.",
        where=f"{paper_numbers.MAIN.name} (ImageNet, B/16, 1.28B)",
        paper=format_comparison(paper_numbers.MAIN, "ProLIP B/16 1.28B", f"{name} B/16 1.28B", "imagenet"),
        observe=observe_fraction(ACCURACY, NUM_IMAGES, above=0.0),
        variant=f"{HEADLINE}-{STYLED}",
        rival=f"{rival}-{STYLED}",
    )


def _make_recall_claim(variant: str, row: str, statement: str) -> Claim:
    """The claim that a variant with inclusion has more recall in traversals than one without; `row` of the paper."""
    return Claim(
        id=f"recall-{variant}",
        statement=statement,
        definition="Fraction of a chain's four captions that 50 steps to the inclusion root visit. "
        f"Effect: {variant} less no-inclusion.",
        where=f"{paper_numbers.SMALL_ABLATION.name}",
        paper=format_comparison(
            paper_numbers.SMALL_ABLATION, row, "ProLIP, [UNC], no inclusion", "hierarcaps_recall"
        ),
        observe=observe_fraction(TRAVERSAL_RECALL, "hierarcaps/n", above=0.0),
        variant=variant,
        rival=NO_INCLUSION,
    )


def _format_uncertainty_ratio(row: str) -> str:
    """ln (text / image uncertainty) of a row of the paper's small ablation: "3.266 (0.2254 / 0.0086)"."""
    texts, images = (
        get_number(paper_numbers.SMALL_ABLATION, row, f"{side}_uncertainty") for side in ("text", "image")
    )
    return f"{math.log(texts / images):.3f} ({texts:.4f} / {images:.4f})"


def _make_uncertainty_ratio_claim(variant: str, row: str, statement: str) -> Claim:
    """The claim that a variant with inclusion has a larger text-to-image ratio of uncertainties than one without."""
    return Claim(
        id=f"uncertainty-ratio-{variant}",
        statement=statement,
        definition="ln of (mean text uncertainty / mean image uncertainty), uncertainty = tr(Sigma). "
        f"Effect: {variant} less no-inclusion; the inclusion of whole inputs in masked ones must not do as much.",
        where=f"{paper_numbers.SMALL_ABLATION.name}: ln ratio (text / image)",
        paper=f"{_format_uncertainty_ratio(row)} against {_format_uncertainty_ratio('ProLIP, [UNC], no inclusion')}",
        observe=LOG_UNCERTAINTY_RATIO,
        form="ratio",
        variant=variant,
        rival=NO_INCLUSION,
        controls=(
            Control(name="whole-in-masked alone", variant="whole-in-masked"),
            *(
                Control(name=f"mean of {side}s", observe=observe_mean(f"matching/{side}_uncertainty"), against=False)
                for side in ("text", "image")
            ),
            *(
                Control(
                    name=f"mean of {side}s, no inclusion", variant=NO_INCLUSION,
                    observe=observe_mean(f"matching/{side}_uncertainty"), against=False,
                )
                for side in ("text", "image")
            ),
        ),
    )  # fmt: skip


def _get_relative_cost(row: str) -> float:
    """The paper's seconds of a tower, as a multiple of the deterministic tower's."""
    seconds, reference = (
        get_number(paper_numbers.ARCHITECTURE_COST, name, "ViT-B/16") for name in (row, "deterministic")
    )
    return seconds / reference


CLAIMS = (
    _make_zero_shot_claim("clip", "CLIP"),
    _make_zero_shot_claim("siglip", "SigLIP"),
    Claim(
        id="pml",
        statement="PCME++'s loss (PML) with [UNC] alone doesn't train",
        definition=f"{ZERO_SHOT} Doesn't train: below ten times chance, where PPCL under the same conditions "
        "is not. Effect: 15.6 % less the accuracy.",
        where=f"{paper_numbers.SMALL_ABLATION.name}",
        paper=format_percent(paper_numbers.SMALL_ABLATION, "PCME++, [UNC]", "imagenet"),
        observe=observe_fraction_below(ACCURACY, NUM_IMAGES, TRAINED_ACCURACY),
        variant="pml-alone",
        controls=(Control(name="PPCL alone", variant="ppcl-alone"),),
    ),
    Claim(
        id="ppcl",
        statement="PPCL with [UNC] trains by itself",
        definition=f"{ZERO_SHOT} Trains: above ten times chance. Effect: the accuracy less 15.6 %.",
        where=f"{paper_numbers.SMALL_ABLATION.name}",
        paper=format_percent(paper_numbers.SMALL_ABLATION, "ProLIP, [UNC], no inclusion", "imagenet"),
        observe=observe_fraction(ACCURACY, NUM_IMAGES, above=TRAINED_ACCURACY),
        variant="ppcl-alone",
        controls=(Control(name="untrained", variant=UNTRAINED),),
    ),
    Claim(
        id="inclusion-accuracy",
        statement="Both inclusion terms together raise zero-shot accuracy",
        definition=f"{ZERO_SHOT} Effect: with both terms less with none.",
        where=f"{paper_numbers.LARGE_ABLATION.name} (at 96M samples it is the other way round: "
        + format_comparison(
            paper_numbers.SMALL_ABLATION, "ProLIP, [UNC], both", "ProLIP, [UNC], no inclusion", "imagenet"
        )
        + ")",
        paper=format_comparison(paper_numbers.LARGE_ABLATION, "both", "none", "imagenet"),
        observe=observe_fraction(ACCURACY, NUM_IMAGES, above=0.0),
        rival=NO_INCLUSION,
        controls=tuple(
            Control(name=f"{name} alone", variant=name, against=False)
            for name in ("image-in-text", "whole-in-masked")
        ),
    ),
    _make_uncertainty_ratio_claim(
        "image-in-text",
        "ProLIP, [UNC], image in text",
        "The inclusion of images in texts makes images certain against texts",
    ),
    _make_uncertainty_ratio_claim("prolip", "ProLIP, [UNC], both", "Both inclusion terms together do so too"),
    _make_recall_claim(
        "whole-in-masked",
        "ProLIP, [UNC], whole in masked",
        "The inclusion of whole inputs in masked ones raises hierarchy recall",
    ),
    _make_recall_claim(
        "prolip", "ProLIP, [UNC], both", "Both inclusion terms together raise hierarchy recall"
    ),
    Claim(
        id="cost",
        statement="[UNC] costs less than a multi-head tower",
        definition="Seconds of a training step over those of the same towers without variances, median of interleaved "
        "rounds. Effect: the multi-head ratio less [UNC]'s.",
        where=f"{paper_numbers.ARCHITECTURE_COST.name} (inference, B/16): [UNC] against multi-head",
        paper=f"{_get_relative_cost('[UNC]'):.3f} against {_get_relative_cost('multi-head'):.3f}",
        observe=observe_saving("ratio/unc", "ratio/multihead"),
        form="ratio",
        variant=COST,
        controls=(
            Control(
                name="multi-head", observe=observe_saving("ratio/multihead", "ratio/multihead"), against=False
            ),
        ),
    ),
)
