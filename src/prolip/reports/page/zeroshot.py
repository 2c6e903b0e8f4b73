"""Zero-shot classification: accuracy, what to trust, which prompts win, the surest wrong answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prolip.data.sources.labeled import Labelled
from prolip.evaluation.metrics.confidence import confidence_names
from prolip.reports import zeroshot as drawn
from prolip.reports.page.components import Bar, Block, Card, Cards, Cell, Figure, Gallery, Grid, Section
from prolip.reports.page.pictures import inline
from prolip.reports.page.results import Headline
from prolip.reports.page.svg import panel
from prolip.reports.page.words import TREND, WRONG_WAY, beside, correlation, known, percent
from prolip.reports.sheets import picture_of

CLASSES = 8
"""Whose prompt weights are shown."""
PROMPTS = 4
ROWS = ("one", "ensemble", "bprw", "control")
"""Families of strategies that the table has."""


def section(
    result: Mapping[str, Any],
    data: Labelled,
    prompts: Mapping[str, Any] | None,
    prompt_data: Labelled | None,
    untrained: Sequence[Headline],
) -> Section:
    """result: of `evaluate.zeroshot.evaluate`, of data. prompts: of `evaluate.prompts.evaluate`, of prompt_data.
    untrained: headlines of models that have learned nothing."""
    blocks: list[Block] = [*_trust(result)]
    if result["surest_wrong"]:
        blocks.append(_surest_wrong(result, data))
    if prompts is not None:
        blocks.append(_strategies(prompts))
        if prompts["learned"] and known(prompts["learned"][-1]["entropy"]):
            blocks.append(_weights(prompts, prompt_data))
    return Section(
        id="zeroshot",
        title="Zero-shot classification",
        intro=says_accuracy(result, known(one.zero_shot for one in untrained)),
        blocks=blocks,
    )


def says_accuracy(result: Mapping[str, Any], untrained: Sequence[float]) -> str:
    chance = 1 / result["classes"]
    five = "" if result["top5"] is None else f" ({percent(result['top5'])} among the first five)"
    found = (
        f"{percent(result['top1'])} of {result['n']:,} pictures get the right one of {result['classes']:,} classes"
        f"{five}; chance is {percent(chance)}"
    )
    found += beside(untrained, percent)
    worse = result["top1"] <= max([chance, *untrained])
    return f"{found}. That is no better than nothing learned." if worse else f"{found}."


def _trust(result: Mapping[str, Any]) -> list[Figure]:
    figures = []
    if parts := result["calibration"]:
        softmax = {kind: parts["softmax"][kind] for kind in ("raw", "fitted")}
        figures.append(
            Figure(
                title="Reliability",
                says=says_reliability(softmax["raw"]["ece"], softmax["fitted"]["ece"]),
                svg=panel(
                    partial(drawn.draw_reliability, title="", parts=softmax), "Accuracy by probability"
                ),
            )
        )
    selective = result["selective"]
    names = confidence_names(result["temperature"]["bias"] is not None)
    figures.append(
        Figure(
            title="Risk and coverage",
            says=says_risk(selective, names),
            svg=panel(
                partial(drawn.draw_risk, parts=selective, names=names), "Share wrong by share answered"
            ),
        )
    )
    if spread := result["uncertainty"]:
        figures.append(
            Figure(
                title="Accuracy by image uncertainty",
                says=says_deciles(spread["correlation"]["spearman"]),
                svg=panel(partial(drawn.draw_deciles, part=spread), "Accuracy in tenths by uncertainty"),
            )
        )
    return figures


def says_reliability(raw: float, fitted: float) -> str:
    """raw, fitted: expected calibration errors."""
    hoped = "On the dashed line a probability is right as often as it says."
    verb = "helps" if fitted < raw else "does not help"
    return f"{hoped} The calibration error here is {raw:.3f}; one fitted scale {verb}: {fitted:.3f}."


def says_risk(selective: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Which confidence orders answers best, and whether uncertainty does better than chance."""
    found = {name: selective[key]["aurc"] for key, name in names.items() if selective[key]}
    best = min(found, key=lambda name: found[name])
    told = (
        "Answering only where sure should lower the share of wrong answers. "
        f"Here {best} orders them best (area {found[best]:.3f}; at random {selective['error']:.3f})"
    )
    if (own := selective["uncertainty"]) and own["aurc"] >= selective["error"]:
        return f"{told}; image uncertainty is no better than chance ({own['aurc']:.3f})."
    return f"{told}."


def says_deciles(rho: float | None) -> str:
    hoped = "Uncertain pictures should be wrong more often: accuracy should fall to the right."
    if rho is None or abs(rho) < TREND:
        return f"{hoped} Here there is hardly a trend (ρ {correlation(rho)})."
    return f"{hoped} Here it {'falls' if rho < 0 else f'rises, {WRONG_WAY}'} (ρ {correlation(rho)})."


def _surest_wrong(result: Mapping[str, Any], data: Labelled) -> Gallery:
    cells = tuple(
        Cell(
            picture=inline(picture_of(data.source, entry["number"]), f"a picture of class {entry['class']}"),
            captions=(f"{entry['answer']}, not {entry['class']}",),
            notes=(f"trust {entry['trust']:.2f}",),
        )
        for entry in result["surest_wrong"][:6]
    )
    return Gallery(title="Wrong answers with the most trust", cells=cells)


def _strategies(prompts: Mapping[str, Any]) -> Grid:
    shown = [row for row in prompts["rows"] if row["family"] in ROWS and row["accuracy"] is not None]
    rows = tuple(
        (
            row["name"],
            percent(row["accuracy"]),
            "" if row["effective_prompts"] is None else f"{row['effective_prompts']:.1f}",
        )
        for row in shown
    )
    return Grid(
        title="Ways to make a class of many prompts",
        says=says_strategies(prompts),
        headings=("strategy", "accuracy", "effective prompts"),
        rows=rows,
    )


def says_strategies(prompts: Mapping[str, Any]) -> str:
    """BPRW against all prompts alike, by two standard errors; a gain that a control has too is not its own."""
    rows = {
        row["family"]: row
        for row in prompts["rows"]
        if row["accuracy"] is not None and row["family"] != "control"
    }
    told = f"{prompts['classes']} classes, {prompts['templates_per_class']} templates, {prompts['images']:,} pictures."
    if "bprw" not in rows:
        return f"{told} This model has no uncertainty, so there are no weights to learn."
    every = next(row for row in prompts["rows"] if row["family"] == "ensemble")["accuracy"]
    gain = rows["bprw"]["accuracy"] - every
    error = (every * (1 - every) / prompts["images"]) ** 0.5
    verdict = "within chance" if abs(gain) < 2 * error else ("a gain" if gain > 0 else f"a loss, {WRONG_WAY}")
    points = f"{100 * gain:+.1f}".replace("-", "−")
    found = f"{told} Learned weights ({rows['bprw']['name']}) change accuracy by {points} points: {verdict}"
    controls = [row for row in prompts["rows"] if row["family"] == "control" and row["accuracy"] is not None]
    best = max(controls, key=lambda row: row["accuracy"], default=None)
    if verdict == "a gain" and best is not None and best["accuracy"] > rows["bprw"]["accuracy"] - 2 * error:
        return f"{found}, but {best['name']} has {percent(best['accuracy'])} as well."
    return f"{found}."


def _weights(prompts: Mapping[str, Any], data: Labelled | None) -> Cards:
    learned = prompts["learned"][-1]
    known = [number for number, value in enumerate(learned["entropy"]) if value is not None]
    order = sorted(known, key=lambda number: learned["entropy"][number])[:CLASSES]
    widest = max(weight for number in order for _, weight in learned["largest"][number])
    cards = tuple(_class_card(prompts, learned["largest"], number, widest, data) for number in order)
    uniform = 1 / prompts["templates_per_class"]
    return Cards(
        title=f"Which prompts win for which classes ({learned['name']})",
        says=f"The largest learned weights, from the most peaked class on. Equal weights would be {uniform:.3f}; "
        f"here the largest is {widest:.2f}.",
        cards=cards,
        narrow=True,
    )


def _class_card(
    prompts: Mapping[str, Any],
    largest: Sequence[Sequence[tuple[int, float]]],
    number: int,
    widest: float,
    data: Labelled | None,
) -> Card:
    bars = tuple(
        Bar(
            text=prompts["templates"][template].replace("{c}", "…"),
            value=f"{weight:.2f}",
            share=weight / widest,
        )
        for template, weight in largest[number][:PROMPTS]
    )
    name, examples = prompts["class_names"][number], prompts["examples"][number]
    picture = None
    if data is not None and examples:
        picture = inline(picture_of(data.source, examples[0]), f"a picture of class {name}")
    return Card(title=name, bars=bars, picture=picture)
