from dataclasses import replace
from pathlib import Path

import pytest

from prolip.losses.objective import Objective
from prolip.training import overrides
from prolip.training.config import DataConfig, OptimizerConfig, Stage, TrainConfig
from prolip.training.recipes import load_recipe

CONFIG = TrainConfig(initial_stages=(Stage(samples=100_000, objective=Objective(c=3.0)),))


def value(config, key):
    for part in key.split("."):
        config = config[int(part)] if part.isdecimal() else getattr(config, part)
    return config


VALUES = {
    "optimizer.lr": 1e-3,
    "seed": 7,
    "out": "runs/a=b",
    "initial_stages.0.objective.clip": 1.0,
    "data.augmentation.scale": (0.5, 1.0),
    "data.source": ("a.tar", "b.tar"),
    "data.augment": False,
    "log.tensorboard": True,
    "checkpoint.every_minutes": None,
}


def test_keys_and_their_values():
    changed = overrides.apply_overrides(CONFIG, VALUES)
    assert {key: value(changed, key) for key in VALUES} == VALUES
    before = {key: value(CONFIG, key) for key in VALUES}
    assert overrides.apply_overrides(changed, before) == CONFIG, "nothing else was changed"
    assert overrides.apply_overrides(CONFIG, {}) == CONFIG


@pytest.mark.parametrize(
    ("given", "key", "expected"),
    [
        ({"out": Path("runs") / "x"}, "out", "runs/x"),
        ({"data.source": "a b.csv"}, "data.source", ("a b.csv",)),
        ({"data.source": [Path("a"), "b"]}, "data.source", ("a", "b")),
        ({"data.source": ()}, "data.source", ()),
        ({"data.source": ["a", "b"], "data.weights": [1, 3]}, "data.weights", (1.0, 3.0)),
        ({"data.captions": None}, "data.captions", None),
        ({"optimizer": {"lr": 1, "eps": 1e-8}}, "optimizer.lr", 1.0),
        ({"optimizer": OptimizerConfig(lr=3.0)}, "optimizer", OptimizerConfig(lr=3.0)),
        ({"device": "cpu"}, "parallel.device", "cpu"),
        ({"workers": 0}, "data.workers", 0),
    ],
)
def test_other_spellings_of_values(given, key, expected):
    found = value(overrides.apply_overrides(CONFIG, given), key)
    assert found == expected
    assert type(found) is type(expected)


def test_values_are_checked_together():
    """Each alone would be refused: fewer samples than a batch has, a larger batch than samples."""
    small = replace(CONFIG, samples=32, batch_size=16, initial_stages=())
    changed = overrides.apply_overrides(small, {"samples": 8, "batch_size": 4})
    assert (changed.samples, changed.batch_size) == (8, 4)
    with pytest.raises(ValueError, match="samples must be at least batch_size"):
        overrides.apply_overrides(small, {"samples": 8})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("optimiser.lr", "no key 'optimiser.lr'; did you mean 'optimizer.lr'\\?"),
        ("lr", "did you mean 'optimizer.lr'"),
        ("bacth_size", "did you mean 'batch_size'\\?"),
        ("initial_stages.1.samples", "did you mean 'initial_stages.0.samples'"),
        ("model", "did you mean 'model.size'"),
        ("varient", "did you mean 'variant'\\?"),
        ("zzzzzz", "docs/training.md"),
    ],
)
def test_unknown_keys_suggest_similar_ones(key, message):
    with pytest.raises(ValueError, match=message):
        overrides.apply_overrides(CONFIG, {key: 3}, ["variant"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": "x"}, "seed must be a whole number"),
        ({"optimizer.lr": -1}, "lr must be positive"),
        ({"model.uncertainty": "some"}, "uncertainty.*some"),
        ({"data.augment": "maybe"}, "augment must be true or false"),
    ],
)
def test_invalid_values_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        overrides.apply_overrides(CONFIG, given)


def test_overrides_do_not_add_stages():
    for key in ("initial_stages.0.samples", "initial_stages"):
        with pytest.raises(ValueError, match=rf"'{key}'.*no initial stages"):
            overrides.apply_overrides(TrainConfig(), {key: 64})


# -- initial stages ---------------------------------------------------------------------------------------------------

STAGES = TrainConfig(
    objective=Objective(ppcl=1.0, inclusion=0.5, c=50.0),
    data=DataConfig(source=("scenes:simple",)),
    initial_stages=(
        Stage(
            samples=100_000,
            objective=Objective(ppcl=0.0, clip=1.0, inclusion=0.0, c=50.0),
            source=("scenes:a",),
        ),
        Stage(samples=100_000, objective=Objective(ppcl=0.0, clip=1.0, inclusion=0.5, c=50.0)),
    ),
)


def test_stages_follow_the_data_that_the_user_names():
    changed = overrides.apply_overrides(STAGES, {"data.source": "train.csv"})
    assert [stage.source for stage in changed.initial_stages] == [(), ()]
    same = overrides.apply_overrides(STAGES, {"optimizer.lr": 1e-3})
    assert same.initial_stages == STAGES.initial_stages


def test_a_stage_keeps_the_data_that_the_user_gave_it():
    values = {"data.source": "train.csv", "initial_stages.0.source": "scenes:a"}
    assert overrides.apply_overrides(STAGES, values).initial_stages[0].source == ("scenes:a",)


def test_objective_reaches_the_stages_that_had_the_value_of_the_run(caplog):
    changed = overrides.apply_overrides(STAGES, {"objective.c": 10.0, "objective.inclusion": 0.1})
    assert [stage.objective.c for stage in changed.stages] == [10.0, 10.0, 10.0]
    assert [stage.objective.inclusion for stage in changed.stages] == [0.0, 0.1, 0.1]
    (message,) = caplog.messages
    assert "objective.inclusion 0.1" in message
    assert "stage 1 (0.0) of 3" in message
    assert "--initial-stages.0.objective.inclusion" in message


def test_a_value_that_the_user_gave_a_stage_stays_and_needs_no_message(caplog):
    values = {"objective.c": 10.0, "initial_stages.0.objective.c": 50.0}
    changed = overrides.apply_overrides(STAGES, values)
    assert [stage.objective.c for stage in changed.stages] == [50.0, 10.0, 10.0]
    assert not caplog.messages


def test_miniature_reads_own_data_in_every_stage():
    config = load_recipe("miniature").build_config({"data.source": "train.csv", "objective.vib": 0.1})
    assert [stage.source or config.data.source for stage in config.stages] == [("train.csv",)] * 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"masking.token_mask_ratio": 0.5}, None),
        ({"masking.patch_mask_ratio": 0.5, "masking.text_fraction": 0.0}, None),
        ({"masking.method": "general"}, None),
        (
            {"masking.token_mask_ratio": 0.5, "masking.method": "general"},
            "--masking.method mask, drop or crop",
        ),
        ({"masking.token_mask_ratio": 0.5, "masking.text_fraction": 0.0}, "masking.text_fraction is 0"),
        ({"masking.patch_mask_ratio": 0.5, "masking.image_fraction": 0.0}, "masking.image_fraction is 0"),
        ({"masking.patch_mask_ratio": 0.5, "objective.masked": 0.0}, "objective.masked is 0"),
    ],
)
def test_a_mask_ratio_without_effect_is_said(changes, reason, caplog):
    overrides.apply_overrides(replace(CONFIG, initial_stages=()), changes)
    messages = [message for message in caplog.messages if "has no effect" in message]
    assert [reason in message for message in messages] == ([True] if reason else [])
