"""Claims of our own on the likelihood: ambiguity of texts and of images, learned from pairs alone."""

from __future__ import annotations

from dataclasses import replace

from reproduction.claim import Claim, Control
from reproduction.observations import (
    Observe,
    observe_correlation,
    observe_correlation_gain,
    observe_fraction,
    observe_min_fraction,
)
from reproduction.paper_values import NOT_IN_PAPER
from reproduction.variants import HEADLINE, LIKELIHOOD, MATCHED, MATCHED_VEILED, UNTRAINED, VARIED, VEILED

OURS = "ours: docs/likelihood.md"
LENGTH_CONTROLS = {"words": "words", "pieces": "word pieces", "unigram": "unigram information"}
"""Controls that know nothing of images, by key in a cell."""
PERPLEXITY = "perplexity"
"""Key of the pool perplexity, the rival that needs no training of variances."""
CONTROLS = (
    Control(name="untrained", variant=UNTRAINED),
    Control(name="matched PPCL", variant=MATCHED),
    Control(name="the paper's masking", variant="mask", against=False),
    Control(name="lexicon", variant=HEADLINE, against=False),
)


def _make_text_controls(key: str) -> tuple[Control, ...]:
    """Controls of a correlation: other models, and the correlations of length and of pool perplexity."""
    names = {**LENGTH_CONTROLS, PERPLEXITY: "pool perplexity"}
    return (
        *CONTROLS,
        *(
            Control(
                name=name,
                observe=observe_correlation(f"ambiguity/controls/{control}/{key}", "ambiguity/n"),
                against=False,
            )
            for control, name in names.items()
        ),
    )


def _make_claim(
    name: str, statement: str, definition: str, observe: Observe, controls: tuple[Control, ...] = CONTROLS
) -> Claim:
    """A claim on a correlation in the cells of the likelihood."""
    return Claim(
        id=f"likelihood-{name}",
        statement=statement,
        definition=f"{definition} Effect: the correlation.",
        where=OURS,
        paper=NOT_IN_PAPER,
        observe=observe,
        form="correlation",
        variant=LIKELIHOOD,
        controls=controls,
    )


IMAGE_CONTROLS = (
    Control(name="untrained", variant=UNTRAINED),
    Control(name="matched PPCL", variant=MATCHED_VEILED),
    Control(name="likelihood, trained without veils", variant=LIKELIHOOD, against=False),
)


def _make_image_claim(claim: Claim, *controls: Control) -> Claim:
    """A claim on images behind veils, with further controls."""
    return replace(claim, variant=VEILED, controls=(*IMAGE_CONTROLS, *controls))


CLAIMS = (
    _make_claim(
        "generality",
        "A likelihood learns the ambiguity of texts from pairs alone",
        "Spearman's correlation of text uncertainty with the exact log-probability that a random scene satisfies the "
        "caption, as above; no lexicon and no masked texts.",
        observe_correlation("ambiguity/spearman", "ambiguity/n"),
        _make_text_controls("spearman"),
    ),
    _make_claim(
        "within-length",
        "The same among equally long captions",
        "The same correlation, mean over lengths in words with 50 or more captions.",
        observe_correlation("ambiguity/within_length/mean", "ambiguity/within_length/n"),
        _make_text_controls("within_length/mean"),
    ),
    Claim(
        id="likelihood-rivals",
        statement="Its text uncertainty is closer to the truth than length and pool perplexity are",
        definition="The correlation less the largest of the correlations of words, word pieces, unigram information "
        "and the perplexity of the caption over 1000 images, by the same model. Effect: the difference.",
        where=OURS,
        paper=NOT_IN_PAPER,
        observe=observe_correlation_gain(
            "ambiguity/spearman",
            [f"ambiguity/controls/{name}/spearman" for name in (*LENGTH_CONTROLS, PERPLEXITY)],
            "ambiguity/n",
        ),
        form="correlation",
        variant=LIKELIHOOD,
    ),
    replace(
        _make_claim(
            "level-1",
            "It orders broad captions where their ambiguities differ",
            "The same correlation among captions of level 1, in the world varied.",
            observe_correlation("ambiguity/by_level/1/spearman", "ambiguity/by_level/1/n"),
            (Control(name="untrained", variant=f"{UNTRAINED}-{VARIED}"),),
        ),
        variant=f"{LIKELIHOOD}-{VARIED}",
    ),
    Claim(
        id="likelihood-order",
        statement="Along a chain, the uncertainty of the likelihood falls",
        definition="Fraction of 1000 fresh chains whose level k is more uncertain than level k + 1: the minimum of the "
        "three neighboring pairs. Effect: that fraction minus 50 %.",
        where=OURS,
        paper=NOT_IN_PAPER,
        observe=observe_min_fraction("hierarcaps/order/pairs", None, "hierarcaps/n"),
        variant=LIKELIHOOD,
        controls=CONTROLS,
    ),
    _make_image_claim(
        _make_claim(
            "images",
            "A likelihood learns the ambiguity of images from pairs alone",
            "Spearman's correlation of image uncertainty with the exact log-probability that a random scene looks the "
            "same; 1000 fresh scenes, each behind a random veil.",
            observe_correlation("veils/spearman", "veils/n"),
        ),
        Control(
            name="pool perplexity",
            observe=observe_correlation("veils/perplexity/spearman", "veils/n"),
            against=False,
        ),
        Control(
            name="one object",
            observe=observe_correlation("veils/by_count/1/spearman", "veils/n"),
            against=False,
        ),
        Control(
            name="two objects",
            observe=observe_correlation("veils/by_count/2/spearman", "veils/n"),
            against=False,
        ),
    ),
    _make_image_claim(
        Claim(
            id="likelihood-errors",
            statement="Its image uncertainty detects wrong answers",
            definition="AUROC of image uncertainty for wrong zero-shot answers, 64 classes, 1000 images behind random "
            "veils. Effect: the AUROC minus 50 %.",
            where=OURS,
            paper=NOT_IN_PAPER,
            observe=observe_fraction("veils/errors/auroc", "veils/errors/n"),
        ),
        Control(
            name="largest softmax",
            observe=observe_fraction("veils/errors/max_softmax", "veils/errors/n"),
            against=False,
        ),
    ),
)
