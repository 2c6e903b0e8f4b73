"""Tables of the suite: the five columns of the paper's main table, and all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from prolip.console import MISSING, format_percent, make_table
from prolip.evaluation.paper_numbers import FINE_TUNED, MAIN, MAIN_COLUMNS, PER_TASK
from prolip.evaluation.suite.tasks import DATACOMP_TASKS, GROUPS, SuiteTask, get_group_tasks, get_task

HEADINGS = dict(zip(MAIN_COLUMNS, ("ImageNet", "IN shifts", "VTAB", "Retrieval", "Average"), strict=True))
"""Column of the main table -> its heading."""
COMPARED = ("ProLIP B/16 12.8B", "ProLIP B/16 1.28B", "CLIP B/16 1.28B")
"""The paper's rows that the table of all tasks shows."""
OTHER_BACKBONES = ("ProLIP B/16 FT", "ProLIP H/14 FT")
"""Rows of the paper's table of fine-tuned models that are not in its main table."""


def summarize_columns(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize results by the columns of the paper's main table.

    Args:
        results: Results of `evaluate_suite`, of one model and one metric.

    Returns:
        columns {column: {value, finished, total, missing}}: value is the unweighted mean over the tasks of the column,
        None unless all are finished (a mean over other tasks is another number); paper {row: {column: fraction}}.
    """
    columns = {group: get_group_tasks(group) for group in GROUPS} | {"average": DATACOMP_TASKS}
    metric_of_task = collect_main_metrics(results)
    return {
        "columns": {column: _summarize_column(tasks, metric_of_task) for column, tasks in columns.items()},
        "paper": {row: MAIN.row(row) for row in MAIN.rows}
        | {row: FINE_TUNED.row(row) for row in OTHER_BACKBONES},
    }


def collect_main_metrics(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Collect the main metric of each task that has one.

    Args:
        results: Results of `prolip.evaluation.suite.run.evaluate_suite`.

    Returns:
        Task key -> main metric.

    Raises:
        ValueError: A task has two results.
    """
    metric_of_task: dict[str, float] = {}
    for result in results:
        value = result.get("metrics", {}).get("main_metric")
        if value is None:
            continue
        if result["key"] in metric_of_task:
            raise ValueError(
                f"task {result['key']} has two results. Pass the results of one model and one similarity metric"
            )
        metric_of_task[result["key"]] = float(value)
    return metric_of_task


def _summarize_column(tasks: Sequence[SuiteTask], metric_of_task: Mapping[str, float]) -> dict[str, Any]:
    """The entry of `summarize_columns` for a column of these tasks. metric_of_task: `collect_main_metrics`."""
    values = [metric_of_task[task.key] for task in tasks if task.key in metric_of_task]
    is_complete = len(values) == len(tasks)
    return {
        "value": sum(values) / len(values) if is_complete else None,
        "finished": len(values),
        "total": len(tasks),
        "missing": [task.key for task in tasks if task.key not in metric_of_task],
    }


def compare_tasks(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare each task with the paper.

    Args:
        results: Results of `prolip.evaluation.suite.run.evaluate_suite`.

    Returns:
        One dict per result, in order: key, name, main_metric (its name), n, public_n, value, paper (row: value). A task
        without a value has "missing" or "error".
    """
    rows = []
    for result in results:
        task = get_task(result["key"])
        row: dict[str, Any] = {
            "key": task.key,
            "name": task.name,
            "main_metric": task.main_metric,
            "n": result.get("n"),
            "public_n": task.size,
            "value": result.get("metrics", {}).get("main_metric"),
            "paper": {row: PER_TASK.value(row, task.key) for row in COMPARED} if task.in_datacomp else {},
        }
        rows.append(row | {name: result[name] for name in ("missing", "error") if name in result})
    return rows


def mean_over_finished_tasks(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the finished tasks among the 38: the fair comparison where some tasks are missing.

    Args:
        results: Results of `prolip.evaluation.suite.run.evaluate_suite`.

    Returns:
        tasks (their number), value (None without finished tasks) and paper: the paper's means over the same tasks.
    """
    rows = [row for row in compare_tasks(results) if row["value"] is not None and row["paper"]]
    by_paper_row = {name: [row["paper"][name] for row in rows] for name in COMPARED}
    return {
        "tasks": len(rows),
        "value": sum(row["value"] for row in rows) / len(rows) if rows else None,
        "paper": {name: sum(values) / len(values) if rows else None for name, values in by_paper_row.items()},
    }


def suite_to_json(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collect the content of both tables as one JSON-serializable dict.

    Args:
        results: Results of `prolip.evaluation.suite.run.evaluate_suite`.

    Returns:
        The dict of `summarize_columns` with mean_over_finished_tasks and tasks.
    """
    return {
        **summarize_columns(results),
        "mean_over_finished_tasks": mean_over_finished_tasks(results),
        "tasks": compare_tasks(results),
    }


def suite_tables(results: Sequence[Mapping[str, Any]], name: str = "this model") -> list[Table]:
    """Make the tables of the suite, in percent.

    Args:
        results: Results of `evaluate_suite`.
        name: Heading of the model's row and column.

    Returns:
        The main table, and the table of all tasks.
    """
    return [_main_table(results, name), _task_table(results, name)]


def _main_table(results: Sequence[Mapping[str, Any]], name: str) -> Table:
    """The table of `summarize_columns`: this model (called `name`), then the paper's models."""
    summary = summarize_columns(results)
    table = make_table("The 38 tasks (percent)", [""], tuple(HEADINGS.values()))
    table.add_row(
        name,
        *(_format_column(summary["columns"][column]) for column in MAIN_COLUMNS),
        style="bold",
        end_section=True,
    )
    for row, values in summary["paper"].items():
        table.add_row(row, *(format_percent(values[column]) for column in MAIN_COLUMNS))
    return table


def _task_table(results: Sequence[Mapping[str, Any]], name: str) -> Table:
    """The table of `compare_tasks`: one row per task, then the mean over those that are finished."""
    table = make_table("Task by task (percent)", ("task", "metric"), ("n", name, *COMPARED))
    for row in compare_tasks(results):
        value = (
            "missing" if "missing" in row else "failed" if "error" in row else format_percent(row["value"])
        )
        paper = (format_percent(row["paper"].get(column)) for column in COMPARED)
        count = "" if row["n"] is None else f"{row['n']:,}"
        table.add_row(row["name"], row["main_metric"].replace("_", " "), count, value, *paper)
    table.add_section()
    mean = mean_over_finished_tasks(results)
    paper = (format_percent(mean["paper"][column]) for column in COMPARED)
    table.add_row(f"mean of {mean['tasks']} finished", "", "", format_percent(mean["value"]), *paper)
    return table


def _format_column(column: Mapping[str, Any]) -> str:
    """The mean in percent; without one, how many of the column's tasks are finished."""
    if column["value"] is not None:
        return format_percent(column["value"])
    return f"{MISSING} ({column['finished']} of {column['total']})"
