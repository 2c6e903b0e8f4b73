"""Pictures with classes: the layout of the 38 tasks, or a folder of pictures for each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from prolip.checks import join_names
from prolip.data.source import Source
from prolip.data.sources.folder import ImageFolder
from prolip.data.sources.tar import TarShards

CLASS_NAMES, TEMPLATES = "classnames.txt", "zeroshot_classification_templates.txt"
SHARD_COUNT, DATASET_TYPE = "nshards.txt", "dataset_type.txt"
CLASS_PLACEHOLDER = "{c}"
"""Where the class name goes in a template."""
DEFAULT_TEMPLATES = ("a photo of a {c}.",)
"""For data that brings none along."""


class Told(Protocol):
    """What is known of a sample beside its picture."""

    @property
    def key(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class LabeledData:
    """source: the pictures. class_names: in the order of their labels. templates: with {c} for the class name.
    folders: the class's folder, by label, where keys begin with it; None where the label is in the `cls` of a sample.
    """

    source: Source
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    folders: tuple[str, ...] | None = None

    def labels(self, facts: Sequence[Told]) -> Tensor:
        """int64 (N,), from 0."""
        found = [self._label(fact) for fact in facts]
        for label, fact in zip(found, facts, strict=True):
            if not 0 <= label < len(self.class_names):
                raise ValueError(
                    f"{self.source.name}: {fact.key} has label {label}, but there are {len(self.class_names)} class "
                    "names"
                )
        return torch.tensor(found, dtype=torch.int64)

    @cached_property
    def _number_of_folder(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.folders or ())}

    def _label(self, fact: Told) -> int:
        if self.folders is not None:
            return self._number_of_folder[Path(fact.key).parts[0]]
        label = fact.extra.get("cls")
        if not isinstance(label, int):
            raise ValueError(f"{self.source.name}: {fact.key} has no label: a .cls file with a whole number")
        return label


def open_labeled(
    path: str | Path, *, class_names: Sequence[str] | None = None, templates: Sequence[str] | None = None
) -> LabeledData:
    """A folder of the 38 tasks (classnames.txt, test/0.tar, ...), or a folder that has one folder of pictures a class
    (a folder without pictures is none).

    class_names: instead of the data's own, in the order of its labels: lines of classnames.txt, or folders by name
    (whose own names, with _ as a space, are the class names otherwise).
    templates: instead of the data's own; without any, "a photo of a {c}.".
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    opened = _task(folder) if is_task_folder(folder) else _folders(folder)
    if class_names is not None:
        if opened.class_names and len(class_names) != len(opened.class_names):
            raise ValueError(
                f"{folder} has {len(opened.class_names)} classes; {len(class_names)} class names are given"
            )
        opened = replace(opened, class_names=tuple(class_names))
    if not opened.class_names:
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing: one class name a line, in the order of labels"
        )
    chosen = opened.templates if templates is None else templates
    return replace(opened, templates=check_templates(chosen, str(folder)))


def check_templates(templates: Sequence[str], where: str = "templates") -> tuple[str, ...]:
    """Templates that hold {c}; {} is taken for {c}. where: the file or argument, for the error."""
    if isinstance(templates, str) or not templates:
        raise ValueError(f"{where}: a list of at least one template is needed")
    unified = tuple(template.replace("{}", CLASS_PLACEHOLDER) for template in templates)
    for number, template in enumerate(unified, start=1):
        if CLASS_PLACEHOLDER not in template:
            raise ValueError(
                f"{where}: template {number}, {template!r}, has no {CLASS_PLACEHOLDER}, where the class name goes"
            )
    return unified


def is_task_folder(folder: Path) -> bool:
    """Whether a folder is laid out as one of the 38 tasks."""
    return any((folder / "test").glob("*.tar"))


def read_dataset_type(folder: Path) -> str | None:
    """What a task says of its kind: retrieval (captions, one a line), multilabel; None: nothing, so classification."""
    path = folder / DATASET_TYPE
    return read_lines(path)[0].lower() if path.is_file() else None


def list_task_shards(folder: Path) -> list[str]:
    """test/0.tar to test/{N-1}.tar of a task, where N stands in nshards.txt; a missing one is an error."""
    counted = folder / "test" / SHARD_COUNT
    try:
        count = int(counted.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return sorted(map(str, (folder / "test").glob("*.tar")), key=lambda name: (len(name), name))
    except ValueError:
        raise ValueError(f"{counted} must hold one whole number, how many shards there are") from None
    if count < 1:
        raise ValueError(f"{counted} says that there are {count} shards; one at least is needed")
    paths = [folder / "test" / f"{number}.tar" for number in range(count)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FileNotFoundError(
            f"{folder / 'test'} should have {count} shards; missing: {join_names(missing)}"
        )
    return list(map(str, paths))


def read_lines(path: Path) -> tuple[str, ...]:
    """The lines of a text file, stripped; blank lines are an error, since line numbers are labels."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    lines = tuple(line.strip() for line in text.rstrip().splitlines())
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ValueError(f"{path}: line {number} is blank; each line is one entry, and its number counts")
    if not lines:
        raise ValueError(f"{path} is empty")
    return lines


def _task(folder: Path) -> LabeledData:
    names, templates = folder / CLASS_NAMES, folder / TEMPLATES
    return LabeledData(
        source=TarShards(list_task_shards(folder), captions=()),
        class_names=read_lines(names) if names.is_file() else (),
        templates=read_lines(templates) if templates.is_file() else DEFAULT_TEMPLATES,
    )


def _folders(folder: Path) -> LabeledData:
    source = ImageFolder(folder, captions=False)
    parts = {key: Path(key).parts for key in source.sample_keys()}
    if loose := [key for key, path in parts.items() if len(path) < 2]:
        raise ValueError(
            f"{folder}: {join_names(loose, 2)} lie in no class's folder. Classification data is a folder with one folder of "
            "pictures for each class, or a task in the layout of the 38 (classnames.txt, test/0.tar)"
        )
    names = sorted({path[0] for path in parts.values()})
    own = folder / CLASS_NAMES
    class_names = read_lines(own) if own.is_file() else tuple(name.replace("_", " ") for name in names)
    if len(class_names) != len(names):
        raise ValueError(f"{own} has {len(class_names)} names, but {len(names)} folders have pictures")
    if len(set(class_names)) < len(names):
        raise ValueError(f"{folder}: two folders stand for one class name: {join_names(_twice(class_names))}")
    return LabeledData(
        source=source,
        class_names=class_names,
        templates=read_lines(folder / TEMPLATES) if (folder / TEMPLATES).is_file() else DEFAULT_TEMPLATES,
        folders=tuple(names),
    )


def _twice(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
