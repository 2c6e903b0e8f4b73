"""DataComp's 38 evaluation tasks and two more: their names, folders and main metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args

Metric = Literal[
    "acc1",
    "mean_per_class_recall",
    "macro_f1",
    "worst_group_acc1",
    "worst_group_acc5",
    "mean_r1",
    "jaccard_10_12",
    "faces",
]
"""The main metric of a task. worst_group_*: of the group with the lowest value. mean_r1: the mean of R@1 in both
directions. jaccard_10_12: over instances with ten candidates or more. faces: several labels, no main metric."""

Group = Literal["imagenet", "shifts", "vtab", "retrieval"]
GROUPS: tuple[Group, ...] = get_args(Group)
"""The columns of the paper's main table, without the average of all 38."""

NUM_DATACOMP_TASKS = 38


@dataclass(frozen=True, kw_only=True)
class SuiteTask:
    """One evaluation task.

    key:             DataComp's id, such as vtab/dtd.
    name:            Name in the paper's table.
    main_metric:     The metric that the tables show.
    size, classes:   Numbers of samples and of classes of the public data; classes is None for tasks without.
    group:           The column of the main table that it counts for, if any.
    metadata_fields: Names of the numbers in a sample's .npy, in order.
    group_field:     The metadata field that groups samples; None: there are no groups.
    in_datacomp:     Whether it is one of the 38.
    """

    key: str
    name: str
    main_metric: Metric
    size: int
    classes: int | None = None
    group: Group | None = None
    metadata_fields: tuple[str, ...] = ()
    group_field: str | None = None
    in_datacomp: bool = True

    @property
    def folder(self) -> str:
        """The name of its folder: wds_<id>_test, with / as - and without a leading fairness/."""
        return f"wds_{self.key.removeprefix('fairness/').replace('/', '-')}_test"

    def find_folder(self, data: Path) -> Path | None:
        """Find the folder of the task.

        Besides `folder`, a data set of the Hugging Face hub may lie under its own name, or in the cache that DataComp's
        downloader fills.

        Args:
            data: The folder that holds the tasks.

        Returns:
            The first of these folders that exists; None if none does.

        >>> get_task("vtab/dtd").folder, get_task("fairness/geode").folder
        ('wds_vtab-dtd_test', 'wds_geode_test')
        """
        names = [self.folder]
        if self.main_metric in ("mean_r1", "jaccard_10_12"):  # data sets of nlphuji on the hub
            name = self.key.split("/")[-1]
            names += [name, f"hf_cache/nlphuji___{name}"]
        return next((data / name for name in names if (data / name).is_dir()), None)


def _accuracy_task(key: str, name: str, size: int, classes: int, group: Group | None = None) -> SuiteTask:
    """Make a task whose main metric is top-1 accuracy. size, classes: numbers of images and of classes."""
    return SuiteTask(key=key, name=name, main_metric="acc1", size=size, classes=classes, group=group)


def _recall_task(key: str, name: str, size: int, classes: int, group: Group | None = None) -> SuiteTask:
    """Make a task whose main metric is the mean per-class recall. size, classes: numbers of images and of classes."""
    return SuiteTask(
        key=key, name=name, main_metric="mean_per_class_recall", size=size, classes=classes, group=group
    )


FACE_FIELDS = ("age", "gender", "race", "race_binary")
"""Metadata fields of FairFace and UTKFace."""

TASKS: tuple[SuiteTask, ...] = (
    _recall_task("vtab/caltech101", "Caltech-101", 6085, 102, "vtab"),
    _accuracy_task("cifar10", "CIFAR-10", 10_000, 10),
    _accuracy_task("vtab/cifar100", "CIFAR-100", 10_000, 100, "vtab"),
    _accuracy_task("vtab/clevr_count_all", "CLEVR Counts", 15_000, 8, "vtab"),
    _accuracy_task("vtab/clevr_closest_object_distance", "CLEVR Distance", 15_000, 6, "vtab"),
    _accuracy_task("country211", "Country211", 21_100, 211),
    _accuracy_task("vtab/dtd", "Describable Textures", 1880, 47, "vtab"),
    _accuracy_task("vtab/eurosat", "EuroSAT", 5400, 10, "vtab"),
    _recall_task("fgvc_aircraft", "FGVC Aircraft", 3333, 100),
    _accuracy_task("food101", "Food-101", 25_250, 101),
    _accuracy_task("gtsrb", "GTSRB", 12_630, 43),
    _accuracy_task("imagenet1k", "ImageNet 1k", 50_000, 1000, "imagenet"),
    _accuracy_task("imagenet_sketch", "ImageNet Sketch", 50_889, 1000, "shifts"),
    _accuracy_task("imagenetv2", "ImageNet v2", 10_000, 1000, "shifts"),
    _accuracy_task("imagenet-a", "ImageNet-A", 7500, 200, "shifts"),
    _accuracy_task("imagenet-o", "ImageNet-O", 2000, 200, "shifts"),
    _accuracy_task("imagenet-r", "ImageNet-R", 30_000, 200, "shifts"),
    _accuracy_task("vtab/kitti_closest_vehicle_distance", "KITTI Vehicle Distance", 711, 4, "vtab"),
    _accuracy_task("mnist", "MNIST", 10_000, 10),
    _accuracy_task("objectnet", "ObjectNet", 18_574, 113, "shifts"),
    _recall_task("vtab/flowers", "Oxford Flowers-102", 6149, 102, "vtab"),
    _recall_task("vtab/pets", "Oxford-IIIT Pet", 3669, 37, "vtab"),
    _accuracy_task("voc2007", "Pascal VOC 2007", 14_976, 20),
    _accuracy_task("vtab/pcam", "PatchCamelyon", 32_768, 2, "vtab"),
    _accuracy_task("renderedsst2", "Rendered SST2", 1821, 2),
    _accuracy_task("vtab/resisc45", "RESISC45", 6300, 45, "vtab"),
    _accuracy_task("cars", "Stanford Cars", 8041, 196),
    _accuracy_task("stl10", "STL-10", 8000, 10),
    _accuracy_task("sun397", "SUN397", 108_754, 397, "vtab"),
    _accuracy_task("vtab/svhn", "SVHN", 26_032, 10, "vtab"),
    SuiteTask(
        key="wilds/iwildcam", name="iWildCam", main_metric="macro_f1", size=42_791, classes=182,
        metadata_fields=("location", "sequence", "year", "month", "day", "hour", "minute", "second", "y"),
    ),
    SuiteTask(
        key="wilds/camelyon17", name="Camelyon17", main_metric="acc1", size=85_054, classes=2,
        metadata_fields=("hospital", "slide", "y"),
    ),
    SuiteTask(
        key="wilds/fmow", name="FMoW", main_metric="worst_group_acc1", size=22_108, classes=62,
        metadata_fields=("region", "year", "y"), group_field="region",
    ),
    SuiteTask(
        key="retrieval/flickr_1k_test_image_text_retrieval", name="Flickr", main_metric="mean_r1", size=1000,
        group="retrieval",
    ),
    SuiteTask(
        key="retrieval/mscoco_2014_5k_test_image_text_retrieval", name="MSCOCO", main_metric="mean_r1", size=5000,
        group="retrieval",
    ),
    SuiteTask(key="misc/winogavil", name="WinoGAViL", main_metric="jaccard_10_12", size=3563, group="retrieval"),
    SuiteTask(
        key="fairness/dollar_street", name="Dollar Street", main_metric="worst_group_acc5", size=3503, classes=58,
        metadata_fields=("income_ds", "income_meta", "region"), group_field="income_ds",
    ),
    SuiteTask(
        key="fairness/geode", name="GeoDE", main_metric="worst_group_acc1", size=12_488, classes=40,
        metadata_fields=("region", "country"), group_field="region",
    ),
    SuiteTask(
        key="fairness/fairface", name="FairFace", main_metric="faces", size=10_954,
        metadata_fields=FACE_FIELDS, in_datacomp=False,
    ),
    SuiteTask(
        key="fairness/utkface", name="UTKFace", main_metric="faces", size=23_703,
        metadata_fields=FACE_FIELDS, in_datacomp=False,
    ),
)  # fmt: skip
"""In the order of the paper's table; the two that are not among the 38 come last.

FMoW: the public evaluator means to exclude the region "Other", but compares its name with numbers and so doesn't. All
regions count here too.
"""

DATACOMP_TASKS = tuple(task for task in TASKS if task.in_datacomp)


def get_group_tasks(group: Group) -> tuple[SuiteTask, ...]:
    """Get the tasks of a column of the paper's main table.

    Args:
        group: Name of the column.

    Returns:
        Its tasks, in the order of DATACOMP_TASKS.
    """
    return tuple(task for task in DATACOMP_TASKS if task.group == group)


def get_task(key: str) -> SuiteTask:
    """Get a task by its key.

    Args:
        key: DataComp's, such as vtab/dtd.

    Returns:
        The task.

    Raises:
        ValueError: No task has this key; the message names the nearest ones.
    """
    by_key = {task.key: task for task in TASKS}
    if key not in by_key:
        near = get_close_matches(key, by_key, n=3, cutoff=0.4)
        hint = f"Did you mean {', '.join(near)}?" if near else f"The tasks are {', '.join(by_key)}"
        raise ValueError(f"{key!r} is not a task. {hint}")
    return by_key[key]


def get_tasks(keys: Sequence[str] | None) -> tuple[SuiteTask, ...]:
    """Get tasks by key or by group.

    Args:
        keys: Keys of tasks, or names of groups; None: the 38.

    Returns:
        The tasks, each once, in the order given.

    Raises:
        ValueError: A key is unknown, or there is none.
    """
    if keys is None:
        return DATACOMP_TASKS
    task_of_key: dict[str, SuiteTask] = {}
    for key in keys:
        group = next((name for name in GROUPS if name == key), None)
        for task in [get_task(key)] if group is None else get_group_tasks(group):
            task_of_key[task.key] = task
    if not task_of_key:
        raise ValueError(f"tasks is empty: name at least one task or group ({', '.join(GROUPS)})")
    return tuple(task_of_key.values())
