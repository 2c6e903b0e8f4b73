"""DataComp's 38 tasks, and two that stand outside of them: what each is called, where it lies, what it is judged by."""

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
"""What a task is judged by. Those of groups: the group in which the model is worst. mean_r1: the mean of R@1 both ways.
jaccard_10_12: over instances with ten candidates or more. faces: several labels a picture, none of them the main."""

Group = Literal["imagenet", "shifts", "vtab", "retrieval"]
GROUPS: tuple[Group, ...] = get_args(Group)
"""The columns of the paper's main table, but for the average of all 38."""

INSIDE = 38


@dataclass(frozen=True, kw_only=True)
class SuiteTask:
    """key: its id. name: as the paper's table has it. size, classes: of the public data (no classes: None).

    group: the column it counts in, if any. fields: the numbers in a sample's .npy, in order. grouped_by: that one of
    them by which samples are grouped. inside: whether it is one of the 38.
    """

    key: str
    name: str
    main_metric: Metric
    size: int
    classes: int | None = None
    group: Group | None = None
    fields: tuple[str, ...] = ()
    grouped_by: str | None = None
    in_datacomp: bool = True

    @property
    def folder(self) -> str:
        """wds_<id>_test, with / as - and without a leading fairness/."""
        return f"wds_{self.key.removeprefix('fairness/').replace('/', '-')}_test"

    def find_folder(self, data: Path) -> Path | None:
        """Where the task lies below `data`; None if it doesn't. What the hub has as a data set may also have its name
        there, or be in the cache into which DataComp's downloader put it.

        >>> get_task("vtab/dtd").folder, get_task("fairness/geode").folder
        ('wds_vtab-dtd_test', 'wds_geode_test')
        """
        names = [self.folder]
        if self.main_metric in ("mean_r1", "jaccard_10_12"):
            name = self.key.split("/")[-1]
            names += [name, f"hf_cache/nlphuji___{name}"]
        return next((data / name for name in names if (data / name).is_dir()), None)


def _accuracy(key: str, name: str, size: int, classes: int, group: Group | None = None) -> SuiteTask:
    return SuiteTask(key=key, name=name, main_metric="acc1", size=size, classes=classes, group=group)


def _recall(key: str, name: str, size: int, classes: int, group: Group | None = None) -> SuiteTask:
    return SuiteTask(key=key, name=name, main_metric="mean_per_class_recall", size=size, classes=classes, group=group)


FACES = ("age", "gender", "race", "race_binary")

TASKS: tuple[SuiteTask, ...] = (
    _recall("vtab/caltech101", "Caltech-101", 6085, 102, "vtab"),
    _accuracy("cifar10", "CIFAR-10", 10_000, 10),
    _accuracy("vtab/cifar100", "CIFAR-100", 10_000, 100, "vtab"),
    _accuracy("vtab/clevr_count_all", "CLEVR Counts", 15_000, 8, "vtab"),
    _accuracy("vtab/clevr_closest_object_distance", "CLEVR Distance", 15_000, 6, "vtab"),
    _accuracy("country211", "Country211", 21_100, 211),
    _accuracy("vtab/dtd", "Describable Textures", 1880, 47, "vtab"),
    _accuracy("vtab/eurosat", "EuroSAT", 5400, 10, "vtab"),
    _recall("fgvc_aircraft", "FGVC Aircraft", 3333, 100),
    _accuracy("food101", "Food-101", 25_250, 101),
    _accuracy("gtsrb", "GTSRB", 12_630, 43),
    _accuracy("imagenet1k", "ImageNet 1k", 50_000, 1000, "imagenet"),
    _accuracy("imagenet_sketch", "ImageNet Sketch", 50_889, 1000, "shifts"),
    _accuracy("imagenetv2", "ImageNet v2", 10_000, 1000, "shifts"),
    _accuracy("imagenet-a", "ImageNet-A", 7500, 200, "shifts"),
    _accuracy("imagenet-o", "ImageNet-O", 2000, 200, "shifts"),
    _accuracy("imagenet-r", "ImageNet-R", 30_000, 200, "shifts"),
    _accuracy("vtab/kitti_closest_vehicle_distance", "KITTI Vehicle Distance", 711, 4, "vtab"),
    _accuracy("mnist", "MNIST", 10_000, 10),
    _accuracy("objectnet", "ObjectNet", 18_574, 113, "shifts"),
    _recall("vtab/flowers", "Oxford Flowers-102", 6149, 102, "vtab"),
    _recall("vtab/pets", "Oxford-IIIT Pet", 3669, 37, "vtab"),
    _accuracy("voc2007", "Pascal VOC 2007", 14_976, 20),
    _accuracy("vtab/pcam", "PatchCamelyon", 32_768, 2, "vtab"),
    _accuracy("renderedsst2", "Rendered SST2", 1821, 2),
    _accuracy("vtab/resisc45", "RESISC45", 6300, 45, "vtab"),
    _accuracy("cars", "Stanford Cars", 8041, 196),
    _accuracy("stl10", "STL-10", 8000, 10),
    _accuracy("sun397", "SUN397", 108_754, 397, "vtab"),
    _accuracy("vtab/svhn", "SVHN", 26_032, 10, "vtab"),
    SuiteTask(
        key="wilds/iwildcam", name="iWildCam", main_metric="macro_f1", size=42_791, classes=182,
        fields=("location", "sequence", "year", "month", "day", "hour", "minute", "second", "y"),
    ),
    SuiteTask(
        key="wilds/camelyon17", name="Camelyon17", main_metric="acc1", size=85_054, classes=2,
        fields=("hospital", "slide", "y"),
    ),
    SuiteTask(
        key="wilds/fmow", name="FMoW", main_metric="worst_group_acc1", size=22_108, classes=62,
        fields=("region", "year", "y"), grouped_by="region",
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
        fields=("income_ds", "income_meta", "region"), grouped_by="income_ds",
    ),
    SuiteTask(
        key="fairness/geode", name="GeoDE", main_metric="worst_group_acc1", size=12_488, classes=40,
        fields=("region", "country"), grouped_by="region",
    ),
    SuiteTask(
        key="fairness/fairface", name="FairFace", main_metric="faces", size=10_954, fields=FACES, in_datacomp=False
    ),
    SuiteTask(key="fairness/utkface", name="UTKFace", main_metric="faces", size=23_703, fields=FACES, in_datacomp=False),
)  # fmt: skip
"""In the order of the paper's table; the two outside the 38 come last.

FMoW: the public evaluator means to leave out the region "Other", but looks for its name among numbers and so doesn't.
All regions count here as they do there.
"""

DATACOMP_TASKS = tuple(task for task in TASKS if task.in_datacomp)


def get_group_tasks(group: Group) -> tuple[SuiteTask, ...]:
    """The tasks of a column of the paper's main table."""
    return tuple(task for task in DATACOMP_TASKS if task.group == group)


def get_task(key: str) -> SuiteTask:
    """The task of an id."""
    by_key = {task.key: task for task in TASKS}
    if key not in by_key:
        near = get_close_matches(key, by_key, n=3, cutoff=0.4)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise ValueError(f"there is no task {key!r} among the {INSIDE} and the two beside them{hint}")
    return by_key[key]


def get_tasks(keys: Sequence[str] | None) -> tuple[SuiteTask, ...]:
    """The tasks of some ids, or of the name of a group, each once; None: the 38."""
    if keys is None:
        return DATACOMP_TASKS
    found: dict[str, SuiteTask] = {}
    for key in keys:
        group = next((name for name in GROUPS if name == key), None)
        for task in [get_task(key)] if group is None else get_group_tasks(group):
            found[task.key] = task
    if not found:
        raise ValueError("no task was named")
    return tuple(found.values())
