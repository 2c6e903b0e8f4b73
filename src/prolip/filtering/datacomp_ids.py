"""The ids of what is kept, in DataComp's format: a sorted array of pairs of 64-bit numbers, made of 32 hex digits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from prolip.extras import require
from prolip.files import write_whole
from prolip.filtering.selection import Selection

log = logging.getLogger("prolip.retrieval")

PAIR = np.dtype("u8,u8")
"""int(uid[:16], 16) and int(uid[16:], 16)."""
DIGITS = 32
VALUE = np.full(256, 255, np.uint8)
VALUE[np.frombuffer(b"0123456789abcdef", np.uint8)] = range(16)
VALUE[np.frombuffer(b"ABCDEF", np.uint8)] = range(10, 16)


def write_ids(path: Path, selection: Selection) -> Path:
    """Memory: 16 bytes for each sample that is kept, and as many to sort them."""
    column = uid_column(selection)
    blocks = [uids_of(judged.kept[column], column) for judged in selection.parts([column])]
    pairs = np.concatenate(blocks) if blocks else np.empty(0, PAIR)
    pairs = pairs[np.lexsort((pairs["f1"], pairs["f0"]))]

    def write(aside: Path) -> None:
        with open(aside, "wb") as file:
            np.save(file, pairs)

    return write_whole(path, write)


def all_have_uids(selection: Selection) -> bool:
    """Whether all samples that are kept have a uid. If only some have, that is told."""
    column, seen = uid_column(selection), 0
    for judged in selection.parts([column]):
        texts = judged.kept[column]
        if (bad := _bad_digits(texts)) is not None:
            if column == "uid":
                log.warning("no ids.npy: the uid %r is not of %d hexadecimal digits", bad, DIGITS)
            return False
        seen += len(texts)
    return seen > 0


def uid_column(selection: Selection) -> str:
    """`uid`, or the sample's own key."""
    return "uid" if "uid" in selection.scores.columns else "id"


def uids_of(texts: Any, column: str) -> np.ndarray:
    """Texts of 32 hexadecimal digits, a pyarrow column, as pairs of numbers (n,)."""
    if not len(texts):
        return np.empty(0, PAIR)
    bad = _bad_digits(texts)
    if bad is not None:
        raise ValueError(
            f"the {column} {bad!r} is not a uid of {DIGITS} hexadecimal digits, so that there can be no ids.npy; ask "
            "for parquet or shards"
        )
    nibbles = VALUE[_bytes(texts)].reshape(-1, 2)
    numbers = (nibbles[:, 0] << 4 | nibbles[:, 1]).reshape(-1, 2, 8).view(">u8")[:, :, 0]
    pairs = np.empty(len(texts), PAIR)
    pairs["f0"], pairs["f1"] = numbers[:, 0], numbers[:, 1]
    return pairs


def _bad_digits(texts: Any) -> str | None:
    """The first text that isn't of 32 hexadecimal digits, as people read it; None if all are."""
    compute = require("pyarrow.compute", "data")
    if not len(texts):
        return None
    if not str(texts.type).endswith("string"):
        return str(texts[0].as_py())
    good = compute.match_substring_regex(texts, f"^[0-9a-fA-F]{{{DIGITS}}}$").fill_null(False)
    place = compute.index(good, False).as_py()
    return None if place < 0 else str(texts[place].as_py())


def _bytes(texts: Any) -> np.ndarray:
    """uint8 (32 n,): the letters of texts of 32 letters each."""
    fixed = texts.combine_chunks().cast("binary").cast(require("pyarrow", "data").binary(DIGITS))
    start = fixed.offset * DIGITS
    return np.frombuffer(fixed.buffers()[1], np.uint8)[start : start + DIGITS * len(fixed)]
