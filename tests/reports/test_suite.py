import pytest
from PIL import Image

from prolip.console import format_percent
from prolip.evaluation.paper_numbers import PER_TASK
from prolip.evaluation.suite.results import SuiteTaskResult
from prolip.evaluation.suite.table import SuiteResult
from prolip.evaluation.suite.tasks import DATACOMP_TASKS, TASKS, get_task
from prolip.reports import suite
from tests.evaluation.suite.made_results import make_task_result
from tests.reports.svg import svg_texts


def lines(tasks=DATACOMP_TASKS, value=lambda number: 0.101 + number / 50):
    return [make_task_result(task.key, value(number)) for number, task in enumerate(tasks)]


def summarize(results):
    return SuiteResult.from_tasks("data", results)


def test_suite_figure_shows_tasks_and_columns(tmp_path):
    results = lines()
    paths = suite.save_suite_figure(summarize(results), tmp_path / "suite")
    assert [path.name for path in paths] == ["suite.png", "suite.svg"]
    with Image.open(paths[0]) as image:
        assert len(image.convert("RGB").getcolors(2**20)) > 50, "not an empty page"
    text = svg_texts(paths[1])
    for task, line in zip(DATACOMP_TASKS, results, strict=True):
        assert task.name in text
        assert format_percent(line.main_metric) in text
    for word in ("IN shifts", "Average", "VTAB", "paper, ProLIP B/16 12.8B", "paper, CLIP B/16 1.28B"):
        assert word in text
    assert format_percent(summarize(results).columns["average"].value) in text


def test_suite_figure_groups_tasks():
    rows = suite._make_task_rows(lines())
    heading, found = None, {}
    for row in rows:
        if row.value is None:
            heading = row.name
        else:
            found.setdefault(heading, []).append(row.name)
    assert {name: len(names) for name, names in found.items()} == {
        "ImageNet": 1, "ImageNet's shifts": 6, "VTAB": 13, "Retrieval": 3, "Others": 15,
    }  # fmt: skip
    assert found["ImageNet"] == ["ImageNet 1k"]
    mnist = next(row for row in rows if row.name == "MNIST")
    assert mnist.paper["CLIP B/16 1.28B"] == PER_TASK.value("CLIP B/16 1.28B", "mnist")


def test_suite_figure_skips_missing_results(tmp_path):
    results = [
        *lines([get_task("mnist"), get_task("imagenet-a")], lambda _: 0.5),
        SuiteTaskResult(key="cifar10", dataset="CIFAR-10", missing="/data/wds_cifar10_test"),
        SuiteTaskResult(key="stl10", dataset="STL-10", error="broken"),
    ]
    text = svg_texts(suite.save_suite_figure(summarize(results), tmp_path / "suite")[1])
    assert {"MNIST", "ImageNet-A", "Others", "ImageNet's shifts", "task by task"} <= set(text)
    assert not {"CIFAR-10", "STL-10", "VTAB", "Retrieval", "Average", "columns of the paper's table"} & set(
        text
    )


@pytest.mark.parametrize(
    "results",
    [
        [],
        [SuiteTaskResult(key="cifar10", dataset="CIFAR-10", missing="x")],
        lines(TASKS[-2:], lambda _: None),
    ],
)
def test_suite_figure_without_results(tmp_path, results):
    assert suite.save_suite_figure(summarize(results), tmp_path / "suite") == []
    assert not list(tmp_path.iterdir())
