"""The batches of a whole run: stage after stage, epoch after epoch, from any step on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from prolip import distributed
from prolip.data.base_loader import Epochs
from prolip.data.batch import Batch
from prolip.data.combined_loader import Together
from prolip.data.order import mixed
from prolip.model.prolip import ProLIP
from prolip.training.config import Stage, TrainConfig
from prolip.training.data_setup import make_loader


class Span(NamedTuple):
    """Consecutive steps on the same data."""

    source: tuple[str, ...]
    steps: int


def spans(config: TrainConfig) -> list[Span]:
    """Stages that follow each other on the same data read on in it, they don't begin it anew. One that comes back to
    earlier data has it in another order."""
    sources = [stage.source or config.data.source for stage in config.stages]
    pairs = zip(sources, config.stage_steps, strict=True)
    return [
        Span(source, sum(steps for _, steps in group)) for source, group in groupby(pairs, lambda p: p[0])
    ]


def stage_number(config: TrainConfig, step: int) -> int:
    """Of the stage to which step number `step` belongs; both count from 0."""
    return _part_of(step, config.stage_steps)


def stage_at(config: TrainConfig, step: int) -> Stage:
    """The stage to which step number `step` (from 0) belongs."""
    return config.stages[stage_number(config, step)]


def _part_of(step: int, lengths: Iterable[int]) -> int:
    """The part that a step falls into, of parts of so many steps that follow each other."""
    end = 0
    for number, length in enumerate(lengths):
        end += length
        if step < end:
            return number
    raise ValueError(f"step {step} is behind the last of {end}")


class Batches:
    """`take(step)` gives this rank's batch of each step in turn."""

    def __init__(self, config: TrainConfig, model: ProLIP) -> None:
        self._config, self._model = config, model
        self._spans = spans(config)
        self._current = -1
        self._loader: Epochs | Together | None = None
        self._iterator: Iterator[Batch] = iter(())
        self._enter(0)  # what is wrong with the data is better known now

    def take(self, step: int) -> Batch:
        """The batch of step number `step`; steps are taken one after another."""
        self._enter(_part_of(step, (span.steps for span in self._spans)))
        assert self._loader is not None
        for _ in range(3):  # what is left of an epoch may be nothing
            batch = next(self._iterator, None)
            if batch is not None:
                return batch
            self._iterator = iter(self._loader)  # the next epoch
        raise ValueError(f"{', '.join(self._spans[self._current].source)}: an epoch of it has no batch")

    def state_dict(self) -> dict[str, Any]:
        """For JSON: where this rank stands."""
        return {"span": self._current, "loader": self._loader.state_dict() if self._loader else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["loader"] is None:
            return
        self._enter(state["span"])
        assert self._loader is not None
        self._loader.load_state_dict(state["loader"])

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()

    def _enter(self, number: int) -> None:
        if number == self._current:
            return
        self.close()
        span = self._spans[number]
        self._current, self._iterator = number, iter(())
        seed = mixed(self._config.seed, "span", number) >> 1 if number else self._config.seed
        self._loader = make_loader(
            replace(self._config, seed=seed), span.source, self._model, steps=span.steps, rank=distributed.rank(),
            world_size=distributed.world_size(),
        )  # fmt: skip
