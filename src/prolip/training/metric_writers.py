"""The metrics of a run: a line of JSON for each, and TensorBoard and Weights & Biases for those who want them."""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from prolip.extras import require
from prolip.files import write_whole
from prolip.training.config import LogChoice

FILE = "metrics.jsonl"
WANDB_ID = "wandb-id.txt"


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of a run folder's metrics file, each with a "step". None stands for what was no finite number.

    A last line that is half written, by a run that was killed or still writes, is left out.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {folder} is no folder of a run")
    return [line for line, _ in _lines(path)]


class Metrics:
    """Writes to `folder/metrics.jsonl`, and to where `log` says.

    described: the run's config, for those who look at it elsewhere.
    begin: the step from which the run goes on; what was written of later steps is removed. 0: all of it is.
    """

    def __init__(self, folder: Path, log: LogChoice, described: Mapping[str, Any], begin: int) -> None:
        self.folder, self.path = folder, folder / FILE
        kept = b"".join(raw for line, raw in _lines(self.path) if line["step"] <= begin) if begin else b""
        write_whole(self.path, lambda aside: aside.write_bytes(kept))
        self._sinks: list[_Sink] = []
        try:
            if log.tensorboard or (log.tensorboard is None and find_spec("tensorboard") is not None):
                self._sinks.append(_TensorBoard(folder, begin))
            if log.wandb is not None:
                self._sinks.append(_Wandb(folder, log.wandb, described, begin))
        except BaseException:
            self._close(failed=True)
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """A line of numbers. What is no finite number is written as null, as JSON has no word for it."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._append({"step": step, **finite})
        for sink in self._sinks:
            sink.write(step, values)

    def note(self, step: int, text: str) -> None:
        """A sentence: an alarm, a step left out."""
        self._append({"step": step, "note": text})
        for sink in self._sinks:
            sink.note(step, text)

    def to_disk(self) -> None:
        """Wait until the lines are safe from a power cut."""
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        self._close(failed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(failed=kind is not None)

    def _append(self, line: Mapping[str, Any]) -> None:
        """Opened and closed for each line: it is out of our hands at once, and a full disk is an error only once."""
        raw = json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            with open(self.path, "ab") as file:
                file.write(raw)
        except OSError as error:
            if error.filename is None:  # a full disk says no name
                error.filename = str(self.path)
            raise

    def _close(self, failed: bool) -> None:
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            sink.close(failed)


class _Sink(Protocol):
    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def note(self, step: int, text: str) -> None: ...

    def close(self, failed: bool) -> None: ...


class _TensorBoard:
    def __init__(self, folder: Path, begin: int) -> None:
        require("tensorboard", "logging")
        from torch.utils.tensorboard import SummaryWriter  # slow: only when used

        # Events of an older run, or of steps that are done again, are in other files: the purge hides them.
        purge = begin + 1 if begin else 0
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge, flush_secs=30)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def note(self, step: int, text: str) -> None:
        self._writer.add_text("notes", text, step)

    def close(self, failed: bool) -> None:
        self._writer.close()


class _Wandb:
    def __init__(self, folder: Path, project: str, described: Mapping[str, Any], begin: int) -> None:
        wandb = require("wandb", "logging")
        try:
            self._run = wandb.init(
                project=project,
                dir=str(folder),
                name=folder.name,
                id=_wandb_id(folder, begin),
                resume="allow",
                config=dict(described),
                settings=wandb.Settings(console="off"),  # it would wrap stderr, where the live display is
            )
        except wandb.Error as error:  # no key, no network, no such project
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(f"log.wandb: {reason}; run wandb login, or set WANDB_MODE=offline") from error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def note(self, step: int, text: str) -> None:
        self._run.log({"note": text}, step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def _wandb_id(folder: Path, begin: int) -> str:
    """The run's own, kept in its folder; a run that begins anew gets a new one."""
    path = folder / WANDB_ID
    if begin and path.is_file():
        return path.read_text(encoding="utf-8").strip()
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", folder.resolve().name)[:64]
    made = f"{plain}-{uuid.uuid4().hex[:8]}"
    write_whole(path, lambda aside: aside.write_text(made + "\n", encoding="utf-8"))
    return made


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Whole lines, and their bytes with the newline. A missing file has none."""
    raws = path.read_bytes().split(b"\n") if path.is_file() else []
    while raws and not raws[-1]:
        raws.pop()
    for number, raw in enumerate(raws, 1):
        try:
            line = json.loads(raw)
            if not isinstance(line["step"], int):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            if number == len(raws):
                return
            raise ValueError(
                f"line {number} of {path} is no line of metrics; remove the line, or begin the run anew"
            ) from None
        yield line, raw + b"\n"
