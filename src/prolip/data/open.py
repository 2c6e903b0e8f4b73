"""One word for all data on disk: what a path leads to decides how it is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from prolip.checks import join_names
from prolip.data.source import Source, require_captions
from prolip.data.sources.arrow import ArrowDataset, ParquetTable
from prolip.data.sources.coco import CocoCaptions
from prolip.data.sources.csv_table import CsvTable
from prolip.data.sources.folder import IMAGE_EXTENSIONS, ImageFolder
from prolip.data.sources.labeled import is_task_folder, list_task_shards, read_dataset_type
from prolip.data.sources.tar import URL, TarShards
from prolip.preprocessing.tokenizer import Tokenizer

SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")
"""One of them is in every folder that `save_to_disk` of Hugging Face's `datasets` wrote."""

READABLE = (
    ".tar shards (a path, a folder, a glob, or a range such as {000..012}.tar); "
    "a folder of the 38 tasks (test/0.tar, ...); "
    ".parquet files (a path, a folder or a glob); "
    "a folder that save_to_disk of `datasets` wrote; a .csv or .tsv table; a .json of COCO captions; "
    f"a folder of pictures ({', '.join(IMAGE_EXTENSIONS)}) with captions in .txt files; "
    "procedural scenes (scenes:simple, scenes:hard, with length=, size=, seed=, ... behind commas)"
)
GENERATORS = {"scenes": "prolip.scenes.generator"}
"""Modules that generate data, by the prefix of an address ("scenes:hard"). Each has `open_source(spec)`,
`make_tokenizer(context_length)` and `prepare_evaluation_sets(...)`. Named, not imported: they import this package."""


def open_data(spec: str | Path, *, captions: Sequence[str] | None = None, image: str | None = None) -> Source:
    """The data that a path, a glob or a range leads to.

    captions: columns of a table, or endings in a tar ("txt", "json:caption"); None: the format's default; (): none.
    image:    the column, or the ending, of the image, or COCO's folder of images; None: the format's default.
    """
    text = os.path.expanduser(str(spec))
    if is_stream(text):
        raise ValueError(f"{text}: a stream is opened with prolip.data.TarStream, not as data on disk")
    if is_generated(text):
        _refuse_columns(text, "generated data brings its own captions", captions, image)
        source: Source = import_generator(text).open_source(text)
        return source
    if os.path.isdir(text):
        source = _open_folder(Path(text), captions, image)
    else:
        source = _open_files(text, text.lower(), captions, image)
    require_captions(source)
    return source


def is_generated(spec: str) -> bool:
    """Whether it names generated data, such as "scenes:simple,seed=1", rather than files."""
    prefix, colon, _ = spec.partition(":")
    return bool(colon) and prefix in GENERATORS


def import_generator(spec: str) -> ModuleType:
    """Import the module that generates the data of an address, or of a generator's name alone ("scenes")."""
    return import_module(GENERATORS[spec.partition(":")[0]])


def make_generated_tokenizer(name: str, context_length: int = 64) -> Tokenizer:
    """Make the tokenizer of a generator's captions.

    Args:
        name: A key of GENERATORS.
        context_length: Token ids per text.
    """
    tokenizer: Tokenizer = import_generator(name).make_tokenizer(context_length)
    return tokenizer


def is_stream(spec: str) -> bool:
    """Data that can only be read from its beginning: a command or an address."""
    return URL.match(spec) is not None


def _open_folder(folder: Path, captions: Sequence[str] | None, image: str | None) -> Source:
    if any((folder / name).is_file() for name in SAVED):
        return ArrowDataset(folder, captions=captions, image=image)
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    tars = [str(folder / name) for name in names if name.lower().endswith(".tar")]
    if tars:  # before .parquet: img2dataset lays tables of URLs beside its shards
        return _shards(tars, captions, image)
    if is_task_folder(folder):
        lines = ("txt:lines",) if read_dataset_type(folder) == "retrieval" else ()
        return _shards(list_task_shards(folder), lines if captions is None else captions, image)
    if any(name.lower().endswith(".parquet") for name in names):
        return ParquetTable(folder, captions=captions, image=image)
    try:
        pictures = ImageFolder(folder, captions=captions is None)
    except ValueError:  # no picture
        found = f"the folder holds {join_names(names, 6)}" if names else "the folder is empty"
        raise _nothing_fits(str(folder), found) from None
    _refuse_columns(folder, "a folder of pictures has its captions in .txt files", captions, image)
    return pictures


def _open_files(text: str, lower: str, captions: Sequence[str] | None, image: str | None) -> Source:
    if lower.rstrip("}").endswith(".tar"):  # {a.tar,b.tar} too
        return _shards(text, captions, image)
    if lower.endswith(".parquet"):
        return ParquetTable(text, captions=captions, image=image)
    if lower.endswith((".csv", ".tsv", ".tab")):
        return CsvTable(text, captions=captions, image=image)
    if lower.endswith(".json"):
        _refuse_columns(text, "COCO's captions have no columns", captions, None)
        return CocoCaptions(text, image, captions=captions is None)
    if not os.path.exists(text):
        found = [os.path.basename(name) for name in islice(sorted(glob(text)), 100)]
        if not found:
            raise FileNotFoundError(f"{text}: there is no such file or folder")
        raise _nothing_fits(text, f"it finds {join_names(found, 6)}")
    raise _nothing_fits(text, "its ending is none of those")


def _shards(pattern: str | list[str], captions: Sequence[str] | None, image: str | None) -> Source:
    asked: dict[str, Any] = {} if captions is None else {"captions": captions}
    return TarShards(pattern, **asked) if image is None else TarShards(pattern, images=(image,), **asked)


def _refuse_columns(path: Path | str, why: str, captions: Sequence[str] | None, image: str | None) -> None:
    if captions or image is not None:
        raise ValueError(f"{path}: {why}; leave captions and image out (or captions=() for images alone)")


def _nothing_fits(name: str, found: str) -> ValueError:
    return ValueError(f"{name} is no data that can be read: {found}. What can be read: {READABLE}")
