"""What the model is, and its headline numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prolip.evaluation.formatting import UNKNOWN
from prolip.reports.page.components import Header, Tile
from prolip.reports.page.inputs import Material
from prolip.reports.page.results import Findings, Headline
from prolip.reports.page.run import Run
from prolip.reports.page.words import correlation, known, large, percent, span, times

NUMBERS: tuple[tuple[str, str, str, Callable[[float | None], str]], ...] = (
    ("zero_shot", "Zero-shot accuracy", "pictures that get the right class", percent),
    ("r1", "Retrieval R@1", "nearest is right, mean of both ways", percent),
    ("truth", "ρ with ambiguity", "of caption uncertainty and the truth; 1 is perfect", correlation),
    ("text_above", "Text above image", "captions less sure than their picture", percent),
)
"""Field of `Headline`, what it is called, what it means, how it is written."""
DETERMINISTIC = (
    "This model is deterministic: its Gaussians are points. So there is no section on uncertainty, no view in two "
    "dimensions and no inclusion."
)


def header(run: Run, material: Material, findings: Findings) -> Header:
    size = run.config.model.size if run.config.model.start is None else f"from {run.config.model.start}"
    facts = (
        ("size", size),
        ("parameters", large(run.parameters)),
        ("trained on", "; ".join(source.replace(",", ", ") for source in run.config.data.source) or UNKNOWN),
        ("samples seen", large(run.samples)),
        ("time trained", times(run.seconds)),
        ("judged on", material.name or UNKNOWN),
    )
    notes = [] if run.is_probabilistic else [DETERMINISTIC]
    notes += [material.note] if material.note else []
    kind = (
        "ProLIP: every picture and every text is a Gaussian"
        if run.is_probabilistic
        else "a deterministic model"
    )
    return Header(title=run.name, line=kind, facts=facts, tiles=tiles(findings), notes=tuple(notes))


def tiles(findings: Findings) -> tuple[Tile, ...]:
    """One for each number that is known, with that of other models beside it."""
    return tuple(
        Tile(
            name=name,
            value=written(value),
            meaning=meaning,
            beside=tuple(_beside(findings, field, written)),
        )
        for field, name, meaning, written in NUMBERS
        if (value := _of(findings.headline, field)) is not None
    )


def _beside(
    findings: Findings, field: str, written: Callable[[float | None], str]
) -> Iterator[tuple[str, str]]:
    """Untrained models together, from the least to the largest; each other model by itself."""
    if findings.untrained:
        yield "untrained", span(known(_of(one, field) for one in findings.untrained), written)
    for name, other in findings.others:
        yield name, written(_of(other, field))


def _of(headline: Headline, field: str) -> float | None:
    value: float | None = getattr(headline, field)
    return value
