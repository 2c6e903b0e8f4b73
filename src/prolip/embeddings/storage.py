"""Where embeddings lie: a folder, or an address in an object store. Files are there whole, or not at all."""

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

from prolip.data.sources.tar_stream import without_secrets
from prolip.extras import require
from prolip.files import remove_leftovers, write_whole

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Place(ABC):
    """Files by name, without folders in it."""

    @abstractmethod
    def __str__(self) -> str:
        """What leads to it, from any folder; without passwords, since it is told and kept."""

    @abstractmethod
    def names(self) -> set[str]:
        """Of the files that are there; none if the place is not."""

    @abstractmethod
    def opened(self, name: str) -> Any:
        """What pyarrow reads a file from, at any place of it. FileNotFoundError if it isn't there."""

    @abstractmethod
    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """Let `write` fill a file, given as an open one; nobody sees it before it is whole."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Also one that isn't there."""

    def read(self, name: str) -> bytes:
        """A whole file."""
        with self.opened(name) as file:
            content: bytes = file.read()
        return content


@dataclass(frozen=True)
class Folder(Place):
    """path: of a folder; it is made when something is written."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.absolute())

    def names(self) -> set[str]:
        return {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()

    def opened(self, name: str) -> Any:
        return require("pyarrow", "data").OSFile(str(self.path / name))

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        def fill(aside: Path) -> None:
            with open(aside, "wb") as file:
                write(file)

        write_whole(self.path / name, fill)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what killed processes of this machine have left half written."""
        remove_leftovers(self.path)


@dataclass(frozen=True)
class Bucket(Place):
    """uri: s3://bucket/folder, gs://..., abfs://..., as pyarrow's file systems know them. An object appears when its
    last byte has come."""

    uri: str

    def __str__(self) -> str:
        return without_secrets(self.uri)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """pyarrow's file system, and the path in it."""
        system: tuple[Any, str] = require("pyarrow.fs", "data").FileSystem.from_uri(self.uri)
        return system

    def names(self) -> set[str]:
        system, path = self._system
        selector = require("pyarrow.fs", "data").FileSelector(path, allow_not_found=True)
        return {found.base_name for found in system.get_file_info(selector)}

    def opened(self, name: str) -> Any:
        system, path = self._system
        return system.open_input_file(f"{path}/{name}")

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        content = io.BytesIO()  # first: a stream that is closed by an error would leave half an object
        write(content)
        system, path = self._system
        if system.type_name == "local":  # file://; an object store has no folders
            system.create_dir(path, recursive=True)
        file = system.open_output_stream(f"{path}/{name}")
        file.write(content.getbuffer())
        file.close()

    def remove(self, name: str) -> None:
        system, path = self._system
        with suppress(FileNotFoundError):
            system.delete_file(f"{path}/{name}")


def place_of(where: str | Path | Place) -> Place:
    """A place that a user has named."""
    if isinstance(where, Place):
        return where
    if isinstance(where, str) and ADDRESS.match(where):
        return Bucket(where.rstrip("/"))
    path = Path(where).expanduser()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{str(path)!r}: the name of a folder for embeddings must be UTF-8") from None
    return Folder(path)
