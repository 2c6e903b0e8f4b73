"""Tables: an average is of exactly 38, or none."""

import io

import pytest
from rich.console import Console

from prolip.evaluation.paper_numbers import MAIN, PER_TASK
from prolip.evaluation.result import Result
from prolip.evaluation.suite.results import SuiteTaskResult
from prolip.evaluation.suite.table import (
    SuiteResult,
    get_paper_values,
    mean_over_finished_tasks,
    summarize_columns,
)
from prolip.evaluation.suite.tasks import DATACOMP_TASKS
from tests.evaluation.suite import tree
from tests.evaluation.suite.made_results import make_task_result


def lines(value=lambda number: number / 100, keys=tree.IDS):
    return [make_task_result(key, value(number), n=12) for number, key in enumerate(tree.IDS) if key in keys]


def shown(results, name="ours"):
    console = Console(width=200, record=True, file=io.StringIO(), markup=False)
    for table in SuiteResult.from_tasks("data", results).tables(name):
        console.print(table)
    return console.export_text()


def test_the_papers_own_rows_come_out():
    """Its 38 numbers, taken for results, give its five columns."""
    for row in ("CLIP B/16 1.28B", "ProLIP B/16 12.8B"):
        results = [make_task_result(task.key, PER_TASK.value(row, task.key)) for task in DATACOMP_TASKS]
        for column, found in summarize_columns(results).items():
            assert found.value == pytest.approx(MAIN.value(row, column), abs=0.000551)


def test_a_column_with_a_task_missing_has_no_value():
    found = summarize_columns(lines(keys=[key for key in tree.IDS if key not in ("imagenet-a", "mnist")]))
    assert (found["shifts"].value, found["shifts"].finished, found["shifts"].total) == (None, 5, 6)
    assert found["shifts"].missing == ("imagenet-a",)
    assert (found["average"].value, found["average"].finished) == (None, 36)
    assert found["imagenet"].value == tree.IDS.index("imagenet1k") / 100
    text = shown(lines(keys=[key for key in tree.IDS if key not in ("imagenet-a", "mnist")]))
    assert "– (36 of 38)" in text
    assert "– (5 of 6)" in text


def test_tasks_outside_the_38_dont_count():
    extra = make_task_result("fairness/fairface", 1.0)
    assert summarize_columns([*lines(), extra]) == summarize_columns(lines())
    assert get_paper_values(extra.key) == {}
    assert mean_over_finished_tasks([extra]).n == 0


def test_an_undefined_main_metric_is_no_zero():
    found = summarize_columns(lines(lambda number: None if number == 3 else 0.5))["average"]
    assert (found.value, found.finished) == (None, 37)


def test_two_results_of_a_task_are_refused():
    with pytest.raises(ValueError, match="two results"):
        summarize_columns([*lines(), *lines(keys=["mnist"])])


def test_tables_show_all_tasks_and_columns():
    results = lines()
    average = 100 * sum(range(38)) / 38 / 100
    text = shown(results, "[my] model")
    assert f"{average:.1f}" in text
    assert "[my] model" in text
    for row in ("SigLIP B/16 1.28B", "ProLIP H/14 FT", "Describable Textures", "63.3", "45.6"):
        assert row in text
    results[0] = SuiteTaskResult(key="cifar10", dataset="CIFAR-10", missing="/data/wds_cifar10_test")
    results[1] = SuiteTaskResult(key="vtab/cifar100", dataset="CIFAR-100", error="broken")
    text = shown(results)
    assert "missing" in text
    assert "failed" in text
    result = SuiteResult.from_tasks("data", results)
    assert Result.from_json(result.to_json()) == result
    assert result.list_failures() == ["vtab/cifar100: broken"]
    assert result.n == 12 * 36


def test_the_mean_of_what_was_run_is_beside_the_papers_over_the_same():
    some = lines(keys=("mnist", tree.GEODE))
    mean = mean_over_finished_tasks(some)
    values = [line.main_metric for line in some]
    assert mean.n == 2
    assert mean.value == pytest.approx(sum(values) / 2)
    for name, value in mean.paper.items():
        expected = [PER_TASK.value(name, key) for key in ("mnist", tree.GEODE)]
        assert value == pytest.approx(sum(expected) / 2)
    assert "mean of 2 finished" in shown(some)
    assert mean_over_finished_tasks([]).value is None
