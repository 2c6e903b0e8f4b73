"""Batches of a whole run, over stages and epochs, resumable at any step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from prolip import distributed
from prolip.data.base_loader import BaseLoader
from prolip.data.batch import Batch
from prolip.data.combined_loader import CombinedLoader
from prolip.data.order import derive_seed
from prolip.model.prolip import ProLIP
from prolip.storage.addresses import redact_secrets
from prolip.training.config import Stage, TrainConfig
from prolip.training.data_setup import make_loader


class DataSpan(NamedTuple):
    """Consecutive steps of a run on the same data, of one stage or several.

    Attributes:
        source: The data, as in `DataConfig.source`.
        num_steps: Number of steps.
    """

    source: tuple[str, ...]
    num_steps: int


def find_data_spans(config: TrainConfig) -> list[DataSpan]:
    """Group consecutive stages with the same data into spans.

    Within a span, a stage continues in the data where the stage before it stopped. A later span that returns to earlier
    data sees it in another order.

    Args:
        config: The run.

    Returns:
        The spans, in order; their numbers of steps add up to that of the run.
    """
    sources = [stage.source or config.data.source for stage in config.stages]
    pairs = zip(sources, config.stage_steps, strict=True)
    return [
        DataSpan(source, sum(steps for _, steps in group))
        for source, group in groupby(pairs, lambda pair: pair[0])
    ]


def get_stage_index(config: TrainConfig, step: int) -> int:
    """Index of the stage of a step; both count from 0.

    Args:
        config: The run.
        step: Less than `config.steps`.

    Returns:
        Index in `config.stages`.
    """
    return _find_interval(step, config.stage_steps)


def get_stage(config: TrainConfig, step: int) -> Stage:
    """The stage of a step, which counts from 0.

    Args:
        config: The run.
        step: Less than `config.steps`.

    Returns:
        Its element of `config.stages`.
    """
    return config.stages[get_stage_index(config, step)]


def _find_interval(step: int, lengths: Iterable[int]) -> int:
    """Index of the interval that contains a step; intervals of these lengths follow each other from step 0 on.

    Raises:
        ValueError: The step is after the last interval.
    """
    end = 0
    for index, length in enumerate(lengths):
        end += length
        if step < end:
            return index
    raise ValueError(f"step {step} is after the last of {end} steps")


class BatchStream:
    """This rank's batches, one per step.

    Holds one open loader, that of the current span (`find_data_spans`); `close` ends its worker processes.

    Args:
        config: The run.
        model: For its preprocessing and tokenizer.
    """

    def __init__(self, config: TrainConfig, model: ProLIP) -> None:
        self._config, self._model = config, model
        self._spans = find_data_spans(config)
        self._current_span = -1
        self._loader: BaseLoader | CombinedLoader | None = None
        self._iterator: Iterator[Batch] = iter(())
        self._open_span(0)  # errors in the data are raised now, not at the first step

    def next_batch(self, step: int) -> Batch:
        """The batch of a step (from 0). Steps must be consecutive. Opens the next span's data where a span begins.

        Raises:
            ValueError: An epoch of the data gives this rank no batch.
        """
        self._open_span(_find_interval(step, (span.num_steps for span in self._spans)))
        assert self._loader is not None
        # Three iterators at most: that of the span's start, which is empty; the rest of an epoch after a resume, which
        # may be empty; a whole epoch.
        for _ in range(3):
            batch = next(self._iterator, None)
            if batch is not None:
                return batch
            self._iterator = iter(self._loader)  # the next epoch
        names = ", ".join(map(redact_secrets, self._spans[self._current_span].source))
        raise ValueError(
            f"{names}: an epoch has no batch for rank {distributed.rank()}; add data, or reduce batch_size"
        )

    def state_dict(self) -> dict[str, object]:
        """This rank's position in the data, ready for JSON."""
        return {"span": self._current_span, "loader": self._loader.state_dict() if self._loader else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position that `state_dict` returned: open its span, and move the loader to it.

        Args:
            state: `span`, the index of the span, and `loader`, the state of its loader; None: nothing is changed.
        """
        if state["loader"] is None:
            return
        self._open_span(state["span"])
        assert self._loader is not None
        self._loader.load_state_dict(state["loader"])

    def close(self) -> None:
        """End the worker processes of the open loader, if there is one."""
        if self._loader is not None:
            self._loader.close()

    def _open_span(self, index: int) -> None:
        """Open the loader of a span (index in `self._spans`) and close the one before it. Does nothing if it is open.

        The first span has the seed of the run. Others have seeds of their own, so that data that returns is in
        another order.
        """
        if index == self._current_span:
            return
        self.close()
        span = self._spans[index]
        self._current_span, self._iterator = index, iter(())
        # derive_seed returns 64 bits, and the seed of a config has 63
        seed = derive_seed(self._config.seed, "span", index) >> 1 if index else self._config.seed
        self._loader = make_loader(
            replace(self._config, seed=seed), span.source, self._model, steps=span.num_steps, rank=distributed.rank(),
            world_size=distributed.world_size(),
        )  # fmt: skip
