"""Class names and templates: those of ImageNet, which come with the package, or from a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from prolip.data.sources.labeled import check_templates, read_lines


def imagenet_class_names() -> tuple[str, ...]:
    """The 1000 names that CLIP uses, in the order of ImageNet's class indices. (NOTICE.md names their source.)"""
    return _read_resource("imagenet-classnames.txt")


def imagenet_templates() -> tuple[str, ...]:
    """The 80 templates that CLIP uses, with {c} for the class name."""
    return _read_resource("imagenet-templates.txt")


def read_class_names(path: str | Path) -> tuple[str, ...]:
    """Read a text file with one class name per line, in the order of labels.

    Args:
        path: Path of the file.

    Returns:
        The names.
    """
    return read_lines(_require_text_file(path, "class name"))


def read_templates(path: str | Path) -> tuple[str, ...]:
    """Read a text file with one template per line; {c} or {} stands for the class name.

    Args:
        path: Path of the file.

    Returns:
        The templates, with {c}.
    """
    return check_templates(read_lines(_require_text_file(path, "template")), str(path))


def _require_text_file(path: str | Path, entry: str) -> Path:
    """The path with ~ expanded; FileNotFoundError if it is not a file. entry: what a line holds, for the message."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; expected a text file with one {entry} per line")
    return path


def _read_resource(name: str) -> tuple[str, ...]:
    """Lines of a text file that comes with the package."""
    text = resources.files("prolip.zeroshot").joinpath(name).read_text(encoding="utf-8")
    return tuple(text.splitlines())
