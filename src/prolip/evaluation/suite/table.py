"""The suite's results as the paper shows them: five columns, and all tasks, with the paper's rows beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from prolip.evaluation.formatting import MISSING, format_percent, table
from prolip.evaluation.paper_numbers import FINE_TUNED, FIVE, MAIN, PER_TASK
from prolip.evaluation.suite.tasks import DATACOMP_TASKS, GROUPS, SuiteTask, get_task, get_group_tasks

HEADINGS = dict(zip(FIVE, ("ImageNet", "IN shifts", "VTAB", "Retrieval", "Average"), strict=True))
COMPARED = ("ProLIP B/16 12.8B", "ProLIP B/16 1.28B", "CLIP B/16 1.28B")
"""The paper's rows that stand in the table of all tasks."""
OTHER_BACKBONES = ("ProLIP B/16 FT", "ProLIP H/14 FT")
"""Rows of the paper's table of fine-tuned models that its main table doesn't have."""


def summarize_columns(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{"columns": {column: {"value", "have", "of", "missing"}}, "paper": {row: {column: share}}}.

    value: the unweighted mean over exactly the tasks of the column, None unless all are there: a mean over other tasks
    is another number. results: as `run` returns them, of one model and one score.
    """
    columns = {group: get_group_tasks(group) for group in GROUPS} | {"average": DATACOMP_TASKS}
    found = main_metrics(results)
    return {
        "columns": {column: _column(tasks, found) for column, tasks in columns.items()},
        "paper": {row: MAIN.row(row) for row in MAIN.rows}
        | {row: FINE_TUNED.row(row) for row in OTHER_BACKBONES},
    }


def main_metrics(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Main metric by task, where there is one. Two results of one task are an error: which of them counts?"""
    found: dict[str, float] = {}
    for line in results:
        value = line.get("metrics", {}).get("main_metric")
        if value is None:
            continue
        if line["key"] in found:
            raise ValueError(f"{line['key']} stands twice among the results; choose one model and one score")
        found[line["key"]] = float(value)
    return found


def _column(tasks: Sequence[SuiteTask], found: Mapping[str, float]) -> dict[str, Any]:
    values = [found[task.key] for task in tasks if task.key in found]
    whole = len(values) == len(tasks)
    return {
        "value": sum(values) / len(values) if whole else None,
        "have": len(values),
        "of": len(tasks),
        "missing": [task.key for task in tasks if task.key not in found],
    }


def compare_tasks(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A dict a task, in the order of the results: key, name, metric, n, value or why there is none, and the paper's."""
    rows = []
    for line in results:
        task = get_task(line["key"])
        row: dict[str, Any] = {
            "key": task.key,
            "name": task.name,
            "metric": task.main_metric,
            "n": line.get("n"),
            "public_n": task.size,
            "value": line.get("metrics", {}).get("main_metric"),
            "paper": {row: PER_TASK.value(row, task.key) for row in COMPARED} if task.in_datacomp else {},
        }
        rows.append(row | {name: line[name] for name in ("missing", "error") if name in line})
    return rows


def mean_over_finished_tasks(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{"tasks": how many, "value": the mean over those that have a result and are among the 38, "paper": {row: the
    paper's mean over the same}}: a fair comparison where the suite is not whole. value: None without any."""
    rows = [row for row in compare_tasks(results) if row["value"] is not None and row["paper"]]
    beside = {name: [row["paper"][name] for row in rows] for name in COMPARED}
    return {
        "tasks": len(rows),
        "value": sum(row["value"] for row in rows) / len(rows) if rows else None,
        "paper": {name: sum(values) / len(values) if rows else None for name, values in beside.items()},
    }


def suite_to_json(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Both tables as one JSON-able dict."""
    return {
        **summarize_columns(results),
        "mean_over_finished_tasks": mean_over_finished_tasks(results),
        "tasks": compare_tasks(results),
    }


def suite_tables(results: Sequence[Mapping[str, Any]], name: str = "this model") -> list[Table]:
    """Both tables, for people; percent. name: what the model's row is called."""
    name = escape(name)  # a path may hold brackets
    return [_five_columns(results, name), _all_tasks(results, name)]


def _five_columns(results: Sequence[Mapping[str, Any]], name: str) -> Table:
    found = summarize_columns(results)
    shown = table("The 38 tasks (percent)", [""], tuple(HEADINGS.values()))
    shown.add_row(name, *(_told(found["columns"][column]) for column in FIVE), style="bold", end_section=True)
    for row, values in found["paper"].items():
        shown.add_row(row, *(format_percent(values[column]) for column in FIVE))
    return shown


def _all_tasks(results: Sequence[Mapping[str, Any]], name: str) -> Table:
    shown = table("Task by task (percent)", ("task", "metric"), ("n", name, *COMPARED))
    for row in compare_tasks(results):
        why = "missing" if "missing" in row else "failed" if "error" in row else format_percent(row["value"])
        beside = (format_percent(row["paper"].get(column)) for column in COMPARED)
        count = "" if row["n"] is None else f"{row['n']:,}"
        shown.add_row(row["name"], row["metric"].replace("_", " "), count, why, *beside)
    shown.add_section()
    mean = mean_over_finished_tasks(results)
    beside = (format_percent(mean["paper"][column]) for column in COMPARED)
    shown.add_row(f"mean of these {mean['tasks']}", "", "", format_percent(mean["value"]), *beside)
    return shown


def _told(column: Mapping[str, Any]) -> str:
    if column["value"] is not None:
        return format_percent(column["value"])
    return f"{MISSING} ({column['have']} of {column['of']})"
