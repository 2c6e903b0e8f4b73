"""What tables of all formats share: which columns count, and how a cell becomes an image or a value."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from prolip.checks import join_names
from prolip.data.sample import BadSampleError
from prolip.extras import import_extra
from prolip.preprocessing.images import URL

IMAGE_COLUMNS = (
    "image", "jpg", "jpeg", "png", "webp", "filepath", "file_name", "filename", "path", "image_path", "url",
)  # fmt: skip
CAPTION_COLUMNS = ("caption", "captions", "title", "text", "txt")
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""What the system says of a path that leads to nothing; any other error is one of the disk."""


class Columns(NamedTuple):
    """Which columns hold the image and the captions; no captions if they are not wanted."""

    image: str
    captions: tuple[str, ...]


def choose_columns(
    present: Sequence[str], image: str | None, captions: Sequence[str] | None, name: str
) -> Columns:
    """The columns that are asked for, or the first of the usual names that are there; ValueError if there is none."""
    if isinstance(captions, str):
        captions = (captions,)
    image = image if image is not None else _first(IMAGE_COLUMNS, present, "image", name)
    captions = captions if captions is not None else (_first(CAPTION_COLUMNS, present, "captions", name),)
    for column in (image, *captions):
        if (count := list(present).count(column)) != 1:
            many = "no column" if not count else f"{count} columns"
            raise ValueError(f"{name} has {many} {column!r}; its columns are {join_names(present, 12)}")
    if len({image, *captions}) <= len(captions):
        raise ValueError(f"{name}: a column can be asked for once only, not {image!r} and {tuple(captions)}")
    return Columns(image, tuple(captions))


def _first(usual: Sequence[str], present: Sequence[str], option: str, name: str) -> str:
    lower = {column.lower(): column for column in reversed(present)}
    for column in usual:
        if column in present or column in lower:
            return column if column in present else lower[column]
    raise ValueError(
        f"{name} has no column called {', '.join(usual[:-1])} or {usual[-1]}; say with {option}= (--{option}) which it "
        f"is: {join_names(present, 12)}. Or does the first row not name the columns?"
    )


def resolve_image_path(cell: str, folder: Path, where: str) -> Path:
    """The image file that a cell names, relative to `folder`."""
    cell = cell.strip()
    if not cell:
        raise BadSampleError("no image", where)
    if URL.match(cell):
        detail = f"{cell[:100]!r} is a URL: download the images first, for example with img2dataset"
        raise BadSampleError("no image", where, detail)
    return require_image_file(folder / cell, where)


def require_image_file(path: Path, where: str) -> Path:
    """The path of an image that a sample names, if there is a file, and something in it."""
    if require_sample_file(path, where).st_size == 0:
        raise BadSampleError("empty image", where, _shown(path))
    return path


def require_sample_file(path: Path, where: str) -> os.stat_result:
    """The status of a file that a sample names, if it is there, and is a file."""
    try:
        status = path.stat()
    except ValueError:  # a NUL
        raise BadSampleError("missing file", where, _shown(path)) from None
    except OSError as error:
        if error.errno in NOT_THERE:
            raise BadSampleError("missing file", where, _shown(path)) from None
        raise
    if not stat.S_ISREG(status.st_mode):  # a folder; or a pipe, which would be waited for without end
        raise BadSampleError("missing file", where, f"{_shown(path)} is not a file")
    return status


def _shown(path: Path) -> str:
    return repr(str(path))[:300]  # repr: what isn't UTF-8 could not be printed


def require_file(path: Path) -> None:
    """A file that the user named is there, and is a file."""
    if not stat.S_ISREG(_status(path).st_mode):
        raise ValueError(f"{path}: this is not a file")


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None


def check_image_column(schema: Any, columns: Columns, path: Path) -> None:
    choose_columns(schema.names, columns.image, columns.captions, str(path))
    kind = schema.field(columns.image).type
    types = import_extra("pyarrow", "data").types
    in_struct = {kind.field(i).name for i in range(kind.num_fields)} if types.is_struct(kind) else set()
    value = kind.value_type if types.is_dictionary(kind) else kind
    plain = (
        types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary,
        types.is_string, types.is_large_string, types.is_string_view,
    )  # fmt: skip
    if not in_struct & {"bytes", "path"} and not any(is_kind(value) for is_kind in plain):
        wanted = "an image is bytes, a path, or a struct of bytes and path"
        raise ValueError(f"{path}: the column {columns.image!r} is {kind}; {wanted}")


class DamagedFileError(ValueError):
    """A file that is not, or no longer, what it should be."""


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """What pyarrow says of a damaged file becomes a ValueError. An error of the disk (it has an errno) stays."""
    arrow = import_extra("pyarrow", "data")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        raise DamagedFileError(f"{path} can't be read, it is damaged or of another format: {error}") from None


class ArrowRows:
    """A pyarrow table by its record batches. That of a row is found by bisection: pyarrow itself tries one by one."""

    def __init__(self, table: Any) -> None:
        self.nbytes = int(table.nbytes)
        self._batches = table.to_batches()
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, number: int, where: str) -> dict[str, Any]:
        """The values of a row, by column."""
        at = bisect_right(self._ends, number)
        batch = self._batches[at]
        number -= self._ends[at] - batch.num_rows
        named = zip(batch.schema.names, batch.columns, strict=True)
        return {name: read_arrow_value(column, number, where) for name, column in named}


def read_arrow_value(column: Any, row: int, where: str) -> Any:
    """A value as Python's own. Checked before: in a damaged Arrow file its bytes may lie anywhere in memory."""
    try:
        column.slice(row, 1).validate(full=True)
    except ValueError as error:
        if "UTF8" not in str(error):
            raise BadSampleError("unreadable row", where, str(error)) from None
    return _plain(column[row])


def _plain(scalar: Any) -> Any:
    """Text that isn't UTF-8 keeps its bytes as half characters. What Python has no type for stays as it is."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode("utf-8", errors="surrogateescape")
        if import_extra("pyarrow", "data").types.is_map(scalar.type):
            return [(_plain(pair["key"]), _plain(pair["value"])) for pair in scalar.values]
        if hasattr(scalar, "items"):
            return {name: _plain(value) for name, value in scalar.items()}
        if hasattr(scalar, "values"):
            return [_plain(value) for value in scalar.values]
        return _plain(scalar.value) if hasattr(scalar, "dictionary") else scalar
    except (ValueError, ArithmeticError, NotImplementedError):
        # nanoseconds, a time zone that isn't known here
        return scalar


def drop_map_keys(value: Any) -> Any:
    """Of a map, which comes as pairs, the values: its keys, say languages, are no captions. No other type has pairs."""
    if isinstance(value, tuple):
        return drop_map_keys(value[1])
    return [drop_map_keys(item) for item in value] if isinstance(value, list) else value


def image_of(value: Any, folder: Path, where: str) -> bytes | Path:
    path = value
    if isinstance(value, dict):
        value, path = value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        if not value:
            raise BadSampleError("empty image", where)
        return value
    if isinstance(path, str):
        return resolve_image_path(path, folder, where)
    raise BadSampleError("no image", where)
