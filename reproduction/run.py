"""Runs cells: train, measure, write; existing cells are not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from prolip.checks import require_choice, require_positive_int
from prolip.choices import SceneWorld
from prolip.model.prolip import ProLIP
from prolip.scenes.config import VERSION as SCENES_VERSION
from prolip.training.config import TrainConfig
from prolip.training.model_setup import make_model
from prolip.training.run_folder import MODEL, compare_configs, is_run, move_aside, read_config
from prolip.training.trainer import train
from prolip.weights.load import load
from reproduction import cost
from reproduction.cell import COMMITTED, MEASURES, Cell, get_cell_path, read_cell, write_cell
from reproduction.evaluation_data import EvaluationData, EvaluationSizes
from reproduction.measure import measure_model, round_floats
from reproduction.recipe import SCALES, compute_fingerprint, list_variants, make_run_config
from reproduction.variants import COST, UNTRAINED_VARIANTS, get_variant


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Folders and settings of a reproduction.

    Attributes:
        out: Parent of cells/, runs/ and scenes/.
        sizes: Sizes of the evaluation data.
        committed: Folder of further cells that are not run again; None: only those in cells/ are skipped.
        report: Called with a line of text before each cell is run.
    """

    out: Path
    sizes: EvaluationSizes = field(default_factory=EvaluationSizes)
    committed: Path | None = COMMITTED
    report: Callable[[str], None] = print

    @property
    def cells(self) -> Path:
        """Folder in which cells are written."""
        return self.out / "cells"

    def evaluation_data(self, world: SceneWorld) -> EvaluationData:
        """The evaluation data of a world; data of another version has another folder."""
        folder = self.out / "scenes" / f"version-{SCENES_VERSION}" / world
        return EvaluationData(folder, replace(self.sizes, world=world))

    def run_folder(self, scale: str, variant: str, seed: int) -> Path:
        """Folder of the training run of a cell."""
        return self.out / "runs" / scale / f"{variant}-{seed}"


def choose_cells(variants: Sequence[str] | None, seeds: Sequence[int] | None) -> list[tuple[str, int]]:
    """Choose the cells to run.

    Args:
        variants: Names of variants; None: all.
        seeds: Seeds of each variant; None: 0, 1, ..., as many as the variant has by default.

    Returns:
        Pairs (variant, seed).

    Raises:
        ValueError: There is no such variant, or a seed is negative or too large.
    """
    all_variants = list_variants()
    for variant in variants or ():
        require_choice(variant, all_variants, "variant")
    for seed in seeds or ():
        if seed:  # 0 is a valid seed
            require_positive_int(seed, "seed", maximum=2**31)
    return [
        (variant, seed)
        for variant in variants or all_variants
        for seed in (seeds or range(get_variant(variant).seeds))
    ]


def run_missing(workspace: Workspace, scale: str, cells: Sequence[tuple[str, int]]) -> list[Path]:
    """Run and write the cells that don't exist yet, or were made by another recipe.

    After an interruption, a second call continues where the first stopped.

    Args:
        workspace: Folders and settings.
        scale: Scale of SCALES.
        cells: Pairs (variant, seed).

    Returns:
        The files of the new cells.

    Raises:
        KeyboardInterrupt: A signal stopped a training.
    """
    require_choice(scale, SCALES, "scale")
    written = []
    for variant, seed in cells:
        config = make_run_config(variant, scale, seed, workspace.run_folder(scale, variant, seed))
        if _is_done(workspace, scale, variant, seed, compute_fingerprint(config, variant)):
            continue
        workspace.report(f"{scale}/{variant}-{seed}: {get_variant(variant).description}")
        written.append(write_cell(workspace.cells, _run_cell(workspace, config, scale, variant, seed)))
    return written


def _is_done(workspace: Workspace, scale: str, variant: str, seed: int, fingerprint: str) -> bool:
    """Whether the workspace or the committed cells have a cell of the recipe with this fingerprint."""
    for folder in (workspace.cells, workspace.committed):
        if folder is not None and (path := get_cell_path(folder, scale, variant, seed)).is_file():
            cell = read_cell(path)
            if cell is not None and cell.fingerprint == fingerprint:
                return True
    return False


def _run_cell(workspace: Workspace, config: TrainConfig, scale: str, variant: str, seed: int) -> Cell:
    """Train and measure a cell, with its provenance; files of the run and of the evaluation data are written."""
    start = time.monotonic()
    numbers = _measure_cell(workspace, config, variant)
    provenance = {
        "prolip": version("prolip"),
        "torch": torch.__version__,
        "measures": MEASURES,
        "threads": torch.get_num_threads(),
        "seconds": round(time.monotonic() - start),
        "samples": config.samples if variant not in UNTRAINED_VARIANTS else 0,
    }
    return Cell(
        scale=scale,
        variant=variant,
        seed=seed,
        fingerprint=compute_fingerprint(config, variant),
        provenance=provenance,
        numbers=numbers,
    )


def _measure_cell(workspace: Workspace, config: TrainConfig, variant: str) -> dict[str, Any]:
    """The numbers of a cell: of the cost of a step, of an untrained model, or of a model that is trained first."""
    if variant == COST:
        return round_floats(cost.measure_cost(config))  # type: ignore[no-any-return]
    settings = get_variant(variant)
    model = _train_model(config) if settings.is_trained else make_model(config.model, config.seed)
    return measure_model(model, workspace.evaluation_data(settings.world).prepare())


def _train_model(config: TrainConfig) -> ProLIP:
    """Train a model in the folder `config.out`, or continue its run; returns the model.

    A run of another recipe in that folder is moved aside, not removed. Raises KeyboardInterrupt if a signal stopped the
    training.
    """
    folder = Path(config.out)
    if is_run(folder) and compare_configs(read_config(folder).to_dict(), config.to_dict()):
        move_aside(folder)
    train(config, resume=True)
    if not (folder / MODEL).exists():  # a signal stopped the training after a checkpoint: stop as well
        raise KeyboardInterrupt
    return load(folder)
