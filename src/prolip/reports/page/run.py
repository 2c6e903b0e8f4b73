"""What the folder of a training run tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.files import read_json
from prolip.model.prolip import ProLIP
from prolip.training.config import TrainConfig
from prolip.training.metric_writers import FILE, read_metrics
from prolip.training.run_folder import CONFIG, MODEL, SESSIONS, is_run, read_config, read_sessions
from prolip.weights.load import load


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """metrics: lines with numbers, in order; empty if there are none. data: what was trained on, with fingerprints.
    sessions: versions and machine of each start."""

    folder: Path
    config: TrainConfig
    model: ProLIP
    metrics: tuple[dict[str, Any], ...]
    data: tuple[dict[str, Any], ...]
    sessions: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def is_probabilistic(self) -> bool:
        return "none" not in (self.model.config.image.uncertainty, self.model.config.text.uncertainty)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def samples(self) -> int:
        """Samples seen, by the metrics; without any, those that the config asks for."""
        seen = [line["samples"] for line in self.metrics if line.get("samples")]
        return int(seen[-1]) if seen else self.config.steps * self.config.batch

    @property
    def seconds(self) -> float | None:
        """Time in training steps: samples by samples a second, line by line. None without metrics."""
        lines = [
            line
            for line in self.metrics
            if line.get("samples")
            and line.get("samples_per_second")
            and is_finite(line["samples_per_second"])
        ]
        starts = [0.0, *(line["samples"] for line in lines[:-1])]
        parts = [
            max(0.0, line["samples"] - start) / line["samples_per_second"]
            for line, start in zip(lines, starts, strict=False)
        ]
        return sum(parts) if parts else None

    @property
    def stage_ends(self) -> tuple[int, ...]:
        """Samples at which a stage ends and the next begins."""
        ends, seen = [], 0
        for steps in self.config.stage_steps[:-1]:
            seen += steps * self.config.batch
            ends.append(seen)
        return tuple(ends)


def is_finite(value: float | None) -> bool:
    """A number that can be drawn."""
    return value is not None and math.isfinite(value)


def read_run(folder: str | Path, device: str | None = None) -> Run:
    """A run that has ended. A sentence for what is none."""
    folder = Path(folder).expanduser()
    if not is_run(folder):
        raise ValueError(f"{folder} is no folder of a training run; say one that prolip train wrote")
    if not (folder / MODEL).is_dir():
        raise ValueError(f"{folder} has no {MODEL} yet: let the run end (prolip train {folder} --resume)")
    return Run(
        folder=folder,
        config=read_config(folder),
        model=load(folder, device=device).eval(),
        metrics=tuple(line for line in _lines(folder) if "note" not in line),
        data=tuple(read_json(folder / CONFIG).get("data") or ()),
        sessions=tuple(read_sessions(folder)) if (folder / SESSIONS).is_file() else (),
    )


def _lines(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder) if (folder / FILE).is_file() else []
