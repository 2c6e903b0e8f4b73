"""The tasks as they lie on disk: shards with labels, pictures with captions, WinoGAViL's riddles."""

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
    read_dataset_type,
    open_labeled,
    read_lines,
    list_task_shards,
)
from prolip.data.sources.tar import TarShards
from prolip.evaluation.suite.hf_tables import find_table_files, list_parts
from prolip.evaluation.suite.rows import ImageCell, TableImages
from prolip.evaluation.suite.tasks import SuiteTask
from prolip.evaluation.suite.winogavil import WinoGAViL, open_winogavil

OBJECTIVES = {"race", "gender", "age", "toxic"}


@dataclass(frozen=True, kw_only=True)
class CaptionedImages:
    """Pictures with one caption or several."""

    source: Source


@dataclass(frozen=True, kw_only=True)
class FaceImages:
    """Pictures with several labels each. prompts: class names and templates by what they are about (race...)."""

    source: Source
    prompts: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


TaskData = LabeledData | CaptionedImages | FaceImages | WinoGAViL


def open_task(task: SuiteTask, folder: Path, templates: Sequence[str] | None = None) -> TaskData:
    """A task's data. templates: instead of its own, where it has classes."""
    if task.main_metric == "jaccard_10_12":
        return open_winogavil(folder)
    kind = read_dataset_type(folder)
    wanted = {"mean_r1": "retrieval", "faces": "multilabel"}.get(task.main_metric, "classification")
    if kind is not None and kind != wanted and not (task.main_metric == "faces" and kind == "classification"):
        raise ValueError(f"{folder / DATASET_TYPE} says {kind!r}, but {task.key} is a task of {wanted}")
    if task.main_metric == "mean_r1":
        return CaptionedImages(source=_captioned(folder))
    if task.main_metric == "faces":
        return _faces(folder)
    if not (folder / CLASS_NAMES).is_file():
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing: one class name a line, in the order of labels"
        )
    if not (folder / "test").is_dir():
        raise FileNotFoundError(f"{folder / 'test'} is missing: the shards 0.tar, 1.tar, ... lie there")
    return open_labeled(folder, templates=templates)


def _captioned(folder: Path) -> Source:
    """Shards with one caption a line, or a table of Hugging Face's with the columns image and caption."""
    if any((folder / "test").glob("*.tar")) or (folder / "test" / "nshards.txt").is_file():
        return TarShards(list_task_shards(folder), captions=("txt:lines",))
    tables = find_table_files(folder)
    if tables.kind == "saved":
        return ArrowDataset(tables.folder)
    if tables.kind == "parquet":
        named = "test*.parquet" if tables.files[0].name.startswith("test") else "*.parquet"
        return ParquetTable(f"{escape(str(tables.folder))}/{named}")
    parts = list_parts(tables, ("image", "caption"))
    places = [ImageCell(number, row) for number, part in enumerate(parts) for row in range(len(part.load()))]
    return TableImages(folder, parts, places, "image", "caption")


def _faces(folder: Path) -> FaceImages:
    """Lines of class names and templates begin with what they are about, as in "race:Black"."""
    names, templates = (_by_objective(folder / name) for name in (CLASS_NAMES, TEMPLATES))
    for found, name in ((names, CLASS_NAMES), (templates, TEMPLATES)):
        if missing := sorted(OBJECTIVES - found.keys()):
            raise ValueError(
                f"{folder / name} has no line about {join_names(missing)}, as in '{missing[0]}:...'"
            )
    prompts = {about: (names[about], templates[about]) for about in sorted(OBJECTIVES)}
    return FaceImages(source=TarShards(list_task_shards(folder), captions=()), prompts=prompts)


def _by_objective(path: Path) -> dict[str, tuple[str, ...]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    found: dict[str, list[str]] = {}
    for line in read_lines(path):
        about, colon, text = line.partition(":")
        if not colon:
            raise ValueError(
                f"{path}: {line!r} must begin with what it is about and a colon, as in 'race:...'"
            )
        found.setdefault(about, []).append(text)
    return {about: tuple(lines) for about, lines in found.items()}
