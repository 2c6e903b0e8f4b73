"""What a run tells of its steps: times, alarms, rates; the clock of checkpoints."""

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.losses.objective import LossTerms, Objective
from prolip.training import logger as module
from prolip.training import metric_writers as metrics_module
from prolip.training.config import LogConfig, NonFinitePolicy
from prolip.training.logger import (
    StepTimer,
    TrainLogger,
    compute_step_metrics,
    compute_uncertainty_metrics,
)
from prolip.training.metric_writers import MetricWriter, read_metrics
from prolip.training.nonfinite import NonFiniteMonitor, StepRecord
from prolip.training.optimizer import compute_learning_rate
from prolip.training.recipes.nano import recipe
from prolip.training.step import StepOutput, TrainModule


@pytest.fixture
def hour(monkeypatch):
    """hour.now is what the clock shows."""
    watch = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: watch.now))
    return watch


def test_the_clock_tells_speed_and_waiting_since_the_last_reading(hour):
    clock = StepTimer()
    for _ in range(3):
        with clock.wait_for_data():
            hour.now += 1
        hour.now += 3
    assert clock.read_and_reset(8) == {"samples_per_second": 2.0, "data_wait": 0.25}
    with clock.wait_for_data():
        hour.now += 1
    hour.now += 1
    assert clock.read_and_reset(8) == {"samples_per_second": 4.0, "data_wait": 0.5}
    assert clock.seconds_since_save() == 14
    clock.mark_save()
    hour.now += 5
    assert clock.seconds_since_save() == 5


class Someone:
    def __init__(self):
        self.said, self.seen = [], []

    def tick(self, step): ...

    def update(self, step, values):
        self.seen.append((step, values))

    def print_message(self, text):
        self.said.append(text)


def told(folder, nano, begin, steps, log_var=-30.0, bad=0.0, term="ppcl", config=None):
    """A recorder that hears of these steps, with variances that have collapsed."""
    module, watch = TrainModule(nano, [Objective()]), Someone()
    config = config or recipe()
    with MetricWriter(folder, LogConfig(tensorboard=False), {}, begin) as metrics:
        recorder = TrainLogger(
            config,
            module,
            NonFiniteMonitor(NonFinitePolicy(action="skip")),
            metrics,
            watch,
            torch.device("cpu"),
            None,
        )
        for step in steps:
            z = Gaussian(torch.eye(4), torch.full((4, 4), log_var))
            terms = torch.tensor([1.0])
            numbers = StepRecord(
                step,
                (term,),
                terms,
                torch.tensor(1.0),
                torch.tensor(bad),
                torch.ones(4).bool(),
                tuple("abcd"),
            )
            recorder.log_step(step, numbers, StepOutput(LossTerms({term: terms[0]}, {term: 1.0}), z, z))
    return watch


def test_alarms_are_said_and_noted_and_not_again_after_a_resume(tmp_path, nano):
    first = told(tmp_path, nano, 0, range(1, 11))
    assert len(first.said) == 2
    assert "image variances have collapsed" in first.said[0]
    assert [line["message"] for line in read_metrics(tmp_path) if "message" in line] == first.said
    assert told(tmp_path, nano, 10, range(11, 21)).said == []


def test_a_masked_term_is_shown_only_if_inputs_are_masked(tmp_path, nano):
    config = recipe()
    config = replace(config, masking=replace(config.masking, text_fraction=0.0))
    for term, is_shown in (("masked_images", True), ("masked_texts", False)):
        ((_, values),) = told(tmp_path / term, nano, 0, range(1, 11), term=term, config=config).seen
        assert (f"loss/{term}" in values) == is_shown


def test_the_rate_and_samples_are_those_of_the_step(tmp_path, nano):
    watch, config = told(tmp_path, nano, 0, range(1, 21)), recipe()
    assert [step for step, _ in watch.seen] == [10, 20]
    for step, values in watch.seen:
        assert values["lr"] == compute_learning_rate(step - 1, config.steps, config.optimizer)
    lines = [line for line in read_metrics(tmp_path) if "loss" in line]
    assert [line["samples"] for line in lines] == [10 * config.batch_size, 20 * config.batch_size]


def test_metrics_are_on_the_disk_before_a_checkpoint(tmp_path, nano, monkeypatch):
    synced = []
    monkeypatch.setattr(metrics_module.os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    with MetricWriter(tmp_path, LogConfig(tensorboard=False), {}, 0) as metrics:
        recorder = TrainLogger(
            recipe(),
            TrainModule(nano, [Objective()]),
            NonFiniteMonitor(NonFinitePolicy()),
            metrics,
            Someone(),
            torch.device("cpu"),
            None,
        )
        metrics.write(1, {"loss": 1.0})
        synced.clear()
        recorder.sync()
        assert synced[-1:] == [metrics.path.stat().st_ino]


def test_bad_steps_that_nobody_looked_at_are_found_before_a_checkpoint(tmp_path, nano):
    guard = NonFiniteMonitor(NonFinitePolicy())
    recorder = TrainLogger(
        recipe(), TrainModule(nano, [Objective()]), guard, None, Someone(), torch.device("cpu"), None
    )
    guard.add(
        StepRecord(
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
        recorder.check_nonfinite(5)


def make_record(**terms):
    values = torch.tensor(list(terms.values()))
    return StepRecord(
        1, tuple(terms), values, torch.tensor(2.5), torch.zeros(()), torch.ones(1).bool(), ("a",)
    )


def test_step_metrics_total_is_weighted_sum(nano):
    module = TrainModule(nano, [Objective(pml=1.0)])
    found = compute_step_metrics(
        make_record(ppcl=4.0, vib_images=2.0), {"ppcl": 1.0, "vib_images": 0.25}, module
    )
    assert found["loss"] == pytest.approx(4.5)
    assert (found["loss/ppcl"], found["loss/vib_images"], found["grad_norm"]) == (4.0, 2.0, 2.5)
    assert (found["scale"], found["logit_bias"]) == pytest.approx((10.0, -10.0))
    assert (found["pml/scale"], found["pml/logit_bias"]) == pytest.approx((5.0, 5.0))


def test_uncertainty_metrics_match_numpy(nano, draw):
    images, texts = draw(37, 4), draw(37, 4)
    found = compute_uncertainty_metrics(images, texts, TrainModule(nano, [Objective()]))
    for kind, z in (("image", images), ("text", texts)):
        traces = z.log_var.exp().sum(-1).numpy()
        assert found[f"{kind}/uncertainty"] == pytest.approx(traces.mean())
        for name, q in (("q05", 5), ("q50", 50), ("q95", 95)):
            assert found[f"{kind}/uncertainty_{name}"] == pytest.approx(np.percentile(traces, q))
        assert found[f"{kind}/log_var"] == pytest.approx(z.log_var.mean().item())


def test_uncertainty_metrics_of_deterministic_model_are_empty(nano, draw):
    plain = type(nano)(nano.config.with_uncertainty("none"))
    points = Gaussian.point(draw(3, 4).mean)
    assert compute_uncertainty_metrics(points, points, TrainModule(plain, [Objective()])) == {}
