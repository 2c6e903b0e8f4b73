"""Columns of tables of all formats: which hold image and captions, and how to read their cells."""

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
MISSING_FILE_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""errno of a path that doesn't exist; any other error is one of the disk."""


class TableColumns(NamedTuple):
    """Which columns hold the image and the captions; () if no captions are wanted."""

    image: str
    captions: tuple[str, ...]

    def __str__(self) -> str:
        # Part of the fingerprints of tables, which name caches and saved positions: must stay as it is.
        return f"Columns(image={self.image!r}, captions={self.captions!r})"


def choose_columns(
    present: Sequence[str], image: str | None, captions: Sequence[str] | None, name: str
) -> TableColumns:
    """Choose the columns of a table with images.

    Args:
        present: names of the table's columns.
        image: None: the first of IMAGE_COLUMNS that is present.
        captions: None: the first of CAPTION_COLUMNS that is present; (): no captions.
        name: Name of the table, for errors.

    Returns:
        The columns; each is present exactly once.

    Raises:
        ValueError: If there are no such columns.
    """
    image = image if image is not None else _first_present(IMAGE_COLUMNS, present, "image", name)
    chosen = choose_caption_columns(present, captions, name)
    _require_once(present, (image, *chosen), name)
    return TableColumns(image, chosen)


def choose_caption_columns(
    present: Sequence[str], captions: Sequence[str] | None, name: str
) -> tuple[str, ...]:
    """Choose the columns of captions, as `choose_columns` does.

    Args:
        present: names of the columns of the table.
        captions: names of the columns wanted; None: the first usual name that is present.
        name: Name of the table, for the error.

    Returns:
        The names of the columns; none if `captions` is empty.
    """
    if captions is None:
        captions = (_first_present(CAPTION_COLUMNS, present, "captions", name),)
    chosen = (captions,) if isinstance(captions, str) else tuple(captions)
    _require_once(present, chosen, name)
    return chosen


def _require_once(present: Sequence[str], chosen: Sequence[str], name: str) -> None:
    for column in chosen:
        if (count := list(present).count(column)) != 1:
            found = "no column" if not count else f"{count} columns"
            raise ValueError(f"{name} has {found} {column!r}. Its columns are {join_names(present, 12)}.")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{name}: a column can be chosen only once, not {', '.join(map(repr, chosen))}")


def _first_present(usual: Sequence[str], present: Sequence[str], option: str, name: str) -> str:
    lower = {column.lower(): column for column in reversed(present)}
    for column in usual:
        if column in present or column in lower:
            return column if column in present else lower[column]
    raise ValueError(
        f"{name} has no column {', '.join(usual[:-1])} or {usual[-1]}. Name it with {option}= (--{option}): "
        f"the columns are {join_names(present, 12)}. If these are values, the first row doesn't name the columns."
    )


def resolve_image_path(cell: str, folder: Path, location: str) -> Path:
    """Find the image file that a cell names.

    Args:
        cell: a path.
        folder: what the path is relative to.
        location: Location of the sample, for the error.

    Returns:
        The path of a file that is not empty.

    Raises:
        BadSampleError: If there is none, or if the cell is a URL.
    """
    cell = cell.strip()
    if not cell:
        raise BadSampleError("no image", location)
    if URL.match(cell):
        detail = f"{cell[:100]!r} is a URL. Download the images first, for example with img2dataset"
        raise BadSampleError("no image", location, detail)
    return require_image_file(folder / cell, location)


def require_image_file(path: Path, location: str) -> Path:
    """Check the file of a sample's image.

    Args:
        path: Path of the image.
        location: Location of the sample, for the error.

    Returns:
        The path.

    Raises:
        BadSampleError: Unless it is a file that is not empty.
    """
    if require_sample_file(path, location).st_size == 0:
        raise BadSampleError("empty image", location, _show(path))
    return path


def require_sample_file(path: Path, location: str) -> os.stat_result:
    """Require that a file of a sample exists and is a regular file.

    Args:
        path: Path of the file.
        location: Location of the sample, for the error.

    Returns:
        The status of the file.

    Raises:
        BadSampleError: Unless it exists and is a file.
    """
    try:
        status = path.stat()
    except ValueError:  # a NUL
        raise BadSampleError("missing file", location, _show(path)) from None
    except OSError as error:
        if error.errno in MISSING_FILE_ERRNOS:
            raise BadSampleError("missing file", location, _show(path)) from None
        raise
    if not stat.S_ISREG(status.st_mode):  # a folder; or a pipe, on which reading would block forever
        raise BadSampleError("missing file", location, f"{_show(path)} is not a file")
    return status


def _show(path: Path) -> str:
    return repr(str(path))[:300]  # repr: what isn't UTF-8 could not be printed


def require_file(path: Path) -> None:
    """Raise FileNotFoundError or ValueError unless a path that the user gave is a file.

    Args:
        path: the path.
    """
    if not stat.S_ISREG(_status(path).st_mode):
        raise ValueError(f"{path}: not a file")


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None


def check_image_column(schema: Any, columns: TableColumns, path: Path) -> None:
    """Raise ValueError unless a table has the columns, and the image's type can hold an image.

    Args:
        schema: Schema of pyarrow.
        columns: the columns that are needed.
        path: Path of the table, for the error.
    """
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
        raise ValueError(
            f"{path}: the column {columns.image!r} has type {kind}. An image must be bytes, a path, or a struct of "
            "bytes and path."
        )


class DamagedFileError(ValueError):
    """A file that is damaged, or of another format than expected."""


@contextmanager
def arrow_errors(path: Path | str) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file into DamagedFileError. Disk errors (with an errno) pass through.

    Args:
        path: Path of the file, for the error.

    Yields:
        Nothing: it is a context manager.
    """
    arrow = import_extra("pyarrow", "data")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        raise DamagedFileError(f"{path} can't be read. It is damaged or of another format: {error}") from None


class ArrowRows:
    """The rows of a pyarrow table. The record batch of a row is found by bisection; pyarrow would search linearly."""

    def __init__(self, table: Any) -> None:
        self.nbytes = int(table.nbytes)
        self._batches = table.to_batches()
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, index: int, location: str) -> dict[str, Any]:
        """Read a row.

        Args:
            index: Index of the row, from 0.
            location: Location of the sample, for the error.

        Returns:
            Its values, by column.

        Raises:
            BadSampleError: If it is damaged.
        """
        number = bisect_right(self._ends, index)
        batch = self._batches[number]
        index -= self._ends[number] - batch.num_rows
        columns = zip(batch.schema.names, batch.columns, strict=True)
        return {name: _read_value(column, index, location) for name, column in columns}


def _read_value(column: Any, row: int, location: str) -> Any:
    """A value as a Python object. Validated first: in a damaged Arrow file its offsets may point anywhere in memory."""
    try:
        column.slice(row, 1).validate(full=True)
    except ValueError as error:
        if "UTF8" not in str(error):
            raise BadSampleError("unreadable row", location, str(error)) from None
    return _to_python(column[row])


def _to_python(scalar: Any) -> Any:
    """Text that isn't UTF-8 keeps its bytes as surrogates. What Python has no type for stays a pyarrow scalar."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode("utf-8", errors="surrogateescape")
        if import_extra("pyarrow", "data").types.is_map(scalar.type):
            return [(_to_python(pair["key"]), _to_python(pair["value"])) for pair in scalar.values]
        if hasattr(scalar, "items"):
            return {name: _to_python(value) for name, value in scalar.items()}
        if hasattr(scalar, "values"):
            return [_to_python(value) for value in scalar.values]
        return _to_python(scalar.value) if hasattr(scalar, "dictionary") else scalar
    except (ValueError, ArithmeticError, NotImplementedError):
        # nanoseconds, a time zone that isn't known here
        return scalar


def drop_map_keys(value: Any) -> Any:
    """Return the values of a map, which pyarrow gives as pairs: its keys (languages, say) are not captions.

    Args:
        value: Value of a cell. No other type than a map has pairs.

    Returns:
        The values of a map, also within lists; other values as they are.
    """
    if isinstance(value, tuple):
        return drop_map_keys(value[1])
    return [drop_map_keys(item) for item in value] if isinstance(value, list) else value


def parse_image(value: Any, folder: Path, location: str) -> bytes | Path:
    """Read the image of a cell.

    Args:
        value: bytes, a path, or a dict with "bytes" and "path", of which the bytes count first.
        folder: what a path is relative to.
        location: Location of the sample, for the error.

    Returns:
        Bytes of an image file, or its path.

    Raises:
        BadSampleError: If there is no image.
    """
    path = value
    if isinstance(value, dict):
        value, path = value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        if not value:
            raise BadSampleError("empty image", location)
        return value
    if isinstance(path, str):
        return resolve_image_path(path, folder, location)
    raise BadSampleError("no image", location)
