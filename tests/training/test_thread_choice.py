"""The threads of a run: measured without a trace, recorded, kept."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from prolip.threads import ThreadChoice, use_threads
from prolip.training import trainer
from prolip.training.config import CheckpointConfig, HeldOutConfig, LogConfig
from prolip.training.recipes.nano import recipe
from prolip.training.run_folder import read_config, read_sessions
from prolip.training.trainer import train
from tests.training.test_resume import collect_results

STEPS = 6


def config(out, threads=None, workers=0):
    nano = recipe()
    return replace(
        nano,
        out=str(out),
        samples=8 * STEPS,
        batch_size=8,
        data=replace(nano.data, source=("scenes:simple,size=32,length=20,seed=5",), workers=workers),
        checkpoint=CheckpointConfig(every_steps=2, keep_last=9),
        log=LogConfig(every_steps=1, display="none", tensorboard=False),
        held_out=HeldOutConfig(source="scenes:simple,size=32,length=12", samples=12, every_steps=4),
        parallel=replace(nano.parallel, threads=threads, device="cpu"),
    )


@pytest.fixture
def measured(monkeypatch):
    """measured(2): steps are really taken with 1 and 2 threads, and 2 is chosen; the numbers taken are returned."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(trainer, "MIN_MEASURED_STEPS", 1)
    monkeypatch.setattr(trainer, "list_thread_counts", lambda: [1, 2])
    taken = []

    def choose(chosen):
        def choose_threads(counts, run_step, max_steps):
            for count in (*counts, *counts):
                with use_threads(count):
                    run_step()
                taken.append(count)
            return ThreadChoice(chosen, dict.fromkeys(counts, 1.0))

        monkeypatch.setattr(trainer, "choose_threads", choose_threads)
        return taken

    return choose


@pytest.mark.parametrize(("threads", "workers"), [(1, 0), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_measured_run_is_bit_for_bit_one_with_that_number(tmp_path, measured, threads, workers):
    taken = measured(threads)
    before = torch.get_num_threads()
    found = collect_results(train(config(tmp_path / "measured", workers=workers)), STEPS)
    assert taken == [1, 2, 1, 2]
    wanted = collect_results(train(config(tmp_path / "given", threads, workers)), STEPS)
    assert taken == [1, 2, 1, 2], "a given number is not measured"
    assert found == wanted
    assert torch.get_num_threads() == before
    for name in ("measured", "given"):
        assert read_config(tmp_path / name).parallel.threads == threads
        assert [session["threads"] for session in read_sessions(tmp_path / name)] == [threads]


@pytest.mark.slow
def test_a_resumed_run_keeps_its_number(tmp_path, measured, monkeypatch):
    measured(2)
    whole = collect_results(train(config(tmp_path / "whole")), STEPS)
    stopped = tmp_path / "stopped"

    take, count = trainer.Trainer._step, iter(range(100))

    def fail_at_step_4(self, batch):
        if next(count) == 4 + 4:  # after those that were measured
            raise KeyboardInterrupt
        return take(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", fail_at_step_4)
        with pytest.raises(KeyboardInterrupt):
            train(config(stopped))
    taken = measured(1)
    taken.clear()
    train(config(stopped), resume=True)
    assert taken == [], "it is not measured again"
    assert read_config(stopped).parallel.threads == 2
    assert collect_results(stopped, STEPS) == whole


@pytest.mark.slow
def test_threads_override_those_of_the_run_that_is_resumed(tmp_path, measured):
    measured(2)
    train(config(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run" / "model")
    train(config(tmp_path / "run", threads=1), resume=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["parallel"]["threads"] == 1


def test_short_runs_are_not_measured(tmp_path, measured, monkeypatch):
    taken = measured(2)
    monkeypatch.setattr(trainer, "MIN_MEASURED_STEPS", STEPS + 1)
    train(config(tmp_path / "run"))
    assert taken == []
    assert read_config(tmp_path / "run").parallel.threads == torch.get_num_threads()
