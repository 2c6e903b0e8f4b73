"""Pictures made worse: the centre hidden, and PGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prolip.reports import robustness as drawn
from prolip.reports.page.components import Figure, Section
from prolip.reports.page.svg import Draw, panel
from prolip.reports.page.words import NOTHING_LEARNED, WRONG_WAY, beside, change, known, percent

HARDLY = 0.01
"""A change of mean uncertainty that is not worth a verdict."""
MOST = 0.5
"""Share of the growth that a model without training may have."""

Rows = Sequence[Mapping[str, Any]]


def section(result: Mapping[str, Any], untrained: Sequence[Mapping[str, Any]]) -> Section:
    """result: of `evaluate.robustness.evaluate`. untrained: the same of models that have learned nothing."""
    figures: list[Figure] = []
    if rows := result["occlusion"]:
        fresh = known(growth(one["occlusion"]) for one in untrained)
        figures += _figures("Centre hidden", rows, partial(drawn.draw_occlusion, rows=rows), fresh)
    if facts := result["pgd"]:
        fresh = known(growth(one["pgd"]["rows"]) for one in untrained)
        figures += _figures("PGD", facts["rows"], partial(drawn.draw_pgd, facts=facts), fresh)
    intro = f"{result['classes']} classes, {result['images']:,} pictures"
    if facts:
        intro += f"; PGD on {facts['images']} of them, at most {255 * facts['epsilon']:.3g}/255 a value"
    return Section(id="damage", title="Pictures made worse", intro=f"{intro}.", blocks=figures)


def _figures(title: str, rows: Rows, draw: partial[None], untrained: Sequence[float]) -> list[Figure]:
    made = [
        Figure(
            title=f"{title}: accuracy",
            says=says_accuracy(rows),
            svg=panel(_accuracy(draw), f"Accuracy against damage: {title}"),
        )
    ]
    if rows[0]["uncertainty"] is not None:
        made.append(
            Figure(
                title=f"{title}: uncertainty",
                says=says_uncertainty(rows, untrained),
                svg=panel(_uncertainty(draw, rows), f"Mean image uncertainty against damage: {title}"),
            )
        )
    return made


def _accuracy(draw: partial[None]) -> Draw:
    def drawn_to_scale(axes: Any) -> None:
        draw(axes, what="accuracy")
        axes.set(ylim=(0, 100), ylabel="accuracy, %")

    return drawn_to_scale


def _uncertainty(draw: partial[None], rows: Rows) -> Draw:
    def drawn_to_scale(axes: Any) -> None:
        draw(axes, what="uncertainty")
        drawn.same_scale([axes], rows[0]["uncertainty"])
        axes.set_ylabel("mean image uncertainty, tr Σ")

    return drawn_to_scale


def says_accuracy(rows: Rows) -> str:
    """rows: from no damage to most."""
    first, last = rows[0]["accuracy"], rows[-1]["accuracy"]
    return f"Accuracy falls with damage; the slower the better. Here it goes from {percent(first)} to {percent(last)}."


def says_uncertainty(rows: Rows, untrained: Sequence[float] = ()) -> str:
    """untrained: the growth of models that have learned nothing."""
    hoped, grown = "A model that sees less should be less sure.", growth(rows)
    if grown is None:
        return f"{hoped} This one has no uncertainty that could change."
    if abs(grown) < HARDLY:
        found = f"hardly changes ({change(grown)})"
    else:
        found = f"changes by {change(grown)}" + ("" if grown > 0 else f", {WRONG_WAY}")
    close = grown >= HARDLY and bool(untrained) and max(untrained) > MOST * grown
    told = f"{hoped} Here mean uncertainty {found}{beside(untrained, change)}."
    return f"{told} {NOTHING_LEARNED}" if close else told


def growth(rows: Rows) -> float | None:
    """How much mean uncertainty grows from no damage to most, as a share; None without uncertainty."""
    first, last = rows[0]["uncertainty"], rows[-1]["uncertainty"]
    return last / first - 1 if first else None
