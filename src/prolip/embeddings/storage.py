"""Storage of embeddings: a local folder or an object store. A file appears complete or not at all."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prolip.data.sources.tar_stream import redact_secrets
from prolip.extras import import_extra
from prolip.files import atomic_write, remove_temporary_files

URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Storage(ABC):
    """A flat set of files, by name, without subfolders."""

    @abstractmethod
    def __str__(self) -> str:
        """The absolute path or URI, without passwords: it is printed and stored."""

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
    """A prefix in an object store, or file://, through pyarrow's file systems.

    Attributes:
        uri: s3://bucket/folder, gs://..., abfs://... An object becomes visible after its last byte was received.
    """

    uri: str

    def __str__(self) -> str:
        return redact_secrets(self.uri)

    @cached_property
    def _file_system(self) -> tuple[Any, str]:
        """pyarrow's file system, and the path in it."""
        system_and_path: tuple[Any, str] = import_extra("pyarrow.fs", "data").FileSystem.from_uri(self.uri)
        return system_and_path

    def list_names(self) -> set[str]:
        system, path = self._file_system
        selector = import_extra("pyarrow.fs", "data").FileSelector(path, allow_not_found=True)
        return {info.base_name for info in system.get_file_info(selector)}

    def open_input(self, name: str) -> Any:
        system, path = self._file_system
        return system.open_input_file(f"{path}/{name}")

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """As `Storage.write`: the content is collected in memory, then uploaded as one object."""
        # Buffered first: an output stream that an error closes would publish an incomplete object.
        content = io.BytesIO()
        write(content)
        system, path = self._file_system
        if system.type_name == "local":  # file://; an object store has no folders
            system.create_dir(path, recursive=True)
        file = system.open_output_stream(f"{path}/{name}")
        file.write(content.getbuffer())
        file.close()

    def remove(self, name: str) -> None:
        system, path = self._file_system
        with suppress(FileNotFoundError):
            system.delete_file(f"{path}/{name}")


def open_storage(location: str | Path | Storage) -> Storage:
    """The storage at a path or URI.

    Args:
        location: A folder (it need not exist), a URI such as s3://bucket/folder, or a storage, which is returned.

    Returns:
        A `LocalStorage` for a path, an `ObjectStorage` for a URI.

    Raises:
        ValueError: The path is not valid UTF-8.
    """
    if isinstance(location, Storage):
        return location
    if isinstance(location, str) and URI.match(location):
        return ObjectStorage(location.rstrip("/"))
    path = Path(location).expanduser()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"The path of an embeddings folder must be valid UTF-8: {str(path)!r}") from None
    return LocalStorage(path)
