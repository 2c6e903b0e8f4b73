from dataclasses import replace

import pytest

from prolip.losses.objective import Objective
from prolip.training import overrides
from prolip.training.config import Stage, TrainConfig

CONFIG = TrainConfig(initial_stages=(Stage(samples=100_000, objective=Objective(c=3.0)),))


def value(config, key):
    for part in key.split("."):
        config = config[int(part)] if part.isdecimal() else getattr(config, part)
    return config


@pytest.mark.parametrize(
    "values",
    [
        {
            "optimizer.lr=1e-3": 1e-3,
            "seed=7": 7,
            "samples=1_000_000": 1_000_000,
            "out=runs/a=b": "runs/a=b",
            "objective.eps=-10.5": -10.5,
            "model.init_logit_bias=-4.85": -4.85,
            "initial_stages.0.objective.clip=1": 1.0,
            "data.augmentation.scale=0.5 1": (0.5, 1.0),
            "optimizer.betas=0.9 0.98": (0.9, 0.98),
            "data.source=a.tar b.tar": ("a.tar", "b.tar"),
            "data.augment=false": False,
            "log.tensorboard=true": True,
            "model.uncertainty=none": "none",
            "model.image-size=96": 96,
        },
        {
            "data.source='with space.tar' b.tar": ("with space.tar", "b.tar"),
            "checkpoint.every_minutes=None": None,
        },
        {"data.source=pipe:cat a.tar": ("pipe:cat a.tar",), "parallel.compile=True": True},
        {"data.source=scenes:simple,size=48,seed=1": ("scenes:simple,size=48,seed=1",)},
        {"data.source=https://h/a.tar?sig=x==": ("https://h/a.tar?sig=x==",)},
    ],
)
def test_keys_and_their_values(values):
    changed = overrides.apply_overrides(CONFIG, list(values))
    for word, expected in values.items():
        assert value(changed, word.partition("=")[0].replace("-", "_")) == expected


def test_a_key_without_a_value_is_none_of_several():
    filled = overrides.apply_overrides(CONFIG, ["data.source=a.tar"])
    assert overrides.apply_overrides(filled, ["data.source="]).data.source == ()


@pytest.mark.parametrize(
    "words",
    [
        ["--optimizer.lr=1e-3"],
        ["--optimizer.lr", "1e-3"],
        ["--optimizer.lr", "1e-2", "optimizer.lr=1e-3"],
    ],
)
def test_other_spellings(words):
    assert overrides.apply_overrides(CONFIG, words) == replace(
        CONFIG, optimizer=replace(CONFIG.optimizer, lr=1e-3)
    )


def test_nothing_else_changes():
    assert overrides.apply_overrides(CONFIG, []) == CONFIG
    changed = overrides.apply_overrides(CONFIG, ["seed=5"])
    assert changed != CONFIG
    assert overrides.apply_overrides(changed, ["seed=0"]) == CONFIG


def test_forms_may_be_mixed_and_the_last_word_wins():
    args = ["--data.source", "a.tar", "b=c.tar", "seed=3", "--parallel.compile", "--seed", "4", "out=x"]
    changed = overrides.apply_overrides(CONFIG, args)
    assert changed.data.source == ("a.tar", "b=c.tar")
    assert (changed.seed, changed.parallel.compile, changed.out) == (4, True, "x")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["optimiser.lr=1"], "no key 'optimiser.lr'; did you mean optimizer.lr="),
        (["lr=1"], "did you mean optimizer.lr="),
        (["--bacth_size", "3"], "did you mean batch_size="),
        (["initial_stages.1.samples=3"], "did you mean initial_stages.0.samples="),
        (["objective=3"], "no key 'objective'"),
        (["zzzzzz=1"], "prolip train RECIPE --help"),
        (["fast"], "'fast' belongs to no key"),
        (["--seed", "3", "4"], "'4' belongs to no key"),
        (["data.source='a b"], "can't be split"),
    ],
)
def test_unknown_keys_suggest_similar_ones(args, message):
    with pytest.raises(ValueError, match=message):
        overrides.apply_overrides(CONFIG, args)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed=x", "--seed"),
        ("optimizer.lr=-1", "lr must be positive"),
        ("model.uncertainty=some", "multihead"),
        ("samples=3", "samples must be at least batch_size"),
        ("data.augment=maybe", "data.augment"),
    ],
)
def test_invalid_values_exit_with_2_and_a_reason(word, message, capsys):
    with pytest.raises(SystemExit) as end:
        overrides.apply_overrides(CONFIG, [word])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_take_keys_splits_arguments():
    args = ["row=a=b", "seed=1", "--level", "hard", "rows=2", "--row=c", "--seed", "2"]
    taken, rest = overrides.take_keys(args, ["row", "level"])
    assert taken == {"row": "c", "level": "hard"}
    assert rest == ["seed=1", "rows=2", "--seed", "2"]
    with pytest.raises(ValueError, match=r"--row.*row="):
        overrides.take_keys(["--row"], ["row"])


def test_every_key_is_shown_with_its_value(capsys):
    overrides.print_keys(CONFIG, "prolip train it")
    text = capsys.readouterr().out
    assert "usage: prolip train it" in text
    for key in overrides.list_keys(CONFIG):
        assert f"--{key}" in text, key
    assert "1280000000" in text


def test_values_end_at_the_next_key_however_it_is_spelt():
    found = overrides.apply_overrides(
        TrainConfig(), ["--data.source", "a", "b", "optimizer.weight-decay=0.1"]
    )
    assert (found.data.source, found.optimizer.weight_decay) == (("a", "b"), 0.1)
    assert overrides.apply_overrides(TrainConfig(), ["out=a\nb"]).out == "a\nb"


def test_overrides_do_not_add_stages():
    with pytest.raises(ValueError, match=r"initial_stages\.0\.samples"):
        overrides.apply_overrides(TrainConfig(), ["initial_stages.0.samples=64"])
