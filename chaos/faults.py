"""Counts file operations below a folder and, at one of them, kills the process or lets the operation fail.

Operations of Python are seen: files opened for writing, their writes, renames, fsync, files and folders that are made
or removed. Those of libraries in other languages (Arrow, LanceDB, safetensors) aren't.
"""

from __future__ import annotations

import builtins
import errno
import inspect
import io
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

How = Literal["kill before", "kill within", "kill after", "disk full", "I/O error"]
HOWS: tuple[How, ...] = get_args(How)
ERRORS: dict[How, int] = {"disk full": errno.ENOSPC, "I/O error": errno.EIO}
PATH_CALLS = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink")
"""Functions of `os` whose last paths are changed."""

OPEN = inspect.signature(open)


@dataclass(frozen=True)
class Fault:
    """Where a process is hit.

    Attributes:
        number: Of the operation, from 0.
        how: What happens. A disk that is full stays full: all later writes fail, too.
    """

    number: int
    how: How


class FaultInjector:
    """Counts operations below a folder in this process, and causes one fault.

    Args:
        folder: Operations elsewhere are left alone.
        fault: What happens; None: nothing, operations are only counted.
    """

    def __init__(self, folder: Path, fault: Fault | None = None) -> None:
        self.folder = os.path.realpath(folder)
        self.fault = fault
        self.count = 0
        self._lock = threading.Lock()
        self._open = builtins.open
        self._os = {name: getattr(os, name) for name in (*PATH_CALLS, "fsync")}

    def install(self) -> None:
        """Replace `open` and functions of `os` in this process, for good."""
        builtins.open = self._open_file
        io.open = self._open_file
        for name in PATH_CALLS:
            setattr(os, name, self._wrap_path_call(name))
        os.fsync = self._fsync  # type: ignore[assignment]

    def run(self, path: object, act: Callable[[], Any], act_in_part: Callable[[], Any] | None = None) -> Any:
        """Do an operation on a path, counted; or what the fault makes of it.

        Args:
            path: What is changed.
            act: The operation.
            act_in_part: A part of it, for a kill within; None: it has no parts.

        Returns:
            What the operation returns.
        """
        if not self._is_below(path):
            return act()
        with self._lock:
            number, self.count = self.count, self.count + 1
        fault = self.fault
        if fault is None or number < fault.number:
            return act()
        if fault.how == "disk full" or (fault.how == "I/O error" and number == fault.number):
            raise OSError(ERRORS[fault.how], os.strerror(ERRORS[fault.how]), str(path))
        if number > fault.number:
            return act()
        if fault.how == "kill within" and act_in_part is not None:
            act_in_part()
        elif fault.how == "kill after":
            act()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def _is_below(self, path: object) -> bool:
        """Whether a path, or the file of a descriptor, is below the folder."""
        try:
            name = f"/proc/self/fd/{path}" if isinstance(path, int) else os.fspath(path)  # type: ignore[call-overload]
            real = os.path.realpath(name)
        except (OSError, TypeError):
            return False
        return str(real).startswith(self.folder)

    def _wrap_path_call(self, name: str) -> Callable[..., Any]:
        """A function of `os` that is counted; of a move the new path counts. A removal always works."""
        original = self._os[name]

        def call(*args: Any, **options: Any) -> Any:
            if self.fault is not None and self.fault.how in ERRORS and name in ("unlink", "remove", "rmdir"):
                return original(*args, **options)  # a full disk lets files be removed
            target = args[1] if name in ("rename", "replace", "link", "symlink") else args[0]
            return self.run(target, lambda: original(*args, **options))

        return call

    def _fsync(self, descriptor: int) -> None:
        """`os.fsync`, counted."""
        self.run(descriptor, lambda: self._os["fsync"](descriptor))

    def _open_file(self, *args: Any, **options: Any) -> Any:
        """`open`, counted if the file is written; its writes are counted too."""
        call = OPEN.bind(*args, **options)
        call.apply_defaults()
        file, mode, values = call.arguments["file"], call.arguments["mode"], call.arguments
        if not set(mode) & set("wax+") or values["buffering"] == 0 or not self._is_below(file):
            return self._open(*args, **options)
        raw_mode = mode.replace("b", "").replace("t", "")
        raw = self.run(file, lambda: io.FileIO(file, raw_mode, values["closefd"], values["opener"]))
        kind = _CountedRandom if "+" in mode else _CountedWriter
        buffered = kind(raw, self, file)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, values["encoding"], values["errors"], values["newline"])
        text.mode = mode  # type: ignore[misc]
        return text


class _CountedWrites:
    """A buffered file whose writes are counted by an injector."""

    def __init__(self, raw: io.FileIO, injector: FaultInjector, path: object) -> None:
        super().__init__(raw)  # type: ignore[call-arg]
        self._injector, self._path = injector, path

    def write(self, content: Any) -> Any:
        """Write, counted; a kill within leaves half of it on the disk."""
        view = memoryview(content).cast("B")

        def write_half() -> None:
            super(_CountedWrites, self).write(view[: len(view) // 2])  # type: ignore[misc]
            self.flush()  # type: ignore[attr-defined]

        return self._injector.run(self._path, lambda: super(_CountedWrites, self).write(view), write_half)  # type: ignore[misc]


class _CountedWriter(_CountedWrites, io.BufferedWriter):
    """Write only."""


class _CountedRandom(_CountedWrites, io.BufferedRandom):
    """Read and write."""
