"""`train`: training as one call, with a recipe by name and changes of its config."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path

from prolip.training import recipes, run_folder, trainer
from prolip.training.config import TrainConfig
from prolip.training.overrides import apply_overrides


def train(
    config: TrainConfig | str | PathLike[str],
    overrides: Mapping[str, object] | None = None,
    *,
    resume: bool = False,
    trust_pipe: bool = False,
    **values: object,
) -> Path:
    """Train a model, in one process or in each of those that torchrun started.

    Args:
        config: The config of the run; or a recipe: its name ("nano"), a .py file, or the folder of a run, which is
            resumed.
        overrides: Changes by dotted key: {"optimizer.lr": 1e-3, "data.source": "train.csv"}.
        resume: Continue from the last checkpoint in the run folder, if there is one.
        trust_pipe: Run the commands (pipe:...) that the config of a run folder of others reads its data with.
        **values: Parameters of the recipe (variant="clip") and changes of keys without a dot (out="runs/mine",
            samples=6400, device="cpu").

    A .py file is executed, so it must be one that you trust.

    Returns:
        The run folder. `prolip.load` opens its model.

    Raises:
        ValueError: A key is unknown, or a value is impossible, or the data or the folder can't be used.
        FileNotFoundError: There is no such recipe, file or folder.
    """
    changes = {**(overrides or {}), **values}
    if isinstance(config, TrainConfig):
        return trainer.train(apply_overrides(config, changes), resume=resume)
    if not isinstance(config, str | PathLike):
        raise ValueError(
            f"config must be a TrainConfig, or the name or path of a recipe, not {type(config).__name__}"
        )
    recipe = recipes.load_recipe(fspath(config))
    run = recipe.build_config(changes)
    given = [
        item for value in changes.values() for item in (value if isinstance(value, list | tuple) else [value])
    ]
    unconfirmed = run_folder.list_unconfirmed_commands(run, given) if recipe.is_run and not trust_pipe else ()
    return trainer.train(run, resume=resume or recipe.is_run, unconfirmed=unconfirmed)
