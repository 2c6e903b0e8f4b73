"""What is told of each step: to the metrics file, to people; when something must be looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from prolip.training.config import TrainConfig
from prolip.training.diagnostics import Alarms
from prolip.training.display import Watch
from prolip.training.metric_writers import Metrics, read_metrics
from prolip.training.nonfinite import Guard, StepNumbers
from prolip.training.parallel import peak_memory
from prolip.training.rank_sync import on_first
from prolip.training.schedule import rate
from prolip.training.step import Gradients, Learner
from prolip.training.step_metrics import read_step, read_uncertainty


class Clock:
    """Time since the last reading, in all and waiting for data; and time since the last checkpoint."""

    def __init__(self) -> None:
        self._saved = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self._began, self._waited, self._steps = time.monotonic(), 0.0, 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._waited += time.monotonic() - start
        self._steps += 1

    def read(self, batch: int) -> dict[str, float]:
        """Samples a second, and the share of time that was spent waiting for data, since the last reading."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        found = {"samples_per_second": self._steps * batch / seconds, "data_wait": self._waited / seconds}
        self._begin()
        return found

    def since_save(self) -> float:
        return time.monotonic() - self._saved

    def saved(self) -> None:
        self._saved = time.monotonic()


class Recorder:
    """All ranks have one, because reading a batch that spans ranks takes all of them; rank 0's speaks.

    evaluate: the held-out check, if there is one.
    """

    def __init__(
        self, config: TrainConfig, learner: Learner, guard: Guard, metrics: Metrics | None, watch: Watch,
        device: torch.device, evaluate: Callable[[], dict[str, float]] | None,
    ) -> None:  # fmt: skip
        self._config, self._learner, self._guard = config, learner, guard
        self._metrics, self._watch, self._device, self._evaluate = metrics, watch, device, evaluate
        self._alarms = Alarms()
        if metrics is not None:  # a resumed run has heard its alarms already
            for line in read_metrics(metrics.folder):
                self._alarms.look(line)
        self.clock = Clock()

    def after_step(self, step: int, numbers: StepNumbers, gradients: Gradients) -> None:
        """step: those that are done, this one included."""
        self._guard.add(numbers)
        self._watch.tick(step)
        last = step == self._config.steps
        told = last or step % self._config.log.every == 0
        if told or self._device.type == "cpu":  # elsewhere, looking would wait for the GPU
            self.look(step)
        values: dict[str, float] = {}
        if told:
            values |= self._readings(step, numbers, gradients)
        if self._evaluate is not None and (last or step % self._config.held_out.every == 0):
            values |= self._evaluate()
        if told or values:
            on_first(lambda: self._tell(step, values))

    def look(self, step: int) -> None:
        """Were there steps that had to be left out? FloatingPointError if that is too much."""
        stories = self._guard.read(self._learner)
        if stories:
            on_first(lambda: self._say(step, stories))

    def before_save(self, step: int) -> None:
        """What belongs to the steps of a checkpoint is on the disk before it is."""
        self.look(step)
        on_first(lambda: self._metrics.to_disk() if self._metrics is not None else None)

    def _readings(self, step: int, numbers: StepNumbers, gradients: Gradients) -> dict[str, float]:
        values = read_step(numbers, gradients.terms.weights, self._learner)
        values |= read_uncertainty(gradients.images, gradients.texts, self._learner)
        values["rate"] = rate(step - 1, self._config.steps, self._config.optimiser)
        values["samples"] = float(step * self._config.batch)
        values |= self.clock.read(self._config.batch)
        values["memory"] = peak_memory(self._device)
        if self._guard.skipped:
            values["skipped"] = float(self._guard.skipped)
        return values

    def _tell(self, step: int, values: dict[str, float]) -> None:
        self._say(step, self._alarms.look(values))
        self._watch.update(step, values)
        if self._metrics is not None:
            self._metrics.write(step, values)

    def _say(self, step: int, texts: Sequence[str]) -> None:
        for text in texts:
            self._watch.say(text)
            if self._metrics is not None:
                self._metrics.note(step, text)
