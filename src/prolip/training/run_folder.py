"""The folder of a run: what it was told, what is needed to repeat it, and whether another may go on in it.

config.json (the config, the model's, the data), tokenizer.json, sessions.jsonl (versions and machine of each start),
metrics.jsonl, tensorboard/, checkpoints/, and in the end model/ (and best/).
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from prolip.files import LEFTOVER, read_json, recover_folder, remove_leftovers, write_json
from prolip.model.config import ModelConfig
from prolip.model.prolip import ProLIP
from prolip.model.store import TOKENIZER
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.training.config import TrainConfig
from prolip.training.environment import describe_environment
from prolip.weights.load import RUN_MODEL

FORMAT, VERSION = "prolip-run", 1
CONFIG, SESSIONS, CHECKPOINTS, BEST = "config.json", "sessions.jsonl", "checkpoints", "best"
MODEL = RUN_MODEL  # where prolip.load looks for it

LOCK = ".lock"

FREE = (
    "out", "log", "checkpoint", "held_out", "care", "data.workers", "data.bad_limit", "parallel.strategy",
    "parallel.accumulate", "parallel.activation_checkpointing", "parallel.compile", "parallel.device",
)  # fmt: skip
"""Keys that a resumed run may have otherwise: they don't change what is computed, but for the last digits."""


def was_begun_by_this_torchrun(folder: Path) -> bool:
    """We are started again by torchrun, after a process died, in the run that the same torchrun has begun."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" or not (folder / SESSIONS).is_file():
        return False
    *_, last = read_sessions(folder)
    return bool(last.get("torchrun") == os.environ.get("TORCHELASTIC_RUN_ID"))


def to_go_on(folder: Path) -> str:
    """The command, as a shell takes it. A bare name could be that of a recipe."""
    name = str(folder) if folder.parent != Path() else f"./{folder}"
    return f"prolip train {shlex.quote(name)} --resume"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else trains in this folder meanwhile. For rank 0. (Where locks can't be had, nobody is kept out.)"""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+b") as file:
        try:
            # not flock, which workers would inherit and outlive us with
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ValueError(
                f"another process trains in {folder}; wait for it, or take another folder: out=..."
            ) from None
        except OSError:
            pass
        yield


def is_run(folder: Path) -> bool:
    try:
        return read_json(folder / CONFIG).get("format") == FORMAT
    except (OSError, ValueError):
        return False


def read_config(folder: Path) -> TrainConfig:
    """The config that a run was begun with."""
    content = read_json(folder / CONFIG)
    if content.get("format") != FORMAT or "config" not in content:
        raise ValueError(f"{folder / CONFIG} is not that of a training run")
    missing = sorted(set(TrainConfig().to_dict()) - set(content["config"]))
    if missing:
        raise ValueError(f"{folder / CONFIG} is damaged: its config has no {', '.join(missing)}")
    return TrainConfig.from_dict(content["config"])


def read_model(folder: Path) -> ProLIP:
    """The model of a run, with its tokenizer and room for its weights, but none in it yet."""
    content = read_json(folder / CONFIG)
    model = ProLIP(ModelConfig.from_dict(content["model"]))
    model.origin = content["origin"]
    if (folder / TOKENIZER).is_file():
        model.use_tokenizer(Tokenizer.from_file(folder / TOKENIZER, model.config.text.tokens))
    return model.to_empty(device="cpu")


def require_place(folder: Path, config: TrainConfig, resume: bool) -> None:
    """An error if the folder holds something else, or a run that this one may not go on with."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run has a folder of its own: out=...")
    if not is_run(folder):
        if folder.exists() and any(not _is_ours(path) for path in folder.iterdir()):
            raise ValueError(f"{folder} holds other things; a run has a folder of its own: out=...")
        return
    if not any((folder / CHECKPOINTS).glob("step-*")):
        return  # nothing was saved yet: it may begin anew, and in another way
    if not resume:
        raise ValueError(
            f"{folder} holds a run already: --resume goes on with it, out=... takes another folder"
        )
    changed = differences(read_config(folder).to_dict(), config.to_dict())
    if changed:
        told = ", ".join(f"{key} was {old!r}, now it is {new!r}" for key, old, new in changed)
        raise ValueError(
            f"{folder} is another run: {told}. Restore that, or begin a new run (out=...; prolip export {folder} OUT, "
            "and model.start=OUT, begin with its weights)"
        )


def put_aside(folder: Path) -> Path:
    """Make room for another run: the folder gets a new name, NAME.old, NAME.old2, ..., which is returned."""
    numbers = (folder.with_name(f"{folder.name}.old{number if number > 1 else ''}") for number in count(1))
    return folder.rename(next(name for name in numbers if not name.exists()))


def _is_ours(path: Path) -> bool:
    return path.name == LOCK or LEFTOVER.fullmatch(path.name) is not None


def differences(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> list[tuple[str, Any, Any]]:
    """Keys whose values differ in a way that changes the run, with both values."""
    found = []
    for name in sorted({*old, *new}):
        key = at + name
        before, after = (_plain(values.get(name)) for values in (old, new))
        if key in FREE or before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, key + ".")
        else:
            found.append((key, before, after))
    return found


def begin(folder: Path, config: TrainConfig, model: ProLIP, data: list[dict[str, Any]], step: int) -> None:
    """Write down what this run is, or that it goes on from a step. For rank 0."""
    remove_leftovers(folder)
    for name in (MODEL, BEST):
        recover_folder(folder / name)
    content = {"format": FORMAT, "version": VERSION, "config": config.to_dict(), "data": data}
    write_json(folder / CONFIG, {**content, "model": model.config.to_dict(), "origin": model.origin})
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER)
    torchrun = os.environ.get("TORCHELASTIC_RUN_ID")
    with open(folder / SESSIONS, "a", encoding="utf-8") as file:
        file.write(json.dumps({"from_step": step, "torchrun": torchrun, **describe_environment()}) + "\n")


def read_sessions(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / SESSIONS).read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _plain(value: Any) -> Any:
    """Tuples and lists are the same in JSON."""
    return json.loads(json.dumps(value))
