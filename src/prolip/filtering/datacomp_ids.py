"""Write the uids of kept samples in DataComp's format: a sorted array of pairs of 64-bit integers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from prolip.extras import import_extra
from prolip.files import atomic_write
from prolip.filtering.selection import Selection

log = logging.getLogger("prolip.filtering")

UID_TYPE = np.dtype("u8,u8")
"""int(uid[:16], 16) and int(uid[16:], 16)."""
UID_DIGITS = 32
"""Hexadecimal digits of a uid."""
HEX_VALUES = np.full(256, 255, np.uint8)
"""Value of each ASCII character as a hexadecimal digit; 255: it is none."""
HEX_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = range(16)
HEX_VALUES[np.frombuffer(b"ABCDEF", np.uint8)] = range(10, 16)


def write_datacomp_ids(path: Path, selection: Selection) -> Path:
    """Write the uids of kept samples as a sorted .npy file.

    Memory: 16 bytes per kept sample, and as many to sort them.

    Args:
        path: Path of the file.
        selection: The outcome of every sample.

    Returns:
        The path.

    Raises:
        ValueError: A kept sample has no uid.
    """
    column = get_uid_column(selection)
    blocks = [parse_uids(part.kept_rows[column], column) for part in selection.iter_parts([column])]
    pairs = np.concatenate(blocks) if blocks else np.empty(0, UID_TYPE)
    pairs = pairs[np.lexsort((pairs["f1"], pairs["f0"]))]

    def write_npy(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            np.save(file, pairs)

    return atomic_write(path, write_npy)


def has_uids(selection: Selection) -> bool:
    """Whether all kept samples have a uid. A warning is logged if a column `uid` has an invalid value.

    Args:
        selection: The outcome of every sample.

    Returns:
        Whether there is a kept sample, and every one has a uid.
    """
    column, num_kept = get_uid_column(selection), 0
    for part in selection.iter_parts([column]):
        uids = part.kept_rows[column]
        if (invalid := _find_invalid_uid(uids)) is not None:
            if column == "uid":  # else it is the key of the sample, which need not be a uid
                log.warning(
                    "ids.npy is not written: the uid %r does not have %d hexadecimal digits",
                    invalid,
                    UID_DIGITS,
                )
            return False
        num_kept += len(uids)
    return num_kept > 0


def get_uid_column(selection: Selection) -> str:
    """Choose the column with uids.

    Args:
        selection: The outcome of every sample.

    Returns:
        `uid` if there is such a column, else the sample's key, `id`.
    """
    return "uid" if "uid" in selection.scores.columns else "id"


def parse_uids(texts: Any, column: str) -> np.ndarray:
    """Parse uids of 32 hexadecimal digits.

    Args:
        texts: A pyarrow column of n texts.
        column: Its name, for messages.

    Returns:
        (n,) of UID_TYPE.

    Raises:
        ValueError: A text is not a uid.
    """
    if not len(texts):
        return np.empty(0, UID_TYPE)
    invalid = _find_invalid_uid(texts)
    if invalid is not None:
        raise ValueError(
            f"the {column} {invalid!r} is not a uid of {UID_DIGITS} hexadecimal digits, so ids.npy can't be written: "
            "pass outputs parquet or shards"
        )
    nibbles = HEX_VALUES[_to_bytes(texts)].reshape(-1, 2)
    # two digits are a byte, and eight bytes, the most significant first, half of a uid: (n, 2)
    halves = (nibbles[:, 0] << 4 | nibbles[:, 1]).reshape(-1, 2, 8).view(">u8")[:, :, 0]
    pairs = np.empty(len(texts), UID_TYPE)
    pairs["f0"], pairs["f1"] = halves[:, 0], halves[:, 1]
    return pairs


def _find_invalid_uid(texts: Any) -> str | None:
    """The first text of a pyarrow column that does not have 32 hexadecimal digits; None if all have."""
    compute = import_extra("pyarrow.compute", "data")
    if not len(texts):
        return None
    if not str(texts.type).endswith("string"):  # numbers or the like: none is a uid
        return str(texts[0].as_py())
    is_valid = compute.match_substring_regex(texts, f"^[0-9a-fA-F]{{{UID_DIGITS}}}$").fill_null(False)
    index = compute.index(is_valid, False).as_py()
    return None if index < 0 else str(texts[index].as_py())


def _to_bytes(texts: Any) -> np.ndarray:
    """uint8 (32 n,): the characters of a pyarrow column of n texts of 32 characters each."""
    fixed_width = (
        texts.combine_chunks().cast("binary").cast(import_extra("pyarrow", "data").binary(UID_DIGITS))
    )
    start = fixed_width.offset * UID_DIGITS
    return np.frombuffer(fixed_width.buffers()[1], np.uint8)[start : start + UID_DIGITS * len(fixed_width)]
