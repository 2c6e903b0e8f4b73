"""Parameters that several commands share, and JSON on stdout."""

from __future__ import annotations

import json
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
