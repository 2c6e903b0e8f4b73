"""HierarImgs as `hierarimgs_builder.build` wrote it: images, and files of each with fewer segments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.files import read_json


@dataclass(frozen=True, kw_only=True)
class HierarImgs:
    """N pictures of K levels. originals: their files; levels: (K, N) files, level 0 shows the largest segment only."""

    path: Path
    originals: tuple[Path, ...]
    levels: tuple[tuple[Path, ...], ...]


def read_hierarimgs(path: str | Path) -> HierarImgs:
    """The folder that `prolip data hierarimgs` built, or its index.json."""
    path = Path(path).expanduser()
    index = path / "index.json" if path.is_dir() else path
    entries = read_json(index).get("images")
    if not isinstance(entries, list) or not entries:
        raise ValueError(
            f"{index} names no images; prolip.data.sources.hierarimgs_builder.build makes such a file"
        )
    try:
        originals = tuple(index.parent / entry["original"] for entry in entries)
        rows = [tuple(index.parent / name for name in entry["levels"]) for entry in entries]
    except (KeyError, TypeError):
        raise ValueError(f'{index}: each of its images must have "original" and "levels"') from None
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ValueError(f"{index}: all images must have the same number of levels, at least one")
    return HierarImgs(path=index, originals=originals, levels=tuple(zip(*rows, strict=True)))
