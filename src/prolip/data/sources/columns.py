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
"""Usual names of the column of images, the preferred one first."""
CAPTION_COLUMNS = ("caption", "captions", "title", "text", "txt")
"""Usual names of the column of captions, the preferred one first."""
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
        image: name of the column of images; None: the first of IMAGE_COLUMNS that is present.
        captions: names of the columns of captions; None: the first of CAPTION_COLUMNS that is present;
            (): no captions. Letter case is ignored where None.
        name: name of the table, for errors.

    Returns:
        The columns; each is present exactly once.

    Raises:
        ValueError: If a column is absent, present more than once, or chosen twice.
    """
    image = image if image is not None else find_usual_column(IMAGE_COLUMNS, present, "image", name)
    chosen = choose_caption_columns(present, captions, name)
    require_columns_once(present, (image, *chosen), name)
    return TableColumns(image, chosen)


def choose_caption_columns(
    present: Sequence[str], captions: Sequence[str] | None, name: str
) -> tuple[str, ...]:
    """Choose the columns of captions, as `choose_columns` does.

    Args:
        present: names of the columns of the table.
        captions: names of the columns wanted; None: the first usual name that is present.
        name: name of the table, for the error.

    Returns:
        The names of the columns; none if `captions` is empty.

    Raises:
        ValueError: If a column is absent, present more than once, or chosen twice.
    """
    if captions is None:
        captions = (find_usual_column(CAPTION_COLUMNS, present, "captions", name),)
    chosen = (captions,) if isinstance(captions, str) else tuple(captions)
    require_columns_once(present, chosen, name)
    return chosen


def require_columns_once(present: Sequence[str], chosen: Sequence[str], name: str) -> None:
    """Raise ValueError unless each chosen column is present exactly once, and was chosen once.

    Args:
        present: names of the table's columns.
        chosen: names of the columns that are needed.
        name: name of the table, for the error.
    """
    for column in chosen:
        if (count := list(present).count(column)) != 1:
            amount = "no column" if not count else f"{count} columns"
            raise ValueError(f"{name} has {amount} {column!r}. Its columns are {join_names(present, 12)}.")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{name}: a column can be chosen only once, not {', '.join(map(repr, chosen))}")


def find_usual_column(usual: Sequence[str], present: Sequence[str], option: str, name: str) -> str:
    """Find the column that has one of the usual names, ignoring letter case.

    Args:
        usual: the usual names, the preferred one first.
        present: names of the table's columns.
        option: the argument that the user can name the column with, for the error.
        name: name of the table, for the error.

    Returns:
        The first of the usual names that is a column's, as the table spells it.

    Raises:
        ValueError: If there is no such column.
    """
    # Reversed, so that the first of several columns counts.
    by_lower_case = {column.lower(): column for column in reversed(present)}
    for column in usual:
        if column in present or column in by_lower_case:
            return column if column in present else by_lower_case[column]
    raise ValueError(
        f"{name} has no column {', '.join(usual[:-1])} or {usual[-1]}. Name it with {option}= "
        f"(--{option.replace('_', '-')}): the columns are {join_names(present, 12)}. If these are values, not names, "
        "add a first row of column names."
    )


def resolve_image_path(cell: str, folder: Path, location: str) -> Path:
    """Find the image file that a cell names.

    Args:
        cell: value of the image column: a path.
        folder: folder that the path is relative to.
        location: location of the sample, for the error.

    Returns:
        The path of a file that exists and is not empty.

    Raises:
        BadSampleError: If there is no such file, or if the cell is blank or a URL.
    """
    cell = cell.strip()
    if not cell:
        raise BadSampleError("no image", location, "the image column is blank")
    if URL.match(cell):
        detail = f"{cell[:100]!r} is a URL. Download the images first, for example with img2dataset"
        raise BadSampleError("no image", location, detail)
    return require_image_file(folder / cell, location)


def require_image_file(path: Path, location: str) -> Path:
    """Check the file of a sample's image.

    Args:
        path: path of the image.
        location: location of the sample, for the error.

    Returns:
        The same path.

    Raises:
        BadSampleError: Unless it is a file that is not empty.
    """
    if require_sample_file(path, location).st_size == 0:
        raise BadSampleError("empty image", location, f"{_format_path(path)} has 0 bytes")
    return path


def require_sample_file(path: Path, location: str) -> os.stat_result:
    """Require that a file of a sample exists and is a regular file.

    Args:
        path: path of the file.
        location: location of the sample, for the error.

    Returns:
        The status of the file.

    Raises:
        BadSampleError: Unless it exists and is a regular file.
        OSError: If the disk or network fails.
    """
    try:
        status = path.stat()
    except ValueError:  # a NUL
        raise BadSampleError("missing file", location, _format_path(path)) from None
    except OSError as error:
        if error.errno in MISSING_FILE_ERRNOS:
            raise BadSampleError("missing file", location, _format_path(path)) from None
        raise
    if not stat.S_ISREG(status.st_mode):  # a folder; or a pipe, on which reading would block forever
        raise BadSampleError("missing file", location, f"{_format_path(path)} is not a file")
    return status


def _format_path(path: Path) -> str:
    """A path for messages, at most 300 characters; by repr, because what isn't UTF-8 could not be printed."""
    return repr(str(path))[:300]


def require_file(path: Path) -> None:
    """Raise FileNotFoundError or ValueError unless a path that the user gave is a file.

    Args:
        path: the path.
    """
    if not stat.S_ISREG(_stat_file(path).st_mode):
        raise ValueError(f"{path}: not a file, but a folder or a device")


def _stat_file(path: Path) -> os.stat_result:
    """`os.stat` of a file; FileNotFoundError with a plain message if it doesn't exist."""
    try:
        return path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None


def check_image_column(schema: Any, columns: TableColumns, path: Path) -> None:
    """Raise ValueError unless a table has the columns, and the image's type can hold an image.

    Args:
        schema: the table's pyarrow schema.
        columns: the columns that are needed.
        path: path of the table, for the error.
    """
    choose_columns(schema.names, columns.image, columns.captions, str(path))
    image_type = schema.field(columns.image).type
    types = import_extra("pyarrow", "data").types
    struct_fields = (
        {image_type.field(i).name for i in range(image_type.num_fields)}
        if types.is_struct(image_type)
        else set()
    )
    value_type = image_type.value_type if types.is_dictionary(image_type) else image_type
    bytes_or_text = (
        types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary,
        types.is_string, types.is_large_string, types.is_string_view,
    )  # fmt: skip
    if not struct_fields & {"bytes", "path"} and not any(is_type(value_type) for is_type in bytes_or_text):
        raise ValueError(
            f"{path}: the column {columns.image!r} has type {image_type}. An image must be bytes, a path, or a "
            "struct of bytes and path."
        )


class DamagedFileError(ValueError):
    """A file that is damaged, or of another format than expected."""


@contextmanager
def arrow_errors(path: Path | str) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file into DamagedFileError, in a `with` block.

    Disk errors, which have an errno, and MemoryError pass through.

    Args:
        path: path of the file, for the error.

    Yields:
        None: it is a context manager.

    Raises:
        DamagedFileError: In place of an error of pyarrow without an errno.
    """
    arrow = import_extra("pyarrow", "data")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        raise DamagedFileError(f"{path} can't be read. It is damaged or of another format: {error}") from None


class ArrowRows:
    """The rows of a pyarrow table. The record batch of a row is found by bisection; pyarrow would search linearly.

    nbytes: memory of the table, in bytes.
    """

    def __init__(self, table: Any) -> None:
        self.nbytes = int(table.nbytes)
        self._batches = table.to_batches()
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, index: int, location: str) -> dict[str, object]:
        """Read a row.

        Args:
            index: index of the row, from 0.
            location: location of the sample, for the error.

        Returns:
            The values of the row as Python objects, by column.

        Raises:
            BadSampleError: If it is damaged.
        """
        batch_index = bisect_right(self._ends, index)
        batch = self._batches[batch_index]
        row_in_batch = index - (self._ends[batch_index] - batch.num_rows)
        columns = zip(batch.schema.names, batch.columns, strict=True)
        return {name: _read_value(column, row_in_batch, location) for name, column in columns}


def _read_value(column: Any, row: int, location: str) -> Any:
    """Read one value of a pyarrow array as a Python object; BadSampleError if it is damaged.

    It is validated first: in a damaged Arrow file its offsets may point anywhere in memory.
    """
    try:
        column.slice(row, 1).validate(full=True)
    except ValueError as error:
        if "UTF8" not in str(error):  # text that isn't UTF-8 is safe to read: see `_to_python`
            raise BadSampleError("unreadable row", location, str(error)) from None
    return _to_python(column[row])


def _to_python(scalar: Any) -> Any:
    """Convert a pyarrow scalar, also a nested one, to Python objects.

    Text that isn't UTF-8 keeps its bytes as surrogates. What Python has no type for stays a pyarrow scalar.
    """
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
        value: value of a row in one column, as a Python object. Tuples come from maps only.

    Returns:
        The values of a map as a list, also within lists; other values as they are.
    """
    if isinstance(value, tuple):
        return drop_map_keys(value[1])
    return [drop_map_keys(item) for item in value] if isinstance(value, list) else value


def parse_image(value: Any, folder: Path, location: str) -> bytes | Path:
    """Read the image of a row from the value of its image column.

    Args:
        value: bytes, a path, or a dict with "bytes" and "path", of which the bytes count first.
        folder: folder that a path is relative to.
        location: location of the sample, for the error.

    Returns:
        Bytes of an image file, not decoded, or the path of one that exists.

    Raises:
        BadSampleError: If there is no image, or if it is empty.
    """
    path = value
    if isinstance(value, dict):
        value, path = value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        if not value:
            raise BadSampleError("empty image", location, "the image column has 0 bytes")
        return value
    if isinstance(path, str):
        return resolve_image_path(path, folder, location)
    raise BadSampleError("no image", location, "the image column has neither bytes nor a path")
