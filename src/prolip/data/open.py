"""One word for all data on disk: what a path leads to decides how it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

from prolip.checks import some
from prolip.data.arrow import ArrowFolder, Parquet
from prolip.data.coco import CocoCaptions
from prolip.data.folders import IMAGE_ENDINGS, Folder
from prolip.data.labelled import dataset_type, is_task, task_shards
from prolip.data.scenes.source import Scenes
from prolip.data.scenes.world import world_named
from prolip.data.shards import URL, Shards
from prolip.data.source import Source, require_captions
from prolip.data.tables import Table

SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")
"""One of them is in every folder that `save_to_disk` of Hugging Face's `datasets` wrote."""

READABLE = (
    ".tar shards (a path, a folder, a glob, or a range such as {000..012}.tar); "
    "a folder of the 38 tasks (test/0.tar, ...); "
    ".parquet files (a path, a folder or a glob); "
    "a folder that save_to_disk of `datasets` wrote; a .csv or .tsv table; a .json of COCO captions; "
    f"a folder of pictures ({', '.join(IMAGE_ENDINGS)}) with captions in .txt files; "
    "procedural scenes (scenes:simple, scenes:hard, with length=, size=, seed=, ... behind commas)"
)
SCENES_LENGTH = 20_000


def open_data(spec: str | Path, *, captions: Sequence[str] | None = None, image: str | None = None) -> Source:
    """The data that a path, a glob or a range leads to.

    captions: columns of a table, or endings in a tar ("txt", "json:caption"); None: the format's default; (): none.
    image:    the column, or the ending, of the image, or COCO's folder of images; None: the format's default.
    """
    text = os.path.expanduser(str(spec))
    if is_stream(text):
        raise ValueError(f"{text}: a stream is opened with prolip.data.Stream, not as data on disk")
    if text.startswith("scenes:"):
        _refuse_columns(text, "scenes have captions of their own", captions, image)
        return _scenes(text)
    if os.path.isdir(text):
        source = _open_folder(Path(text), captions, image)
    else:
        source = _open_files(text, text.lower(), captions, image)
    require_captions(source)
    return source


def is_stream(spec: str) -> bool:
    """Data that can only be read from its beginning: a command or an address."""
    return URL.match(spec) is not None


def _open_folder(folder: Path, captions: Sequence[str] | None, image: str | None) -> Source:
    if any((folder / name).is_file() for name in SAVED):
        return ArrowFolder(folder, captions=captions, image=image)
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    tars = [str(folder / name) for name in names if name.lower().endswith(".tar")]
    if tars:  # before .parquet: img2dataset lays tables of URLs beside its shards
        return _shards(tars, captions, image)
    if is_task(folder):
        lines = ("txt:lines",) if dataset_type(folder) == "retrieval" else ()
        return _shards(task_shards(folder), lines if captions is None else captions, image)
    if any(name.lower().endswith(".parquet") for name in names):
        return Parquet(folder, captions=captions, image=image)
    try:
        pictures = Folder(folder, captions=captions is None)
    except ValueError:  # no picture
        found = f"the folder holds {some(names, 6)}" if names else "the folder is empty"
        raise _nothing_fits(str(folder), found) from None
    _refuse_columns(folder, "a folder of pictures has its captions in .txt files", captions, image)
    return pictures


def _open_files(text: str, lower: str, captions: Sequence[str] | None, image: str | None) -> Source:
    if lower.rstrip("}").endswith(".tar"):  # {a.tar,b.tar} too
        return _shards(text, captions, image)
    if lower.endswith(".parquet"):
        return Parquet(text, captions=captions, image=image)
    if lower.endswith((".csv", ".tsv", ".tab")):
        return Table(text, captions=captions, image=image)
    if lower.endswith(".json"):
        _refuse_columns(text, "COCO's captions have no columns", captions, None)
        return CocoCaptions(text, image, captions=captions is None)
    if not os.path.exists(text):
        found = [os.path.basename(name) for name in islice(sorted(glob(text)), 100)]
        if not found:
            raise FileNotFoundError(f"{text}: there is no such file or folder")
        raise _nothing_fits(text, f"it finds {some(found, 6)}")
    raise _nothing_fits(text, "its ending is none of those")


def _scenes(text: str) -> Source:
    """ "scenes:hard,length=5000,size=64,seed=1"."""
    level, *settings = text.removeprefix("scenes:").split(",")
    values: dict[str, Any] = {"length": SCENES_LENGTH}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            values[name] = SCENES_SETTINGS[name](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"{text}: {setting!r} is none of length=, size=, seed=, unseen=, captions= with a number, complete=, "
                "placed= with a share, levels= with four shares (0.1/0.2/0.4/0.3) and general=true"
            ) from None
    unseen = values.pop("unseen", 0)
    return Scenes(world_named(level, unseen) if unseen else level, **values)


def _whole(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(value)
    return int(value)


def _four(value: str) -> tuple[float, ...]:
    return tuple(map(float, value.split("/")))


def _truth(value: str) -> bool:
    return {"true": True, "false": False}[value]


SCENES_SETTINGS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("length", "size", "seed", "unseen", "captions"), _whole),
    **dict.fromkeys(("complete", "placed"), float),
    "levels": _four,
    "general": _truth,
}


def _shards(pattern: str | list[str], captions: Sequence[str] | None, image: str | None) -> Source:
    asked: dict[str, Any] = {} if captions is None else {"captions": captions}
    return Shards(pattern, **asked) if image is None else Shards(pattern, images=(image,), **asked)


def _refuse_columns(path: Path | str, why: str, captions: Sequence[str] | None, image: str | None) -> None:
    if captions or image is not None:
        raise ValueError(f"{path}: {why}; leave captions and image out (or captions=() for images alone)")


def _nothing_fits(name: str, found: str) -> ValueError:
    return ValueError(f"{name} is no data that can be read: {found}. What can be read: {READABLE}")
