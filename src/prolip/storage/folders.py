"""Storage: a flat set of files in a local folder or an object store. A file appears complete or not at all."""

from __future__ import annotations

import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from prolip.extras import import_extra
from prolip.files import atomic_write, remove_temporary_files
from prolip.storage.addresses import Address, parse_address, require_path
from prolip.storage.file_systems import open_file_system, to_arrow_file_system


class Storage(ABC):
    """A flat set of files, by name, without subfolders."""

    @abstractmethod
    def __str__(self) -> str:
        """The absolute path or address, without secrets: it is printed and stored."""

    @abstractmethod
    def list_names(self) -> set[str]:
        """Names of the files; empty if the folder does not exist."""

    @abstractmethod
    def open_input(self, name: str) -> Any:
        """A pyarrow file, open for random access.

        Raises:
            FileNotFoundError: There is no such file.
        """

    @abstractmethod
    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """Write a file atomically.

        Args:
            name: Name of the file.
            write: Receives a binary file object and fills it. No reader sees the file before this has returned.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def read(self, name: str) -> bytes:
        """The content of a file; raises FileNotFoundError if there is none."""
        with self.open_input(name) as file:
            content: bytes = file.read()
        return content


@dataclass(frozen=True)
class LocalStorage(Storage):
    """A folder on this machine. It is created by the first write.

    Attributes:
        path: The folder.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path.absolute())

    def list_names(self) -> set[str]:
        return {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()

    def open_input(self, name: str) -> Any:
        # pyarrow's own file: through fsspec, every read of a column would hold the GIL.
        return import_extra("pyarrow", "data").OSFile(str(self.path / name))

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """As `Storage.write`: a temporary file is filled, then renamed. Creates the folder if it is missing."""

        def fill(temporary: Path) -> None:
            with open(temporary, "wb") as file:
                write(file)

        atomic_write(self.path / name, fill)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove_temporary_files(self) -> None:
        """Remove the incomplete files of killed processes of this machine."""
        remove_temporary_files(self.path)


@dataclass(frozen=True)
class ObjectStorage(Storage):
    """A folder in an object store, through fsspec. An object becomes visible after its last byte was received.

    Attributes:
        address: Of the folder: s3://bucket/folder, gs://..., az://..., memory://...
    """

    address: Address

    def __str__(self) -> str:
        return str(self.address)

    def list_names(self) -> set[str]:
        try:
            entries = self._file_system.ls(self.address.path, detail=True)
        except FileNotFoundError:
            return set()
        return {PurePosixPath(entry["name"]).name for entry in entries if entry["type"] == "file"}

    def open_input(self, name: str) -> Any:
        return to_arrow_file_system(self._file_system).open_input_file(self._make_path(name))

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """As `Storage.write`: the content is collected in memory, then uploaded as one object."""
        # Collected first: an upload that an error of `write` closes would publish an incomplete object.
        content = io.BytesIO()
        write(content)
        self._file_system.pipe_file(self._make_path(name), content.getvalue())

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._file_system.rm_file(self._make_path(name))

    @property
    def _file_system(self) -> Any:
        return open_file_system(self.address)

    def _make_path(self, name: str) -> str:
        return f"{self.address.path}/{name}"


def open_storage(location: str | Path | Storage) -> Storage:
    """The storage at a path or address.

    Args:
        location: A folder (it need not exist), an address such as s3://bucket/folder, or a storage, which is returned.

    Returns:
        A `LocalStorage` for a path or file://, otherwise an `ObjectStorage`.

    Raises:
        ValueError: The path is not valid UTF-8, or the address can't hold files (see `parse_address`).
    """
    if isinstance(location, Storage):
        return location
    require_path(str(location), "The path of a folder")
    address = parse_address(location, "folder")
    if address.scheme != "file":
        return ObjectStorage(address)
    try:
        address.path.encode()
    except UnicodeEncodeError:
        raise ValueError(_describe_path_that_is_not_utf8(address.path)) from None
    return LocalStorage(Path(address.path))


def _describe_path_that_is_not_utf8(path: str) -> str:
    """The message for a path that Arrow can't take. In a locale that is not UTF-8, every other character is one."""
    message = f"The path of a folder must be valid UTF-8: {path!r}"
    try:
        readable = os.fsencode(path).decode()
    except UnicodeError:
        return message
    return f"{message}. It is {readable}, but Python reads names as {sys.getfilesystemencoding()}: set PYTHONUTF8=1"
