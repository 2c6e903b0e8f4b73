"""Claims on the meaning of uncertainty: modality, length, generality, masked and attacked inputs."""

from __future__ import annotations

from prolip.evaluation import paper_numbers
from reproduction.claim import Claim, Control
from reproduction.observations import (
    observe_correlation,
    observe_fraction,
    observe_min_fraction,
    observe_weakest,
)
from reproduction.paper_values import NOT_IN_PAPER, get_number
from reproduction.variants import NO_INCLUSION, UNTRAINED

UNTRAINED_CONTROL = Control(name="untrained", variant=UNTRAINED)
NO_INCLUSION_CONTROL = Control(name="no inclusion", variant=NO_INCLUSION, against=False)
CAPTIONS = "four random captions of 1000 fresh scenes, of all levels as in training, over different texts"
WITHIN_LENGTH = observe_correlation("ambiguity/within_length/mean", "ambiguity/within_length/n")
FIGURE_LENGTH, FIGURE_LEVEL = "Figure 6", "Figure 7"


def _make_generality_claim(variant: str, statement: str) -> Claim:
    """The claim that text uncertainty of a variant rises with the true ambiguity of captions."""
    within_length = Control(name="within a length", observe=WITHIN_LENGTH, against=False)
    return Claim(
        id="generality" if variant == "prolip" else f"generality-{variant}",
        statement=statement,
        definition=f"Spearman's correlation of text uncertainty with the exact log-probability that a random scene "
        f"satisfies the caption; {CAPTIONS}. Effect: the correlation.",
        where=FIGURE_LEVEL,
        paper="no number: general captions are the more uncertain ones",
        observe=observe_correlation("ambiguity/spearman", "ambiguity/n"),
        form="correlation",
        variant=variant,
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL, within_length),
    )


def _make_level_claim(level: int) -> Claim:
    """The claim that uncertainty rises with ambiguity also among captions of one level."""
    return Claim(
        id=f"generality-level-{level}",
        statement=f"More ambiguous captions are more uncertain, also within level {level}",
        definition=f"The same correlation, among captions of level {level} alone. Many of them are equally ambiguous, "
        "which keeps it below 1. Effect: the correlation.",
        where="ours: levels could carry all of it",
        paper=NOT_IN_PAPER,
        observe=observe_correlation(f"ambiguity/by_level/{level}/spearman", f"ambiguity/by_level/{level}/n"),
        form="correlation",
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    )


def _make_masked_claim(kind: str, statement: str, masking: str, variant: str = "prolip") -> Claim:
    """The claim that masked inputs include whole ones. kind: key of `masked` in a cell. masking: it, in words."""
    included = observe_fraction(f"masked/{kind}/included", f"masked/{kind}/n")
    return Claim(
        id=f"masked-{kind}",
        statement=statement,
        definition=f"Fraction of inputs with H(whole in masked) > 0; {masking} "
        "Because H compares uncertainties only, log inclusion must also tell the own masked input from a negative "
        "(AUROC). Effect: the lesser of fraction and AUROC, minus 50 %.",
        where="Section on the inclusion loss",
        paper="no number: it is what the loss asks for",
        observe=observe_weakest(included, observe_fraction(f"masked/{kind}/auroc", f"masked/{kind}/n")),
        variant=variant,
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    )


CLAIMS = (
    Claim(
        id="text-above-image",
        statement="Captions are more uncertain than their images",
        definition=f"Fraction of captions with a larger tr(Sigma) than their image; {CAPTIONS.partition(', over')[0]}. "
        "Two constants would score 100 %: see the next claim. Effect: the fraction minus 50 %.",
        where=f"{paper_numbers.SMALL_ABLATION.name}: mean text against image uncertainty",
        paper=" against ".join(
            f"{get_number(paper_numbers.SMALL_ABLATION, 'ProLIP, [UNC], both', f'{side}_uncertainty'):.4f}"
            for side in ("text", "image")
        ),
        observe=observe_fraction("matching/text_above_image", "matching/captions"),
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    ),
    Claim(
        id="image-in-text",
        statement="Captions include their images, and inclusion knows which",
        definition="Fraction of captions with H(image in text) > 0. Two constants would score 100 %, so log inclusion "
        "and containment must also tell the own image from one of which the caption is false (AUROC). Effect: "
        "the least of "
        "the three, minus 50 %.",
        where="Section on the inclusion loss",
        paper="no number: it is what the loss asks for",
        observe=observe_weakest(
            observe_fraction("matching/included", "matching/captions"),
            observe_fraction("matching/matched/log_inclusion/auroc", "matching/pairs"),
            observe_fraction("matching/matched/log_containment/auroc", "matching/pairs"),
        ),
        controls=(
            UNTRAINED_CONTROL,
            Control(
                name="AUROC, log inclusion",
                against=False,
                observe=observe_fraction("matching/matched/log_inclusion/auroc", "matching/pairs"),
            ),
            Control(
                name="AUROC, containment",
                against=False,
                observe=observe_fraction("matching/matched/log_containment/auroc", "matching/pairs"),
            ),
            Control(
                name="AUROC, constant variances",
                against=False,
                observe=observe_fraction("matching/constant_variance/auroc", "matching/pairs"),
            ),
        ),
    ),
    Claim(
        id="length",
        statement="Short captions are more uncertain",
        definition=f"Spearman's correlation of text uncertainty with the number of words; {CAPTIONS}. "
        "Effect: minus the correlation.",
        where=FIGURE_LENGTH,
        paper="no number: a falling curve (CC3M)",
        observe=observe_correlation("ambiguity/length", "ambiguity/n", sign=-1),
        form="correlation",
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    ),
    Claim(
        id="length-within-ambiguity",
        statement="Short captions are more uncertain, also among equally ambiguous ones",
        definition="The same correlation, mean over groups of 50 or more captions with the same true ambiguity. "
        "If only generality counts, it is near zero. Effect: minus the correlation.",
        where="ours: length and generality go together in the paper's captions",
        paper=NOT_IN_PAPER,
        observe=observe_correlation(
            "ambiguity/length_within_ambiguity/mean", "ambiguity/length_within_ambiguity/n", sign=-1
        ),
        form="correlation",
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    ),
    Claim(
        id="order",
        statement="Along a chain from general to specific, uncertainty falls",
        definition="Fraction of 1000 fresh chains whose level k is more uncertain than level k + 1: "
        "the minimum of the three neighboring pairs. Effect: that fraction minus 50 %.",
        where="Appendix on human preference (all neighbors together; HierarCaps)",
        paper=f"{100 * paper_numbers.ADJACENT_ORDER:.1f} %",
        observe=observe_min_fraction("hierarcaps/order/pairs", None, "hierarcaps/n"),
        controls=(
            UNTRAINED_CONTROL,
            NO_INCLUSION_CONTROL,
            Control(
                name="all neighbors",
                observe=observe_fraction("hierarcaps/order/adjacent", "hierarcaps/n"),
                against=False,
            ),
        ),
    ),
    _make_generality_claim("prolip", "More ambiguous captions are more uncertain"),
    Claim(
        id="generality-within-length",
        statement="More ambiguous captions are more uncertain, also among equally long ones",
        definition="The same correlation, mean over lengths in words with 50 or more captions. "
        "Effect: the correlation.",
        where="ours: length could carry all of it",
        paper=NOT_IN_PAPER,
        observe=WITHIN_LENGTH,
        form="correlation",
        controls=(
            UNTRAINED_CONTROL,
            NO_INCLUSION_CONTROL,
            Control(
                name="minimum over lengths",
                observe=observe_correlation("ambiguity/within_length/min", "ambiguity/within_length/n"),
                against=False,
            ),
        ),
    ),
    *map(_make_level_claim, (1, 2, 3)),
    _make_generality_claim("drop", "The same without any lexicon of ours"),
    _make_generality_claim("mask", "The same with the paper's own masking of texts"),
    _make_masked_claim(
        "images", "Masked images include whole ones", "three quarters of the patches are gone."
    ),
    _make_masked_claim(
        "general",
        "More general captions include specific ones",
        "texts replaced by a true, more general caption.",
    ),
    _make_masked_claim(
        "tokens",
        "Texts with [MASK] include whole ones",
        "three quarters of the tokens become [MASK].",
        variant="mask",
    ),
    Claim(
        id="hierarimgs",
        statement="Images of fewer segments include the whole image (HierarImgs)",
        definition="Fraction of images with H(original in level) > 0; the least over three levels. "
        "H compares uncertainties only, so beside it: AUROC of log inclusion, an image's own level against others'. "
        "Effect: that fraction minus 50 %.",
        where="Section on HierarImgs",
        paper=f"more than {100 * paper_numbers.HIERARIMGS_INCLUDED:.0f} %",
        observe=observe_min_fraction("hierarimgs/levels", "included", "hierarimgs/n"),
        controls=(
            UNTRAINED_CONTROL,
            NO_INCLUSION_CONTROL,
            Control(
                name="minimum AUROC",
                observe=observe_min_fraction("hierarimgs/levels", "own", "hierarimgs/n"),
                against=False,
            ),
        ),
    ),
    Claim(
        id="occlusion",
        statement="Hiding the middle of an image raises its uncertainty",
        definition="Fraction of 1000 images that are more uncertain with 10 % of their area hidden. "
        "Effect: the fraction minus 50 %.",
        where=f"{paper_numbers.OCCLUSION.name}: mean uncertainty, 0 and 10 % hidden",
        paper=" to ".join(
            f"{get_number(paper_numbers.OCCLUSION, row, 'image_uncertainty'):.4f}" for row in ("0 %", "10 %")
        ),
        observe=observe_fraction("occlusion/4/rises", "occlusion/4/n"),
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    ),
    Claim(
        id="pgd",
        statement="An attack (PGD) raises the uncertainty of images",
        definition="Fraction of 200 images that are more uncertain after 40 steps (8/255, steps of 2/255). "
        "Effect: the fraction minus 50 %.",
        where=f"{paper_numbers.PGD.name}: mean uncertainty, 0 and 40 steps",
        paper=" to ".join(
            f"{get_number(paper_numbers.PGD, row, 'image_uncertainty'):.4f}" for row in ("0", "40")
        ),
        observe=observe_fraction("pgd/-1/rises", "pgd/-1/n"),
        controls=(UNTRAINED_CONTROL, NO_INCLUSION_CONTROL),
    ),
)
