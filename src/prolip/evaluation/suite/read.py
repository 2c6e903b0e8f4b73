"""The tasks as they lie on disk: shards with labels, pictures with captions, WinoGAViL's riddles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from prolip.checks import some
from prolip.data.source import Source
from prolip.data.sources.arrow import ArrowFolder, Parquet
from prolip.data.sources.labeled import (
    CLASS_NAMES,
    DATASET_TYPE,
    TEMPLATES,
    Labelled,
    dataset_type,
    open_labelled,
    read_lines,
    task_shards,
)
from prolip.data.sources.tar import Shards
from prolip.evaluation.suite.hf_tables import find_tables, parts_of
from prolip.evaluation.suite.rows import Place, Rows
from prolip.evaluation.suite.tasks import Task
from prolip.evaluation.suite.winogavil import Riddles, open_riddles

OBJECTIVES = {"race", "gender", "age", "toxic"}


@dataclass(frozen=True, kw_only=True)
class Captioned:
    """Pictures with one caption or several."""

    source: Source


@dataclass(frozen=True, kw_only=True)
class Faces:
    """Pictures with several labels each. prompts: class names and templates by what they are about (race...)."""

    source: Source
    prompts: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


Opened = Labelled | Captioned | Faces | Riddles


def open_task(task: Task, folder: Path, templates: Sequence[str] | None = None) -> Opened:
    """A task's data. templates: instead of its own, where it has classes."""
    if task.metric == "jaccard_10_12":
        return open_riddles(folder)
    kind = dataset_type(folder)
    wanted = {"mean_r1": "retrieval", "faces": "multilabel"}.get(task.metric, "classification")
    if kind is not None and kind != wanted and not (task.metric == "faces" and kind == "classification"):
        raise ValueError(f"{folder / DATASET_TYPE} says {kind!r}, but {task.key} is a task of {wanted}")
    if task.metric == "mean_r1":
        return Captioned(source=_captioned(folder))
    if task.metric == "faces":
        return _faces(folder)
    if not (folder / CLASS_NAMES).is_file():
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing: one class name a line, in the order of labels"
        )
    if not (folder / "test").is_dir():
        raise FileNotFoundError(f"{folder / 'test'} is missing: the shards 0.tar, 1.tar, ... lie there")
    return open_labelled(folder, templates=templates)


def _captioned(folder: Path) -> Source:
    """Shards with one caption a line, or a table of Hugging Face's with the columns image and caption."""
    if any((folder / "test").glob("*.tar")) or (folder / "test" / "nshards.txt").is_file():
        return Shards(task_shards(folder), captions=("txt:lines",))
    tables = find_tables(folder)
    if tables.kind == "saved":
        return ArrowFolder(tables.folder)
    if tables.kind == "parquet":
        named = "test*.parquet" if tables.files[0].name.startswith("test") else "*.parquet"
        return Parquet(f"{escape(str(tables.folder))}/{named}")
    parts = parts_of(tables, ("image", "caption"))
    places = [Place(number, row) for number, part in enumerate(parts) for row in range(len(part.load()))]
    return Rows(folder, parts, places, "image", "caption")


def _faces(folder: Path) -> Faces:
    """Lines of class names and templates begin with what they are about, as in "race:Black"."""
    names, templates = (_by_objective(folder / name) for name in (CLASS_NAMES, TEMPLATES))
    for found, name in ((names, CLASS_NAMES), (templates, TEMPLATES)):
        if missing := sorted(OBJECTIVES - found.keys()):
            raise ValueError(f"{folder / name} has no line about {some(missing)}, as in '{missing[0]}:...'")
    prompts = {about: (names[about], templates[about]) for about in sorted(OBJECTIVES)}
    return Faces(source=Shards(task_shards(folder), captions=()), prompts=prompts)


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
