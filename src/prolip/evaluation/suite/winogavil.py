"""WinoGAViL: a cue, and the pictures that go with it among ten or so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.evaluation.suite.hf_tables import find_table_files, list_parts
from prolip.evaluation.suite.rows import ImageCell, TableImages

COLUMNS = ("candidates", "candidate_images", "cue", "associations")


@dataclass(frozen=True, kw_only=True, eq=False)
class WinoGAViL:
    """source: the different candidate pictures (the same one stands in many riddles). cues: (R,).

    Of every candidate of every riddle: rows (P,), its riddle, increasing; pictures (P,), its number in `source`;
    associated (P,), whether it goes with the cue. "The number of associations", as many as are to be found, is that of
    the associated candidates: the public evaluator counts np.isin(candidates, associations). So an association that is
    no candidate, or stands twice, adds nothing, and a candidate that stands twice counts twice.
    """

    source: TableImages
    cues: tuple[str, ...]
    rows: np.ndarray
    pictures: np.ndarray
    associated: np.ndarray


def open_winogavil(folder: Path) -> WinoGAViL:
    """Out of tables with candidates, cue and associations (texts) and candidate_images: pictures, or names of files
    that lie beside the table or in `images` there. Goes through all of it once."""
    parts = list_parts(find_table_files(folder), COLUMNS)
    seen: dict[str, int] = {}
    places: list[ImageCell] = []
    cues: list[str] = []
    entries: list[tuple[int, int, bool]] = []
    for number, part in enumerate(parts):
        loaded = part.load()
        for row in range(len(loaded)):
            where = f"{part.path}: row {row + 1} of part {number}"
            cells = _checked(loaded.row(row, where), where)
            wanted = set(cells["associations"])
            for j, (name, value) in enumerate(
                zip(cells["candidates"], cells["candidate_images"], strict=True)
            ):
                picture = seen.setdefault(_digest(value), len(seen))
                if picture == len(places):
                    places.append(ImageCell(number, row, j))
                entries.append((len(cues), picture, name in wanted))
            cues.append(cells["cue"].strip())
    if not cues:
        raise ValueError(f"{folder} holds no riddle")
    rows, pictures, associated = np.ascontiguousarray(np.array(entries, dtype=np.int64).T)
    return WinoGAViL(
        source=TableImages(folder, parts, places, "candidate_images", None),
        cues=tuple(cues), rows=rows, pictures=pictures, associated=associated.astype(bool),
    )  # fmt: skip


def _checked(cells: dict[str, Any], where: str) -> dict[str, Any]:
    for name in ("candidates", "candidate_images", "associations"):
        if not isinstance(cells[name], list):
            raise ValueError(f"{where}: {name!r} must be a list, not a {type(cells[name]).__name__}")
    if len(cells["candidates"]) != len(cells["candidate_images"]):
        raise ValueError(
            f"{where}: {len(cells['candidates'])} candidates, {len(cells['candidate_images'])} images"
        )
    if not isinstance(cells["cue"], str) or not cells["cue"].strip():
        raise ValueError(f"{where}: it has no cue")
    if not set(cells["associations"]) & set(cells["candidates"]):
        raise ValueError(f"{where}: none of its associations is among its candidates")
    return cells


def _digest(value: Any) -> str:
    """Of a picture's bytes; of its name, where it lies beside the table."""
    content = value.get("bytes") or value.get("path") if isinstance(value, dict) else value
    kind = "name" if isinstance(content, str) else "bytes"
    data = content.encode() if isinstance(content, str) else content or b""
    return f"{kind} {hashlib.blake2b(data, digest_size=16).hexdigest()}"
