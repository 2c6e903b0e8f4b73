"""Claims on what uncertainty is good for: prompts, traversal, filtering."""

from __future__ import annotations

from prolip.evaluation import paper_numbers
from reproduction.claim import Claim, Control
from reproduction.observations import observe_fraction, observe_gain
from reproduction.paper_values import format_comparison, get_number
from reproduction.variants import HEADLINE, NO_INCLUSION, STYLED, UNTRAINED

ROWS, NUM_IMAGES = "prompts/rows", "prompts/n"
ALL_PROMPTS = f"{ROWS}/all prompts"
PROMPTS = (
    "Accuracy on 1000 fresh images, 64 color-shape classes that have styles of their own, 38 templates, of which four "
    "are vague and six mislead (world styled)."
)
STYLED_HEADLINE = f"{HEADLINE}-{STYLED}"
"""The variant in the world in which prompts differ in value."""
UNTRAINED_CONTROL = Control(name="untrained", variant=UNTRAINED)
NO_INCLUSION_CONTROL = Control(name="no inclusion", variant=NO_INCLUSION, against=False)
CORRECT_FRACTION = 0.7
"""Fraction of noisy pairs that are correct."""


def _make_prompt_control(row: str) -> Control:
    """A control: the gain of another strategy over the mean of all prompts."""
    return Control(name=row, observe=observe_gain(f"{ROWS}/{row}", ALL_PROMPTS, NUM_IMAGES))


def _make_bprw_claim(num_images: int) -> Claim:
    """The claim that BPRW with this number of labeled images per class beats the mean of all prompts."""
    name = f"BPRW, {num_images} images"
    controls = [_make_prompt_control(f"{name}, equal variances")]
    if num_images:
        controls.append(_make_prompt_control(f"centroid of {num_images} images, no prompts"))
    return Claim(
        id=f"bprw-{num_images}",
        statement=f"BPRW with {num_images} labeled images per class beats the mean of all prompts",
        definition=f"{PROMPTS} Effect: BPRW less all prompts; equal variances, and the images' centroid without "
        "prompts, must not gain as much.",
        where=f"{paper_numbers.PROMPTS.name} (ImageNet)",
        paper=format_comparison(paper_numbers.PROMPTS, name, "80 prompts", "imagenet"),
        observe=observe_gain(f"{ROWS}/{name}", ALL_PROMPTS, NUM_IMAGES),
        form="points",
        variant=STYLED_HEADLINE,
        controls=tuple(controls),
    )


def _make_traversal_claim(measure: str, measure_name: str) -> Claim:
    """The claim that the inclusion root raises a measure of traversals, a key of the cell, over the null root."""
    roots = "hierarcaps/traversal"
    return Claim(
        id=f"traversal-{measure.replace('_', '-')}",
        statement=f"The inclusion root raises the {measure_name} of traversals",
        definition=f"{measure_name.capitalize()} of 50 steps from an image's nearest caption to the mean of the null "
        "text and its most inclusive caption, 1000 fresh chains. Effect: that less the null root's.",
        where=f"{paper_numbers.HIERARCAPS.name} (12.8B)",
        paper=format_comparison(
            paper_numbers.HIERARCAPS, "ProLIP 12.8B, inclusion root", "ProLIP 12.8B, null root", measure
        ),
        observe=observe_gain(f"{roots}/inclusion+null/{measure}", f"{roots}/null/{measure}", "hierarcaps/n"),
        form="points",
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    )


CLAIMS = (
    Claim(
        id="prompts",
        statement="Many prompts beat one",
        definition=f'{PROMPTS} Effect: the mean of all prompts less "a {{c}}" alone.',
        where=f"{paper_numbers.PROMPTS.name} (ImageNet)",
        paper=format_comparison(paper_numbers.PROMPTS, "80 prompts", "a photo of a {c}", "imagenet"),
        observe=observe_gain(ALL_PROMPTS, f"{ROWS}/one prompt", NUM_IMAGES),
        form="points",
        variant=STYLED_HEADLINE,
        controls=(
            Control(name="clip", variant=f"clip-{STYLED}", against=False),
            Control(name="world simple", variant=HEADLINE, against=False),
        ),
    ),
    Claim(
        id="prompts-top",
        statement="The most certain prompts of a class beat all of them",
        definition=f"{PROMPTS} Effect: the ten prompts of least uncertainty less all.",
        where=f"{paper_numbers.PROMPTS.name} (ImageNet)",
        paper=format_comparison(paper_numbers.PROMPTS, "top-K by uncertainty", "80 prompts", "imagenet"),
        observe=observe_gain(f"{ROWS}/top-10 of each class", ALL_PROMPTS, NUM_IMAGES),
        form="points",
        variant=STYLED_HEADLINE,
    ),
    *map(_make_bprw_claim, (0, 5, 9)),
    _make_traversal_claim("precision", "precision"),
    _make_traversal_claim("recall", "recall"),
    _make_traversal_claim("root_recall", "root recall"),
    Claim(
        id="filtering",
        statement="ProLIP's distance finds noisy pairs",
        definition="4000 fresh pairs, 30 % with a caption that is false; the 70 % best by CSD are kept. "
        "Fraction of kept pairs that are correct. Effect: that less 70 %, which keeping at random gives.",
        where=f"{paper_numbers.FILTERING.name} (average of 38 tasks after training on what is left)",
        paper=" against ".join(
            f"{get_number(paper_numbers.FILTERING, row, 'average'):.3f}"
            for row in ("ProLIP distance 20 %", "random 25 %")
        ),
        observe=observe_fraction("filtering/csd/precision", "filtering/n", above=CORRECT_FRACTION),
        controls=(
            UNTRAINED_CONTROL,
            Control(
                name="by log inclusion",
                against=False,
                observe=observe_fraction(
                    "filtering/log_inclusion/precision", "filtering/n", above=CORRECT_FRACTION
                ),
            ),
            Control(
                name="by certainty of the text",
                observe=observe_fraction(
                    "filtering/certain_text/precision", "filtering/n", above=CORRECT_FRACTION
                ),
            ),
        ),
    ),
    Claim(
        id="filtering-clip",
        statement="ProLIP's distance filters better than CLIP's",
        definition="The same fraction of kept pairs. Effect: ProLIP's CSD less CLIP's cosine; "
        "the cosine of ProLIP's own means (CSD with constant variances) must not gain as much.",
        where=f"{paper_numbers.FILTERING.name} (average of 38 tasks)",
        paper=" against ".join(
            f"{get_number(paper_numbers.FILTERING, row, 'average'):.3f}"
            for row in ("ProLIP distance 20 %", "CLIP L/14 20 %")
        ),
        observe=observe_fraction("filtering/csd/precision", "filtering/n", above=CORRECT_FRACTION),
        rival="clip",
        rival_observe=observe_fraction("filtering/cosine/precision", "filtering/n", above=CORRECT_FRACTION),
        controls=(
            Control(
                name="constant variances",
                observe=observe_fraction("filtering/cosine/precision", "filtering/n", above=CORRECT_FRACTION),
            ),
        ),
    ),
)
