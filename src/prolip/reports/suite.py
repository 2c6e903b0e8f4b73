"""Figure of the suite: every task that has a result, the paper's numbers beside ours; the five columns above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prolip.console import format_percent
from prolip.evaluation.suite.table import HEADINGS
from prolip.evaluation.suite.tasks import Group, get_task
from prolip.reports import figures

OURS = "this model"
PAPER = {"ProLIP B/16 12.8B": "D", "CLIP B/16 1.28B": "|"}
"""The paper's rows that are drawn, and their marks."""
TITLES: dict[Group | None, str] = {
    "imagenet": "ImageNet", "shifts": "ImageNet's shifts", "vtab": "VTAB", "retrieval": "Retrieval", None: "Others",
}  # fmt: skip
ROW, AROUND = 0.23, 1.0
"""Inches: of a row, of a panel's axis and of what stands around the panels."""


class SuiteRow(NamedTuple):
    """value: None for a heading. paper: shares by the paper's row."""

    name: str
    value: float | None
    paper: Mapping[str, float | None]


def save_suite_figure(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Dots, a row a task, grouped as the paper's main table; above them those of its five columns that are whole.

    result: of `evaluate.suite.table.as_json`. PNG and SVG. Returns [] if no task has a result.
    """
    tasks = _task_rows(result["tasks"])
    if not tasks:
        return []
    panels = {"columns of the paper's table": _column_rows(result), "task by task": tasks}
    panels = {title: rows for title, rows in panels.items() if rows}
    with figures.figure_style():
        heights = [len(rows) + 1 for rows in panels.values()]
        figure = figures.make_figure(7.2, ROW * sum(heights) + AROUND + 0.5 * len(panels))
        drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, rows) in zip(drawn, panels.items(), strict=True):
            _draw(axes, title, rows)
        for axes in drawn[:-1]:
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="x", length=0)
        drawn[-1].set(xlabel="percent (each task by its own metric)", xlim=(0, 100))
        handles, labels = drawn[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), handletextpad=0.3)
        return figures.save_figure(figure, out)


def _task_rows(tasks: Sequence[Mapping[str, Any]]) -> list[SuiteRow]:
    rows = []
    for group, title in TITLES.items():
        own = [
            SuiteRow(task["name"], task["value"], task["paper"])
            for task in tasks
            if task["value"] is not None and get_task(task["key"]).group == group
        ]
        rows += [SuiteRow(title, None, {}), *own] if own else []
    return rows


def _column_rows(result: Mapping[str, Any]) -> list[SuiteRow]:
    """Of the columns all of whose tasks are there."""
    return [
        SuiteRow(HEADINGS[name], column["value"], {row: result["paper"][row][name] for row in PAPER})
        for name, column in result["columns"].items()
        if column["value"] is not None
    ]


def _draw(axes: Any, title: str, rows: Sequence[SuiteRow]) -> None:
    places = list(range(len(rows)))
    for place, row in zip(places, rows, strict=True):
        if row.value is not None:
            axes.axhline(place, color="#e4e6ea", linewidth=0.8, zorder=0)
            axes.text(
                1.09, place, format_percent(row.value), transform=axes.get_yaxis_transform(), va="center", ha="right",
                fontsize=8.5, color=figures.BLUE,
            )  # fmt: skip
    for name, mark in PAPER.items():
        known = {
            place: row.paper[name]
            for place, row in zip(places, rows, strict=True)
            if row.paper.get(name) is not None
        }
        _dots(axes, known, figures.GRAY, f"paper, {name}", marker=mark, s=26 if mark == "D" else 70)
    own = {place: row.value for place, row in zip(places, rows, strict=True) if row.value is not None}
    _dots(axes, own, figures.BLUE, OURS, marker="o", s=42)
    axes.set(title=title, ylim=(len(rows) - 0.4, -0.6), yticks=places, yticklabels=[row.name for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.value is None else "normal")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _dots(axes: Any, shares: Mapping[int, Any], color: str, label: str, **look: Any) -> None:
    """shares: by place from above. Ours come last and so stand on top."""
    values = [100 * share for share in shares.values()]
    axes.scatter(values, list(shares), color=color, label=label, clip_on=False, zorder=3, **look)
