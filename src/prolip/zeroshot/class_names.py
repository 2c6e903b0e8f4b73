"""Lists of class names and templates: ImageNet's, which come with the package, and anyone's, from a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from prolip.data.sources.labeled import checked_templates, read_lines


def imagenet_class_names() -> tuple[str, ...]:
    """The 1000 names that CLIP uses, in the order of ImageNet's class numbers. (NOTICE.md says where from.)"""
    return _shipped("imagenet-classnames.txt")


def imagenet_templates() -> tuple[str, ...]:
    """The 80 templates that CLIP uses, with {c} for the class name."""
    return _shipped("imagenet-templates.txt")


def read_class_names(path: str | Path) -> tuple[str, ...]:
    """A text file with one class name a line, in the order of labels."""
    return read_lines(_file(path, "class name"))


def read_templates(path: str | Path) -> tuple[str, ...]:
    """A text file with one template a line; {c} or {} stands for the class name. Returned with {c}."""
    return checked_templates(read_lines(_file(path, "template")), str(path))


def _file(path: str | Path, entry: str) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: a text file with one {entry} a line is wanted")
    return path


def _shipped(name: str) -> tuple[str, ...]:
    text = resources.files("prolip.zeroshot").joinpath(name).read_text(encoding="utf-8")
    return tuple(text.splitlines())
