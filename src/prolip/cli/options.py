"""Parameters that several commands share, and JSON on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Protocol

from tyro.conf import arg

Data = Annotated[
    str,
    arg(
        metavar="DATA",
        help="Shards (path, glob, range or folder), .csv, .tsv, .parquet, COCO .json, a folder of images, a Hugging "
        "Face dataset on disk, scenes:hard, or a stream (pipe:..., https://...).",
    ),
]
"""Any data that `open_data` reads, or a stream."""

Model = Annotated[
    str,
    arg(help="Model folder, training run, folder or file of another format, or hub id (owner/name)."),
]
"""What `prolip.load` takes."""

Json = Annotated[bool, arg(name="json", help="Print JSON instead of text.")]


class HasJson(Protocol):
    """A result that can be printed."""

    def to_json(self) -> str:
        """The result as JSON text."""


def print_json(result: HasJson, **more: object) -> None:
    """Print a result as indented JSON.

    Args:
        result: The result.
        more: More members of the object.
    """
    print(json.dumps(json.loads(result.to_json()) | more, indent=2, allow_nan=False))


def print_written(paths: Iterable[str | Path], as_json: bool, **more: object) -> None:
    """Print the files and folders that a command wrote: a line each, or {"written": [...]}.

    Args:
        paths: The files and folders.
        as_json: Whether to print JSON.
        more: More members of the JSON object.
    """
    words = [str(path) for path in paths]
    print(json.dumps({"written": words} | more, indent=2) if as_json else "\n".join(words))
