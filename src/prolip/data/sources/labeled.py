"""Images with class labels: a task in the layout of DataComp's 38, or one folder of images per class."""

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
"""Stands for the class name in a template."""
DEFAULT_TEMPLATES = ("a photo of a {c}.",)
"""For data without templates of its own."""


class SampleInfo(Protocol):
    """Key and extra fields of a sample, without its image."""

    @property
    def key(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class LabeledData:
    """Images with labels.

    source:      the images.
    class_names: by label.
    templates:   of prompts, with {c} for the class name.
    folders:     by label, the folder with which keys begin; None if the label is in the `cls` of a sample.
    """

    source: Source
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    folders: tuple[str, ...] | None = None

    def labels(self, samples: Sequence[SampleInfo]) -> Tensor:
        """Find the labels of samples.

        Args:
            samples: N of the source.

        Returns:
            int64 (N,), from 0.

        Raises:
            ValueError: If a sample has no label, or one without a class name.
        """
        found = [self._label(sample) for sample in samples]
        for label, sample in zip(found, samples, strict=True):
            if not 0 <= label < len(self.class_names):
                raise ValueError(
                    f"{self.source.name}: {sample.key} has label {label}, but there are {len(self.class_names)} class "
                    "names"
                )
        return torch.tensor(found, dtype=torch.int64)

    @cached_property
    def _label_of_folder(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.folders or ())}

    def _label(self, sample: SampleInfo) -> int:
        if self.folders is not None:
            return self._label_of_folder[Path(sample.key).parts[0]]
        label = sample.extra.get("cls")
        if not isinstance(label, int):
            raise ValueError(
                f"{self.source.name}: {sample.key} has no label. It must have a .cls file with an integer"
            )
        return label


def open_labeled(
    path: str | Path, *, class_names: Sequence[str] | None = None, templates: Sequence[str] | None = None
) -> LabeledData:
    """Open images with class labels.

    Args:
        path: a folder in the layout of the 38 tasks (classnames.txt, test/0.tar, ...), or one with a folder of images
            for each class (a folder without images is not a class).
        class_names: instead of the data's own, in the order of its labels: lines of classnames.txt, or folders by name
            (whose own names, with _ as a space, are the class names otherwise).
        templates: instead of the data's own; if it has none, "a photo of a {c}.".

    Returns:
        The data.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    opened = _open_task(folder) if is_task_folder(folder) else _open_class_folders(folder)
    if class_names is not None:
        if opened.class_names and len(class_names) != len(opened.class_names):
            raise ValueError(
                f"{folder} has {len(opened.class_names)} classes, but {len(class_names)} class names were given"
            )
        opened = replace(opened, class_names=tuple(class_names))
    if not opened.class_names:
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing. It has one class name per line, in the order of labels."
        )
    chosen = opened.templates if templates is None else templates
    return replace(opened, templates=check_templates(chosen, str(folder)))


def check_templates(templates: Sequence[str], location: str = "templates") -> tuple[str, ...]:
    """Check that templates contain {c}.

    Args:
        templates: at least one; {} means {c}.
        location: the file or argument, for the error.

    Returns:
        The templates, with {c}.

    Raises:
        ValueError: If there is none, or one has no place for the class name.
    """
    if isinstance(templates, str) or not templates:
        raise ValueError(f"{location}: a list of at least one template is needed")
    unified = tuple(template.replace("{}", CLASS_PLACEHOLDER) for template in templates)
    for number, template in enumerate(unified, start=1):
        if CLASS_PLACEHOLDER not in template:
            raise ValueError(
                f"{location}: template {number}, {template!r}, has no {CLASS_PLACEHOLDER} for the class name"
            )
    return unified


def is_task_folder(folder: Path) -> bool:
    """Return whether a folder has the layout of the 38 tasks.

    Args:
        folder: the folder.

    Returns:
        Whether it has test/*.tar.
    """
    return any((folder / "test").glob("*.tar"))


def read_dataset_type(folder: Path) -> str | None:
    """Read the type of a task.

    Args:
        folder: Folder of the task.

    Returns:
        "retrieval" (captions, one per line), "multilabel"; None: classification.
    """
    path = folder / DATASET_TYPE
    return read_lines(path)[0].lower() if path.is_file() else None


def list_task_shards(folder: Path) -> list[str]:
    """List test/0.tar to test/{N-1}.tar of a task, where N is in nshards.txt.

    Args:
        folder: Folder of the task.

    Returns:
        The paths, by number; without nshards.txt all tars in test.

    Raises:
        FileNotFoundError: If one is missing.
    """
    counted = folder / "test" / SHARD_COUNT
    try:
        count = int(counted.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return sorted(map(str, (folder / "test").glob("*.tar")), key=lambda name: (len(name), name))
    except ValueError:
        raise ValueError(f"{counted} must contain one integer, the number of shards") from None
    if count < 1:
        raise ValueError(f"{counted} gives {count} shards; at least one is needed")
    paths = [folder / "test" / f"{number}.tar" for number in range(count)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FileNotFoundError(
            f"{folder / 'test'} should have {count} shards; missing are {join_names(missing)}"
        )
    return list(map(str, paths))


def read_lines(path: Path) -> tuple[str, ...]:
    """Read the lines of a text file.

    Args:
        path: Path of the file, UTF-8.

    Returns:
        The lines, stripped; at least one.

    Raises:
        ValueError: At a blank line, because line numbers are labels.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    lines = tuple(line.strip() for line in text.rstrip().splitlines())
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ValueError(
                f"{path}: line {number} is blank. Each line is one entry, and its number is the label."
            )
    if not lines:
        raise ValueError(f"{path} is empty")
    return lines


def _open_task(folder: Path) -> LabeledData:
    names, templates = folder / CLASS_NAMES, folder / TEMPLATES
    return LabeledData(
        source=TarShards(list_task_shards(folder), captions=()),
        class_names=read_lines(names) if names.is_file() else (),
        templates=read_lines(templates) if templates.is_file() else DEFAULT_TEMPLATES,
    )


def _open_class_folders(folder: Path) -> LabeledData:
    source = ImageFolder(folder, captions=False)
    parts = {key: Path(key).parts for key in source.sample_keys()}
    if loose := [key for key, path in parts.items() if len(path) < 2]:
        raise ValueError(
            f"{folder}: {join_names(loose, 2)} are not in the folder of a class. Classification data is a folder with "
            "one folder of images per class, or a task in the layout of the 38 (classnames.txt, test/0.tar)."
        )
    names = sorted({path[0] for path in parts.values()})
    own = folder / CLASS_NAMES
    class_names = read_lines(own) if own.is_file() else tuple(name.replace("_", " ") for name in names)
    if len(class_names) != len(names):
        raise ValueError(f"{own} has {len(class_names)} names, but {len(names)} folders have images")
    if len(set(class_names)) < len(names):
        raise ValueError(
            f"{folder}: two folders have the same class name: {join_names(_find_duplicates(class_names))}"
        )
    return LabeledData(
        source=source,
        class_names=class_names,
        templates=read_lines(folder / TEMPLATES) if (folder / TEMPLATES).is_file() else DEFAULT_TEMPLATES,
        folders=tuple(names),
    )


def _find_duplicates(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
