"""Flags of `prolip train`: each is a key of the config, and a wrong one gets the right one's name."""

import re
from dataclasses import replace

import pytest

from prolip.cli import train_flags
from prolip.losses.objective import Objective
from prolip.training.config import Stage, TrainConfig
from prolip.training.overrides import apply_overrides
from prolip.training.recipes import Recipe

CONFIG = TrainConfig(out="runs/it", initial_stages=(Stage(samples=100_000, objective=Objective(c=3.0)),))


def make(seed: int = 0, quick: bool = False) -> TrainConfig:
    """A recipe whose parameter hides a key of the config.

    Args:
        seed: Twice that of the run.
        quick: Fewer samples.
    """
    return replace(CONFIG, seed=2 * seed, samples=10**6 if quick else CONFIG.samples)


RECIPE = Recipe("it", "", make)
PLAIN = Recipe("plain", "", lambda: CONFIG)


def parse(*words):
    return train_flags.parse_flags(PLAIN, words)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--optimizer.lr", "1e-3"], {"optimizer.lr": 1e-3}),
        (["--optimizer.lr=1e-3"], {"optimizer.lr": 1e-3}),
        (["--optimizer.lr", "1e-2", "--optimizer.lr", "1e-3"], {"optimizer.lr": 1e-3}),
        (["--seed", "7", "--samples", "1_000_000"], {"seed": 7, "samples": 1_000_000}),
        (["--out", "runs/a=b"], {"out": "runs/a=b"}),
        (["--out", "seed=3"], {"out": "seed=3"}),
        (["--out", "a\nb"], {"out": "a\nb"}),
        (["--objective.eps", "-10.5"], {"objective.eps": -10.5}),
        (["--model.init-logit-bias", "-1e-3"], {"model.init_logit_bias": -1e-3}),
        (["--model.init_logit_bias", "-4"], {"model.init_logit_bias": -4.0}),
        (["--initial-stages.0.objective.clip", "1"], {"initial_stages.0.objective.clip": 1.0}),
        (["--data.augmentation.scale", "0.5", "1"], {"data.augmentation.scale": (0.5, 1.0)}),
        (
            ["--data.source", "a.tar", "b=c.tar", "--seed", "4"],
            {"data.source": ("a.tar", "b=c.tar"), "seed": 4},
        ),
        (["--data.source=a b"], {"data.source": ("a b",)}),
        (["--data.source"], {"data.source": ()}),
        (["--data.source", "pipe:cat a.tar"], {"data.source": ("pipe:cat a.tar",)}),
        (["--data.source", "scenes:simple,seed=1"], {"data.source": ("scenes:simple,seed=1",)}),
        (["--data.source", "https://h/a.tar?sig=x=="], {"data.source": ("https://h/a.tar?sig=x==",)}),
        (["--data.no-augment", "--parallel.compile"], {"data.augment": False, "parallel.compile": True}),
        (["--log.tensorboard", "--seed", "1"], {"log.tensorboard": True, "seed": 1}),
        (["--log.no-tensorboard"], {"log.tensorboard": False}),
        (["--log.tensorboard", "None"], {"log.tensorboard": None}),
        (["--checkpoint.every-minutes", "None"], {"checkpoint.every_minutes": None}),
        (["--model.uncertainty", "none"], {"model.uncertainty": "none"}),
        (["--device", "cpu", "--workers=2"], {"parallel.device": "cpu", "data.workers": 2}),
        ([], {}),
    ],
)
def test_flags_and_their_values(words, values):
    assert parse(*words) == apply_overrides(CONFIG, values)


def test_parameters_of_the_recipe_come_first():
    words = ["--optimizer.lr", "1", "--seed", "3", "--quick", "--out", "x"]
    expected = apply_overrides(make(seed=3, quick=True), {"optimizer.lr": 1, "out": "x"})
    assert train_flags.parse_flags(RECIPE, words) == expected
    assert expected.seed == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--optimiser.lr", "1"],
            r"no option --optimiser.lr of prolip train it: did you mean --optimizer.lr\?",
        ),
        (["--lr=1"], r"did you mean --optimizer.lr\?"),
        (["--bacth_size", "3"], r"did you mean --batch-size\?"),
        (["--quik"], r"did you mean --quick\?"),
        (["--data.no-augmnt"], "did you mean --data.augment"),
        (["--seed", "3", "--no-seed"], "no option --no-seed"),
        (["--initial-stages.1.samples", "3"], "did you mean --initial-stages.0.samples"),
        (["--data", "a.csv"], "did you mean --data.source"),
        (
            ["--masking.ratio=0.5"],
            r"did you mean --masking.patch-mask-ratio or --masking.token-mask-ratio\?$",
        ),
        (
            ["--mask-ratio", "0.5"],
            r"did you mean --masking.patch-mask-ratio or --masking.token-mask-ratio\?$",
        ),
        (["--zzzzzz"], "prolip train it --help-all lists"),
        (["zzzzzz=1"], "prolip train it --help-all lists"),
        (["--steps", "100"], r"did you mean --samples\?"),
        (["--epochs=3"], r"did you mean --samples\?"),
        (["max_steps=100"], r"did you mean --samples\?"),
        (["--output-dir", "x"], r"did you mean --out\?"),
        (["fast"], "'fast' belongs to no option"),
        (["--batch-size", "3", "4"], "'4' belongs to no option"),
        (["--data.augment", "False"], r"write --data.no-augment$"),
        (["--data.augment=true"], r"write --data.augment$"),
    ],
)
def test_words_that_are_no_flags_get_a_suggestion(words, message):
    with pytest.raises(ValueError, match=message):
        train_flags.parse_flags(RECIPE, words)


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("optimizer.lr=1e-3", "write --optimizer.lr 1e-3"),
        ("batch_size=3", "write --batch-size 3"),
        ("out=a b", "write --out 'a b'"),
        ("data.source=a b", "write --data.source a b"),
        ("data.source=pipe:cat a", "write --data.source 'pipe:cat a'"),
        ("data.augment=false", "write --data.no-augment"),
        ("log.tensorboard=None", "write --log.tensorboard None"),
        ("quick=true", "write --quick"),
        ("lr=3", "did you mean --optimizer.lr 3?"),
    ],
)
def test_key_value_gets_the_flag_to_write(word, flag):
    for words in ([word], ["--seed", "1", word]):
        with pytest.raises(ValueError, match=rf"^{re.escape(word)}: .*{re.escape(flag)}$"):
            train_flags.parse_flags(RECIPE, words)


def test_key_value_among_sources_is_no_source():
    with pytest.raises(ValueError, match="write --batch-size 3"):
        parse("--data.source", "a.tar", "batch-size=3")


def test_the_suggested_flags_are_right():
    """What the message says to write instead of key=value sets that key."""
    for word, values in (("data.augment=false", {"data.augment": False}), ("out=a", {"out": "a"})):
        with pytest.raises(ValueError, match="write ") as error:
            parse(word)
        words = str(error.value).partition("write ")[2].split()
        assert parse(*words) == apply_overrides(CONFIG, values)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch-size", "x"], "--batch-size"),
        (["--batch-size"], "--batch-size"),
        (["--optimizer.lr", "-1"], "lr must be positive"),
        (["--model.uncertainty", "some"], "multihead"),
        (["--samples", "3"], "samples must be at least batch_size"),
        (["--log.tensorboard=maybe"], "--log.tensorboard"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_invalid_values_exit_with_2_and_a_reason(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        train_flags.parse_flags(RECIPE, words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_parameter_without_a_type_has_that_of_its_default():
    recipe = Recipe("it", "", lambda times=2: replace(CONFIG, seed=times))
    assert train_flags.parse_flags(recipe, ["--times", "3"]).seed == 3
    with pytest.raises(SystemExit):
        train_flags.parse_flags(recipe, ["--times", "few"])


def test_flags_do_not_add_stages():
    with pytest.raises(ValueError, match="no initial stages"):
        train_flags.parse_flags(Recipe("it", "", lambda: TrainConfig()), ["--initial-stages.0.samples", "64"])


def test_flags_reach_the_stages_as_in_python(caplog):
    values = {"data.source": ("a.csv",), "objective.eps": -3.0, "objective.c": 7.0}
    words = ["--data.source", "a.csv", "--objective.eps", "-3", "--objective.c", "7"]
    config = parse(*words)
    assert config == apply_overrides(CONFIG, values)
    assert (config.initial_stages[0].objective.eps, config.initial_stages[0].objective.c) == (-3.0, 3.0)
    assert "objective.c 7.0" in caplog.text
    assert parse(*words, "--initial-stages.0.objective.eps", "-10").initial_stages[0].objective.eps == -10


def test_the_recipe_gets_the_keys_that_were_set():
    seen = []

    def finish(config, keys):
        seen.append(keys)
        return replace(config, seed=9)

    recipe = replace(PLAIN, finish=finish)
    words = ["--optimizer.lr=1e-3", "--device", "cpu", "--data.no-augment", "--workers", "2"]
    assert train_flags.parse_flags(recipe, words).seed == 9
    assert seen[0] >= {"optimizer.lr", "parallel.device", "data.augment", "data.workers"}
    values = {"optimizer.lr": 1e-3, "device": "cpu", "data.augment": False}
    assert recipe.build_config(values).seed == 9
    assert seen[1] == {"optimizer.lr", "parallel.device", "data.augment"}
