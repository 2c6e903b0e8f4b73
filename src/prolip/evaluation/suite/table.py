"""SuiteResult: results of the suite, with the five columns of the paper's main table; its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from rich.table import Table

from prolip.console import MISSING, format_percent, make_table
from prolip.evaluation.paper_numbers import FINE_TUNED, MAIN, MAIN_COLUMNS, PER_TASK
from prolip.evaluation.result import Result
from prolip.evaluation.suite.results import SuiteTaskResult
from prolip.evaluation.suite.tasks import DATACOMP_TASKS, GROUPS, SuiteTask, get_group_tasks, get_task

HEADINGS = dict(zip(MAIN_COLUMNS, ("ImageNet", "IN shifts", "VTAB", "Retrieval", "Average"), strict=True))
"""Column of the main table -> its heading."""
COMPARED = ("ProLIP B/16 12.8B", "ProLIP B/16 1.28B", "CLIP B/16 1.28B")
"""The paper's rows that the table of all tasks shows."""
OTHER_BACKBONES = ("ProLIP B/16 FT", "ProLIP H/14 FT")
"""Rows of the paper's table of fine-tuned models that are not in its main table."""


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """A column of the paper's main table."""

    value: float | None
    """Unweighted mean over the tasks of the column; None unless all are finished (a mean over other tasks is another
    number)."""
    finished: int
    """Number of finished tasks."""
    total: int
    """Number of tasks of the column."""
    missing: tuple[str, ...]
    """Ids of the tasks that are not finished."""


@dataclass(frozen=True, kw_only=True)
class FinishedMean:
    """Mean over the finished tasks among the 38: the fair comparison where some tasks are missing."""

    n: int
    """Number of these tasks."""
    value: float | None
    """Their mean; None without any."""
    paper: dict[str, float | None]
    """The means of the paper's models over the same tasks."""


@dataclass(frozen=True, kw_only=True)
class SuiteResult(Result):
    """Results of DataComp's tasks; `n` is the number of samples of all finished tasks."""

    task: ClassVar[str] = "suite"

    columns: dict[str, ColumnSummary]
    """The columns of the paper's main table."""
    mean_over_finished_tasks: FinishedMean
    """Mean over what is finished."""
    tasks: tuple[SuiteTaskResult, ...]
    """Result of each task, in order."""

    @classmethod
    def from_tasks(cls, data: str, tasks: Sequence[SuiteTaskResult]) -> Self:
        """Summarize the results of tasks.

        Args:
            data: Name of the data.
            tasks: Results of one model and one similarity.

        Returns:
            The result.

        Raises:
            ValueError: A task has two results.
        """
        return cls(
            data=data,
            n=sum(task.n for task in tasks),
            num_bad=sum(task.num_bad for task in tasks),
            columns=summarize_columns(tasks),
            mean_over_finished_tasks=mean_over_finished_tasks(tasks),
            tasks=tuple(tasks),
        )

    def list_failures(self) -> list[str]:
        """One message per task that failed; missing data is not a failure."""
        return [f"{task.key}: {task.error}" for task in self.tasks if task.error is not None]

    def tables(self, name: str = "this model") -> list[Table]:
        """The main table, and the table of all tasks, in percent.

        Args:
            name: Heading of the model's row and column.

        Returns:
            Two tables.
        """
        return [_main_table(self.columns, name), _task_table(self, name)]


def get_paper_columns() -> dict[str, dict[str, float | None]]:
    """The rows of the paper's main table, and of fine-tuned models that are not in it, by column."""
    return {row: MAIN.row(row) for row in MAIN.rows} | {row: FINE_TUNED.row(row) for row in OTHER_BACKBONES}


def get_paper_values(key: str) -> dict[str, float | None]:
    """The values of `COMPARED` models on a task, in the paper.

    Args:
        key: Id of the task.

    Returns:
        Model -> fraction; empty for a task that is not among the 38.
    """
    return {row: PER_TASK.value(row, key) for row in COMPARED} if get_task(key).in_datacomp else {}


def summarize_columns(results: Sequence[SuiteTaskResult]) -> dict[str, ColumnSummary]:
    """Summarize results by the columns of the paper's main table.

    Args:
        results: Results of tasks, of one model and one similarity.

    Returns:
        Column -> its summary.
    """
    columns = {group: get_group_tasks(group) for group in GROUPS} | {"average": DATACOMP_TASKS}
    metric_of_task = collect_main_metrics(results)
    return {column: _summarize_column(tasks, metric_of_task) for column, tasks in columns.items()}


def collect_main_metrics(results: Sequence[SuiteTaskResult]) -> dict[str, float]:
    """Collect the main metric of each task that has one.

    Args:
        results: Results of tasks.

    Returns:
        Task key -> main metric.

    Raises:
        ValueError: A task has two results.
    """
    metric_of_task: dict[str, float] = {}
    for result in results:
        if result.main_metric is None:
            continue
        if result.key in metric_of_task:
            raise ValueError(
                f"task {result.key} has two results. Pass the results of one model and one similarity metric"
            )
        metric_of_task[result.key] = result.main_metric
    return metric_of_task


def _summarize_column(tasks: Sequence[SuiteTask], metric_of_task: Mapping[str, float]) -> ColumnSummary:
    """The summary of a column of these tasks. metric_of_task: `collect_main_metrics`."""
    values = [metric_of_task[task.key] for task in tasks if task.key in metric_of_task]
    is_complete = len(values) == len(tasks)
    return ColumnSummary(
        value=sum(values) / len(values) if is_complete else None,
        finished=len(values),
        total=len(tasks),
        missing=tuple(task.key for task in tasks if task.key not in metric_of_task),
    )


def mean_over_finished_tasks(results: Sequence[SuiteTaskResult]) -> FinishedMean:
    """Average the finished tasks among the 38.

    Args:
        results: Results of tasks.

    Returns:
        The mean, and the paper's means over the same tasks.
    """
    metrics = {
        key: value for key, value in collect_main_metrics(results).items() if get_task(key).in_datacomp
    }
    paper_values = [get_paper_values(key) for key in metrics]
    return FinishedMean(
        n=len(metrics),
        value=_mean(list(metrics.values())),
        paper={name: _mean([values[name] for values in paper_values]) for name in COMPARED},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _main_table(columns: Mapping[str, ColumnSummary], name: str) -> Table:
    """The columns of this model (called `name`), then those of the paper's models."""
    table = make_table("The 38 tasks (percent)", [""], tuple(HEADINGS.values()))
    table.add_row(
        name, *(_format_column(columns[column]) for column in MAIN_COLUMNS), style="bold", end_section=True
    )
    for row, values in get_paper_columns().items():
        table.add_row(row, *(format_percent(values[column]) for column in MAIN_COLUMNS))
    return table


def _task_table(result: SuiteResult, name: str) -> Table:
    """One row per task, then the mean over those that are finished."""
    table = make_table("Task by task (percent)", ("task", "metric"), ("n", name, *COMPARED))
    for row in result.tasks:
        task, paper = get_task(row.key), get_paper_values(row.key)
        value = "missing" if row.missing else "failed" if row.error else format_percent(row.main_metric)
        count = "" if row.metrics is None else f"{row.n:,}"
        table.add_row(
            task.name,
            task.main_metric.replace("_", " "),
            count,
            value,
            *(format_percent(paper.get(column)) for column in COMPARED),
        )
    table.add_section()
    mean = result.mean_over_finished_tasks
    means = (format_percent(mean.paper[column]) for column in COMPARED)
    table.add_row(f"mean of {mean.n} finished", "", "", format_percent(mean.value), *means)
    return table


def _format_column(column: ColumnSummary) -> str:
    """The mean in percent; without one, how many of the column's tasks are finished."""
    if column.value is not None:
        return format_percent(column.value)
    return f"{MISSING} ({column.finished} of {column.total})"
