"""Results of tasks with given numbers, for tests."""

from prolip.evaluation.suite.results import SuiteTaskResult, TaskMetrics


def make_task_result(key, value, n=9, **fields):
    """The result of a finished task whose main metric is `value`."""
    metrics = TaskMetrics(main_metric=value, values={"acc1": value})
    return SuiteTaskResult(**{"key": key, "dataset": key, "n": n, "metrics": metrics, **fields})
