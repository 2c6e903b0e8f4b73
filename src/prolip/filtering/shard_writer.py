"""What is kept as new shards: 00000.tar, 00001.tar, ...; each there or not, and none written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from prolip.data.sources.tar_writer import Members, write_tar
from prolip.embeddings.dataset import Embeddings
from prolip.files import read_json, remove_leftovers, write_json, write_whole
from prolip.filtering.members import kept_members
from prolip.filtering.selection import Selection
from prolip.progress import bar

FILE = "selection.json"
"""Says which samples the shards of a folder hold, so that none is ever filled with two selections."""


def write_shards(
    folder: Path,
    selection: Selection,
    embeddings: Embeddings,
    *,
    data: str,
    kept: int,
    size: int,
    progress: bool | None = None,
) -> list[Path]:
    """Into a folder that was claimed. data: as for `kept_members`. kept: samples in all. size: samples in a shard."""
    paths = [folder / f"{number:05d}.tar" for number in range(-(-kept // size))]
    done = next((number for number, path in enumerate(paths) if not path.exists()), len(paths))
    samples = kept_members(selection, embeddings, data, skip=done * size)
    with bar("writing shards", kept, "samples", progress) as advance:
        advance(min(done * size, kept))
        for path in paths[done:]:
            some = _counted(_with_own_keys(islice(samples, size)), advance)
            write_whole(path, partial(write_tar, samples=some))
    return paths


def claim(folder: Path, told: Mapping[str, Any]) -> None:
    """told: what makes this selection another than others; those have another folder."""
    if not (folder / FILE).exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty, and holds no shards of a filter; choose another folder")
        write_json(folder / FILE, told)
    elif read_json(folder / FILE) != told:
        raise ValueError(
            f"{folder} holds the shards of another selection; remove it, or choose another folder"
        )
    else:
        remove_leftovers(folder)


def _with_own_keys(samples: Iterable[tuple[str, Members]]) -> Iterator[tuple[str, Members]]:
    """Keys of different shards may be the same; in one shard the second would be taken for the first."""
    seen: set[str] = set()
    for key, members in samples:
        own = key
        numbers = count(1)
        while own in seen:
            own = f"{key}-{next(numbers)}"
        seen.add(own)
        yield own, members


def _counted(
    samples: Iterable[tuple[str, Members]], advance: Callable[[int], None]
) -> Iterator[tuple[str, Members]]:
    for sample in samples:
        yield sample
        advance(1)
