"""Write kept samples as tar shards, each atomically; a run that was stopped resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from prolip.data.sources.tar_format import SampleFiles, write_tar
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.files import atomic_write, read_json, remove_temporary_files, write_json
from prolip.filtering.kept_samples import iter_kept_samples
from prolip.filtering.selection import Selection
from prolip.progress import progress_bar

FILE = "selection.json"
"""Identifies the selection in a folder of shards, so that it is never filled with two selections."""


def write_shards(
    folder: Path,
    selection: Selection,
    embeddings: EmbeddingDataset,
    *,
    data: str,
    num_kept: int,
    shard_size: int,
    progress: bool | None = None,
) -> list[Path]:
    """Write the shards 00000.tar, 00001.tar, ... into a claimed folder; those that exist are not written again.

    Args:
        folder: Folder of `claim_folder`.
        selection: The outcome of every sample.
        embeddings: Embeddings of these samples.
        data: The data that was embedded, as for `iter_kept_samples`.
        num_kept: The number of kept samples.
        shard_size: Samples per shard.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The paths of all shards.

    Raises:
        ValueError: A kept sample can't be read again from the data.
    """
    paths = [folder / f"{index:05d}.tar" for index in range(-(-num_kept // shard_size))]
    # shards are written in order: those before the first missing one are complete
    num_done = next((index for index, path in enumerate(paths) if not path.exists()), len(paths))
    samples = iter_kept_samples(selection, embeddings, data, skip=num_done * shard_size)
    with progress_bar("writing shards", num_kept, "samples", progress) as advance:
        advance(min(num_done * shard_size, num_kept))
        for path in paths[num_done:]:
            chunk = _report_progress(_make_keys_unique(islice(samples, shard_size)), advance)
            atomic_write(path, partial(write_tar, samples=chunk))
    return paths


def claim_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """Reserve a folder for the shards of one selection: write selection.json, or compare with the one that is there.

    If the folder was claimed before, temporary files of killed processes are removed.

    Args:
        folder: New, empty, or claimed before by the same selection.
        identity: What distinguishes this selection from others, ready for JSON.

    Raises:
        ValueError: The folder holds other files, or the shards of another selection.
    """
    if not (folder / FILE).exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(
                f"{folder} is not empty and was not written by a filter: "
                "empty it, or pass another folder as out"
            )
        write_json(folder / FILE, identity)
    elif read_json(folder / FILE) != identity:
        raise ValueError(
            f"{folder} holds the shards of another selection: remove it, or pass another folder as out"
        )
    else:
        remove_temporary_files(folder)


def _make_keys_unique(samples: Iterable[tuple[str, SampleFiles]]) -> Iterator[tuple[str, SampleFiles]]:
    """Yield the same samples, (key, files), with -1, -2, ... appended to a key that an earlier sample has.

    Keys of different source shards may be equal; in one shard they would be read as one sample.
    """
    seen_keys: set[str] = set()
    for key, files in samples:
        unique_key = key
        suffixes = count(1)
        while unique_key in seen_keys:
            unique_key = f"{key}-{next(suffixes)}"
        seen_keys.add(unique_key)
        yield unique_key, files


def _report_progress(
    samples: Iterable[tuple[str, SampleFiles]], advance: Callable[[int], None]
) -> Iterator[tuple[str, SampleFiles]]:
    """Yield the same samples, and call `advance(1)` after each was consumed."""
    for sample in samples:
        yield sample
        advance(1)
