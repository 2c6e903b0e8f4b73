"""Runs cells: train, measure, write; existing cells are not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from prolip.checks import require_choice, require_positive_int
from prolip.model.prolip import ProLIP
from prolip.scenes.writer import VERSION as SCENES
from prolip.training.config import TrainConfig
from prolip.training.model_setup import make_model
from prolip.training.run_folder import MODEL, compare_configs, is_run, move_aside, read_config
from prolip.training.trainer import train
from prolip.weights.load import load
from reproduction import cost
from reproduction.cell import COMMITTED, Cell, get_cell_path, read_cell, write_cell
from reproduction.evaluation_data import EvaluationData, EvaluationSizes
from reproduction.measure import measure_model, round_floats
from reproduction.recipe import SCALES, compute_fingerprint, list_variants, make_run_config
from reproduction.variants import COST, UNTRAINED, get_variant


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Folders and settings of a reproduction.

    Attributes:
        out: Parent of cells/, runs/ and scenes/.
        sizes: Sizes of the evaluation data.
        committed: Cells that count as done, too; None: none do.
        report: Receives a line of each cell that is run.
    """

    out: Path
    sizes: EvaluationSizes = field(default_factory=EvaluationSizes)
    committed: Path | None = COMMITTED
    report: Callable[[str], None] = print

    @property
    def cells(self) -> Path:
        return self.out / "cells"

    @property
    def scenes(self) -> Path:
        """Folder of the evaluation data; data of another version has another folder."""
        return self.out / "scenes" / f"version-{SCENES}"

    def run_folder(self, scale: str, name: str, seed: int) -> Path:
        return self.out / "runs" / scale / f"{name}-{seed}"


def choose_cells(variants: Sequence[str] | None, seeds: Sequence[int] | None) -> list[tuple[str, int]]:
    """Choose the cells to run.

    Args:
        variants: None: all.
        seeds: None: 0, 1, ..., as many as each variant has by default.

    Returns:
        Pairs (variant, seed).
    """
    known = list_variants()
    for name in variants or ():
        require_choice(name, known, "variant")
    for seed in seeds or ():
        if seed:
            require_positive_int(seed, "seed", maximum=2**31)
    return [(name, seed) for name in variants or known for seed in (seeds or range(get_variant(name).seeds))]


def run_missing(workspace: Workspace, scale: str, wanted: Sequence[tuple[str, int]]) -> list[Path]:
    """Run the cells that are missing or of another recipe. After an interruption, a second call continues.

    Args:
        workspace: Folders and settings.
        scale: Scale of SCALES.
        wanted: Pairs (variant, seed).

    Returns:
        The files of the new cells.
    """
    require_choice(scale, SCALES, "scale")
    written = []
    for name, seed in wanted:
        config = make_run_config(name, scale, seed, workspace.run_folder(scale, name, seed))
        if _is_done(workspace, scale, name, seed, compute_fingerprint(config, name)):
            continue
        workspace.report(f"{scale}/{name}-{seed}: {get_variant(name).description}")
        written.append(write_cell(workspace.cells, _run_cell(workspace, config, scale, name, seed)))
    return written


def _is_done(workspace: Workspace, scale: str, name: str, seed: int, wanted: str) -> bool:
    for folder in (workspace.cells, workspace.committed):
        if folder is not None and (path := get_cell_path(folder, scale, name, seed)).is_file():
            cell = read_cell(path)
            if cell is not None and cell.fingerprint == wanted:
                return True
    return False


def _run_cell(workspace: Workspace, config: TrainConfig, scale: str, name: str, seed: int) -> Cell:
    start = time.monotonic()
    numbers = _measure_cell(workspace, config, name)
    provenance = {
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
        fingerprint=compute_fingerprint(config, name),
        provenance=provenance,
        numbers=numbers,
    )


def _measure_cell(workspace: Workspace, config: TrainConfig, name: str) -> dict[str, Any]:
    if name == COST:
        return round_floats(cost.measure_cost(config))  # type: ignore[no-any-return]
    model = make_model(config.model, config.seed) if name == UNTRAINED else _train_model(config)
    return measure_model(model, EvaluationData(workspace.scenes, workspace.sizes).prepare())


def _train_model(config: TrainConfig) -> ProLIP:
    """Train a model, or continue its run. The run of another recipe is moved aside, not removed."""
    folder = Path(config.out)
    if is_run(folder) and compare_configs(read_config(folder).to_dict(), config.to_dict()):
        move_aside(folder)
    train(config, resume=True)
    if not (folder / MODEL).exists():  # a signal stopped the training after a checkpoint: stop as well
        raise KeyboardInterrupt
    return load(folder)
