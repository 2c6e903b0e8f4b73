"""HierarCaps: chains of captions from general to specific, each with its image."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prolip.data.sources.columns import require_file
from prolip.preprocessing.images import URL

CAPTION_SEPARATOR = "=>"
"""Between the captions of a chain."""
URL_COLUMNS = ("url", "image_url")
"""Names that the column of images may have, the preferred one first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HierarCaps:
    """N chains of L captions.

    path:          the table.
    captions:      all of them, each text once.
    chains:        int64 (N, L): indices of captions, from general to specific.
    images:        files, each once.
    image_index:   int64 (N,): the image of each chain; -1 if there is no file.
    missing:       urls of the table whose images don't exist.
    log_ambiguity: float64 (N, L): log, in nats, of the probability that each caption is true of an image; None if
                   unknown.
    """

    path: Path
    captions: tuple[str, ...]
    chains: Tensor
    images: tuple[Path, ...]
    image_index: Tensor
    missing: tuple[str, ...]
    log_ambiguity: Tensor | None


def read_hierarcaps(path: str | Path, images: str | Path | None = None) -> HierarCaps:
    """Read a table (CSV, UTF-8) with the columns captions, "general => ... => specific", and url or image_url.

    The column log_ambiguity, a number for each caption, separated by spaces, is optional. An image that doesn't exist
    is listed in `missing`; its chain is used without an image.

    Args:
        path: path of the table.
        images: folder of the images. A url is a path relative to the table, or the name of a file in this folder; of an
            http address the last part is that name.

    Returns:
        The chains.

    Raises:
        FileNotFoundError: If there is no such table or folder, or if the folder has none of the images.
        ValueError: If the table is malformed, or if its chains have different lengths.
    """
    path = Path(path).expanduser()
    folder = None if images is None else Path(images).expanduser()
    require_file(path)
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    rows, url_column = _read_rows(path)
    chains = [
        _parse_chain(row["captions"], f"{path}: row {number}") for number, row in enumerate(rows, start=1)
    ]
    _require_one_length(chains, path)
    unique_captions = dict.fromkeys(text for chain in chains for text in chain)
    caption_numbers = {text: number for number, text in enumerate(unique_captions)}
    files = [_find_image(row[url_column], path.parent, folder) for row in rows]
    if folder is not None and not any(files):
        raise FileNotFoundError(f"{folder}: none of the {len(rows)} images of {path} is in this folder")
    unique_images = dict.fromkeys(file for file in files if file)
    image_numbers = {file: number for number, file in enumerate(unique_images)}
    return HierarCaps(
        path=path,
        captions=tuple(caption_numbers),
        chains=torch.tensor(
            [[caption_numbers[text] for text in chain] for chain in chains], dtype=torch.int64
        ),
        images=tuple(image_numbers),
        image_index=torch.tensor([image_numbers[file] if file else -1 for file in files], dtype=torch.int64),
        missing=tuple(row[url_column] for row, file in zip(rows, files, strict=True) if not file),
        log_ambiguity=_parse_log_ambiguity(rows, len(chains[0]), path),
    )


def _read_rows(path: Path) -> tuple[list[dict[str, str]], str]:
    """Read the table: (rows by column, name of the column of images).

    ValueError if it is not CSV in UTF-8, lacks a column, has no rows, or has a row of another length.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = list(reader.fieldnames or ())
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a CSV in UTF-8: {error}") from None
    url_column = next((name for name in URL_COLUMNS if name in names), None)
    if "captions" not in names or url_column is None:
        raise ValueError(f"{path} must have the columns captions and {' or '.join(URL_COLUMNS)}, not {names}")
    if not rows:
        raise ValueError(f"{path} has no rows")
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():  # csv.DictReader's marks of too many and too few values
            raise ValueError(
                f"{path}: row {number} doesn't have {len(names)} cells. Put cells that contain commas in quotes."
            )
    return rows, url_column


def _parse_chain(cell: str, location: str) -> tuple[str, ...]:
    """The captions of a chain, "general => ... => specific", stripped; ValueError if one is empty."""
    chain = tuple(text.strip() for text in cell.split(CAPTION_SEPARATOR))
    if not all(chain):
        raise ValueError(f"{location}: caption {chain.index('') + 1} of the chain {cell!r} is empty")
    return chain


def _require_one_length(chains: Sequence[Sequence[str]], path: Path) -> None:
    """Raise ValueError unless all chains have the same number of captions, at least two."""
    if len(chains[0]) < 2:
        raise ValueError(
            f"{path}: row 1 has one caption. A chain has two or more, separated by {CAPTION_SEPARATOR}."
        )
    for number, chain in enumerate(chains, start=1):
        if len(chain) != len(chains[0]):
            raise ValueError(
                f"{path}: row {number} has {len(chain)} captions separated by {CAPTION_SEPARATOR}, "
                f"row 1 has {len(chains[0])}; "
                "all chains must have the same number of levels"
            )


def _find_image(url: str, table_folder: Path, images: Path | None) -> Path | None:
    """The file that the url of a row names, see `read_hierarcaps`; None if it doesn't exist."""
    url = url.strip()
    is_url = URL.match(url) is not None
    candidates = [] if is_url or not url else [table_folder / url]
    if images is not None and url:
        name = url.split("?")[0].rstrip("/").rsplit("/", 1)[-1]
        candidates += [images / name] if is_url else [images / url, images / name]
    return next((path for path in candidates if path.is_file()), None)


def _parse_log_ambiguity(rows: Sequence[Mapping[str, str]], num_levels: int, path: Path) -> Tensor | None:
    """The column log_ambiguity, float64 (N, num_levels); None if the table has no such column.

    ValueError if a row doesn't have `num_levels` finite numbers, separated by spaces.
    """
    values = []
    for number, row in enumerate(rows, start=1):
        if "log_ambiguity" not in row:
            return None
        try:
            values.append([float(word) for word in row["log_ambiguity"].split()])
        except ValueError as error:
            raise ValueError(f"{path}: row {number}: log_ambiguity: {error}") from None
        if not all(map(math.isfinite, values[-1])):
            raise ValueError(
                f"{path}: row {number}: log_ambiguity must be finite numbers, not {row['log_ambiguity']!r}"
            )
        if len(values[-1]) != num_levels:
            raise ValueError(
                f"{path}: row {number} has {len(values[-1])} numbers in log_ambiguity for {num_levels} captions"
            )
    return torch.tensor(values, dtype=torch.float64)
