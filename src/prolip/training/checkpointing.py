"""Checkpoints of a training run: atomic, checksummed folders that any number of ranks can read.

checkpoints/step-000000100/ holds the files of torch.distributed.checkpoint (tensors in shards), a rank-00000.json per
rank (its position in the data, its random state), and complete.json, written last, with a checksum of every file. The
folder is written under a temporary name and renamed after all is on the disk: a folder with a final name is complete.
torch's metadata is pickled; `CheckpointReader` reads it without running code. What is shared is a model folder.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards

from prolip import distributed
from prolip.files import fsync_folder, read_json, write_json
from prolip.training.checkpoint_reader import CheckpointReader
from prolip.training.rank_sync import on_rank_zero, raise_on_any_rank

COMPLETE, VERSION = "complete.json", 2
"""The file that is written last, and the version of the checkpoint format."""
NAME = re.compile(r"step-(\d{9,})")
"""Final name of a checkpoint's folder."""
log = logging.getLogger("prolip.training")


@dataclass(frozen=True, kw_only=True)
class CheckpointContent:
    """What a rank puts into a checkpoint.

    Attributes:
        step: Steps done.
        tensors: By name; sharded ones are written by all ranks, others by one.
        rank_state: JSON of this rank.
        run_state: JSON of the run; that of rank 0 is written.
    """

    step: int
    tensors: Mapping[str, Tensor]
    rank_state: Mapping[str, object]
    run_state: Mapping[str, object]


class CheckpointMetadata(TypedDict):
    """The content of complete.json."""

    version: int
    step: int
    world_size: int
    files: Mapping[str, str]
    """Checksum of each file of the checkpoint."""
    state: Mapping[str, object]
    """The `run_state` of rank 0."""
    checksum: NotRequired[str]
    """CRC-32 of all other values. Earlier versions wrote none."""


def save_checkpoint(folder: Path, content: CheckpointContent, group: ProcessGroup | None = None) -> Path:
    """Write the checkpoint of a step. All ranks call it.

    Args:
        folder: The run's folder of checkpoints.
        content: What this rank puts into it. It must not change until the checkpoint is written.
        group: All ranks; a thread other than the main one needs a group of its own. None: the default group.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: It can't be written, for example because the disk is full. No part of it is left behind.
    """
    name = f"step-{content.step:09d}"
    final, temporary = folder / name, folder / f".{name}.partial"

    def create_temporary_folder() -> None:
        """Remove unfinished checkpoints of killed processes, and create this one's folder. Runs on rank 0."""
        _remove_unfinished(folder)
        temporary.mkdir(parents=True)
        fsync_folder(folder.parent)

    def finish_checkpoint() -> None:
        """Write complete.json with all checksums, and give the folder its final name. Runs on rank 0.

        Raises:
            OSError: Rank 0 doesn't see the file of every rank.
        """
        files = {path.name: compute_checksum(path) for path in sorted(temporary.iterdir())}
        world_size = distributed.world_size()
        if any(_get_rank_file_name(rank) not in files for rank in range(world_size)):
            raise OSError(
                f"not all ranks see the files in {temporary}: the run folder must be on storage that all machines share"
            )
        metadata: CheckpointMetadata = {
            "version": VERSION,
            "step": content.step,
            "world_size": world_size,
            "files": files,
            "state": dict(content.run_state),
        }
        metadata["checksum"] = _compute_metadata_checksum(metadata)
        write_json(temporary / COMPLETE, metadata)
        if final.exists():  # it was damaged, so its step was trained again
            final.rename(_make_obsolete_name(final))
        temporary.rename(final)
        fsync_folder(folder)
        _remove_unfinished(folder)

    # Rank 0 creates and renames the folder, all ranks write into it; each phase ends when all have finished it, so the
    # rename comes after every file.
    with _explain_failure(temporary):
        on_rank_zero(create_temporary_folder, group)
        rank_file = temporary / _get_rank_file_name(distributed.rank())
        raise_on_any_rank(lambda: write_json(rank_file, content.rank_state), group)
        _write_tensors(temporary, content.tensors, group)
        on_rank_zero(finish_checkpoint, group)
    return final


def load_checkpoint(path: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, object]:
    """Read a checkpoint, written by any number of ranks, into `tensors`, in place. All ranks call it.

    Args:
        path: The checkpoint's folder.
        tensors: By name; all must be in the checkpoint, with the same shapes. They are overwritten.

    Returns:
        The JSON of this rank; that of rank 0 if fewer ranks wrote the checkpoint.

    Raises:
        ValueError: The checkpoint is damaged, or lacks a tensor, or has one with another shape.
    """
    _ignore_single_process_warning()
    try:
        reader = CheckpointReader(path)
        read_shards(dict(tensors), storage_reader=reader, no_dist=not distributed.is_distributed())
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
            f"the checkpoint {path} can't be loaded into this model: {_find_reason(error)}. Remove that folder to "
            "resume from the checkpoint before it"
        ) from error
    own_file = path / _get_rank_file_name(distributed.rank())
    return read_json(own_file if own_file.is_file() else path / _get_rank_file_name(0))


def list_tensor_names(path: Path, prefix: str) -> list[str]:
    """Names of a checkpoint's tensors that begin with a prefix, without the prefix.

    Args:
        path: The checkpoint's folder.
        prefix: For example "ema.".

    Returns:
        The names, in the order of the checkpoint.
    """
    names = CheckpointReader(path).read_metadata().state_dict_metadata
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def read_metadata(path: Path) -> CheckpointMetadata:
    """Read complete.json. `find_problem` checks it.

    Args:
        path: The checkpoint's folder.

    Returns:
        The JSON object.
    """
    return cast(CheckpointMetadata, read_json(path / COMPLETE))


def find_latest(folder: Path) -> Path | None:
    """The last complete checkpoint of a run. A later one that is damaged is skipped with a warning.

    Args:
        folder: The run's folder of checkpoints; it need not exist.

    Returns:
        The checkpoint's folder; None if there is no complete one.
    """
    for path in reversed(list_checkpoints(folder)):
        if problem := find_problem(path):
            log.warning("the checkpoint %s is not used: %s", path, problem)
        else:
            return path
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """All checkpoints with a final name, by step.

    Args:
        folder: The run's folder of checkpoints; it need not exist.

    Returns:
        Their folders, the earliest step first; some may be damaged.
    """
    paths = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(paths, key=_get_step)


def _get_step(path: Path) -> int:
    """The step in the name of a checkpoint's folder: step-000000100 -> 100."""
    return int(path.name.removeprefix("step-"))


def find_problem(path: Path) -> str | None:
    """Find what is missing or damaged in a checkpoint. Reads all of its files.

    Args:
        path: The checkpoint's folder.

    Returns:
        A clause for a message, such as "rank-00000.json is missing"; None if the checkpoint is complete.
    """
    try:
        metadata = read_metadata(path)
        version = metadata.get("version", 1)
        if version != VERSION:
            return f"it has checkpoint format {version}; this version of prolip reads format {VERSION}"
        if metadata.keys() | {"checksum"} != CheckpointMetadata.__annotations__.keys():
            return f"{COMPLETE} is damaged: it has the keys {', '.join(metadata)}"
        if "checksum" in metadata and metadata["checksum"] != _compute_metadata_checksum(metadata):
            return f"{COMPLETE} is damaged: its content differs from its checksum"
        if not isinstance(metadata["state"], dict) or f"step-{metadata['step']:09d}" != path.name:
            return f"{COMPLETE} belongs to another checkpoint"
        for name, checksum in metadata["files"].items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if compute_checksum(path / name) != checksum:
                return f"{name} is damaged or truncated"
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{COMPLETE} can't be read ({error})"
    return None


def compute_checksum(path: Path) -> str:
    """Size and CRC-32 of a file.

    Args:
        path: The file.

    Returns:
        "BYTES-CRC", the CRC with 8 hexadecimal digits.
    """
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return f"{path.stat().st_size}-{crc:08x}"


def _compute_metadata_checksum(metadata: CheckpointMetadata) -> str:
    """CRC-32 of the content of complete.json without its checksum, 8 hexadecimal digits."""
    content = {key: value for key, value in metadata.items() if key != "checksum"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def remove_old_checkpoints(folder: Path, keep_last: int, step: int) -> None:
    """Remove all checkpoints but the last `keep_last` up to that of `step`, which was just saved. For rank 0.

    Checkpoints of later steps are removed: they were damaged, and training went on from an earlier one.

    Args:
        folder: The run's folder of checkpoints.
        keep_last: How many to keep, at least 1.
        step: Step of the checkpoint that was just saved.
    """
    checkpoints = list_checkpoints(folder)
    last_checkpoints = [path for path in checkpoints if _get_step(path) <= step][-keep_last:]
    for path in checkpoints:
        if path not in last_checkpoints:
            # Renamed first: a removal that is interrupted must not leave half a checkpoint under a final name.
            path.rename(_make_obsolete_name(path))
    _remove_unfinished(folder)


def _make_obsolete_name(path: Path) -> Path:
    """Path that a checkpoint is renamed to before it is removed; `list_unfinished` finds it."""
    return path.with_name(f".{path.name}.old.partial")


def _remove_unfinished(folder: Path) -> None:
    """Remove the folders of `list_unfinished`; errors are ignored, since the next save tries again."""
    for path in list_unfinished(folder):
        shutil.rmtree(path, ignore_errors=True)


def list_unfinished(folder: Path) -> list[Path]:
    """Checkpoints that a killed process had not finished writing or removing.

    Args:
        folder: The run's folder of checkpoints; it need not exist.

    Returns:
        Their folders, by name.
    """
    return sorted(folder.glob(".step-*.partial"))


def get_rng_state() -> str:
    """State of torch's global generator, hexadecimal. Nothing in prolip draws from it; a user's module may."""
    return bytes(torch.get_rng_state().tolist()).hex()


def set_rng_state(digits: str) -> None:
    """Restore torch's global generator to the state that `get_rng_state` returned.

    Args:
        digits: The state in hexadecimal.
    """
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(digits)), dtype=torch.uint8))


def _write_tensors(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup | None) -> None:
    """Write a checkpoint's tensors with torch.distributed.checkpoint, each rank its shards. All ranks call it.

    Raises:
        OSError: The checkpoint can't be written; its message is that of the error which torch has wrapped.
    """
    _ignore_single_process_warning()
    no_dist = not distributed.is_distributed()
    try:
        write_shards(dict(tensors), checkpoint_id=folder, process_group=group, no_dist=no_dist)
    except (CheckpointException, RuntimeError) as error:
        raise OSError(_find_reason(error)) from error


@contextmanager
def _explain_failure(temporary: Path) -> Iterator[None]:
    """If writing fails, remove what was written, which may be what fills the disk, and raise an OSError with advice.

    Args:
        temporary: The checkpoint's temporary folder, inside the run's folder of checkpoints.
    """
    try:
        yield
    except OSError as error:
        free = shutil.disk_usage(temporary.parent).free if temporary.parent.exists() else 0
        # more than 1 GiB is not worth a word: the disk is hardly the cause then
        space = f" (the disk has {free / 2**20:,.0f} MiB left)" if free < 2**30 else ""
        shutil.rmtree(temporary, ignore_errors=True)
        earlier = (
            "Earlier checkpoints are complete"
            if list_checkpoints(temporary.parent)
            else "There is no earlier checkpoint"
        )
        raise OSError(
            f"the checkpoint {temporary} can't be written{space}: {error}. {earlier}. Fix the cause, then run the "
            "same command with --resume"
        ) from error


def _ignore_single_process_warning() -> None:
    """Silence torch's warning about a single process, which it gives even with no_dist=True, from now on.

    Not by `warnings.catch_warnings`, which restores the filters of all threads: a checkpoint may be written in the
    background.
    """
    warnings.filterwarnings("ignore", "torch.distributed is disabled")


def _find_reason(error: BaseException) -> str:
    """The type and the first line of an error, or of the first rank's error that torch has wrapped in it."""
    if isinstance(error, CheckpointException) and error.failures:
        return _find_reason(next(iter(error.failures.values()))[0])
    if isinstance(error, pickle.UnpicklingError):
        return "a file is damaged"  # torch's message advises unsafe loading
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _get_rank_file_name(rank: int) -> str:
    """Name of the file with a rank's own state: rank-00000.json."""
    return f"rank-{rank:05d}.json"
