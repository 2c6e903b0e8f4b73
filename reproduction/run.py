"""Running cells: train, measure, write; what is there is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from prolip.checks import require_choice, require_count
from prolip.model.prolip import ProLIP
from prolip.scenes.writer import VERSION as SCENES
from prolip.training.config import TrainConfig
from prolip.training.model_setup import make_model
from prolip.training.run_folder import MODEL, differences, is_run, put_aside, read_config
from prolip.training.trainer import train
from prolip.weights.load import load
from reproduction import cost
from reproduction.cell import PACKAGED, Cell, cell_path, read_cell, write_cell
from reproduction.evaluation_sets import Ground, Samples
from reproduction.measure import measure, rounded
from reproduction.recipe import SCALES, all_variants, fingerprint, run_config
from reproduction.variants import COST, UNTRAINED, variant

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where cells are made. out: cells/, runs/ and scenes/ below it. samples: what models are judged on.
    packaged: cells that count as done, too; None: none do. tell: of each cell, a line."""

    out: Path
    samples: Samples = field(default_factory=Samples)
    packaged: Path | None = PACKAGED
    tell: Tell = print

    @property
    def cells(self) -> Path:
        return self.out / "cells"

    @property
    def scenes(self) -> Path:
        """Those of another version stay where they are: they look otherwise."""
        return self.out / "scenes" / f"version-{SCENES}"

    def run_folder(self, scale: str, name: str, seed: int) -> Path:
        return self.out / "runs" / scale / f"{name}-{seed}"


def choose(variants: Sequence[str] | None, seeds: Sequence[int] | None) -> list[tuple[str, int]]:
    """Which cells are wanted. variants: None: all. seeds: None: 0, 1, ..., as many as each variant has."""
    known = all_variants()
    for name in variants or ():
        require_choice(name, known, "variant")
    for seed in seeds or ():
        if seed:
            require_count(seed, "seed", most=2**31)
    return [(name, seed) for name in variants or known for seed in (seeds or range(variant(name).seeds))]


def run_missing(work: Work, scale: str, wanted: Sequence[tuple[str, int]]) -> list[Path]:
    """Make the wanted cells that are missing, or of another recipe; their files. Stopped, it goes on where it was."""
    require_choice(scale, SCALES, "scale")
    made = []
    for name, seed in wanted:
        config = run_config(name, scale, seed, work.run_folder(scale, name, seed))
        if _is_done(work, scale, name, seed, fingerprint(config, name)):
            continue
        work.tell(f"{scale}/{name}-{seed}: {variant(name).sentence}")
        made.append(write_cell(work.cells, _make(work, config, scale, name, seed)))
    return made


def _is_done(work: Work, scale: str, name: str, seed: int, wanted: str) -> bool:
    for folder in (work.cells, work.packaged):
        if folder is not None and (path := cell_path(folder, scale, name, seed)).is_file():
            cell = read_cell(path)
            if cell is not None and cell.fingerprint == wanted:
                return True
    return False


def _make(work: Work, config: TrainConfig, scale: str, name: str, seed: int) -> Cell:
    start = time.monotonic()
    numbers = _numbers(work, config, name)
    made = {
        "prolip": version("prolip"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": round(time.monotonic() - start),
        "samples": config.samples if name not in (UNTRAINED, COST) else 0,
    }
    return Cell(
        scale=scale,
        variant=name,
        seed=seed,
        fingerprint=fingerprint(config, name),
        made=made,
        numbers=numbers,
    )


def _numbers(work: Work, config: TrainConfig, name: str) -> dict[str, Any]:
    if name == COST:
        return rounded(cost.measure(config))  # type: ignore[no-any-return]
    model = make_model(config.model, config.seed) if name == UNTRAINED else _trained(config)
    return measure(model, Ground(work.scenes, work.samples).prepare())


def _trained(config: TrainConfig) -> ProLIP:
    """Trained, or trained further where it was stopped. The run of another recipe is put aside, not removed."""
    folder = Path(config.out)
    if is_run(folder) and differences(read_config(folder).to_dict(), config.to_dict()):
        put_aside(folder)
    train(config, resume=True)
    if not (folder / MODEL).exists():  # it was asked to stop, saved its state and ended well: so do we
        raise KeyboardInterrupt
    return load(folder)
