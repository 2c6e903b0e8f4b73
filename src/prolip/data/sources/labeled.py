"""Images with class labels: a task in the layout of DataComp's 38, or one folder of images per class."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from prolip.checks import join_names
from prolip.data.source import Source, Subset
from prolip.data.sources.folder import ImageFolder
from prolip.data.sources.tar import TarShards

CLASS_NAMES, TEMPLATES = "classnames.txt", "zeroshot_classification_templates.txt"
SHARD_COUNT, DATASET_TYPE = "nshards.txt", "dataset_type.txt"
"""Names of the files of a task that describe it."""
CLASS_PLACEHOLDER = "{c}"
"""Stands for the class name in a template."""
DEFAULT_TEMPLATES = ("a photo of a {c}.",)
"""For data without templates of its own."""


class SampleInfo(Protocol):
    """Key and extra fields of a sample, without its image. If it has a label, that is the integer `extra["cls"]`.

    (In `Sample.extra` "cls" is the bytes of the file; `prolip.embeddings` parses them.)
    """

    @property
    def key(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class LabeledData:
    """Images with labels.

    source:      the images.
    class_names: names of the classes, by label.
    templates:   templates of prompts, with {c} for the class name.
    folders:     for each label the folder with which the keys of its samples begin; None if the label is in
                 `extra` of a sample.
    label_field: where in `extra` the label is (`read_label`).
    """

    source: Source
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    folders: tuple[str, ...] | None = None
    label_field: str = "cls"

    def limited(self, limit: int | None) -> LabeledData:
        """The same data with fewer images.

        Args:
            limit: Largest number of images, evenly spaced over the source; None: all.

        Returns:
            The data; its source is a `Subset` if there is a limit.
        """
        return self if limit is None else replace(self, source=Subset(self.source, limit))

    def labels(self, samples: Sequence[SampleInfo]) -> Tensor:
        """Find the labels of samples.

        Args:
            samples: keys and extra fields of N samples of the source.

        Returns:
            int64 (N,): labels from 0, indices into `class_names`.

        Raises:
            ValueError: If a sample has no label, or one without a class name.
        """
        labels = [self._find_label(sample) for sample in samples]
        for label, sample in zip(labels, samples, strict=True):
            if not 0 <= label < len(self.class_names):
                raise ValueError(
                    f"{self.source.name}: {sample.key} has label {label}, but there are {len(self.class_names)} class "
                    "names. Labels count from 0."
                )
        return torch.tensor(labels, dtype=torch.int64)

    @cached_property
    def _labels_by_name(self) -> dict[str, int]:
        """Labels by the name of the class."""
        return {name: label for label, name in enumerate(self.class_names)}

    @cached_property
    def _labels_by_folder(self) -> dict[str, int]:
        """Labels by the name of the folder."""
        return {name: label for label, name in enumerate(self.folders or ())}

    def _find_label(self, sample: SampleInfo) -> int:
        """The label of a sample, from its folder or its label field, not yet checked against the class names.

        ValueError if there is no label, or the folder or the name is no class.
        """
        if self.folders is not None:
            folder = Path(sample.key).parts[0]
            if folder not in self._labels_by_folder:
                raise ValueError(f"{self.source.name}: {sample.key} is not in the folder of a class")
            return self._labels_by_folder[folder]
        label = read_label(sample.extra, self.label_field)
        if isinstance(label, int):
            return label
        if self.label_field == "cls":
            raise ValueError(
                f"{self.source.name}: {sample.key} has no label. It must have a .cls file that contains an integer."
            )
        if label is None:
            raise ValueError(
                f"{self.source.name}: {sample.key} has no label in {self.label_field!r}; it has "
                f"{join_names(list(sample.extra), 12) or 'no fields'}"
            )
        if label not in self._labels_by_name:
            raise ValueError(f"{self.source.name}: {sample.key} has label {label!r}, which is no class name")
        return self._labels_by_name[label]


def read_label(extra: Mapping[str, Any], field: str) -> int | str | None:
    """Read the label of a sample.

    Args:
        extra: extra fields of a sample: of a source (files of a tar are bytes), or parsed.
        field: a file of a tar ("cls", "txt"), a JSON field ("json:class", "json:meta.class"), or a column of a table.

    Returns:
        The number or the name of the class; None if there is neither. Digits are a number.
    """
    name, _, path = field.partition(":")
    value = extra.get(name)
    if isinstance(value, bytes) and name.split(".")[-1] == "json":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    for step in path.split(".") if path else ():
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bytes):
        value = value.decode("utf-8-sig", "replace")
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        return value
    text = value.strip()
    return int(text) if text.isdecimal() else text or None


def open_labeled(
    path: str | Path, *, class_names: Sequence[str] | None = None, templates: Sequence[str] | None = None
) -> LabeledData:
    """Open images with class labels.

    Args:
        path: a task in the layout of DataComp's 38 (a folder with classnames.txt, test/0.tar, ...), or a folder with a
            folder of images for each class (one without images is not a class).
        class_names: class names in the order of the labels; None: the lines of classnames.txt, or without it the
            names of the folders, with spaces for _. (The folder that is first by name has label 0, and so on.)
        templates: templates of prompts; None: the data's own, or without them "a photo of a {c}.".

    Returns:
        The data.

    Raises:
        FileNotFoundError: If there is no such folder, or if a task has no class names.
        ValueError: If the number of class names or a template is wrong, or if an image is in no folder of a class.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    data = _open_task(folder) if is_task_folder(folder) else _open_class_folders(folder)
    if class_names is not None:
        if data.class_names and len(class_names) != len(data.class_names):
            raise ValueError(
                f"{folder} has {len(data.class_names)} classes, but {len(class_names)} class names were given"
            )
        data = replace(data, class_names=tuple(class_names))
    if not data.class_names:
        raise FileNotFoundError(
            f"{folder / CLASS_NAMES} is missing. It must have one class name per line, in the order of labels. "
            "Or give the class names (class_names, --classes)."
        )
    chosen_templates = data.templates if templates is None else templates
    return replace(data, templates=check_templates(chosen_templates, str(folder)))


def check_templates(templates: Sequence[str], location: str = "templates") -> tuple[str, ...]:
    """Check that templates contain {c}.

    Args:
        templates: at least one; {} in one means {c}.
        location: the file or argument, for the error.

    Returns:
        The templates, with {c}.

    Raises:
        ValueError: If there is none, or one has no place for the class name.
    """
    if isinstance(templates, str):
        raise ValueError(f"{location}: give a list of templates, not one text: [{templates!r}]")
    if not templates:
        raise ValueError(
            f"{location}: there are no templates; give at least one, such as 'a photo of a {{c}}.'"
        )
    checked = tuple(template.replace("{}", CLASS_PLACEHOLDER) for template in templates)
    for number, template in enumerate(checked, start=1):
        if CLASS_PLACEHOLDER not in template:
            raise ValueError(
                f"{location}: template {number}, {template!r}, has no {CLASS_PLACEHOLDER} for the class name"
            )
    return checked


def is_task_folder(folder: Path) -> bool:
    """Return whether a folder has the layout of DataComp's 38 evaluation tasks.

    Args:
        folder: the folder.

    Returns:
        Whether it has test/*.tar.
    """
    return any((folder / "test").glob("*.tar"))


def has_class_names(path: str | Path) -> bool:
    """Return whether data is a folder with class names.

    Args:
        path: address of any data.

    Returns:
        Whether it has classnames.txt.
    """
    return (Path(path).expanduser() / CLASS_NAMES).is_file()


def read_dataset_type(folder: Path) -> str | None:
    """Read the type of a task.

    Args:
        folder: folder of the task.

    Returns:
        The content of dataset_type.txt: "retrieval" (captions, one per line) or "multilabel"; None if there is no
        such file, which means classification.
    """
    path = folder / DATASET_TYPE
    return read_lines(path)[0].lower() if path.is_file() else None


def list_task_shards(folder: Path) -> list[str]:
    """List test/0.tar to test/{N-1}.tar of a task, where N is in nshards.txt.

    Args:
        folder: folder of the task.

    Returns:
        The paths, by number; without nshards.txt all tars in test.

    Raises:
        FileNotFoundError: If one is missing.
        ValueError: If nshards.txt is not a positive integer.
    """
    count_file = folder / "test" / SHARD_COUNT
    try:
        count = int(count_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return sorted(map(str, (folder / "test").glob("*.tar")), key=lambda name: (len(name), name))
    except ValueError:
        raise ValueError(f"{count_file} must contain one integer, the number of shards") from None
    if count < 1:
        raise ValueError(f"{count_file} gives {count} shards; at least one is needed")
    paths = [folder / "test" / f"{number}.tar" for number in range(count)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FileNotFoundError(
            f"{folder / 'test'} should have {count} shards; missing are {join_names(missing)}"
        )
    return list(map(str, paths))


def read_lines(path: Path) -> tuple[str, ...]:
    """Read the lines of a text file.

    Args:
        path: path of the file, UTF-8.

    Returns:
        The lines, stripped; at least one.

    Raises:
        ValueError: At a blank line, because line numbers are labels; or if the file is empty or not UTF-8.
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
        raise ValueError(f"{path} is empty. It must have at least one line.")
    return lines


def _open_task(folder: Path) -> LabeledData:
    """Open a task in the layout of DataComp's 38. `class_names` is () if there is no classnames.txt."""
    names, templates = folder / CLASS_NAMES, folder / TEMPLATES
    return LabeledData(
        source=TarShards(list_task_shards(folder), captions=()),
        class_names=read_lines(names) if names.is_file() else (),
        templates=read_lines(templates) if templates.is_file() else DEFAULT_TEMPLATES,
    )


def _open_class_folders(folder: Path) -> LabeledData:
    """Open a folder with one folder of images per class; labels are in the order of the folders' names.

    ValueError if an image is in no folder of a class, or if class names are missing or repeated.
    """
    source = ImageFolder(folder, captions=False)
    path_parts = {key: Path(key).parts for key in source.sample_keys()}
    if outside := [key for key, parts in path_parts.items() if len(parts) < 2]:
        raise ValueError(
            f"{folder}: {join_names(outside, 2)} are not in the folder of a class. Classification data is a folder "
            "with one folder of images per class, or a task in the layout of DataComp's 38 tasks (classnames.txt, "
            "test/0.tar)."
        )
    folders = sorted({parts[0] for parts in path_parts.values()})
    names_file = folder / CLASS_NAMES
    class_names = (
        read_lines(names_file) if names_file.is_file() else tuple(name.replace("_", " ") for name in folders)
    )
    if len(class_names) != len(folders):
        raise ValueError(f"{names_file} has {len(class_names)} names, but {len(folders)} folders have images")
    if len(set(class_names)) < len(folders):
        raise ValueError(
            f"{folder}: two folders have the same class name: {join_names(_find_duplicates(class_names))}"
        )
    return LabeledData(
        source=source,
        class_names=class_names,
        templates=read_lines(folder / TEMPLATES) if (folder / TEMPLATES).is_file() else DEFAULT_TEMPLATES,
        folders=tuple(folders),
    )


def _find_duplicates(names: Sequence[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)
