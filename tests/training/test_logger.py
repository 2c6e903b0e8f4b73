"""What a run tells of its steps: times, alarms, rates; the clock of checkpoints."""

import os
from types import SimpleNamespace

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.losses.objective import LossTerms, Objective
from prolip.training import logger as module
from prolip.training import metric_writers as metrics_module
from prolip.training.config import Care, LogChoice
from prolip.training.logger import Clock, Recorder
from prolip.training.metric_writers import Metrics, read_metrics
from prolip.training.nonfinite import Guard, StepNumbers
from prolip.training.recipes.nano import recipe
from prolip.training.schedule import rate
from prolip.training.step import Gradients, Learner


@pytest.fixture
def hour(monkeypatch):
    """hour.now is what the clock shows."""
    watch = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: watch.now))
    return watch


def test_the_clock_tells_speed_and_waiting_since_the_last_reading(hour):
    clock = Clock()
    for _ in range(3):
        with clock.waiting():
            hour.now += 1
        hour.now += 3
    assert clock.read(8) == {"samples_per_second": 2.0, "data_wait": 0.25}
    with clock.waiting():
        hour.now += 1
    hour.now += 1
    assert clock.read(8) == {"samples_per_second": 4.0, "data_wait": 0.5}
    assert clock.since_save() == 14
    clock.saved()
    hour.now += 5
    assert clock.since_save() == 5


class Someone:
    def __init__(self):
        self.said, self.seen = [], []

    def tick(self, step): ...

    def update(self, step, values):
        self.seen.append((step, values))

    def say(self, text):
        self.said.append(text)


def told(folder, nano, begin, steps, log_var=-30.0, bad=0.0):
    """A recorder that hears of these steps, with variances that have collapsed."""
    learner, watch = Learner(nano, [Objective()]), Someone()
    config = recipe()
    with Metrics(folder, LogChoice(tensorboard=False), {}, begin) as metrics:
        recorder = Recorder(
            config, learner, Guard(Care(on_nonfinite="skip")), metrics, watch, torch.device("cpu"), None
        )
        for step in steps:
            z = Gaussian(torch.eye(4), torch.full((4, 4), log_var))
            terms = torch.tensor([1.0])
            numbers = StepNumbers(
                step,
                ("ppcl",),
                terms,
                torch.tensor(1.0),
                torch.tensor(bad),
                torch.ones(4).bool(),
                tuple("abcd"),
            )
            recorder.after_step(step, numbers, Gradients(LossTerms({"ppcl": terms[0]}, {"ppcl": 1.0}), z, z))
    return watch


def test_alarms_are_said_and_noted_and_not_again_after_a_resume(tmp_path, nano):
    first = told(tmp_path, nano, 0, range(1, 11))
    assert len(first.said) == 2
    assert "image variances have collapsed" in first.said[0]
    assert [line["note"] for line in read_metrics(tmp_path) if "note" in line] == first.said
    assert told(tmp_path, nano, 10, range(11, 21)).said == []


def test_the_rate_and_samples_are_those_of_the_step(tmp_path, nano):
    watch, config = told(tmp_path, nano, 0, range(1, 21)), recipe()
    assert [step for step, _ in watch.seen] == [10, 20]
    for step, values in watch.seen:
        assert values["rate"] == rate(step - 1, config.steps, config.optimiser)
        assert values["samples"] == step * config.batch


def test_metrics_are_on_the_disk_before_a_checkpoint(tmp_path, nano, monkeypatch):
    synced = []
    monkeypatch.setattr(metrics_module.os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    with Metrics(tmp_path, LogChoice(tensorboard=False), {}, 0) as metrics:
        recorder = Recorder(
            recipe(),
            Learner(nano, [Objective()]),
            Guard(Care()),
            metrics,
            Someone(),
            torch.device("cpu"),
            None,
        )
        metrics.write(1, {"loss": 1.0})
        synced.clear()
        recorder.before_save(1)
        assert synced[-1:] == [metrics.path.stat().st_ino]


def test_bad_steps_that_nobody_looked_at_are_found_before_a_checkpoint(tmp_path, nano):
    guard = Guard(Care())
    recorder = Recorder(
        recipe(), Learner(nano, [Objective()]), guard, None, Someone(), torch.device("cpu"), None
    )
    guard.add(
        StepNumbers(
            3,
            ("ppcl",),
            torch.tensor([torch.nan]),
            torch.tensor(1.0),
            torch.tensor(1.0),
            torch.ones(1).bool(),
            ("a",),
        )
    )
    with pytest.raises(FloatingPointError, match="step 3: ppcl is nan"):
        recorder.before_save(5)
