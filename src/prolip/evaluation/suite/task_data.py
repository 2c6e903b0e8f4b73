"""Opens the data of a suite task: labeled shards, captioned images, faces, WinoGAViL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from prolip.checks import join_names
from prolip.data.source import Source
from prolip.data.sources.arrow import ArrowDataset, ParquetTable
from prolip.data.sources.labeled import (
    CLASS_NAMES,
    DATASET_TYPE,
    TEMPLATES,
    LabeledData,
    list_task_shards,
    open_labeled,
    read_dataset_type,
    read_lines,
)
from prolip.data.sources.tar import TarShards
from prolip.evaluation.suite.hf_tables import ImageCell, TableImages, find_table_files, list_row_groups
from prolip.evaluation.suite.tasks import SuiteTask
from prolip.evaluation.suite.winogavil import WinoGAViL, open_winogavil

OBJECTIVES = {"race", "gender", "age", "toxic"}
"""What faces are classified by."""


@dataclass(frozen=True, kw_only=True)
class CaptionedImages:
    """Images with one or several captions each."""

    source: Source


@dataclass(frozen=True, kw_only=True)
class FaceImages:
    """Images of faces with several labels each.

    source:  The images.
    prompts: objective (race, gender, age, toxic) -> its class names, and its templates.
    """

    source: Source
    prompts: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


TaskData = LabeledData | CaptionedImages | FaceImages | WinoGAViL


def open_task(task: SuiteTask, folder: Path, templates: Sequence[str] | None = None) -> TaskData:
    """Open the data of a task.

    Args:
        task: The task.
        folder: Its folder, of `SuiteTask.find_folder`.
        templates: Replace the templates of a classification task; None: the task's own.

    Returns:
        The data; its type depends on the main metric of the task.

    Raises:
        ValueError: The folder holds data of another kind of task.
        FileNotFoundError: A file of the layout is missing.
    """
    if task.main_metric == "jaccard_10_12":
        return open_winogavil(folder)
    kind = read_dataset_type(folder)
    expected = {"mean_r1": "retrieval", "faces": "multilabel"}.get(task.main_metric, "classification")
    # the labels of faces are in .npy, so that data that is marked as classification can be used too
    if (
        kind is not None
        and kind != expected
        and not (task.main_metric == "faces" and kind == "classification")
    ):
        raise ValueError(
            f"{folder / DATASET_TYPE} holds {kind!r}, but {task.key} is a {expected} task. Download the data of this "
            "task again"
        )
    if task.main_metric == "mean_r1":
        return CaptionedImages(source=_open_captioned(folder))
    if task.main_metric == "faces":
        return _open_faces(folder)
    if not (folder / CLASS_NAMES).is_file():
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing. It must hold one class name per line, in the order of the labels"
        )
    if not (folder / "test").is_dir():
        raise FileNotFoundError(f"{folder / 'test'} is missing. It must hold the shards 0.tar, 1.tar, ...")
    return open_labeled(folder, templates=templates)


def _open_captioned(folder: Path) -> Source:
    """Open images with captions: shards with one caption per line of .txt, or a Hugging Face table.

    The table has the columns image and caption. Its row groups are read once if it is a cache of `datasets`.
    """
    if any((folder / "test").glob("*.tar")) or (folder / "test" / "nshards.txt").is_file():
        return TarShards(list_task_shards(folder), captions=("txt:lines",))
    tables = find_table_files(folder)
    if tables.kind == "saved":
        return ArrowDataset(tables.folder)
    if tables.kind == "parquet":
        pattern = "test*.parquet" if tables.files[0].name.startswith("test") else "*.parquet"
        return ParquetTable(f"{escape(str(tables.folder))}/{pattern}")
    row_groups = list_row_groups(tables, ("image", "caption"))
    cells = [
        ImageCell(index, row)
        for index, row_group in enumerate(row_groups)
        for row in range(len(row_group.load()))
    ]
    return TableImages(folder, row_groups, cells, "image", "caption")


def _open_faces(folder: Path) -> FaceImages:
    """Open FairFace or UTKFace, whose class names and templates are lines with an objective: "race:Black"."""
    names, templates = (_read_by_objective(folder / name) for name in (CLASS_NAMES, TEMPLATES))
    for texts_by_objective, name in ((names, CLASS_NAMES), (templates, TEMPLATES)):
        if missing := sorted(OBJECTIVES - texts_by_objective.keys()):
            raise ValueError(
                f"{folder / name} has no line for {join_names(missing)}; such a line starts with '{missing[0]}:'"
            )
    prompts = {objective: (names[objective], templates[objective]) for objective in sorted(OBJECTIVES)}
    return FaceImages(source=TarShards(list_task_shards(folder), captions=()), prompts=prompts)


def _read_by_objective(path: Path) -> dict[str, tuple[str, ...]]:
    """Read lines "objective:text" into {objective: its texts, in order}.

    Raises ValueError for a line without a colon,
    FileNotFoundError without the file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. It must hold lines 'objective:text', one or more for {join_names(sorted(OBJECTIVES))}"
        )
    texts_by_objective: dict[str, list[str]] = {}
    for line in read_lines(path):
        objective, colon, text = line.partition(":")
        if not colon:
            raise ValueError(f"{path}: {line!r} must start with an objective and a colon, as in 'race:...'")
        texts_by_objective.setdefault(objective, []).append(text)
    return {objective: tuple(lines) for objective, lines in texts_by_objective.items()}
