"""Pictures with classes: the layout of the 38 tasks, or a folder of pictures for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from prolip.checks import some
from prolip.data.folders import Folder
from prolip.data.shards import Shards
from prolip.data.source import Source

CLASS_NAMES, TEMPLATES, SHARD_COUNT = "classnames.txt", "zeroshot_classification_templates.txt", "nshards.txt"
PLAIN_TEMPLATES = ("a photo of a {c}.",)
"""For data that brings none along."""


class Told(Protocol):
    """What is known of a sample beside its picture."""

    @property
    def key(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Labelled:
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

    def _label(self, fact: Told) -> int:
        if self.folders is not None:
            return self.folders.index(Path(fact.key).parts[0])
        label = fact.extra.get("cls")
        if not isinstance(label, int):
            raise ValueError(f"{self.source.name}: {fact.key} has no label: a .cls file with a whole number")
        return label


def open_labelled(
    path: str | Path, *, class_names: Sequence[str] | None = None, templates: Sequence[str] | None = None
) -> Labelled:
    """A folder of the 38 tasks (classnames.txt, test/0.tar, ...), or a folder that has one folder of pictures a class.

    class_names: instead of the data's own, in the order of its labels: lines of classnames.txt, or folders by name
    (whose own names, with _ as a space, are the class names otherwise).
    templates: instead of the data's own; without any, "a photo of a {c}.".
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    opened = _task(folder) if is_task(folder) else _folders(folder)
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
    if templates is not None:
        opened = replace(opened, templates=tuple(templates))
    for template in opened.templates:
        if template.count("{c}") < 1:
            raise ValueError(f"the template {template!r} has no {{c}}, where the class name goes")
    return opened


def is_task(folder: Path) -> bool:
    """Whether a folder is laid out as one of the 38 tasks."""
    return any((folder / "test").glob("*.tar"))


def is_retrieval(folder: Path) -> bool:
    """Whether a task's samples have captions, one a line, and no labels."""
    kind = folder / "dataset_type.txt"
    return kind.is_file() and kind.read_text(encoding="utf-8").strip() == "retrieval"


def test_shards(folder: Path) -> list[str]:
    """test/0.tar to test/{N-1}.tar of a task, where N stands in nshards.txt; a missing one is an error."""
    counted = folder / "test" / SHARD_COUNT
    try:
        count = int(counted.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return sorted(map(str, (folder / "test").glob("*.tar")), key=lambda name: (len(name), name))
    except ValueError:
        raise ValueError(f"{counted} must hold one whole number, how many shards there are") from None
    paths = [folder / "test" / f"{number}.tar" for number in range(count)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FileNotFoundError(f"{folder / 'test'} should have {count} shards; missing: {some(missing)}")
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


def _task(folder: Path) -> Labelled:
    names, templates = folder / CLASS_NAMES, folder / TEMPLATES
    return Labelled(
        source=Shards(test_shards(folder), captions=()),
        class_names=read_lines(names) if names.is_file() else (),
        templates=read_lines(templates) if templates.is_file() else PLAIN_TEMPLATES,
    )


def _folders(folder: Path) -> Labelled:
    source = Folder(folder, captions=False)
    names = sorted(child.name for child in folder.iterdir() if child.is_dir() and child.name[0] != ".")
    if loose := [key for key in source.sample_keys() if len(Path(key).parts) < 2]:
        raise ValueError(
            f"{folder}: {some(loose, 2)} lie in no class's folder. Classification data is a folder with one folder of "
            "pictures for each class, or a task in the layout of the 38 (classnames.txt, test/0.tar)"
        )
    own = folder / CLASS_NAMES
    return Labelled(
        source=source,
        class_names=read_lines(own) if own.is_file() else tuple(name.replace("_", " ") for name in names),
        templates=read_lines(folder / TEMPLATES) if (folder / TEMPLATES).is_file() else PLAIN_TEMPLATES,
        folders=tuple(names),
    )
