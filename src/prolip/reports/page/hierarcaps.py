"""Section on HierarCaps: are general captions more uncertain, do controls do as well, and which captions are true?"""

from __future__ import annotations

from functools import partial

from prolip.evaluation.controls import LABELS
from prolip.evaluation.hierarcaps import HierarCapsResult
from prolip.evaluation.order_controls import OrderControl, OrderControls
from prolip.reports import hierarchy
from prolip.reports.page.components import PageBlock, PageFigure, PageSection, convert_table
from prolip.reports.page.formatting import REVERSED, format_percentage
from prolip.reports.page.svg import render_panel

MAX_P = 0.05
"""Largest p-value of an order that is not by chance."""


def build_section(result: HierarCapsResult) -> PageSection:
    """Build the section: the order of levels by uncertainty and by controls, then all tables.

    Args:
        result: The result.

    Returns:
        The section.
    """
    blocks: list[PageBlock] = []
    if result.order_controls is not None:
        blocks.append(
            PageFigure(
                title="Order of adjacent levels, and controls",
                description=describe_controls(result.order_controls),
                svg=render_panel(
                    partial(hierarchy.draw_order_controls, controls=result.order_controls),
                    "Percent of adjacent levels in order by uncertainty and by each control",
                ),
            )
        )
    blocks += [convert_table(table) for table in result.tables()]
    intro = (
        f"{result.n:,} chains of captions, from general to specific. The more general of two should be the more "
        "uncertain one. It is also the shorter one, so counting words is the control to beat."
    )
    return PageSection(
        id="hierarcaps", title="HierarCaps: order of captions, and entailment", intro=intro, blocks=blocks
    )


def describe_controls(controls: OrderControls) -> str:
    """Compare the order by uncertainty with that by the best control.

    Args:
        controls: The orders.

    Returns:
        One to three sentences.
    """
    own = controls.get("uncertainty")
    # the perplexity by the trained match may depend on the learned widths: it is no control
    others = [score for score in controls.scores if score.name not in ("uncertainty", "match_perplexity")]
    if not others or others[0].adjacent_order is None:
        return "Chains of one level have no order."
    best = max(others, key=_get_order)
    by_best = f"{LABELS[best.name]}: {format_percentage(_get_order(best))}"
    if own is None:
        return f"This model has no uncertainty. The controls put adjacent levels in order, best of all {by_best}."
    text = f"By uncertainty {format_percentage(_get_order(own))} of adjacent levels are in order"
    if _get_order(own) < 0.5:
        text += f", {REVERSED}"
    if _get_order(best) >= _get_order(own):
        text += f", but a control does as well ({by_best})"
    else:
        text += f", more than by any control (best: {by_best})"
    return f"{text}.{_describe_equal_pieces(own)}"


def _describe_equal_pieces(own: OrderControl) -> str:
    """A sentence on pairs of equally many word pieces; empty without such pairs."""
    test = own.equal_pieces
    if test is None or test.p_value is None:
        return ""
    chance = "" if test.p_value <= MAX_P else ", which may be chance"
    value = format_percentage(test.in_order.value)
    return f" Among {test.in_order.n:,} pairs of equally many word pieces it is {value}{chance}."


def _get_order(score: OrderControl) -> float:
    """Fraction of adjacent levels in order."""
    return 0.0 if score.adjacent_order is None else score.adjacent_order.value
