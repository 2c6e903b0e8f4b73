"""What captions without pictures share: the columns that hold them, and how a cell becomes a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prolip.checks import join_names
from prolip.data.sample import Sample, parse_captions
from prolip.data.sources.columns import CAPTION_COLUMNS
from prolip.data.sources.hierarcaps import CAPTION_SEPARATOR


def caption_columns(present: Sequence[str], asked: Sequence[str] | None, path: Path) -> tuple[str, ...]:
    """The columns that are asked for, or the first of CAPTION_COLUMNS that is there; ValueError if there is none."""
    if asked is None:
        lower = {name.lower(): name for name in reversed(present)}
        asked = [name if name in present else lower[name] for name in CAPTION_COLUMNS if name in lower][:1]
        if not asked:
            raise ValueError(
                f"{path} has no column {', '.join(CAPTION_COLUMNS)}: name the captions' column; there are "
                f"{join_names(present, 12)}"
            )
    wrong = [name for name in asked if list(present).count(name) != 1]
    if wrong or not asked or len(set(asked)) < len(asked):
        raise ValueError(
            f"{path}: captions must be columns that are there once, not {list(asked)}; it has {join_names(present, 12)}"
        )
    return tuple(asked)


def sample_of(index: int, where: str, values: Iterable[object], extra: Mapping[str, Any]) -> Sample:
    """A sample without a picture: image is b"". A text with => holds several captions, as HierarCaps has them."""
    return Sample(str(index), where, b"", parse_captions([_parts(value) for value in values], where), extra)


def _parts(value: object) -> object:
    """What a => divides. Bytes may be divided as well: no other character has these bytes in UTF-8."""
    if isinstance(value, str):
        return value.split(CAPTION_SEPARATOR)
    if isinstance(value, bytes):
        return value.split(CAPTION_SEPARATOR.encode())
    return [_parts(item) for item in value] if isinstance(value, list) else value
