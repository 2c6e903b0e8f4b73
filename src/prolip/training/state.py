"""Everything that a run is at one step: what a checkpoint holds, and how a model comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip import distributed
from prolip.files import require_empty, write_folder_whole
from prolip.model.prolip import ProLIP
from prolip.training import checkpointing, run_folder
from prolip.training.batches import Batches
from prolip.training.ema import Average
from prolip.training.optimizer import state_tensors
from prolip.training.parallel import dtype_of, whole
from prolip.training.rank_sync import on_first
from prolip.training.step import Learner


@dataclass(kw_only=True)
class State:
    """The weights, the optimiser, the average, the place in the data, and a few numbers."""

    learner: Learner
    optimiser: torch.optim.Optimizer
    average: Average | None
    batches: Batches
    step: int = 0
    skipped: int = 0
    best: float | None = None
    best_of: list[Any]  # by which metric, on which data

    def tensors(self) -> dict[str, Tensor]:
        """The very tensors, by name: reading a checkpoint writes into them."""
        found = {f"learner.{name}": value for name, value in self.learner.state_dict().items()}
        found |= {f"optimiser.{name}": value for name, value in state_tensors(self.optimiser).items()}
        if self.average is not None:
            found |= {f"average.{name}": value for name, value in self.average.tensors().items()}
        return found

    def save(self, folder: Path) -> Path:
        """All ranks call it."""
        own = {"batches": self.batches.state_dict(), "random": checkpointing.random_state()}
        facts = {"skipped": self.skipped, "best": self.best, "best_of": self.best_of}
        return checkpointing.save(folder, self.step, self.tensors(), own, facts)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. All ranks call it; as many as saved it, or others."""
        own = checkpointing.load(path, self.tensors())
        content = checkpointing.facts(path)
        try:
            self.step, facts = content["step"], content["facts"]
            self.skipped = facts["skipped"]
            self.best = facts["best"] if facts["best_of"] == self.best_of else None
            self.batches.load_state_dict(own["batches"])
            checkpointing.restore_random_state(own["random"])
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged: {error!r}. Remove it to go on from the one before"
            ) from None


def export(learner: Learner, average: Average | None, folder: Path) -> None:
    """A model folder out of the weights of a run: of the average, if there is one. All ranks call it, rank 0 writes."""
    found = learner.state_dict() | (average.tensors() if average is not None else {})
    # one by one: a GPU need not hold them all
    tensors = {name: _on_first(value) for name, value in found.items()}
    on_first(lambda: write_folder_whole(folder, learner_model(learner, tensors).save))


def _on_first(value: Tensor) -> Tensor:
    """A whole tensor on rank 0's CPU; elsewhere an empty one. All ranks call it."""
    full = whole(value)
    return full.detach().cpu() if distributed.rank() == 0 else full.new_empty(0)


def learner_model(learner: Learner, tensors: Mapping[str, Tensor]) -> ProLIP:
    """A model with the weights of a learner ("model.image....", "pml.bias")."""
    model = ProLIP(learner.model.config, learner.model.tokenizer)
    model.origin = learner.model.origin
    own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    if learner.matches_by_pml:
        # its logit -a csd + b is 2a (1 - csd / 2) + b - 2a, and the model's a (1 - csd / 2) + b
        scale = 2 * tensors["pml.log_scale"].exp()
        own |= {"log_scale": scale.log(), "bias": tensors["pml.bias"] - scale}
    model.load_state_dict({name: value.detach().cpu().clone() for name, value in own.items()}, assign=True)
    return model


def consolidate(source: Path, out: Path) -> Path:
    """A model folder out of a run (its last checkpoint) or of one of its checkpoints, whoever wrote it. One process."""
    require_empty(out)
    source = source.resolve()
    run = source if run_folder.is_run(source) else source.parent.parent
    path = checkpointing.latest(source / run_folder.CHECKPOINTS) if run == source else source
    if path is None or not run_folder.is_run(run):
        raise ValueError(
            f"{source} is neither a run nor a checkpoint of one, or there is no whole checkpoint in it"
        )
    config, model = run_folder.read_config(run), run_folder.read_model(run)
    learner = Learner(model, [stage.objective for stage in config.stages]).to(dtype_of(config.parallel))
    averaged = config.optimiser.ema is not None
    tensors = dict(learner.state_dict())
    checkpointing.load(path, {f"learner.{name}": value for name, value in tensors.items()})
    if averaged:
        trained = checkpointing.names(path, "average.")
        checkpointing.load(path, {f"average.{name}": tensors[name] for name in trained})
    write_folder_whole(out, learner_model(learner, tensors).save)
    return out
