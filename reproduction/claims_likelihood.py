"""Claims of our own on the likelihood: ambiguity of texts and of images, learned from pairs alone."""

from __future__ import annotations

from reproduction.claim import Claim, Control
from reproduction.observations import Observe, observe_correlation, observe_fraction
from reproduction.paper_values import NOT_IN_PAPER
from reproduction.variants import LIKELIHOOD, UNTRAINED

OURS = "ours: docs/likelihood.md"
CONTROLS = (
    Control(name="untrained", variant=UNTRAINED),
    Control(name="matched PPCL", variant="ppcl-matched"),
    Control(name="PPCL with NLL", variant="nll", against=False),
)


def _make_claim(name: str, statement: str, definition: str, observe: Observe) -> Claim:
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
        controls=CONTROLS,
    )


CLAIMS = (
    _make_claim(
        "generality",
        "A likelihood learns the ambiguity of texts from pairs alone",
        "Spearman's correlation of text uncertainty with the exact log-probability that a random scene satisfies the "
        "caption, as above; no lexicon and no masked texts.",
        observe_correlation("ambiguity/spearman", "ambiguity/n"),
    ),
    _make_claim(
        "within-length",
        "The same among equally long captions",
        "The same correlation, mean over lengths in words with 50 or more captions.",
        observe_correlation("ambiguity/within_length/mean", "ambiguity/within_length/n"),
    ),
    _make_claim(
        "images",
        "A likelihood learns the ambiguity of images from pairs alone",
        "Spearman's correlation of image uncertainty with the exact log-probability that a random scene looks the "
        "same; 1000 fresh scenes, each behind a random veil.",
        observe_correlation("veils/spearman", "veils/n"),
    ),
    Claim(
        id="likelihood-errors",
        statement="Its image uncertainty tells wrong answers",
        definition="AUROC of image uncertainty for wrong zero-shot answers, 64 classes, 1000 images behind random "
        "veils. Effect: the AUROC minus 50 %.",
        where=OURS,
        paper=NOT_IN_PAPER,
        observe=observe_fraction("veils/errors/auroc", "veils/errors/n"),
        variant=LIKELIHOOD,
        controls=(
            *CONTROLS,
            Control(
                name="largest softmax",
                observe=observe_fraction("veils/errors/max_softmax", "veils/errors/n"),
                against=False,
            ),
        ),
    ),
)
