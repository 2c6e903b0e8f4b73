"""A run goes on only in its own folder, and the folder says what it was."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import torch

from prolip.losses.objective import Objective
from prolip.model.create import create
from prolip.training import run_folder
from prolip.training.config import (
    DataConfig,
    HeldOutConfig,
    LogConfig,
    OptimizerConfig,
    ParallelConfig,
    Stage,
    TrainConfig,
)
from prolip.training.recipes import list_recipes
from prolip.training.recipes.nano import recipe
from prolip.training.run_folder import (
    compare_configs,
    is_run,
    move_aside,
    read_config,
    read_empty_model,
    read_sessions,
    require_usable_folder,
    write_run_files,
)


@pytest.fixture
def config():
    stage = Stage(samples=64, objective=Objective(ppcl=0, clip=1), source=("scenes:simple",))
    return replace(
        recipe(), initial_stages=(stage,), optimizer=OptimizerConfig(ema_decay=0.9, frozen=("image",))
    )


def start(folder, config, model, step=0):
    write_run_files(
        folder, config, model, [{"source": "scenes:simple", "samples": 7, "fingerprint": "ab"}], step
    )


def test_a_new_or_an_empty_folder_is_a_place(tmp_path, config):
    require_usable_folder(tmp_path / "new" / "deep", config, resume=False)
    require_usable_folder(tmp_path, config, resume=False)
    require_usable_folder(tmp_path, config, resume=True)
    assert list(tmp_path.iterdir()) == [], "nothing is made"


def test_a_file_in_the_way_is_a_sentence(tmp_path, config):
    (tmp_path / "run").write_text("")
    with pytest.raises(ValueError, match=r"run is a file.*--out"):
        require_usable_folder(tmp_path / "run", config, resume=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", ""),
        ("config.json", "{}"),
        ("config.json", "no JSON"),
        ("config.json", '{"format": "prolip"}'),
    ],
)
def test_a_folder_of_other_things_is_left_alone(tmp_path, config, resume, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"holds other files.*--out"):
        require_usable_folder(tmp_path, config, resume)
    assert not is_run(tmp_path)


def test_what_a_start_that_was_killed_left_is_no_other_thing(tmp_path, config):
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    (tmp_path / f".config.json.{dead.pid}.140").write_text('{"for')
    require_usable_folder(tmp_path, config, resume=True)


def test_a_run_is_gone_on_with_only_if_asked(tmp_path, config, nano):
    start(tmp_path, config, nano)
    assert is_run(tmp_path)
    require_usable_folder(tmp_path, config, resume=False)  # nothing was saved yet
    saved(tmp_path)
    require_usable_folder(tmp_path, config, resume=True)
    with pytest.raises(ValueError, match="already holds a run: continue it with --resume"):
        require_usable_folder(tmp_path, config, resume=False)


def saved(folder):
    """As if there were something to go on from."""
    (folder / "checkpoints" / "step-000000005").mkdir(parents=True)


def test_another_run_is_refused_with_every_difference(tmp_path, config, nano):
    start(tmp_path, config, nano)
    saved(tmp_path)
    other = replace(
        config,
        seed=4,
        objective=Objective(vib=0.5),
        optimizer=OptimizerConfig(ema_decay=None, frozen=("image",)),
    )
    with pytest.raises(ValueError, match="holds a run with another config") as caught:
        require_usable_folder(tmp_path, other, resume=True)
    said = str(caught.value)
    for part in (
        "seed was 0, now it is 4", "objective.vib was 0.0001, now it is 0.5",
        "optimizer.ema_decay was 0.9, now it is None"
    ):  # fmt: skip
        assert part in said
    assert said.count(" was ") == 3, "and nothing that is the same"


def test_without_a_checkpoint_there_is_nothing_that_must_stay(tmp_path, config, nano):
    start(tmp_path, config, nano)
    (tmp_path / "checkpoints" / ".step-000000005.partial").mkdir(parents=True)
    require_usable_folder(tmp_path, replace(config, seed=4), resume=True)


def test_keys_that_change_nothing_may_differ(tmp_path, config, nano):
    start(tmp_path, config, nano)
    saved(tmp_path)
    other = replace(
        config, out="elsewhere", log=LogConfig(every_steps=7), held_out=HeldOutConfig(source=None),
        checkpoint=replace(config.checkpoint, every_steps=9, keep_last=1),
        nonfinite=replace(config.nonfinite, max_skipped_steps=3),
        data=replace(config.data, workers=3, max_bad_fraction=0.5),
        parallel=ParallelConfig(
            strategy="ddp", accumulation_steps=4, activation_checkpointing=True, compile=True, device="cpu"
        ),
    )  # fmt: skip
    require_usable_folder(tmp_path, other, resume=True)
    assert compare_configs(config.to_dict(), other.to_dict()) == []
    with pytest.raises(ValueError, match=r"parallel\.precision was 'float32'"):
        require_usable_folder(
            tmp_path, replace(config, parallel=ParallelConfig(precision="float64")), resume=True
        )


def keys(config, at=""):
    for field in fields(config):
        yield at + field.name
        if is_dataclass(getattr(config, field.name)):
            yield from keys(getattr(config, field.name), f"{at}{field.name}.")


def test_free_keys_exist():
    assert set(run_folder.RESUME_KEYS) <= set(keys(TrainConfig()))


def test_differences_are_those_of_plain_values():
    assert compare_configs({"a": (1, 2)}, {"a": [1, 2]}) == []
    assert compare_configs({"a": {"b": 1, "c": (1,)}}, {"a": {"b": 1, "c": [2]}}) == [("a.c", [1], [2])]
    assert compare_configs({"a": 1}, {"b": 1}) == [("a", 1, None), ("b", None, 1)]
    assert compare_configs({"data": {"workers": 1, "window": 1}}, {"data": {"workers": 2, "window": 2}}) == [
        ("data.window", 1, 2)
    ]


def test_the_config_comes_back(tmp_path, config, nano):
    start(tmp_path, config, nano)
    assert read_config(tmp_path) == config
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["data"] == [{"source": "scenes:simple", "samples": 7, "fingerprint": "ab"}]
    (tmp_path / "config.json").write_text('{"format": "prolip-run"}')
    with pytest.raises(ValueError, match="is not the config of a training run"):
        read_config(tmp_path)


def test_a_resumed_run_writes_down_what_it_is_told_now(tmp_path, config, nano):
    start(tmp_path, config, nano)
    other = replace(config, log=LogConfig(every_steps=7))
    start(tmp_path, other, nano, step=5)
    assert read_config(tmp_path) == other


def test_each_start_is_a_session_with_its_versions(tmp_path, config, nano):
    for step in (0, 12):
        start(tmp_path, config, nano, step)
    first, second = read_sessions(tmp_path)
    assert (first["from_step"], second["from_step"]) == (0, 12)
    assert torch.__version__ in json.dumps(second)
    assert first.keys() == second.keys()


def test_the_model_comes_back_but_for_its_weights(tmp_path, config, tokenizer):
    model = create("nano", tokenizer, seed=3)
    model.origin = {"from": "elsewhere"}
    start(tmp_path, config, model)
    found = read_empty_model(tmp_path)
    assert found.config == model.config
    assert found.origin == {"from": "elsewhere"}
    assert (
        found.tokenize(["a red star", "a thing"]).tolist()
        == model.tokenize(["a red star", "a thing"]).tolist()
    )
    shapes = {name: (value.shape, value.device) for name, value in model.state_dict().items()}
    assert {name: (value.shape, value.device) for name, value in found.state_dict().items()} == shapes


def test_what_a_killed_process_left_is_made_good(tmp_path, config, nano):
    for name in ("model", "best"):
        (tmp_path / f".{name}.old").mkdir(parents=True)
        (tmp_path / f".{name}.old" / "config.json").write_text(name)
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    (tmp_path / f".metrics.jsonl.{dead.pid}.140").write_text("")
    start(tmp_path, config, nano)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "tokenizer.json", "sessions.jsonl", "model", "best"
    }  # fmt: skip
    assert (tmp_path / "best" / "config.json").read_text() == "best"


def test_every_recipe_is_written_and_read_back(tmp_path):
    from prolip.training.recipes import load_recipe

    for name in list_recipes():
        config = load_recipe(name).build_config()
        plain = json.loads(json.dumps(config.to_dict()))
        assert TrainConfig.from_dict(plain) == config, name


def test_nobody_else_trains_in_the_folder(tmp_path, config):
    """In another process: within one, such locks are no obstacle."""
    with run_folder.lock_folder(tmp_path):
        child = os.fork()
        if child == 0:
            try:
                with run_folder.lock_folder(tmp_path):
                    os._exit(0)
            except ValueError as error:
                os._exit(7 if "another process is training in" in str(error) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with run_folder.lock_folder(tmp_path):
        require_usable_folder(tmp_path, config, resume=False)  # the lock itself is no other thing


@pytest.mark.parametrize(
    ("count", "job", "resumes"), [("0", "a", False), ("1", "a", True), ("1", "b", False)]
)
def test_torchrun_goes_on_with_what_it_began_itself(tmp_path, config, nano, monkeypatch, count, job, resumes):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    assert not run_folder.is_torchrun_restart(tmp_path)
    start(tmp_path, config, nano)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", job)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    assert run_folder.is_torchrun_restart(tmp_path) == resumes


def test_the_command_to_go_on_is_for_a_shell():
    assert run_folder.format_resume_command(Path("runs/mine")) == "prolip train runs/mine --resume"
    assert run_folder.format_resume_command(Path("nano")) == "prolip train ./nano --resume"
    words = shlex.split(run_folder.format_resume_command(Path("/a b/[c]'s")))
    assert words == ["prolip", "train", "/a b/[c]'s", "--resume"]


def test_a_config_with_a_hole_is_not_filled_with_defaults(tmp_path, config, nano):
    start(tmp_path, config, nano)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["config"]["samples"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="its config lacks samples"):
        read_config(tmp_path)


def test_a_run_of_the_old_format_is_refused_with_both_versions(tmp_path, config, nano):
    start(tmp_path, config, nano)
    saved(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["version"] == run_folder.VERSION == 2
    (tmp_path / "config.json").write_text(json.dumps({**content, "version": 1, "config": {"batch": 8}}))
    message = f"{tmp_path} has run format 1; this version of prolip reads format 2. .*--out"
    with pytest.raises(ValueError, match=message):
        read_config(tmp_path)
    with pytest.raises(ValueError, match=message):
        require_usable_folder(tmp_path, config, resume=True)


def test_a_run_that_is_put_aside_keeps_all_it_has_and_makes_room(tmp_path, config, nano):
    for number, name in enumerate(("run.v1.old", "run.v1.old2", "run.v1.old3")):
        start(tmp_path / "run.v1", replace(config, seed=number), nano)
        assert move_aside(tmp_path / "run.v1") == tmp_path / name
        assert not (tmp_path / "run.v1").exists()
    seeds = {path.name: read_config(path).seed for path in tmp_path.iterdir()}
    assert seeds == {"run.v1.old": 0, "run.v1.old2": 1, "run.v1.old3": 2}


def test_what_is_put_aside_takes_nobodys_name(tmp_path, config, nano):
    (tmp_path / "run.old").write_text("mine")
    start(tmp_path / "run", config, nano)
    assert move_aside(tmp_path / "run") == tmp_path / "run.old2"
    assert (tmp_path / "run.old").read_text() == "mine"


@pytest.mark.parametrize("name", ["model", "origin", "config"])
def test_a_damaged_config_of_a_run_gets_a_sentence(tmp_path, config, nano, name):
    start(tmp_path, config, nano)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    read = read_config if name == "config" else read_empty_model
    for broken in ({**content, name: 5}, {key: value for key, value in content.items() if key != name}):
        path.write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=r"config\.json"):
            read(tmp_path)


def test_addresses_of_a_run_are_those_of_all_its_data():
    """What may hold a command: training data of every stage, held-out data, reference."""
    config = replace(
        TrainConfig(),
        data=DataConfig(source=("a.tar", "pipe:one")),
        held_out=HeldOutConfig(source="pipe:two", reference="pipe:three"),
    )
    assert run_folder.list_addresses(config)[-2:] == ["pipe:two", "pipe:three"]
    assert {"a.tar", "pipe:one"} <= set(run_folder.list_addresses(config))
