from dataclasses import replace
from typing import Literal

import pytest

from prolip.training.recipes import Recipe, load_recipe
from prolip.training.run_folder import is_run
from reproduction import recipe, run
from reproduction.cell import read_cell, write_cell


class Bench:
    """A recipe of two variants whose runs take a moment; counts what is trained and measured."""

    def __init__(self, monkeypatch, out):
        self.lr, self.trained, self.measured = 1e-3, [], []
        self.workspace = run.Workspace(out=out, committed=out / "committed", report=lambda _: None)
        monkeypatch.setattr(recipe, "load_recipe", lambda: Recipe("stub", "", self.make))
        real = run.train
        monkeypatch.setattr(run, "train", lambda config, resume: self.train(real, config, resume))
        monkeypatch.setattr(run, "measure_model", lambda model, evaluation_data: self.measure(model))
        monkeypatch.setattr(run.EvaluationData, "prepare", lambda evaluation_data: evaluation_data)

    def make(
        self,
        variant: Literal["prolip", "clip"] = "prolip",
        scale: Literal["minutes", "hour"] = "minutes",
        level: Literal["simple", "styled"] = "simple",
    ):
        config = load_recipe("nano").build_config(
            {"log.display": "none", "held_out.source": None, "log.tensorboard": False}
        )
        return replace(config, samples=32, optimizer=replace(config.optimizer, lr=self.lr))

    def train(self, real, config, resume):
        self.trained.append((config.out.rpartition("/")[2], resume))
        return real(config, resume=resume)

    def measure(self, model):
        self.measured.append(model)
        return {"x": 1}

    def run(self, *cells):
        return run.run_missing(self.workspace, "minutes", cells)


@pytest.fixture
def bench(monkeypatch, tmp_path):
    return Bench(monkeypatch, tmp_path)


def test_run_missing_skips_existing_cells(bench):
    (path,) = bench.run(("prolip", 0))
    assert path == bench.workspace.cells / "minutes" / "prolip-0.json"
    assert read_cell(path).numbers == {"x": 1}
    assert bench.run(("prolip", 0)) == []
    assert bench.run(("prolip", 0), ("prolip", 1)) == [path.with_name("prolip-1.json")]
    assert [name for name, _ in bench.trained] == ["prolip-0", "prolip-1"]


@pytest.mark.slow
def test_run_missing_reruns_changed_recipe(bench):
    first = read_cell(bench.run(("prolip", 0))[0])
    bench.lr = 2e-3
    second = read_cell(bench.run(("prolip", 0))[0])
    assert first.fingerprint != second.fingerprint
    folder = bench.workspace.run_folder("minutes", "prolip", 0)
    assert is_run(folder)
    assert is_run(folder.with_name("prolip-0.old"))
    bench.lr = 3e-3
    bench.run(("prolip", 0))
    assert is_run(folder.with_name("prolip-0.old2"))


def test_a_run_that_was_trained_but_not_measured_is_not_trained_again(bench, monkeypatch):
    def stopped(model):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench.run(("prolip", 0))
    model = bench.workspace.run_folder("minutes", "prolip", 0) / "model"
    before = model.stat().st_mtime_ns
    monkeypatch.undo()
    bench.__init__(monkeypatch, bench.workspace.out)
    assert len(bench.run(("prolip", 0))) == 1
    assert bench.trained == [("prolip-0", True)]
    assert model.stat().st_mtime_ns == before


def test_a_training_that_was_asked_to_stop_leaves_no_cell(bench, monkeypatch):
    monkeypatch.setattr(run, "train", lambda config, resume: config.out)
    with pytest.raises(KeyboardInterrupt):
        bench.run(("prolip", 0))
    assert bench.measured == []
    assert not bench.workspace.cells.exists()


def test_committed_cells_count_as_done(bench):
    cell = read_cell(bench.run(("prolip", 0))[0])
    (bench.workspace.cells / "minutes" / "prolip-0.json").unlink()
    write_cell(bench.workspace.committed, cell)
    assert bench.run(("prolip", 0)) == []
    bench.workspace = replace(bench.workspace, committed=None)
    assert len(bench.run(("prolip", 0))) == 1


def test_untrained_models_differ_by_seed_and_train_nothing(bench):
    bench.run(("untrained", 0), ("untrained", 1))
    first, second = bench.measured
    assert not first.image.positions.equal(second.image.positions)
    assert bench.trained == []


def test_by_default_all_variants_with_their_seeds(bench):
    assert run.choose_cells(None, None) == [
        *(("prolip", seed) for seed in range(3)), ("clip", 0), *(("prolip-styled", seed) for seed in range(2)),
            *(("clip-styled", seed) for seed in range(2)), *(("untrained", seed) for seed in range(3)),
            *(("untrained-varied", seed) for seed in range(3)), ("cost", 0),
    ]  # fmt: skip
    assert run.choose_cells(["clip"], [0, 4]) == [("clip", 0), ("clip", 4)]


@pytest.mark.parametrize(
    ("variants", "seeds", "message"),
    [
        (
            ["clop"],
            None,
            "variant 'clop' is not one of .*'prolip', 'clip', .*'untrained', 'untrained-varied', 'cost'",
        ),
        (None, [-1], "seed must be"),
    ],
)
def test_choose_cells_rejects_unknown(bench, variants, seeds, message):
    with pytest.raises(ValueError, match=message):
        run.choose_cells(variants, seeds)
