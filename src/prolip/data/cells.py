"""What tables of all formats share: which columns count, and how a cell becomes an image or a value."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prolip.checks import some
from prolip.data.sample import BadSampleError
from prolip.extras import require
from prolip.inputs.images import URL

IMAGE_COLUMNS = (
    "image", "jpg", "jpeg", "png", "webp", "filepath", "file_name", "filename", "path", "image_path",
)  # fmt: skip
CAPTION_COLUMNS = ("caption", "captions", "title", "text", "txt")


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
            raise ValueError(f"{name} has {many} {column!r}; its columns are {some(present, 12)}")
    if len({image, *captions}) <= len(captions):
        raise ValueError(f"{name}: a column can be asked for once only, not {image!r} and {tuple(captions)}")
    return Columns(image, tuple(captions))


def _first(usual: Sequence[str], present: Sequence[str], option: str, name: str) -> str:
    for column in usual:
        if column in present:
            return column
    raise ValueError(
        f"{name} has no column called {', '.join(usual[:-1])} or {usual[-1]}; "
        f"say with {option}= which of its columns it is: {some(present, 12)}"
    )


def image_file(cell: str, folder: Path, where: str) -> Path:
    """The image file that a cell names, relative to `folder`."""
    cell = cell.strip()
    if not cell:
        raise BadSampleError("no image", where)
    if URL.match(cell):
        detail = f"{cell[:100]!r} is a URL: download the images first, for example with img2dataset"
        raise BadSampleError("no image", where, detail)
    return present_image(folder / cell, where)


def present_image(path: Path, where: str) -> Path:
    """The path of an image that a sample names, if there is a file, and something in it."""
    shown = repr(str(path))[:300]  # repr: what isn't UTF-8 could not be printed
    try:
        status = path.stat()
    except ValueError:  # a NUL
        raise BadSampleError("missing file", where, shown) from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
            raise BadSampleError("missing file", where, shown) from None
        raise
    if not stat.S_ISREG(status.st_mode):  # a folder; or a pipe, which would be waited for without end
        raise BadSampleError("missing file", where, f"{shown} is not a file")
    if status.st_size == 0:
        raise BadSampleError("empty image", where, shown)
    return path


def require_file(path: Path) -> None:
    """A file that the user named is there, and is a file."""
    if not stat.S_ISREG(_status(path).st_mode):
        raise ValueError(f"{path}: this is not a file")


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None


def check_columns(schema: Any, columns: Columns, path: Path) -> None:
    choose_columns(schema.names, columns.image, columns.captions, str(path))
    kind = schema.field(columns.image).type
    types = require("pyarrow", "data").types
    in_struct = {kind.field(i).name for i in range(kind.num_fields)} if types.is_struct(kind) else set()
    plain = (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string)
    if not in_struct & {"bytes", "path"} and not any(is_kind(kind) for is_kind in plain):
        wanted = "an image is bytes, a path, or a struct of bytes and path"
        raise ValueError(f"{path}: the column {columns.image!r} is {kind}; {wanted}")


def arrow_value(column: Any, row: int, where: str) -> Any:
    """A value as Python's own. Checked before: in a damaged Arrow file its bytes may lie anywhere in memory."""
    try:
        column.slice(row, 1).validate(full=True)
    except ValueError as error:
        if "UTF8" not in str(error):
            raise BadSampleError("broken shard", where, str(error)) from None
    return _plain(column[row])


def _plain(scalar: Any) -> Any:
    """Text that isn't UTF-8 keeps its bytes as half characters. What Python has no type for stays as it is."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode("utf-8", errors="surrogateescape")
        if hasattr(scalar, "items"):
            return {name: _plain(value) for name, value in scalar.items()}
        if hasattr(scalar, "values"):
            return [_plain(value) for value in scalar.values]
        return _plain(scalar.value) if hasattr(scalar, "dictionary") else scalar
    except (ValueError, ArithmeticError, NotImplementedError):
        # nanoseconds, a time zone that isn't known here
        return scalar


def image_of(value: Any, folder: Path, where: str) -> bytes | Path:
    path = value
    if isinstance(value, dict):
        value, path = value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        if not value:
            raise BadSampleError("empty image", where)
        return value
    if isinstance(path, str):
        return image_file(path, folder, where)
    raise BadSampleError("no image", where)
