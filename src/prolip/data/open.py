"""open_data: open data of any format by its path, glob, range or generator address."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType

from prolip.checks import join_names
from prolip.data.source import Source, require_usable_sample
from prolip.data.sources.arrow import ArrowDataset, ParquetTable
from prolip.data.sources.coco import CocoCaptions
from prolip.data.sources.csv_table import CsvTable
from prolip.data.sources.folder import IMAGE_EXTENSIONS, ImageFolder
from prolip.data.sources.labeled import is_task_folder, list_task_shards, read_dataset_type
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES, TarShards
from prolip.data.splits import SplitSource, parse_split
from prolip.data.views import ViewSource, parse_view
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.storage.addresses import is_remote, parse_address, resolve_local_path

SAVED_DATASET_FILES = ("state.json", "dataset_info.json", "dataset_dict.json")
"""One of them is in every folder that `save_to_disk` of Hugging Face's `datasets` wrote."""

FORMATS = (
    ".tar shards (a path, a folder, a glob, or a range such as {000..012}.tar); "
    "the folder of one of DataComp's 38 evaluation tasks (test/0.tar, ...); "
    ".parquet files (a path, a folder or a glob); "
    "a folder that save_to_disk of `datasets` wrote; a .csv or .tsv table; a .json of COCO captions; "
    f"a folder of images ({', '.join(IMAGE_EXTENSIONS)}) with captions in .txt files; "
    "generated scenes (scenes:simple or scenes:hard, followed by settings: scenes:hard,length=1000,seed=1)"
)
GENERATORS = {"scenes": "prolip.scenes.generator"}
"""Modules that generate data, by the prefix of an address ("scenes:hard"). Each has `open_source(spec)`,
`make_tokenizer(context_length)` and `prepare_evaluation_sets(...)`. Named, not imported: they import this package."""


def open_data(spec: str | Path, *, captions: Sequence[str] | None = None, image: str | None = None) -> Source:
    """Open data on disk, or generated data.

    Args:
        spec: a path, a glob, a range in braces, or the address of a generator ("scenes:hard").
        captions: columns of a table, or fields of a tar ("txt", "json:caption"); None: the format's default; (): none.
        image: the column or extension of the image, or COCO's folder of images; None: the format's default.

    Returns:
        The source. Of data on disk, up to 100 samples were read, to check that they have images and captions.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If the format is unknown, or if captions or images are not where they are looked for.
    """
    address = resolve_local_path(os.path.expanduser(str(spec)))
    if is_stream(address):
        raise ValueError(
            f"{parse_address(address, 'stream')}: this is a stream, not data on disk. Download it, or open it with "
            "prolip.data.TarStream."
        )
    if (view := parse_view(address)) is not None:
        kind, seed, data = view
        return ViewSource(open_data(data, captions=captions, image=image), kind, seed)
    if (split := parse_split(address)) is not None:
        part, fraction, data = split
        return SplitSource(open_data(data, captions=captions, image=image), part, fraction)
    if is_generated(address):
        _refuse_columns(address, "generated data has its own captions", captions, image)
        source: Source = import_generator(address).open_source(address)
        return source
    if os.path.isdir(address):
        source = _open_folder(Path(address), captions, image)
    else:
        source = _open_files(address, captions, image)
    require_usable_sample(source)
    return source


def is_generated(spec: str) -> bool:
    """Return whether data is generated, not read.

    Args:
        spec: address of data.

    Returns:
        True for an address such as "scenes:simple,seed=1".
    """
    prefix, colon, _ = spec.partition(":")
    return bool(colon) and prefix in GENERATORS


def import_generator(spec: str) -> ModuleType:
    """Import the module that generates the data of an address.

    Args:
        spec: address of generated data, or a generator's name alone ("scenes").

    Returns:
        The module, with the functions that GENERATORS lists.

    Raises:
        KeyError: If there is no such generator.
    """
    return import_module(GENERATORS[spec.partition(":")[0]])


def make_generated_tokenizer(name: str, context_length: int = 64) -> Tokenizer:
    """Make the tokenizer of a generator's captions.

    Args:
        name: a key of GENERATORS.
        context_length: largest number of token ids of a text.

    Returns:
        The tokenizer.
    """
    tokenizer: Tokenizer = import_generator(name).make_tokenizer(context_length)
    return tokenizer


def is_stream(spec: str) -> bool:
    """Return whether data can only be read from the beginning.

    Args:
        spec: address of data.

    Returns:
        True for a command ("pipe:...") or a network address; file:// is data on disk.
    """
    return is_remote(spec)


def _open_folder(folder: Path, captions: Sequence[str] | None, image: str | None) -> Source:
    """`open_data` of a folder: what it contains decides on the format; ValueError if nothing in it is recognized."""
    if any((folder / name).is_file() for name in SAVED_DATASET_FILES):
        return ArrowDataset(folder, captions=captions, image=image)
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    tars = [str(folder / name) for name in names if name.lower().endswith(".tar")]
    if tars:  # before .parquet: img2dataset writes tables of URLs next to its shards
        return _open_shards(tars, captions, image)
    if is_task_folder(folder):
        task_captions = ("txt:lines",) if read_dataset_type(folder) == "retrieval" else ()
        return _open_shards(list_task_shards(folder), task_captions if captions is None else captions, image)
    if any(name.lower().endswith(".parquet") for name in names):
        return ParquetTable(folder, captions=captions, image=image)
    try:
        source = ImageFolder(folder, captions=captions is None)
    except ValueError:  # no image
        problem = f"the folder contains {join_names(names, 6)}" if names else "the folder is empty"
        raise _make_format_error(str(folder), problem) from None
    _refuse_columns(folder, "a folder of images has its captions in .txt files", captions, image)
    return source


def _open_files(pattern: str, captions: Sequence[str] | None, image: str | None) -> Source:
    """`open_data` of a file, a glob or a range in braces: the extension decides on the format.

    FileNotFoundError if no file has this name or matches it, ValueError if the extension is unknown.
    """
    lower_case = pattern.lower()
    if lower_case.rstrip("}").endswith(".tar"):  # {a.tar,b.tar} too
        return _open_shards(pattern, captions, image)
    if lower_case.endswith(".parquet"):
        return ParquetTable(pattern, captions=captions, image=image)
    if lower_case.endswith((".csv", ".tsv", ".tab")):
        return CsvTable(pattern, captions=captions, image=image)
    if lower_case.endswith(".json"):
        # `image` is not refused: for COCO it is the folder of images, not a column.
        _refuse_columns(pattern, "COCO files have no columns", captions, None)
        return CocoCaptions(pattern, image, captions=captions is None)
    if not os.path.exists(pattern):
        matches = [os.path.basename(name) for name in islice(sorted(glob(pattern)), 100)]
        if not matches:
            raise FileNotFoundError(f"{pattern}: no such file or folder")
        raise _make_format_error(pattern, f"it matches {join_names(matches, 6)}")
    raise _make_format_error(pattern, "the extension is unknown")


def _open_shards(pattern: str | list[str], captions: Sequence[str] | None, image: str | None) -> Source:
    """Open tar shards; None leaves `captions` or the extensions of images at the defaults of `TarShards`."""
    return TarShards(
        pattern,
        captions=DEFAULT_CAPTIONS if captions is None else captions,
        images=DEFAULT_IMAGES if image is None else (image,),
    )


def _refuse_columns(path: Path | str, reason: str, captions: Sequence[str] | None, image: str | None) -> None:
    """Raise ValueError if columns were chosen for a format without columns; `reason` says what it has instead."""
    if captions or image is not None:
        raise ValueError(
            f"{path}: {reason}. Leave out captions (--captions) and image (--image); in Python, captions=() reads the "
            "images alone."
        )


def _make_format_error(name: str, problem: str) -> ValueError:
    """The error for data of unknown format; `problem` says what was found, for example the files of a folder."""
    return ValueError(
        f"{name}: the format of the data is not recognized: {problem}. Supported are: {FORMATS}"
    )
