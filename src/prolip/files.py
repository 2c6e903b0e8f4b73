"""Atomic writes of files and folders, and JSON files."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEMPORARY_NAME = re.compile(r"\..+\.(\d+)\.\d+")
"""Names of the temporary files of `atomic_write`: .name.process.thread"""


def atomic_write(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file so that readers see the old content or the new, never a part.

    The content goes to a temporary file in the same folder, is synchronized to the disk, and the file is renamed. If
    writing fails, the temporary file is removed; if the process is killed, `remove_temporary_files` removes it. The
    file gets the permissions of a new file, by the umask.

    Args:
        path: The file; its folder is created if need be.
        write: Gets the path of the temporary file and fills it.

    Returns:
        path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process and thread in the name: two writers of one file never share a temporary file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with _name_file_in_errors(path, temporary):
            mode = _find_new_file_mode(temporary)
            write(temporary)
            os.chmod(temporary, mode)  # safetensors makes its files readable by their owner alone
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())  # before the rename: else a power cut could leave an empty file
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of `atomic_write` below a folder whose processes no longer run.

    Args:
        folder: Searched with all folders in it.
    """
    for path in folder.rglob(".*"):
        match = TEMPORARY_NAME.fullmatch(path.name)
        if match and path.is_file() and not _is_running(int(match[1])):
            path.unlink(missing_ok=True)


def fsync_folder(folder: Path) -> None:
    """Synchronize a folder to the disk, so that new names in it survive a power cut. Ignored where unsupported.

    Args:
        folder: The folder.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def atomic_write_folder(folder: Path, write: Callable[[Path], object]) -> Path:
    """Write a folder under a temporary name, then rename it.

    Readers see the old folder or the new one, and for a moment none: a folder can't be replaced in one step. If the
    process is killed at that moment, `recover_folder` brings the old one back.

    Args:
        folder: The folder.
        write: Gets the path of the temporary folder, which doesn't exist yet, and fills it.

    Returns:
        folder.
    """
    temporary, old = (folder.with_name(f".{folder.name}.{suffix}") for suffix in ("new", "old"))
    recover_folder(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        write(temporary)
        fsync_folder(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        fsync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        recover_folder(folder)
    return folder


def recover_folder(folder: Path) -> None:
    """Clean up after a process that was killed in `atomic_write_folder`, and has left the old folder renamed.

    The old folder gets its name back if the new one is missing, and is removed otherwise.

    Args:
        folder: The folder that was being written.
    """
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def require_empty_folder(folder: Path) -> None:
    """Raise ValueError unless the path is new or an empty folder.

    Args:
        folder: May be missing.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"{folder} exists and is not an empty folder; choose another, so that nothing is overwritten"
        )


def shorten_path(path: str) -> str:
    """Make a path relative to the working directory, if it is below it, for people to read.

    Args:
        path: An absolute path.

    Returns:
        The relative path, or `path` as it is.
    """
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def get_cache_folder(name: str) -> Path:
    """The folder for cached files of a kind: $XDG_CACHE_HOME/prolip/NAME, or below ~/.cache.

    Args:
        name: Name of the kind: "shards", "embeddings".

    Returns:
        Its path; it may not exist yet.

    Raises:
        RuntimeError: If there is no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "prolip" / name


def get_state_folder() -> Path:
    """The folder for what a user's sessions remember: $XDG_STATE_HOME/prolip, or ~/.local/state/prolip.

    Returns:
        Its path; it may not exist yet.

    Raises:
        RuntimeError: If there is no home folder.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "prolip"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no JSON, or no object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a JSON object atomically, indented.

    Args:
        path: The file.
        content: The object.

    Returns:
        path.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def escape_formula(text: str) -> str:
    """Guard a text for a cell of a CSV: spreadsheets run what begins with =, +, - or @ as a formula.

    Args:
        text: Text from data.

    Returns:
        The text, after an apostrophe if it begins like a formula.
    """
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def replace_nonfinite(value: Any) -> Any:
    """Copy a JSON value with null in place of NaN and infinity, which JSON can't hold.

    Args:
        value: Nested mappings, lists, tuples and scalars.

    Returns:
        The copy, with dicts and lists.
    """
    if isinstance(value, Mapping):
        return {key: replace_nonfinite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _name_file_in_errors(path: Path, temporary: Path) -> Iterator[None]:
    """Put the path into an OSError that names the temporary file, or none ("No space left on device")."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(temporary)) and error.errno is not None:
            error.filename = str(path)
        raise


def _find_new_file_mode(path: Path) -> int:
    """The permissions that a new file gets at a path by the umask and the folder; it is created and removed again."""
    path.touch()  # os.umask can't be read without a change, which other threads would see
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def _is_running(process_id: int) -> bool:
    """Whether a process with this id exists on this machine, also one of another user."""
    try:
        os.kill(process_id, 0)  # signal 0 only asks whether the process exists
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's process; a number beyond any process id
        pass
    return True
