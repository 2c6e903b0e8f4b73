"""What prolip has written into a folder, so that no command writes into a folder of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

FolderKind = Literal[
    "embeddings", "a database", "a training run", "a model", "the output of a filter", "results"
]
"""What a command writes into the folder that --out names."""

MARKERS: dict[FolderKind, tuple[str, ...]] = {
    "embeddings": ("prolip.json",),
    "a database": ("items.lance",),
    "a training run": ("sessions.jsonl",),
    "a model": ("model.safetensors",),
    "the output of a filter": ("filter.json", "scores/_scores.json"),
}
"""Files and folders that only a folder of this kind has. Results have none: a run or a model may hold its results."""


def require_folder_for(kind: FolderKind, folder: Path, *, beside: tuple[FolderKind, ...] = ()) -> None:
    """Require that a folder holds nothing of another kind that prolip wrote.

    Args:
        kind: What is to be written.
        folder: Where; it may be missing.
        beside: Other kinds that the folder may hold.

    Raises:
        ValueError: The folder holds another kind.
    """
    for other, names in MARKERS.items():
        found = next((name for name in names if (folder / name).exists()), None)
        if found is not None and other not in (kind, *beside):
            raise ValueError(
                f"{folder} holds {other} ({found}), so {kind} can't be written there. Choose another folder with "
                "--out, so that nothing is mixed or overwritten."
            )
