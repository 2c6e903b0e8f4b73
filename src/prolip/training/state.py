"""The state of a run at a step: what a checkpoint holds, and the export of a model from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import torch
from torch import Tensor

from prolip import distributed
from prolip.files import atomic_write_folder, require_empty_folder
from prolip.model.prolip import ProLIP
from prolip.training import checkpointing, run_folder
from prolip.training.batches import BatchStream
from prolip.training.checkpointing import CheckpointContent
from prolip.training.ema import ModelEma
from prolip.training.lora import add_adapters, copy_adapters, merge_adapters, save_adapters
from prolip.training.optimizer import get_optimizer_tensors
from prolip.training.parallel import full_tensor, get_weight_dtype
from prolip.training.rank_sync import on_rank_zero
from prolip.training.step import TrainModule
from prolip.training.width_stopping import WidthStopper

ADAPTER = "adapter"
"""Folder inside a model folder that has the adapters of LoRA, which are merged into the model."""


class RankState(TypedDict):
    """What a checkpoint holds of each rank."""

    batches: Mapping[str, object]
    """Position in the data; see `BatchStream.state_dict`."""
    rng: str
    """State of torch's global generator, hexadecimal."""


class RunState(TypedDict):
    """What a checkpoint holds once; the fields of `TrainState` with these names."""

    skipped_steps: int
    best: float | None
    best_of: list[str | int | None]


@dataclass(kw_only=True)
class TrainState:
    """Weights, optimizer, EMA, position in the data, and counters of a run.

    Attributes:
        module: All trained parameters.
        optimizer: With its state initialized.
        ema: None if the run has none.
        batches: This rank's batches.
        width_stopper: None if the run doesn't stop widths.
        step: Steps done.
        skipped_steps: Steps that were skipped because of non-finite values.
        best: Best value of the held-out metric so far.
        best_of: Metric, mode and data of `best`. If they change, an earlier best value is no longer comparable.
    """

    module: TrainModule
    optimizer: torch.optim.Optimizer
    ema: ModelEma | None
    batches: BatchStream
    width_stopper: WidthStopper | None = None
    step: int = 0
    skipped_steps: int = 0
    best: float | None = None
    best_of: list[str | int | None]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name. They are not copies: a checkpoint is loaded by writing to them."""
        tensors = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        tensors |= {
            f"optimizer.{name}": value for name, value in get_optimizer_tensors(self.optimizer).items()
        }
        if self.ema is not None:
            tensors |= {f"ema.{name}": value for name, value in self.ema.tensors().items()}
        if self.width_stopper is not None:
            tensors |= self.width_stopper.tensors()
        return tensors

    def checkpoint_content(self) -> CheckpointContent:
        """What this rank puts into a checkpoint of the current step. The tensors are not copies."""
        # Exact resume needs all that later steps depend on: tensors, the position in the data, torch's generator. The
        # learning rate, masking and the order of the data are functions of the step and the seed.
        rank_state: RankState = {"batches": self.batches.state_dict(), "rng": checkpointing.get_rng_state()}
        run_state: RunState = {
            "skipped_steps": self.skipped_steps,
            "best": self.best,
            "best_of": self.best_of,
        }
        return CheckpointContent(
            step=self.step, tensors=self.tensors(), rank_state=rank_state, run_state=run_state
        )

    def load(self, path: Path) -> None:
        """Continue from a checkpoint, which any number of ranks may have saved. All ranks call it.

        Overwrites weights, optimizer state, EMA, position in the data, counters and torch's global generator.

        Args:
            path: The checkpoint's folder.

        Raises:
            ValueError: The checkpoint is damaged or doesn't fit the model.
        """
        rank_state = cast(RankState, checkpointing.load_checkpoint(path, self.tensors()))
        metadata = checkpointing.read_metadata(path)
        try:
            self.step, run_state = metadata["step"], cast(RunState, metadata["state"])
            self.skipped_steps = run_state["skipped_steps"]
            self.best = run_state["best"] if run_state["best_of"] == self.best_of else None
            self.batches.load_state_dict(rank_state["batches"])
            checkpointing.set_rng_state(rank_state["rng"])
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"the checkpoint {path} is damaged: {error!r}. Remove that folder to resume from the checkpoint "
                "before it"
            ) from None


def export_model(module: TrainModule, ema: ModelEma | None, folder: Path) -> None:
    """Write the weights, or their average if there is one, as a model folder. All ranks call it, rank 0 writes.

    Args:
        module: The trained parameters, perhaps sharded.
        ema: Average of the weights, which is exported instead of them; None if the run has none.
        folder: Model folder; replaced if it exists.
    """
    # The averages have the names of their parameters, and replace them. Frozen parameters have no average.
    weights = module.state_dict() | (ema.tensors() if ema is not None else {})
    # one by one: the full tensors of a sharded model may not fit on a GPU together
    tensors = {name: _gather_on_rank_zero(value) for name, value in weights.items()}
    on_rank_zero(lambda: write_model(module, tensors, folder))


def _gather_on_rank_zero(value: Tensor) -> Tensor:
    """The full tensor on rank 0's CPU; an empty one elsewhere. All ranks call it."""
    full = full_tensor(value)
    return full.detach().cpu() if distributed.rank() == 0 else full.new_empty(0)


def write_model(module: TrainModule, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write a model folder with the weights of a training module; with LoRA also the adapters, in a folder inside.

    Args:
        module: For its config and tokenizer.
        tensors: As for `extract_model`.
        folder: Model folder; replaced if it exists.
    """
    model = _restore_model(module, tensors)

    def write(temporary: Path) -> None:
        """Write adapters, then merge them and write the model."""
        save_adapters(model, temporary / ADAPTER)
        merge_adapters(model).save_pretrained(temporary)

    atomic_write_folder(folder, write)


def extract_model(module: TrainModule, tensors: Mapping[str, Tensor]) -> ProLIP:
    """Make a model with the weights of a training module.

    Args:
        module: For its config and tokenizer.
        tensors: By their names in the module ("model.image....", "pml.logit_bias").

    Returns:
        The model on the CPU, with copies of the tensors, LoRA adapters merged. If only PML trained a scale and bias,
        the model's are theirs, in the unit of the model's logits.
    """
    return merge_adapters(_restore_model(module, tensors))


def _restore_model(module: TrainModule, tensors: Mapping[str, Tensor]) -> ProLIP:
    """`extract_model`, without merging LoRA adapters."""
    model = ProLIP(module.model.config, module.model.tokenizer)
    copy_adapters(module.model, model)
    model.origin, model.training_words = module.model.origin, module.model.training_words
    weights = {
        name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")
    }
    if module.exports_pml_temperature:
        # PML's logit -a csd + b equals 2a (1 - csd / 2) + b - 2a, and the model's is a (1 - csd / 2) + b.
        scale = 2 * tensors["pml.logit_scale"].exp()
        weights |= {"logit_scale": scale.log(), "logit_bias": tensors["pml.logit_bias"] - scale}
    model.load_state_dict(
        {name: value.detach().cpu().clone() for name, value in weights.items()}, assign=True
    )
    return model


def export_checkpoint(source: Path, out: Path) -> Path:
    """Export a model folder from a run (its last checkpoint) or from one of its checkpoints, in one process.

    Args:
        source: Run folder or checkpoint folder; any number of ranks may have written it.
        out: Folder that is empty or doesn't exist.

    Returns:
        `out`.

    Raises:
        ValueError: `source` is no run or checkpoint, or is damaged; or `out` is not empty.
    """
    require_empty_folder(out)
    source = source.resolve()
    run = source if run_folder.is_run(source) else source.parent.parent
    path = checkpointing.find_latest(source / run_folder.CHECKPOINTS) if run == source else source
    if path is None or not run_folder.is_run(run):
        raise ValueError(
            f"{source} is neither the folder of a run with a complete checkpoint nor a checkpoint of a run"
        )
    # `find_latest` has verified the last checkpoint of a run
    if path == source and (problem := checkpointing.find_problem(path)):
        raise ValueError(
            f"the checkpoint {path} can't be exported: {problem}. Copy it again, or export another checkpoint"
        )
    config = run_folder.read_config(run)
    model = add_adapters(run_folder.read_empty_model(run), config.model, config.seed)
    module = TrainModule(model, [stage.objective for stage in config.stages])
    module = module.to(get_weight_dtype(config.parallel))
    tensors = dict(module.state_dict())
    checkpointing.load_checkpoint(path, {f"module.{name}": value for name, value in tensors.items()})
    if config.optimizer.ema_decay is not None:
        # the averages are read into the same tensors, over the weights
        ema_names = checkpointing.list_tensor_names(path, "ema.")
        checkpointing.load_checkpoint(path, {f"ema.{name}": tensors[name] for name in ema_names})
    write_model(module, tensors, out)
    return out
