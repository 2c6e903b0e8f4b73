"""Pictures made worse: the centre hidden, and PGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prolip.report import robustness as drawn
from prolip.report.page.parts import Figure, Section
from prolip.report.page.svg import Draw, panel
from prolip.report.page.words import WRONG_WAY, change, percent

HARDLY = 0.01
"""A change of mean uncertainty that is not worth a verdict."""

Rows = Sequence[Mapping[str, Any]]


def section(result: Mapping[str, Any]) -> Section:
    """result: of `evaluate.robustness.evaluate`."""
    figures: list[Figure] = []
    if rows := result["occlusion"]:
        figures += _figures("Centre hidden", rows, partial(drawn.draw_occlusion, rows=rows))
    if facts := result["pgd"]:
        figures += _figures("PGD", facts["rows"], partial(drawn.draw_pgd, facts=facts))
    intro = f"{result['classes']} classes, {result['images']:,} pictures"
    if facts:
        intro += f"; PGD on {facts['images']} of them, at most {255 * facts['epsilon']:.3g}/255 a value"
    return Section(id="damage", title="Pictures made worse", intro=f"{intro}.", blocks=figures)


def _figures(title: str, rows: Rows, draw: partial[None]) -> list[Figure]:
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
                says=says_uncertainty(rows),
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


def says_uncertainty(rows: Rows) -> str:
    first, last = rows[0]["uncertainty"], rows[-1]["uncertainty"]
    grown = last / first - 1
    if abs(grown) < HARDLY:
        found = f"hardly changes ({change(grown)})"
    else:
        found = f"changes by {change(grown)}" + ("" if grown > 0 else f", {WRONG_WAY}")
    return f"A model that sees less should be less sure. Here mean uncertainty {found}."
