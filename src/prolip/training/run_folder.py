"""The run folder: config, environment, lock, and whether a run may start or resume in it.

config.json (the config, the model's, the data), tokenizer.json, sessions.jsonl (versions and machine of each start),
metrics.jsonl, tensorboard/, checkpoints/, and in the end model/ (and best/).
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

from prolip.files import TEMPORARY_NAME, read_json, recover_folder, remove_temporary_files, write_json
from prolip.model.config import ModelConfig
from prolip.model.folder import TOKENIZER_FILE
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.words import WORDS_FILE, read_words
from prolip.storage.commands import list_commands
from prolip.training.config import TrainConfig
from prolip.training.environment import describe_environment
from prolip.weights.load import RUN_MODEL_FOLDER

FORMAT, VERSION = "prolip-run", 2
"""Format and version that config.json names."""
CONFIG, SESSIONS, CHECKPOINTS, BEST = "config.json", "sessions.jsonl", "checkpoints", "best"
MODEL = RUN_MODEL_FOLDER  # prolip.load looks there

LOCK = ".lock"
"""File that is locked while a process trains in the folder."""

RESUME_KEYS = (
    "out", "log", "checkpoint", "held_out", "nonfinite", "data.workers", "data.max_bad_fraction", "parallel.strategy",
    "parallel.accumulation_steps", "parallel.activation_checkpointing", "parallel.compile", "parallel.device",
    "parallel.threads",
)  # fmt: skip
"""Keys that may differ when a run is resumed: they don't change what is computed, except for rounding."""


def is_torchrun_restart(folder: Path) -> bool:
    """Whether torchrun restarted this process, after a failure, in the run that the same torchrun started.

    Args:
        folder: Run folder; it need not exist.

    Returns:
        Whether the run is to be resumed without being asked to.
    """
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" or not (folder / SESSIONS).is_file():
        return False
    *_, last = read_sessions(folder)
    return bool(last.get("torchrun") == os.environ.get("TORCHELASTIC_RUN_ID"))


def format_resume_command(folder: Path) -> str:
    """The shell command that resumes a run. A bare name becomes ./NAME: it could be that of a recipe.

    Args:
        folder: Run folder.

    Returns:
        The command, quoted for a shell.
    """
    name = str(folder) if folder.parent != Path() else f"./{folder}"
    return f"prolip train {shlex.quote(name)} --resume"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. For rank 0. File systems without locks are accepted.

    Args:
        folder: Run folder; created if it doesn't exist.

    Yields:
        Nothing.

    Raises:
        ValueError: Another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+b") as file:
        try:
            # not flock: worker processes inherit its lock and may outlive this process
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows either error for a lock that is held
            raise ValueError(
                f"another process is training in {folder}: wait for it, or choose another folder with --out"
            ) from None
        except OSError:
            pass  # the file system has no locks
        yield


def is_run(folder: Path) -> bool:
    """Whether the folder is a run folder, of any format version.

    Args:
        folder: Any path.

    Returns:
        Whether its config.json is that of a run.
    """
    try:
        return read_json(folder / CONFIG).get("format") == FORMAT
    except (OSError, ValueError):
        return False


def read_config(folder: Path) -> TrainConfig:
    """Read the config that a run was started with.

    Args:
        folder: Run folder.

    Returns:
        The config.

    Raises:
        ValueError: config.json is not that of a run, has another format version, or is damaged.
    """
    run_json = read_json(folder / CONFIG)
    if run_json.get("format") != FORMAT or "config" not in run_json:
        raise ValueError(f"{folder / CONFIG} is not the config of a training run")
    if run_json.get("version") != VERSION:
        raise ValueError(
            f"{folder} has run format {run_json.get('version')}; this version of prolip reads format {VERSION}. Use "
            "the version that wrote it, or start a new run with --out"
        )
    if not isinstance(run_json["config"], dict):
        raise ValueError(
            f"{folder / CONFIG} is damaged: its config must be an object with named values, not "
            f"{type(run_json['config']).__name__}. Copy the run again"
        )
    missing = sorted(set(TrainConfig().to_dict()) - set(run_json["config"]))
    if missing:
        raise ValueError(f"{folder / CONFIG} is damaged: its config lacks {', '.join(missing)}")
    return TrainConfig.from_dict(run_json["config"])


def read_threads(folder: Path) -> int | None:
    """The number of threads that a run was started with.

    Args:
        folder: Any path.

    Returns:
        The number; None if there is no run in the folder, or it ran on a GPU.
    """
    return read_config(folder).parallel.threads if is_run(folder) else None


def list_addresses(config: TrainConfig) -> list[str]:
    """All addresses of data in the config of a run.

    Args:
        config: The config.

    Returns:
        Training data of all stages, the held-out data and the reference; some may be the same.
    """
    others = (config.held_out.source, config.held_out.reference)
    sources = [config.data.source, *(stage.source for stage in config.stages)]
    return [*(address for source in sources for address in source), *filter(None, others)]


def list_unconfirmed_commands(config: TrainConfig, words: Iterable[object]) -> list[str]:
    """The commands (pipe:...) of a run's config that the user has not given again.

    Args:
        config: Config of a run folder, with the user's changes.
        words: What the user gave: words of the command line, or values. A word may be --flag=ADDRESS.

    Returns:
        The commands that are only in the run folder's file.
    """
    given = [word for word in words if isinstance(word, str)]
    return [
        command
        for command in list_commands(list_addresses(config))
        if not any(word == command or word.endswith(f"={command}") for word in given)
    ]


def read_empty_model(folder: Path) -> ProLIP:
    """Build the model of a run from its config and tokenizer; its weights are allocated, but not read.

    Args:
        folder: Run folder.

    Returns:
        The model, on the CPU.

    Raises:
        ValueError: config.json is damaged.
    """
    run_json = read_json(folder / CONFIG)
    for name in ("model", "origin"):
        if not isinstance(run_json.get(name), dict):
            raise ValueError(
                f"{folder / CONFIG} is damaged: {name} must be an object with named values, not "
                f"{json.dumps(run_json.get(name))}. Copy the run again"
            )
    model = ProLIP(ModelConfig.from_dict(run_json["model"]))
    model.origin = run_json["origin"]
    if (folder / TOKENIZER_FILE).is_file():
        model.set_tokenizer(Tokenizer.from_file(folder / TOKENIZER_FILE, model.config.text.tokenizer))
    model.training_words = read_words(folder / WORDS_FILE)
    return model.to_empty(device="cpu")


def require_usable_folder(folder: Path, config: TrainConfig, resume: bool) -> None:
    """Raise a ValueError if a run can't start in a folder.

    That is so if it holds other files, a run and `resume` is false, or a run with another config (see `RESUME_KEYS`).
    A run without checkpoints may be started over, with any config.

    Args:
        folder: Where to train; it need not exist.
        config: The run that is to start or resume.
        resume: Whether a run in the folder is to be continued.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a run needs its own folder: choose another with --out")
    if not is_run(folder):
        if folder.exists() and any(not _is_lock_or_temporary(path) for path in folder.iterdir()):
            raise ValueError(
                f"{folder} holds other files, but a run needs its own folder: choose another with --out"
            )
        return
    if not any((folder / CHECKPOINTS).glob("step-*")):
        return  # nothing was saved yet
    if not resume:
        raise ValueError(
            f"{folder} already holds a run: continue it with --resume, or choose another folder with --out"
        )
    changed = compare_configs(read_config(folder).to_dict(), config.to_dict())
    if changed:
        changes = ", ".join(f"{key} was {old!r}, now it is {new!r}" for key, old, new in changed)
        raise ValueError(
            f"{folder} holds a run with another config: {changes}. Undo these changes, or start a new run with --out "
            f"(from these weights: `prolip export {shlex.quote(str(folder))} --out OUT`, then --model.pretrained OUT)"
        )


def move_aside(folder: Path) -> Path:
    """Rename a run folder to NAME.old, NAME.old2, ..., so that its name is free.

    Args:
        folder: Run folder.

    Returns:
        The new path.
    """
    candidates = (folder.with_name(f"{folder.name}.old{number if number > 1 else ''}") for number in count(1))
    return folder.rename(next(path for path in candidates if not path.exists()))


def _is_lock_or_temporary(path: Path) -> bool:
    """Whether a path is the lock, or a file that `prolip.files` had not finished when its process was killed."""
    return path.name == LOCK or TEMPORARY_NAME.fullmatch(path.name) is not None


def compare_configs(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Find the keys that differ between two configs, other than `RESUME_KEYS`.

    Args:
        old: The earlier config, from `TrainConfig.to_dict`.
        new: The present config, from `TrainConfig.to_dict`.
        prefix: Key of the nested config that is compared, with a final dot; "" for the whole config.

    Returns:
        (key, old value, new value), sorted by key; a missing value is None.
    """
    differences = []
    for name in sorted({*old, *new}):
        key = prefix + name
        before, after = (_to_json_value(config.get(name)) for config in (old, new))
        if key in RESUME_KEYS or before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            differences += compare_configs(before, after, key + ".")
        else:
            differences.append((key, before, after))
    return differences


class DataDescription(TypedDict):
    """A source of the training data, as config.json of the run folder records it."""

    source: str
    """Without secrets."""
    samples: int | None
    """None: a stream."""
    fingerprint: str


class Session(TypedDict):
    """A line of sessions.jsonl: a start of the run. It has all fields of `Environment`, too."""

    from_step: int
    torchrun: str | None
    """Id of the torchrun that started the process; None: none."""
    command: list[str]


def write_run_files(
    folder: Path, config: TrainConfig, model: ProLIP, data: Sequence[DataDescription], step: int
) -> None:
    """Write config.json and tokenizer.json, and append a line about this session to sessions.jsonl. For rank 0.

    Before that, what a killed process left is cleared: temporary files, and half-replaced model folders.

    Args:
        folder: Run folder.
        config: Config of the run.
        model: For its config and tokenizer.
        data: What `describe_data` returned.
        step: Step from which the session starts.
    """
    remove_temporary_files(folder)
    for name in (MODEL, BEST):
        recover_folder(folder / name)
    run_json = {"format": FORMAT, "version": VERSION, "config": config.to_dict(), "data": data}
    write_json(folder / CONFIG, {**run_json, "model": model.config.to_dict(), "origin": model.origin})
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER_FILE)
    torchrun = os.environ.get("TORCHELASTIC_RUN_ID")
    with open(folder / SESSIONS, "a", encoding="utf-8") as file:
        session = {"from_step": step, "torchrun": torchrun, **describe_environment().to_dict()}
        file.write(json.dumps(session) + "\n")


def read_sessions(folder: Path) -> Iterator[Session]:
    """Read sessions.jsonl: the environment of each start of the run, and the step it started from.

    Args:
        folder: Run folder.

    Yields:
        A JSON object per start, the first start first.
    """
    for line in (folder / SESSIONS).read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _to_json_value(value: Any) -> Any:
    """The value as JSON returns it: tuples become lists."""
    return json.loads(json.dumps(value))
