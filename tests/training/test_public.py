"""`prolip.train`: a recipe or a config, with changes, as one call."""

import json
from pathlib import Path

import pytest

import prolip
from prolip.training import OptimizerConfig, TrainConfig, load_recipe, public, read_metrics


@pytest.fixture
def trained(monkeypatch):
    """What the trainer would have been called with."""
    calls = []

    def record(config, resume, unconfirmed=()):
        calls.append((config, resume))

    monkeypatch.setattr(public.trainer, "train", record)
    return calls


def config(name, **values):
    return load_recipe(name).build_config(values)


def test_train_takes_recipes_with_parameters_and_changes(trained):
    prolip.train("nano")
    prolip.train("nano", {"optimizer.lr": 1e-4, "seed": 1}, seed=2, out=Path("runs") / "x", resume=True)
    prolip.train("miniature", variant="clip", samples=25_600, optimizer={"lr": 1e-4})
    expected = config("nano", seed=2, out="runs/x", optimizer=OptimizerConfig(lr=1e-4, warmup_steps=5))
    assert trained == [
        (config("nano"), False),
        (expected, True),
        (config("miniature", variant="clip", samples=25_600, **{"optimizer.lr": 1e-4}), False),
    ]


def test_train_takes_a_config(trained):
    run = TrainConfig(seed=3, out="runs/y")
    prolip.train(run)
    prolip.train(run, {"data.source": "a.csv"}, resume=True, device="cpu")
    (_, first), (changed, second) = trained
    assert trained[0][0] == run
    assert (changed.data.source, changed.parallel.device, changed.out) == (("a.csv",), "cpu", "runs/y")
    assert (first, second) == (False, True)


def test_train_resumes_a_run_folder(trained, tmp_path):
    content = {"format": "prolip-run", "version": 2, "config": config("nano", seed=4).to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(content))
    prolip.train(tmp_path)
    assert trained == [(config("nano", seed=4, out=tmp_path), True)]


@pytest.mark.parametrize(
    ("recipe", "values", "message"),
    [
        ("nano", {"sampels": 64}, "did you mean 'samples'"),
        ("miniature", {"varient": "clip"}, "did you mean 'variant'"),
        ("miniature", {"variant": "klip"}, "variant.*klip"),
        (TrainConfig(), {"optimiser": {"lr": 1}}, "did you mean 'optimizer.lr'"),
        ({"seed": 3}, {}, "config must be a TrainConfig.*not dict"),
    ],
)
def test_train_refuses_what_cannot_be(trained, recipe, values, message):
    with pytest.raises(ValueError, match=message):
        prolip.train(recipe, **values)
    assert not trained


def test_train_writes_a_run_that_load_opens(tmp_path):
    quiet = {"log.display": "none", "log.tensorboard": False, "held_out.source": None}
    folder = prolip.train("nano", quiet, out=tmp_path / "run", samples=64, device="cpu")
    assert folder == tmp_path / "run"
    assert read_metrics(folder)[-1]["step"] == 2
    assert prolip.load(folder, device="cpu").config == prolip.load(folder / "model", device="cpu").config
