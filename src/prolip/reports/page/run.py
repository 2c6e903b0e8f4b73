"""A finished training run: config, model, metrics and its command, read from its folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeGuard

from prolip.files import read_json
from prolip.model.prolip import ProLIP
from prolip.training.config import TrainConfig
from prolip.training.metric_writers import METRICS_FILE, read_metrics
from prolip.training.run_folder import CONFIG, MODEL, SESSIONS, is_run, read_config, read_sessions
from prolip.weights.load import load


class TrainedSource(NamedTuple):
    """A training source, as its run recorded it."""

    source: str
    fingerprint: str


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingRun:
    """A finished training run.

    metrics:  lines of metrics.jsonl that hold numbers, in order; empty if there are none. None: NaN or infinity.
    data:     training sources with their fingerprints.
    command:  words of the command of the first start; empty if unknown.
    """

    folder: Path
    config: TrainConfig
    model: ProLIP
    metrics: tuple[Mapping[str, float | None], ...]
    data: tuple[TrainedSource, ...]
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.resolve().name

    @property
    def is_probabilistic(self) -> bool:
        """Whether both towers have uncertainty."""
        return "none" not in (self.model.config.image.uncertainty, self.model.config.text.uncertainty)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def num_samples(self) -> int:
        """Number of samples seen, according to the metrics, else to the config."""
        logged = [samples for line in self.metrics if (samples := line.get("samples"))]
        return int(logged[-1]) if logged else self.config.steps * self.config.batch_size

    @property
    def seconds(self) -> float | None:
        """Seconds spent in training steps, from the samples and rates of the metrics; None if the metrics have none."""
        lines = [
            (samples, rate)
            for line in self.metrics
            if (samples := line.get("samples"))
            and (rate := line.get("samples_per_second"))
            and is_finite(rate)
        ]
        # each line covers the samples since the line before, at its rate
        starts = [0.0, *(samples for samples, _ in lines[:-1])]
        durations = [
            max(0.0, samples - start) / rate
            for (samples, rate), start in zip(lines, starts, strict=False)  # no lines: still one start
        ]
        return sum(durations) if durations else None

    @property
    def stage_ends(self) -> tuple[int, ...]:
        """Number of samples at which each stage but the last ends."""
        ends, seen = [], 0
        for steps in self.config.stage_steps[:-1]:
            seen += steps * self.config.batch_size
            ends.append(seen)
        return tuple(ends)


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether a value is a finite number.

    Args:
        value: A number; None: no value.

    Returns:
        False for None, NaN and infinity.
    """
    return value is not None and math.isfinite(value)


def read_run(folder: str | Path, device: str | None = None) -> TrainingRun:
    """Read a finished run.

    Args:
        folder: Folder that `prolip train` wrote.
        device: Device of the model. None: a GPU if there is one.

    Returns:
        The run.

    Raises:
        ValueError: The folder is no training run, or the run has not finished.
    """
    folder = Path(folder).expanduser()
    if not is_run(folder):
        raise ValueError(
            f"{folder} is not a training run, and has no results. Pass a folder that prolip train wrote, such as "
            "runs/miniature, or one that prolip evaluate wrote to"
        )
    if not (folder / MODEL).is_dir():
        raise ValueError(
            f"{folder} has no {MODEL} folder: the run has not finished. Resume it with: prolip train {folder} --resume"
        )
    return TrainingRun(
        folder=folder,
        config=read_config(folder),
        model=load(folder, device=device).eval(),
        metrics=tuple(_read_numbers(folder)),
        data=tuple(
            TrainedSource(entry["source"], entry["fingerprint"])
            for entry in read_json(folder / CONFIG).get("data") or ()
        ),
        command=_read_first_command(folder),
    )


def _read_first_command(folder: Path) -> tuple[str, ...]:
    """The command that started the run first; empty if the file of sessions is missing or empty."""
    sessions = list(read_sessions(folder)) if (folder / SESSIONS).is_file() else []
    return tuple(sessions[0]["command"]) if sessions else ()


def _read_numbers(folder: Path) -> Iterator[Mapping[str, float | None]]:
    """Lines of metrics.jsonl that hold numbers, not a message; none if the file is missing."""
    for line in read_metrics(folder) if (folder / METRICS_FILE).is_file() else ():
        if "message" not in line:
            yield {name: value for name, value in line.items() if not isinstance(value, str)}
