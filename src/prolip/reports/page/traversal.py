"""Traversals: a picture, and the captions from its nearest one to the most general."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prolip.reports.page.components import Bar, Card, Cards, Section
from prolip.reports.page.pictures import inline
from prolip.reports.page.results import Walked
from prolip.reports.page.words import WRONG_WAY, percent
from prolip.retrieval.traversal import Way

MOST = 8
"""Captions of a way that are shown; of a longer one, evenly spread, with both ends."""


def section(walks: Sequence[Walked], chains: Mapping[str, Any] | None) -> Section:
    """chains: of `evaluate.hierarcaps.evaluate`, where captions come in chains."""
    known = [
        step.uncertainty for walked in walks for step in walked.way.steps if step.uncertainty is not None
    ]
    widest = max(known, default=0.0)
    cards = tuple(_card(number, walked, widest) for number, walked in enumerate(walks, start=1))
    intro = (
        "Each way starts at the caption nearest to the picture and leads towards its root, the most general one. "
        "Bars are the captions' uncertainty, of one scale for all."
    )
    if any(walked.true for walked in walks):
        intro += " ✓ and ✗: whether the caption is true of the picture, which is known of scenes."
    says = says_walks([walked.way for walked in walks], [true for walked in walks for true in walked.true])
    if chains is not None and chains["uncertainty"] is not None:
        says += f" {says_order(chains['uncertainty']['adjacent_order'], chains['chains'])}"
    return Section(
        id="traversal", title="From the specific to the general", intro=intro,
        blocks=[Cards(title="Ways of a few pictures", says=says, cards=cards)],
    )  # fmt: skip


def says_walks(ways: Sequence[Way], true: Sequence[bool]) -> str:
    ends = [
        (way.steps[0].uncertainty, way.steps[-1].uncertainty)
        for way in ways
        if way.steps[0].uncertainty is not None
    ]
    told = []
    if ends:
        rising = sum(1 for first, last in ends if first is not None and last is not None and last > first)
        wrong = f", mostly {WRONG_WAY}" if 2 * rising < len(ends) else ""
        told.append(
            f"uncertainty should rise along a way: here it does from end to end for {rising} of {len(ends)}{wrong}"
        )
    if true:
        told.append(f"{percent(sum(true) / len(true))} of the captions passed are true")
    sentence = "; ".join(told)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""


def says_order(share: float, chains: int) -> str:
    found = f"Of neighbours in {chains:,} known chains the more general is the more uncertain one in {percent(share)}"
    return f"{found}, {WRONG_WAY}." if share < 0.5 else f"{found}."


def _card(number: int, walked: Walked, widest: float) -> Card:
    way, total = walked.way, len(walked.way.steps)
    bars = []
    for place in spread(total, MOST):
        step = way.steps[place]
        bars.append(_bar(step.caption, step.uncertainty, widest, walked.true[place] if walked.true else None))
    root = "the empty caption" if way.root is None else way.root.caption
    uncertain = "" if way.uncertainty is None else f": uncertainty {way.uncertainty:.3g}"
    left = f" ({total} captions passed, {len(bars)} shown)" if total > len(bars) else ""
    return Card(
        title=f"Picture {number}{uncertain}",
        picture=inline(walked.picture, f"picture {number}: {way.steps[0].caption}"),
        bars=tuple(bars),
        remark=f"Root: {root}{left}",
    )


def _bar(text: str, uncertainty: float | None, widest: float, true: bool | None) -> Bar:
    if uncertainty is None:
        return Bar(text=text, mark=true)
    share = uncertainty / widest if widest > 0 else 0.0
    return Bar(text=text, value=f"{uncertainty:.3g}", share=share, mark=true)


def spread(total: int, most: int) -> list[int]:
    """At most so many of the numbers from 0 on, evenly, the first and the last among them."""
    if total <= most:
        return list(range(total))
    return sorted({round(place * (total - 1) / (most - 1)) for place in range(most)})
