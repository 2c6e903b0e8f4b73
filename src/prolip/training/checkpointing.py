"""Checkpoints of a run: written aside and brought to the disk before they get their name: one with a name is whole.

checkpoints/step-000000100/ holds torch.distributed.checkpoint's files (tensors in shards; any number of ranks reads
them), rank-00000.json of each rank (its place in the data, its random state), and complete.json, written last, with a
checksum of every file. torch's own metadata is pickled: a checkpoint is for the run that wrote it, a model folder is
what is shared.
"""

from __future__ import annotations

import logging
import pickle
import re
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards

from prolip import distributed
from prolip.files import read_json, to_disk, write_json
from prolip.training.rank_sync import on_first, together

COMPLETE = "complete.json"
NAME = re.compile(r"step-(\d{9,})")
log = logging.getLogger("prolip.training")


def save(
    folder: Path, step: int, tensors: Mapping[str, Tensor], own: Mapping[str, Any], facts: Mapping[str, Any]
) -> Path:
    """Write the checkpoint of a step. All ranks call it. own: JSON of this rank; facts: JSON of the run, rank 0's."""
    final, aside = folder / f"step-{step:09d}", folder / f".step-{step:09d}.partial"

    def begin() -> None:
        _remove_unnamed(folder)
        aside.mkdir(parents=True)
        to_disk(folder.parent)

    def name() -> None:
        files = {path.name: checksum(path) for path in sorted(aside.iterdir())}
        world = distributed.world_size()
        if any(_rank_file(rank) not in files for rank in range(world)):
            raise OSError(
                f"{aside} is not seen by all machines: a run folder must lie where all of them see it"
            )
        write_json(
            aside / COMPLETE, {"step": step, "world_size": world, "files": files, "facts": dict(facts)}
        )
        if final.exists():  # of a step that is trained again, because this one was damaged
            final.rename(_unnamed(final))
        aside.rename(final)
        to_disk(folder)
        _remove_unnamed(folder)

    with _how_to_go_on(aside):
        on_first(begin)
        together(lambda: write_json(aside / _rank_file(distributed.rank()), own))
        _write_tensors(aside, tensors)
        on_first(name)
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
    return sorted(found, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def incomplete(path: Path) -> str | None:
    """What is missing or damaged in a checkpoint, if anything is. Reads all of it."""
    try:
        content = facts(path)
        files, step = content["files"], content["step"]
        if not isinstance(content["facts"], dict) or f"step-{step:09d}" != path.name:
            return f"{COMPLETE} is not of this checkpoint"
        for name, digest in files.items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if checksum(path / name) != digest:
                return f"{name} is damaged, or was cut off"
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{COMPLETE} can't be read ({error})"
    return None


def checksum(path: Path) -> str:
    """Of a file's bytes: size and CRC-32."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(2**22):
            value = zlib.crc32(block, value)
    return f"{path.stat().st_size}-{value:08x}"


def tidy(folder: Path, keep: int, step: int) -> None:
    """Leave the last `keep` checkpoints up to that of `step`, which was just saved: a later one was passed over for
    its damage. And nothing half-written. For rank 0."""
    found = list_saves(folder)
    kept = [path for path in found if _step(path) <= step][-keep:]
    for path in found:
        if path not in kept:
            path.rename(_unnamed(path))  # its name goes first: one with a name is whole
    _remove_unnamed(folder)


def _unnamed(path: Path) -> Path:
    return path.with_name(f".{path.name}.old.partial")


def _remove_unnamed(folder: Path) -> None:
    for path in half_written(folder):
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
    except (CheckpointException, RuntimeError) as error:
        raise OSError(_reason(error)) from error


@contextmanager
def _how_to_go_on(aside: Path) -> Iterator[None]:
    """What is half written goes (it may be what fills the disk); the sentence says what is left."""
    try:
        yield
    except OSError as error:
        free = shutil.disk_usage(aside.parent).free if aside.parent.exists() else 0
        full = f" (the disk has {free / 2**20:,.0f} MiB left)" if free < 2**30 else ""
        shutil.rmtree(aside, ignore_errors=True)
        before = "Those before it are whole" if list_saves(aside.parent) else "There is none before it"
        raise OSError(
            f"the checkpoint {aside} can't be written{full}: {error}. {before}; when that is mended, go on with "
            "--resume"
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
    if isinstance(error, pickle.UnpicklingError):
        return "a file is damaged"  # torch's own words advise to load it unsafely
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.json"
