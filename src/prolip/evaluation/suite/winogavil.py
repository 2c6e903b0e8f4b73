"""WinoGAViL: a cue word and candidate images, some of which are associated with it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prolip.evaluation.suite.hf_tables import ImageCell, TableImages, find_table_files, list_row_groups

COLUMNS = ("candidates", "candidate_images", "cue", "associations")
"""Columns of the tables, see `open_winogavil`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WinoGAViL:
    """The data of WinoGAViL: R instances with P candidates in all.

    source:        The distinct candidate images; one image may be a candidate of many instances.
    cues:          The cue of each instance, (R,).
    instances:     int64 (P,): the instance of each candidate, increasing.
    image_indices: int64 (P,): the index of each candidate's image in `source`.
    associated:    bool (P,): whether the candidate is associated with the cue. As many candidates are to be selected as
                   are associated, as in the public evaluator, which counts np.isin(candidates, associations): an
                   association that is not a candidate, or is listed twice, adds nothing; a candidate that is listed
                   twice counts twice.
    """

    source: TableImages
    cues: tuple[str, ...]
    instances: np.ndarray
    image_indices: np.ndarray
    associated: np.ndarray


def open_winogavil(folder: Path) -> WinoGAViL:
    """Open WinoGAViL; reads all rows once.

    Args:
        folder: Tables with the columns `candidates` and `associations` (lists of names), `cue`, and `candidate_images`
            (a list of images, or of file names next to the table or in `images` there).

    Returns:
        The instances, and the distinct images of their candidates.

    Raises:
        ValueError: A row is invalid, or there is none.
    """
    row_groups = list_row_groups(find_table_files(folder), COLUMNS)
    index_of_digest: dict[str, int] = {}  # digest of an image -> its index among the distinct images
    image_cells: list[ImageCell] = []
    cues: list[str] = []
    candidates: list[tuple[int, int, bool]] = []  # instance, image index, whether associated
    for group, row_group in enumerate(row_groups):
        rows = row_group.load()
        for row in range(len(rows)):
            location = row_group.describe_row(row)
            instance = _parse_instance(rows.row(row, location), location)
            for item, (name, image) in enumerate(zip(instance.candidates, instance.images, strict=True)):
                index = index_of_digest.setdefault(_compute_image_digest(image), len(index_of_digest))
                if index == len(image_cells):  # a new image
                    image_cells.append(ImageCell(group, row, item))
                candidates.append((len(cues), index, name in instance.associations))
            cues.append(instance.cue)
    if not cues:
        raise ValueError(f"{folder}: the tables of WinoGAViL have no rows; download the data set again")
    instances, image_indices, associated = np.ascontiguousarray(np.array(candidates, dtype=np.int64).T)
    return WinoGAViL(
        source=TableImages(folder, row_groups, image_cells, "candidate_images", None),
        cues=tuple(cues), instances=instances, image_indices=image_indices, associated=associated.astype(bool),
    )  # fmt: skip


class _Instance(NamedTuple):
    """A row of the tables: a cue, the names and images of its candidates, and the names associated with it."""

    cue: str
    candidates: list[str]
    images: list[Any]
    associations: set[str]


def _parse_instance(values: Mapping[str, Any], location: str) -> _Instance:
    """Parse a row; ValueError if a list, an image or the cue is missing, or no candidate is associated."""
    for name in ("candidates", "candidate_images", "associations"):
        if not isinstance(values[name], list):
            raise ValueError(f"{location}: {name!r} must be a list, not {type(values[name]).__name__}")
    if len(values["candidates"]) != len(values["candidate_images"]):
        raise ValueError(
            f"{location}: {len(values['candidates'])} candidates, but {len(values['candidate_images'])} images"
        )
    if not isinstance(values["cue"], str) or not values["cue"].strip():
        raise ValueError(f"{location}: the cue is missing or empty")
    if not set(values["associations"]) & set(values["candidates"]):
        raise ValueError(f"{location}: no association is among the candidates")
    return _Instance(
        cue=values["cue"].strip(),
        candidates=values["candidates"],
        images=values["candidate_images"],
        associations=set(values["associations"]),
    )


def _compute_image_digest(value: Any) -> str:
    """Digest of an image cell, equal for equal images: that of its bytes, or of its file name if it has no bytes.

    value: bytes, a file name, or a dict {bytes, path} as `datasets` stores images.
    """
    bytes_or_name = value.get("bytes") or value.get("path") if isinstance(value, dict) else value
    kind = "name" if isinstance(bytes_or_name, str) else "bytes"
    data = bytes_or_name.encode() if isinstance(bytes_or_name, str) else bytes_or_name or b""
    return f"{kind} {hashlib.blake2b(data, digest_size=16).hexdigest()}"
