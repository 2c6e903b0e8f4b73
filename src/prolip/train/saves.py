"""Checkpoints of a run: written aside and brought to the disk before they get their name: one with a name is whole.

checkpoints/step-000000100/ holds torch.distributed.checkpoint's files (tensors in shards; any number of ranks reads
them), rank-00000.json of each rank (its place in the data, its random state), and complete.json with the size of every
file, written last. torch's own metadata is pickled: a checkpoint is for the run that wrote it, a model folder is what
is shared.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards

from prolip import distributed
from prolip.files import read_json, write_json

COMPLETE = "complete.json"
NAME = re.compile(r"step-(\d{9,})")
log = logging.getLogger("prolip.train")


def save(
    folder: Path, step: int, tensors: Mapping[str, Tensor], own: Mapping[str, Any], facts: Mapping[str, Any]
) -> Path:
    """Write the checkpoint of a step. All ranks call it. own: JSON of this rank; facts: JSON of the run, rank 0's."""
    final, aside = folder / f"step-{step:09d}", folder / f".step-{step:09d}.partial"
    if distributed.rank() == 0:
        _remove_unnamed(folder)
        aside.mkdir(parents=True)
    _wait()
    write_json(aside / _rank_file(distributed.rank()), own)
    _write_tensors(aside, tensors)
    _wait()
    if distributed.rank() == 0:
        sizes = {path.name: path.stat().st_size for path in sorted(aside.iterdir())}
        content = {"step": step, "world_size": distributed.world_size(), "files": sizes, "facts": dict(facts)}
        write_json(aside / COMPLETE, content)
        _to_disk(aside)
        if final.exists():  # of a step that is trained again, because this one was damaged
            final.rename(_unnamed(final))
        aside.rename(final)
        _to_disk(folder)
        _remove_unnamed(folder)
    _wait()
    return final


def load(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Read a checkpoint, of any number of ranks, into these tensors, in place. Returns this rank's JSON."""
    try:
        with _no_word_of_one_process():
            read_shards(dict(tensors), checkpoint_id=path, no_dist=not distributed.is_distributed())
    except (
        CheckpointException,
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(
            f"{path} can't be read into this model: {_reason(error)}. Remove the folder to go on from the one before"
        ) from error
    own = path / _rank_file(distributed.rank())
    return read_json(own if own.is_file() else path / _rank_file(0))


def names(path: Path, prefix: str) -> list[str]:
    """What the tensors are called whose names begin with a prefix, without it."""
    known = FileSystemReader(path).read_metadata().state_dict_metadata
    return [name.removeprefix(prefix) for name in known if name.startswith(prefix)]


def facts(path: Path) -> dict[str, Any]:
    """What complete.json says: step, world_size, and the run's facts."""
    return read_json(path / COMPLETE)


def latest(folder: Path) -> Path | None:
    """The last whole checkpoint of a run; those that are not whole are named in a warning."""
    for path in reversed(list_saves(folder)):
        if problem := incomplete(path):
            log.warning("%s is passed over: %s", path, problem)
        else:
            return path
    return None


def list_saves(folder: Path) -> list[Path]:
    """All that have a name, by step."""
    found = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def incomplete(path: Path) -> str | None:
    """What is missing in a checkpoint, if anything is."""
    try:
        sizes = facts(path)["files"]
        for name, size in sizes.items():
            file = path / name
            if not file.is_file() or file.stat().st_size != size:
                return f"{name} is missing, or was cut off"
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"{COMPLETE} can't be read ({error})"
    return None


def tidy(folder: Path, keep: int) -> None:
    """Leave the last `keep` checkpoints, and nothing half-written. For rank 0, between saves."""
    found = list_saves(folder)
    kept = [path for path in found if not incomplete(path)][-keep:]
    for path in found:
        if path not in kept:
            path.rename(_unnamed(path))  # its name goes first: one with a name is whole
    _remove_unnamed(folder)


def _unnamed(path: Path) -> Path:
    return path.with_name(f".{path.name}.old.partial")


def _remove_unnamed(folder: Path) -> None:
    for path in folder.glob(".step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def half_written(folder: Path) -> list[Path]:
    """What a process that was killed while it wrote has left."""
    return sorted(folder.glob(".step-*.partial"))


def random_state() -> str:
    """Of torch's own generator, as hexadecimal digits. (Nothing here draws from it; a user's module may.)"""
    return bytes(torch.get_rng_state().tolist()).hex()


def restore_random_state(digits: str) -> None:
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(digits)), dtype=torch.uint8))


def _write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    try:
        with _no_word_of_one_process():
            write_shards(dict(tensors), checkpoint_id=folder, no_dist=not distributed.is_distributed())
    except (CheckpointException, OSError, RuntimeError) as error:
        raise OSError(
            f"the checkpoint {folder} can't be written: {_reason(error)}. The one before it is whole; make room and go "
            "on with --resume"
        ) from error


@contextmanager
def _no_word_of_one_process() -> Iterator[None]:
    """torch warns that there is one process, though it was told so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _reason(error: BaseException) -> str:
    """The first sentence of what lies below torch's wrapping."""
    if isinstance(error, CheckpointException) and error.failures:
        return _reason(next(iter(error.failures.values()))[0])
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def _to_disk(folder: Path) -> None:
    """Names are part of the folder: they last once it is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wait() -> None:
    if distributed.world_size() > 1:
        dist.barrier()
