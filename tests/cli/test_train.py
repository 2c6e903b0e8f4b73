"""`prolip train`: what it passes to the trainer, its help and its messages."""

import json
import re
import subprocess
import sys
from types import ModuleType

import pytest

import prolip.training
from prolip import cli
from prolip.cli import train_flags
from prolip.training import overrides, recipes
from prolip.training.rank_sync import PeerError


def config(name, **values):
    return recipes.load_recipe(name).build_config(values)


@pytest.fixture
def trained(monkeypatch):
    """What the trainer would have been called with."""
    calls = []
    trainer = ModuleType("prolip.training.trainer")
    trainer.train = lambda run, resume, unconfirmed=(): calls.append((run, resume))
    monkeypatch.setitem(sys.modules, "prolip.training.trainer", trainer)
    monkeypatch.setattr(prolip.training, "trainer", trainer, raising=False)
    return calls


def test_train_command_calls_the_trainer(trained):
    cli.main(["train", "nano", "--seed", "4"])
    cli.main(["train", "nano", "--resume", "--optimizer.lr", "1e-4"])
    cli.main(["train", "--resume", "miniature", "--variant=clip", "--data.source", "a.csv", "b.csv"])
    assert trained == [
        (config("nano", seed=4), False),
        (config("nano", **{"optimizer.lr": 1e-4}), True),
        (config("miniature", variant="clip", **{"data.source": ["a.csv", "b.csv"]}), True),
    ]


def test_train_command_resumes_a_run_folder(trained, tmp_path):
    content = {
        "format": "prolip-run",
        "version": 2,
        "config": config("nano", seed=4, out="elsewhere").to_dict(),
        "other": 1,
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    cli.main(["train", str(tmp_path), "--log.every-steps", "3"])
    assert trained == [(config("nano", seed=4, out=tmp_path, **{"log.every_steps": 3}), True)]


@pytest.mark.parametrize(
    ("flags", "unconfirmed"),
    [
        ([], ["pipe:cat a"]),
        (["--trust-pipe"], []),
        (["--resume", "--data.source", "pipe:cat a", "b.csv"], []),
        (["--data.source=pipe:cat c"], []),
    ],
)
def test_train_command_passes_on_what_only_the_run_folder_says(
    trained, tmp_path, monkeypatch, flags, unconfirmed
):
    content = config("nano", **{"data.source": ["pipe:cat a", "b.csv"]}).to_dict()
    (tmp_path / "config.json").write_text(
        json.dumps({"format": "prolip-run", "version": 2, "config": content})
    )
    passed = []
    monkeypatch.setattr(
        prolip.training.trainer, "train", lambda run, resume, unconfirmed=(): passed.append(unconfirmed)
    )
    cli.main(["train", str(tmp_path), *flags])
    assert list(passed[0]) == unconfirmed
    cli.main(["train", "nano", "--data.source", "pipe:cat a"])
    assert passed[1] == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json is missing"),
        ("{}", "not the config of a training run"),
        ('{"format": "prolip-run", "version": 2, "config": {"sed": 1}}', "lacks batch_size"),
        ('{"format": "prolip-run", "version": 1, "config": {}}', "has run format 1"),
    ],
)
def test_train_command_refuses_other_folders(content, message, tmp_path, capsys, trained):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", str(tmp_path)])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not trained


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nono"], "the recipes are"),
        (["nano", "--optimiser.lr", "3"], "did you mean --optimizer.lr?"),
        (["nano", "optimizer.lr=3"], "write --optimizer.lr 3"),
        (["nano", "fast"], "'fast'"),
        (["--seed", "3", "nano"], "prolip train RECIPE --seed"),
    ],
)
def test_bad_arguments_end_with_one_message(words, message, capsys, trained, monkeypatch):
    monkeypatch.delenv("PROLIP_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", *words])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not trained


def test_nonfinite_loss_ends_with_one_message(trained, monkeypatch, capsys):
    def fail(run, resume, unconfirmed=()):
        raise FloatingPointError("step 3: the loss is nan")

    monkeypatch.setattr(prolip.training.trainer, "train", fail)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "nano"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "prolip: step 3: the loss is nan\n"


def test_failure_of_another_rank_ends_with_one_message(trained, monkeypatch, capsys):
    def fail(run, resume, unconfirmed=()):
        raise PeerError("rank 1 failed: OSError: no such file")

    monkeypatch.delenv("PROLIP_DEBUG", raising=False)
    monkeypatch.setattr(prolip.training.trainer, "train", fail)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "nano"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "prolip: rank 1 failed: OSError: no such file\n"


def test_other_errors_are_not_hidden(trained, monkeypatch):
    def fail(run, resume, unconfirmed=()):
        raise RuntimeError("a bug")

    monkeypatch.setattr(prolip.training.trainer, "train", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["train", "nano"])


def test_a_folder_that_is_called_like_a_recipe(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nano").mkdir()
    content = {"format": "prolip-run", "version": 2, "config": config("nano", seed=4).to_dict()}
    (tmp_path / "nano" / "config.json").write_text(json.dumps(content))
    cli.main(["train", "nano"])
    cli.main(["train", "./nano"])
    assert trained == [(config("nano"), False), (config("nano", seed=4, out="nano"), True)]
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    assert "./nano" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["miniature", "ablation_96m"])
def test_help_of_a_recipe_fits_two_screens(recipe, capsys):
    text = read_help(["train", recipe, "--help"], capsys)
    assert recipes.load_recipe(recipe).doc in text
    assert text.count("\n") < 120
    options = text.partition("usage:")[2]
    for key in train_flags.COMMON_KEYS:
        flag = "--" + key.replace("_", "-")
        assert len(re.findall(rf"^\W+{flag} ", options, re.MULTILINE)) == 1, flag
    assert "--optimizer.betas" not in text
    assert "--help-all" in text


def test_help_shows_the_values_of_the_recipe_and_its_parameters(capsys):
    text = read_help(["train", "ablation_96m", "--help"], capsys)
    assert "--row {clip,pml-clip-multihead" in text
    assert re.search(r"--samples INT +Samples seen in total. .default: 96000000.", text)
    text = read_help(["train", "ablation_96m", "--row", "pml", "-h"], capsys)
    assert "runs/ablation_96m/pml" in text


def test_complete_help_has_every_flag(capsys):
    text = read_help(["train", "miniature", "--help-all"], capsys)
    for key in (*overrides.list_keys(config("miniature")), "resume", "variant"):
        assert f"--{key.replace('_', '-')}" in text, key


def read_help(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    return capsys.readouterr().out


def test_the_list_of_recipes_needs_no_torch():
    code = (
        "import sys\nfrom prolip.__main__ import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    for name in recipes.list_recipes():
        assert f"  {name} " in run.stdout
