"""Metrics of a run: metrics.jsonl, and optionally TensorBoard and Weights & Biases."""

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
from typing import Any, NamedTuple, Protocol, Self

from prolip.extras import import_extra
from prolip.files import atomic_write
from prolip.training.config import LogConfig

METRICS_FILE = "metrics.jsonl"
WANDB_ID_FILE = "wandb-id.txt"
"""Holds the id of the Weights & Biases run, by which a resumed run continues it."""

MetricLine = Mapping[str, float | str | None]
"""A line of metrics.jsonl: "step", and either metrics by name (None: NaN or infinity) or a text as "message"."""


class _FileLine(NamedTuple):
    """A complete line of a metrics file; `raw` are its bytes with the newline."""

    step: int
    values: MetricLine
    raw: bytes


def read_metrics(folder: str | Path) -> list[MetricLine]:
    """Read the metrics of a run folder.

    Args:
        folder: Run folder.

    Returns:
        The lines, each with a "step" and either metrics or a "message". None stands for NaN and infinity. An incomplete
        last line, of a run that was killed or is still writing, is skipped.

    Raises:
        FileNotFoundError: There is no metrics file.
        ValueError: A line before the last is not a JSON object with a "step".
    """
    path = Path(folder) / METRICS_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {folder} is not the folder of a training run")
    return [line.values for line in _read_lines(path)]


class MetricWriter:
    """Writes to `folder/metrics.jsonl`, and to the services (TensorBoard, Weights & Biases) that `log` enables.

    Args:
        folder: Run folder.
        log: Which services.
        run_config: The run's config for Weights & Biases, without secrets.
        first_step: Step from which the run continues; lines of later steps are removed, with 0 all lines.
    """

    def __init__(self, folder: Path, log: LogConfig, run_config: Mapping[str, Any], first_step: int) -> None:
        self.folder, self.path = folder, folder / METRICS_FILE
        kept_lines = (
            b"".join(line.raw for line in _read_lines(self.path) if line.step <= first_step)
            if first_step
            else b""
        )
        atomic_write(self.path, lambda temporary: temporary.write_bytes(kept_lines))
        self._writers: list[_ServiceWriter] = []
        try:
            if log.tensorboard or (log.tensorboard is None and find_spec("tensorboard") is not None):
                self._writers.append(_TensorBoardWriter(folder, first_step))
            if log.wandb_project is not None:
                self._writers.append(_WandbWriter(folder, log.wandb_project, run_config, first_step))
        except BaseException:
            self._close(failed=True)
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write a line of metrics to the file and the services.

        In the file, null stands for NaN and infinity: JSON has neither.

        Args:
            step: Steps done.
            values: By metric name.
        """
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._append({"step": step, **finite})
        for writer in self._writers:
            writer.write(step, values)

    def write_message(self, step: int, text: str) -> None:
        """Write a warning to the file and the services.

        Args:
            step: Steps done.
            text: One line.
        """
        self._append({"step": step, "message": text})
        for writer in self._writers:
            writer.write_message(step, text)

    def sync(self) -> None:
        """fsync the file, so that its lines survive a power failure."""
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the services. The metrics file is not kept open."""
        self._close(failed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(failed=kind is not None)

    def _append(self, line: MetricLine) -> None:
        """Append a line to the metrics file.

        The file is opened for each line: no line waits in a buffer, and a full disk raises one error.

        Raises:
            OSError: The line can't be written; the error names the file.
        """
        raw = json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            with open(self.path, "ab") as file:
                file.write(raw)
        except OSError as error:
            if error.filename is None:  # "No space left on device" comes without the file
                error.filename = str(self.path)
            raise

    def _close(self, failed: bool) -> None:
        """Close each service once. `failed`: whether the run ended with an error."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close(failed)


class _ServiceWriter(Protocol):
    """A service that metrics are logged to, next to the file."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log metrics by name; `step`: steps done."""

    def write_message(self, step: int, text: str) -> None:
        """Log a warning of one line."""

    def close(self, failed: bool) -> None:
        """Send what is buffered, and end the log. `failed`: whether the run ended with an error."""


class _TensorBoardWriter:
    """Writes event files into RUN/tensorboard. `first_step`: step from which the run continues, 0 for a new run."""

    def __init__(self, folder: Path, first_step: int) -> None:
        import_extra("tensorboard", "logging")
        from torch.utils.tensorboard import SummaryWriter  # slow: only when used

        # Events of an older run, and of steps that are repeated, are in other files: purge_step hides them.
        purge = first_step + 1 if first_step else 0
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge, flush_secs=30)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def write_message(self, step: int, text: str) -> None:
        self._writer.add_text("messages", text, step)

    def close(self, failed: bool) -> None:
        self._writer.close()


class _WandbWriter:
    """Logs to a run of Weights & Biases, which a resumed run continues.

    Args:
        folder: Run folder; wandb writes its own files into it, too.
        project: Name of the project.
        run_config: The run's config, without secrets.
        first_step: Step from which the run continues; 0: a new run, with a new id.

    Raises:
        ValueError: wandb can't start the run: no API key, no network, no such project.
    """

    def __init__(self, folder: Path, project: str, run_config: Mapping[str, Any], first_step: int) -> None:
        wandb = import_extra("wandb", "logging")
        try:
            self._run = wandb.init(
                project=project,
                dir=str(folder),
                name=folder.name,
                id=_read_or_create_wandb_id(folder, first_step),
                resume="allow",
                config=dict(run_config),
                settings=wandb.Settings(console="off"),  # it would wrap stderr, which the live display uses
            )
        except wandb.Error as error:  # no API key, no network, no such project
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"log.wandb_project {project}: {reason}. Run `wandb login`, or set the environment variable "
                "WANDB_MODE=offline"
            ) from error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def write_message(self, step: int, text: str) -> None:
        self._run.log({"message": text}, step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def _read_or_create_wandb_id(folder: Path, first_step: int) -> str:
    """Read the id of the Weights & Biases run from the run folder; create and write one if the run starts over.

    A run starts over if `first_step` is 0, or if the folder has no id. A new id is the folder's name, with "-" for
    characters that wandb rejects, and 8 random digits.
    """
    path = folder / WANDB_ID_FILE
    if first_step and path.is_file():
        return path.read_text(encoding="utf-8").strip()
    safe_name = re.sub(r"[^A-Za-z0-9_-]", "-", folder.resolve().name)[:64]
    new_id = f"{safe_name}-{uuid.uuid4().hex[:8]}"
    atomic_write(path, lambda temporary: temporary.write_text(new_id + "\n", encoding="utf-8"))
    return new_id


def _read_lines(path: Path) -> Iterator[_FileLine]:
    """Parse a metrics file; a missing file has no lines.

    Yields:
        Each complete line.

    Raises:
        ValueError: A line is no JSON object with a "step". The last line is skipped instead: a process was killed
            while it wrote it.
    """
    raw_lines = path.read_bytes().split(b"\n") if path.is_file() else []
    while raw_lines and not raw_lines[-1]:
        raw_lines.pop()
    for number, raw in enumerate(raw_lines, 1):
        try:
            line = json.loads(raw)
            if not isinstance(line["step"], int):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            if number == len(raw_lines):
                return
            raise ValueError(
                f"{path}, line {number}, is not a JSON object with a step: the file is damaged. Delete that line (only "
                "its metrics are lost), or train into another folder with --out"
            ) from None
        yield _FileLine(line["step"], line, raw + b"\n")
