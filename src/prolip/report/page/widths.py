"""What uncertainty goes together with: images against texts, length, level, the true ambiguity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from prolip.evaluate.regression import UNCERTAINTY
from prolip.report import uncertainty as drawn
from prolip.report.page.findings import Headline
from prolip.report.page.parts import Figure, Section
from prolip.report.page.svg import panel
from prolip.report.page.words import CLOSE, WRONG_WAY, correlation, known, percent, trend


def section(result: Mapping[str, Any], untrained: Sequence[Headline] = ()) -> Section:
    """result: of `evaluate.uncertainty.analyse`. untrained: the same numbers of models that have learned nothing."""
    above = known(one.text_above for one in untrained)
    chance = known(one.truth for one in untrained)
    figures = [
        _figure("Images and texts", drawn.draw_histograms, result, says_modalities(result), "Histograms"),
        _figure(
            "Each caption and its image", drawn.draw_pairs, result, says_pairs(result, above), "Scatter plot"
        ),
        _figure("By caption length", drawn.draw_lengths, result, says_length(result), "Quantiles by tokens"),
    ]
    if result["by_level"] is not None:
        says = says_levels(result["by_level"])
        figures.append(_figure("By level of detail", drawn.draw_levels, result, says, "Quantiles by level"))
    if result["truth"] is not None:
        says = says_truth(result["truth"], chance)
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
    if untrained and max(untrained) > share - CLOSE:
        return f"{told}, but of an untrained model for {percent(max(untrained))}: that alone shows nothing learned."
    return f"{told}; of an untrained model for {percent(max(untrained))}." if untrained else f"{told}."


def says_length(result: Mapping[str, Any]) -> str:
    found = trend(result["by_length"]["spearman"], -1)
    return f"The longer a caption, the more it says, so uncertainty should fall with length: here {found}."


def says_levels(by_level: Mapping[str, Any]) -> str:
    """Which neighbours are in order, by their medians."""
    levels = by_level["levels"]
    hoped = "Level 0 is the most general; from level to level the median should fall."
    if len(levels) < 2:
        return f"{hoped} There is one level only."
    wrong = [
        f"{after['level']} above {before['level']}"
        for before, after in pairwise(levels)
        if after["median"] >= before["median"]
    ]
    if not wrong:
        return f"{hoped} Here it falls at every step."
    whole = f" ({WRONG_WAY} altogether)" if len(wrong) == len(levels) - 1 else ""
    return f"{hoped} Here it does not everywhere{whole}: {', '.join(wrong)}."


def says_truth(truth: Mapping[str, Any], untrained: Sequence[float] = ()) -> str:
    """untrained: correlations of models that have learned nothing."""
    hoped = "How many scenes a caption fits is known exactly, and uncertainty should rise with it:"
    within = truth["within_length"]["mean"]
    fixed = "" if within is None else f"; among captions of one length, ρ is {correlation(within)} on average"
    beside = f"; of an untrained model {correlation(max(untrained))}" if untrained else ""
    return f"{hoped} here {trend(truth['spearman'], 1)}{fixed}{beside}."


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
