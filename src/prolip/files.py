"""Writing files whole or not at all; JSON with sentences."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LEFTOVER = re.compile(r"\..+\.(\d+)\.\d+")  # .name.process.thread


def remove_leftovers(folder: Path) -> None:
    """What `write_whole` left below a folder in processes that were killed."""
    for path in folder.rglob(".*"):
        match = LEFTOVER.fullmatch(path.name)
        if match and path.is_file() and not _lives(int(match[1])):
            path.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; a sentence if it is missing or something else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(content).__name__}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a file beside `path`, bring it to the disk, then rename it: readers see the old one or the new.

    Makes the folder if need be. If writing fails, nothing is left behind. Returns path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with _naming(path):
            write(aside)
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(aside, path)
        to_disk(path.parent)
    finally:
        aside.unlink(missing_ok=True)
    return path


def to_disk(folder: Path) -> None:
    """Names are part of a folder: they outlast a power cut once it is on the disk. (Not on systems that can't.)"""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_empty(folder: Path) -> None:
    """An error if there is something already where a folder is to be written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"{folder} exists and is not an empty folder; choose another, so that nothing is overwritten"
        )


def write_folder_whole(folder: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a folder beside `folder`, then let it take that name. Readers see the old one or the new, and
    for a moment none; if that moment is the last one of the process, `recover_folder` brings the old one back."""
    aside, old = (folder.with_name(f".{folder.name}.{what}") for what in ("new", "old"))
    recover_folder(folder)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        write(aside)
        to_disk(aside)
        if folder.exists():
            folder.rename(old)
        aside.rename(folder)
        to_disk(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        recover_folder(folder)
    return folder


def recover_folder(folder: Path) -> None:
    """Make good what a process that was killed in `write_folder_whole` has left."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A full disk says no name: say the file's."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; a number that no process of ours can have
        pass
    return True
