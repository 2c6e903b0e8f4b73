"""Figure of the suite: results of all tasks beside the paper's, and the five columns of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prolip.console import format_percent
from prolip.evaluation.suite.results import SuiteTaskResult
from prolip.evaluation.suite.table import HEADINGS, SuiteResult, get_paper_columns, get_paper_values
from prolip.evaluation.suite.tasks import Group, get_task
from prolip.reports import figures

OURS = "this model"
PAPER = {"ProLIP B/16 12.8B": "D", "CLIP B/16 1.28B": "|"}
"""Models of the paper that are drawn, and their markers."""
TITLES: dict[Group | None, str] = {
    "imagenet": "ImageNet", "shifts": "ImageNet's shifts", "vtab": "VTAB", "retrieval": "Retrieval", None: "Others",
}  # fmt: skip
ROW_HEIGHT, MARGIN = 0.23, 1.0
"""Inches: height of a row, and what title, legend and axis need."""


class SuiteRow(NamedTuple):
    """A row of the figure. value: a fraction; None for a heading. paper: the same fraction by model of the paper."""

    name: str
    value: float | None
    paper: Mapping[str, float | None]


def save_suite_figure(result: SuiteResult, out: Path) -> list[Path]:
    """Save a figure with a dot per task, grouped as in the paper's main table.

    A panel above shows the columns of that table (means over tasks) whose tasks all have results.

    Args:
        result: The result.
        out: Path without suffix.

    Returns:
        Paths of the PNG and the SVG; [] if no task has a result.
    """
    tasks = _make_task_rows(result.tasks)
    if not tasks:
        return []
    panels = {"columns of the paper's table": _make_column_rows(result), "task by task": tasks}
    panels = {title: rows for title, rows in panels.items() if rows}
    with figures.figure_style():
        heights = [len(rows) + 1 for rows in panels.values()]
        figure = figures.make_figure(7.2, ROW_HEIGHT * sum(heights) + MARGIN + 0.5 * len(panels))
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, rows) in zip(grid, panels.items(), strict=True):
            _draw_panel(axes, title, rows)
        for axes in grid[:-1]:
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="x", length=0)
        grid[-1].set(xlabel="percent (each task by its own metric)", xlim=(0, 100))
        handles, labels = grid[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), handletextpad=0.3)
        return figures.save_figure(figure, out)


def _make_task_rows(tasks: Sequence[SuiteTaskResult]) -> list[SuiteRow]:
    """Rows of the tasks that have results, each group under a row with its heading; [] if none has a result."""
    rows = []
    for group, title in TITLES.items():
        group_rows = [
            SuiteRow(get_task(task.key).name, task.main_metric, get_paper_values(task.key))
            for task in tasks
            if task.main_metric is not None and get_task(task.key).group == group
        ]
        rows += [SuiteRow(title, None, {}), *group_rows] if group_rows else []
    return rows


def _make_column_rows(result: SuiteResult) -> list[SuiteRow]:
    """Rows of the columns of the paper's table; a column is omitted unless all of its tasks have results."""
    paper = get_paper_columns()
    return [
        SuiteRow(HEADINGS[name], column.value, {row: paper[row][name] for row in PAPER})
        for name, column in result.columns.items()
        if column.value is not None
    ]


def _draw_panel(axes: Any, title: str, rows: Sequence[SuiteRow]) -> None:
    """Draw a panel: one row per task or column with its number on the right, our dots over those of the paper."""
    positions = list(range(len(rows)))
    for position, row in zip(positions, rows, strict=True):
        if row.value is not None:
            axes.axhline(position, color="#e4e6ea", linewidth=0.8, zorder=0)
            axes.text(
                1.09, position, format_percent(row.value), transform=axes.get_yaxis_transform(), va="center",
                ha="right", fontsize=8.5, color=figures.BLUE,
            )  # fmt: skip
    for name, mark in PAPER.items():
        paper_values = {
            position: row.paper[name]
            for position, row in zip(positions, rows, strict=True)
            if row.paper.get(name) is not None
        }
        area = 26 if mark == "D" else 70  # a bar needs more to be seen
        _draw_dots(axes, paper_values, figures.GRAY, f"paper, {name}", marker=mark, s=area)
    our_values = {
        position: row.value for position, row in zip(positions, rows, strict=True) if row.value is not None
    }
    # last, so that our dots lie over the paper's
    _draw_dots(axes, our_values, figures.BLUE, OURS, marker="o", s=42)
    axes.set(
        title=title, ylim=(len(rows) - 0.4, -0.6), yticks=positions, yticklabels=[row.name for row in rows]
    )
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.value is None else "normal")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _draw_dots(axes: Any, fractions: Mapping[int, Any], color: str, label: str, **options: Any) -> None:
    """Draw dots, in percent, of fractions by row (0 is the top row). `options`: those of matplotlib's `scatter`."""
    percents = [100 * fraction for fraction in fractions.values()]
    axes.scatter(percents, list(fractions), color=color, label=label, clip_on=False, zorder=3, **options)
