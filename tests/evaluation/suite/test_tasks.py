"""The table of tasks against the lists of the specification."""

from collections import Counter

import pytest

from prolip.evaluation.suite.tasks import DATACOMP_TASKS, GROUPS, TASKS, get_group_tasks, get_task, get_tasks
from tests.evaluation.suite import tree


def keys(tasks):
    return {task.key for task in tasks}


def test_there_are_38_and_two_beside_them():
    assert keys(DATACOMP_TASKS) == set(tree.IDS)
    assert len(DATACOMP_TASKS) == len(tree.IDS) == 38
    assert keys(TASKS) - keys(DATACOMP_TASKS) == {"fairness/fairface", "fairness/utkface"}
    assert len({task.folder for task in TASKS}) == len({task.name for task in TASKS}) == 40


def test_metrics():
    counts = Counter(task.main_metric for task in DATACOMP_TASKS)
    assert counts == {
        "acc1": 27,
        "mean_per_class_recall": 4,
        "macro_f1": 1,
        "worst_group_acc1": 2,
        "worst_group_acc5": 1,
        "mean_r1": 2,
        "jaccard_10_12": 1,
    }
    assert {task.key for task in DATACOMP_TASKS if task.main_metric == "acc1"} == set(tree.ACC1)
    assert {task.key for task in DATACOMP_TASKS if task.main_metric == "mean_per_class_recall"} == set(
        tree.RECALL
    )
    assert {task.key: task.group_field for task in TASKS if task.group_field} == {
        tree.FMOW: "region",
        tree.DOLLAR: "income_ds",
        tree.GEODE: "region",
    }


def test_groups():
    assert keys(get_group_tasks("imagenet")) == {"imagenet1k"}
    assert keys(get_group_tasks("shifts")) == set(tree.SHIFTS)
    assert keys(get_group_tasks("vtab")) == set(tree.VTAB)
    assert keys(get_group_tasks("retrieval")) == {tree.FLICKR, tree.COCO, tree.WINO}
    assert [len(get_group_tasks(group)) for group in GROUPS] == [1, 6, 13, 3]


def test_public_task_sizes():
    sizes = {task.key: (task.size, task.classes) for task in TASKS}
    assert sizes["imagenet1k"] == (50_000, 1000)
    assert sizes["sun397"] == (108_754, 397)
    assert sizes["vtab/kitti_closest_vehicle_distance"] == (711, 4)
    assert sizes[tree.WINO] == (3563, None)
    classes = sum(task.classes for task in DATACOMP_TASKS if task.classes)
    images = sum(task.size for task in DATACOMP_TASKS)
    assert (classes, images) == (5630, 697_369)


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("vtab/dtd", "wds_vtab-dtd_test"),
        ("fairness/dollar_street", "wds_dollar_street_test"),
        ("wilds/fmow", "wds_wilds-fmow_test"),
        ("imagenet-a", "wds_imagenet-a_test"),
        ("misc/winogavil", "wds_misc-winogavil_test"),
    ],
)
def test_folders(key, folder):
    assert get_task(key).folder == folder


def test_find_folder_accepts_all_layouts(tmp_path):
    wino, digits = get_task("misc/winogavil"), get_task("mnist")
    assert wino.find_folder(tmp_path) is None
    for name in ("hf_cache/nlphuji___winogavil", "winogavil", "wds_misc-winogavil_test"):
        (tmp_path / name).mkdir(parents=True)
        assert wino.find_folder(tmp_path) == tmp_path / name
    (tmp_path / "mnist").mkdir()
    assert digits.find_folder(tmp_path) is None


def test_names_of_groups_stand_for_their_tasks():
    assert get_tasks(None) == DATACOMP_TASKS
    assert keys(get_tasks(["shifts", "mnist", "imagenet-a"])) == {*tree.SHIFTS, "mnist"}
    assert len(get_tasks(["shifts", "mnist", "imagenet-a"])) == 7
    with pytest.raises(ValueError, match=r"imagenet-b.*imagenet-a"):
        get_tasks(["imagenet-b"])
    with pytest.raises(ValueError, match="tasks is empty"):
        get_tasks([])
