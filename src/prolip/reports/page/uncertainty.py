"""What uncertainty goes together with: images against texts, length, level, the true ambiguity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from prolip.evaluation.regression import UNCERTAINTY
from prolip.reports import uncertainty as drawn
from prolip.reports.page.components import Figure, Section
from prolip.reports.page.results import Headline
from prolip.reports.page.svg import panel
from prolip.reports.page.words import (
    CLOSE,
    NOTHING_LEARNED,
    TREND,
    WRONG_WAY,
    beside,
    correlation,
    known,
    percent,
    trend,
)


def section(result: Mapping[str, Any], untrained: Sequence[Headline] = ()) -> Section:
    """result: of `evaluate.uncertainty.analyse`. untrained: the same numbers of models that have learned nothing."""
    above = known(one.text_above for one in untrained)
    truths = known(one.truth for one in untrained)
    lengths = known(one.length for one in untrained)
    figures = [
        _figure("Images and texts", drawn.draw_histograms, result, says_modalities(result), "Histograms"),
        _figure(
            "Each caption and its image", drawn.draw_pairs, result, says_pairs(result, above), "Scatter plot"
        ),
        _figure(
            "By caption length",
            drawn.draw_lengths,
            result,
            says_length(result, lengths),
            "Quantiles by tokens",
        ),
    ]
    if result["by_level"] is not None:
        says = says_levels(result["by_level"], known(one.level for one in untrained))
        figures.append(_figure("By level of detail", drawn.draw_levels, result, says, "Quantiles by level"))
    if result["truth"] is not None:
        says = says_truth(result["truth"], truths)
        figures.append(_figure("Against the true ambiguity", drawn.draw_truth, result, says, "Scatter plot"))
    if says := says_regression(result["regression"]):
        figures.append(_figure("What uncertainty adds", drawn.draw_regression, result, says, "Bars of R²"))
    intro = (
        f"{result['images']:,} pictures with {result['captions']:,} captions. Uncertainty is the trace of Σ."
    )
    return Section(id="uncertainty", title="What uncertainty goes with", intro=intro, blocks=figures)


def _figure(title: str, draw: Any, result: Mapping[str, Any], says: str, kind: str) -> Figure:
    return Figure(title=title, says=says, svg=panel(partial(draw, result=result), f"{kind}: {title.lower()}"))


def says_modalities(result: Mapping[str, Any]) -> str:
    image, text = result["image"]["mean"], result["text"]["mean"]
    hoped = "Texts should be the wider kind."
    if text > image:
        return f"{hoped} Here their mean uncertainty is {text / image:.1f} times that of images."
    return f"{hoped} Here it is {WRONG_WAY}: the mean of images is {image / text:.1f} times that of texts."


def says_pairs(result: Mapping[str, Any], untrained: Sequence[float] = ()) -> str:
    """untrained: shares of models that have learned nothing."""
    share = result["text_above_own_image"]
    told = f"A caption should be more uncertain than its own picture. Here that holds for {percent(share)} of captions"
    if share < 0.5:
        return f"{told}: {WRONG_WAY}."
    close = bool(untrained) and max(untrained) > share - CLOSE
    return f"{told}{beside(untrained, percent)}.{f' {NOTHING_LEARNED}' if close else ''}"


def says_length(result: Mapping[str, Any], untrained: Sequence[float] = ()) -> str:
    """untrained: correlations of models that have learned nothing."""
    value = result["by_length"]["spearman"]
    hoped = "The longer a caption, the more it says, so uncertainty should fall with length:"
    return f"{hoped} here {trend(value, -1)}{_beside_trend(value, untrained, -1)}"


def says_levels(by_level: Mapping[str, Any], untrained: Sequence[float] = ()) -> str:
    """Which neighbours are in order, by their medians. untrained: correlations of models that have learned nothing."""
    levels = by_level["levels"]
    hoped = "Level 0 is the most general; from level to level the median should fall."
    if len(levels) < 2:
        return f"{hoped} There is one level only."
    wrong = [
        f"{after['level']} above {before['level']}"
        for before, after in pairwise(levels)
        if after["median"] >= before["median"]
    ]
    rho = by_level["spearman"]
    end = f"; ρ {correlation(rho)}{_beside_trend(rho, untrained, -1)}"
    if not wrong:
        return f"{hoped} Here it falls at every step{end}"
    whole = f" ({WRONG_WAY} altogether)" if len(wrong) == len(levels) - 1 else ""
    return f"{hoped} Here it does not everywhere{whole}: {', '.join(wrong)}{end}"


def says_truth(truth: Mapping[str, Any], untrained: Sequence[float] = ()) -> str:
    """untrained: correlations of models that have learned nothing."""
    hoped = "How many scenes a caption fits is known exactly, and uncertainty should rise with it:"
    within = truth["within_length"]["mean"]
    fixed = "" if within is None else f"; among captions of one length, ρ is {correlation(within)} on average"
    return (
        f"{hoped} here {trend(truth['spearman'], 1)}{fixed}{_beside_trend(truth['spearman'], untrained, 1)}"
    )


def _beside_trend(value: float | None, untrained: Sequence[float], hoped: int) -> str:
    """The end of a sentence on a correlation; a second one if models without training have nearly as much of it."""
    close = (
        value is not None
        and hoped * value >= TREND
        and any(hoped * one > hoped * value - CLOSE for one in untrained)
    )
    return f"{beside(untrained, correlation)}.{f' {NOTHING_LEARNED}' if close else ''}"


def says_regression(results: Mapping[str, Any]) -> str:
    """Empty if there is nothing to tell."""
    names = {"own_image": "the rank of a caption's own image", "truth": "the true ambiguity"}
    fits = {name: results[key] for key, name in names.items()}
    fits = {name: fit for name, fit in fits.items() if fit is not None and fit["r2_with"] is not None}
    if not fits:
        return ""
    gains = [f"{_gain(fit)} for {name}" for name, fit in fits.items()]
    wrong = [name for name, fit in fits.items() if _is_sure(fit) and fit["coefficients"][UNCERTAINTY] < 0]
    told = (
        "Beyond length and word frequency, uncertainty should tell how ambiguous a caption is. "
        f"To R² it adds {' and '.join(gains)}"
    )
    return (
        f"{told}; its weight (β) is negative for {' and '.join(wrong)}: {WRONG_WAY}." if wrong else f"{told}."
    )


def _gain(fit: Mapping[str, Any]) -> str:
    told = correlation(fit["difference"])
    return told if _is_sure(fit) else f"nothing that is sure ({told})"


def _is_sure(fit: Mapping[str, Any]) -> bool:
    """The whole interval of the gain is above 0."""
    return bool(fit["interval"][0] > 0)
